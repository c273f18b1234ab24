"""Tests: ingress."""
