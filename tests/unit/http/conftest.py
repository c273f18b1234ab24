"""Fixtures of the door tests."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from brokerha.embedded import EmbeddedCluster
from brokerha.http import HttpServer, create_app
from brokerha.nodes.config.cluster import ClusterConfig, MasterEntry, WorkerEntry
from tests.unit.http.asking import Node

_numbers = itertools.count()


@pytest.fixture
def node() -> Node:
    """A master with one empty repository, main."""
    return Node()


@pytest.fixture
def on_site(tmp_path: Path) -> Iterator[httpx2.Client]:
    """A real door of a master with a real copy, in this process."""
    config = ClusterConfig(
        name="site",
        broker=f"embedded://site-{next(_numbers)}",
        data=tmp_path,
        masters=(MasterEntry(id="m1"),),
        workers=(WorkerEntry(id="w1", master="m1"),),
    )
    with EmbeddedCluster(config) as running:
        server = HttpServer(create_app(running.masters["m1"]), "127.0.0.1", 0)
        server.start()
        with httpx2.Client(base_url=server.url, timeout=60) as client:
            yield client
        server.stop(0.2)
