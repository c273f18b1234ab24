"""Fixtures of the client tests."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

import brokerha
from brokerha.client import Client, Session
from brokerha.embedded import EmbeddedCluster
from brokerha.http import HttpServer, create_app
from brokerha.nodes.config.cluster import ClusterConfig, MasterEntry, WorkerEntry
from tests.unit.client.serving import Served, serving
from tests.unit.http.fake_front import FakeFront

_numbers = itertools.count()


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


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    """Two sites in this process, with a real copy each."""
    config = ClusterConfig(
        name="sites",
        broker=f"embedded://sites-{next(_numbers)}",
        data=tmp_path,
        masters=(MasterEntry(id="m1"), MasterEntry(id="m2")),
        workers=(WorkerEntry(id="w1", master="m1"), WorkerEntry(id="w2", master="m2")),
    )
    with EmbeddedCluster(config) as running:
        yield running


@pytest.fixture
def url(cluster: EmbeddedCluster) -> Iterator[str]:
    """The door of one of them."""
    server = HttpServer(create_app(cluster.masters["m1"]), "127.0.0.1", 0)
    server.start()
    yield server.url
    server.stop(0.2)


@pytest.fixture(params=["embedded", "http"])
def on_sites(request: pytest.FixtureRequest, cluster: EmbeddedCluster) -> Iterator[Client]:
    """A client of both sites, over either wire."""
    if request.param == "embedded":
        with cluster.client("m1", "m2") as client:
            yield client
    else:
        with brokerha.connect(request.getfixturevalue("url")) as client:
            yield client
