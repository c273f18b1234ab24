"""Tests of the journal: what only one of the two journals has; what both have is in tests/contracts."""
