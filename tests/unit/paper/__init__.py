"""Tests: paper."""
