"""Fixtures of the client tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import brokerha
from brokerha.client import Session
from tests.unit.client.serving import Served, serving
from tests.unit.http.fake_front import FakeFront


@pytest.fixture
def served() -> Iterator[Served]:
    """A master behind a real server."""
    with serving(FakeFront(threaded=True)) as [one]:
        yield one


@pytest.fixture
def db(served: Served) -> Iterator[Session]:
    """A session over HTTP."""
    with brokerha.connect(served.url, timeout=10) as session:
        yield session
