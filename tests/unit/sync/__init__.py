"""Tests: sync."""
