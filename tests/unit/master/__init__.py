"""Tests: master."""
