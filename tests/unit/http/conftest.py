"""Fixtures of the door tests."""

from __future__ import annotations

import pytest

from tests.unit.http.asking import Node


@pytest.fixture
def node() -> Node:
    """A master with one empty repository, main."""
    return Node()
