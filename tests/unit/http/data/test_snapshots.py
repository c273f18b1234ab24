"""Snapshots of tables over HTTP, before a real master in this process: the fake one knows nothing of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from brokerha.embedded import EmbeddedCluster
from brokerha.nodes.config.cluster import ClusterConfig, MasterEntry, WorkerEntry
from tests.unit.http.asking import Node

_numbers = itertools.count()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    config = ClusterConfig(
        name="past",
        broker=f"embedded://past-{next(_numbers)}",
        data=tmp_path,
        masters=(MasterEntry(id="m1"),),
        workers=(WorkerEntry(id="w1", master="m1"),),
    )
    with EmbeddedCluster(config) as cluster:
        front: Any = cluster.masters["m1"]
        yield Node(front)


def test_a_snapshot_is_made_read_listed_and_dropped(node: Node) -> None:
    node.ask("PUT", "/kv/prices/sku-1", b"9.90")
    node.ask("PUT", "/kv/stock/sku-1", b"7")
    assert node.ask("PUT", "/snapshots/mon%2Fday?table=prices&table=stock").status == 204
    node.ask("PUT", "/kv/prices/sku-1", b"8.90")
    node.ask("PUT", "/kv/prices/sku-2", b"1.00")

    assert node.get("/kv/prices/sku-1?snapshot=mon%2Fday").body == b"9.90"
    assert node.get("/kv/prices?snapshot=mon%2Fday&reverse").json == [{"key": "sku-1", "value": "9.90"}]
    assert node.get("/kv/prices/sku-1").body == b"8.90"
    assert node.get("/snapshots").json == [{"name": "mon/day", "tables": ["prices", "stock"], "lsn": 3}]
    assert node.ask("DELETE", "/snapshots/mon%2Fday").status == 204
    assert node.get("/snapshots").json == []


def test_all_tables_when_none_is_named(node: Node) -> None:
    node.ask("PUT", "/kv/prices/sku-1", b"9.90")
    assert node.ask("PUT", "/snapshots/all").status == 204
    assert node.get("/snapshots").json == [{"name": "all", "tables": ["prices"], "lsn": 2}]


def test_what_is_wrong_has_its_status_and_a_sentence(node: Node) -> None:
    node.ask("PUT", "/kv/prices/sku-1", b"9.90")
    node.ask("PUT", "/snapshots/s?table=prices")
    unknown = node.get("/kv/prices/sku-1?snapshot=x")
    assert (unknown.status, unknown.headers["brokerha-error"]) == (404, "UnknownSnapshot")
    assert b"there is no snapshot 'x'" in unknown.body
    assert node.get("/kv/prices?snapshot=x").status == 404
    assert node.get("/kv/stock?snapshot=s").status == 404
    assert node.get("/kv/prices/other?snapshot=s").headers["brokerha-error"] == "NotFound"
    assert node.ask("PUT", "/snapshots/s").status == 409
    assert node.ask("DELETE", "/snapshots/x").status == 409
    assert node.ask("PUT", "/snapshots/x?table=urn:brokerha:prepared").status == 400
    assert node.get("/kv/prices?snapshot=").status == 404
