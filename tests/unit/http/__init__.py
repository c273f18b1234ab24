"""Tests of the HTTP front door, against a front that keeps a small model."""
