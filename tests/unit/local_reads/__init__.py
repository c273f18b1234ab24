"""Tests: reads on one machine."""
