"""A whole cluster with backups in one process, on its disks: the doors of clients while processes come and go."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerha.client import Client
from brokerha.embedded import EmbeddedCluster
from brokerha.model.errors import ReadOnly
from brokerha.nodes.config.cluster import BackupEntry, ClusterConfig, MasterEntry, WorkerEntry
from brokerha.ports.front import Front
from tests.support.waiting import until

WAIT_S = 30.0
_numbers = itertools.count()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    config = ClusterConfig(
        name="pairs",
        broker=f"embedded://pairs-{next(_numbers)}",
        data=tmp_path,
        fail_over_after_ms=400,
        masters=(MasterEntry(id="m1"), MasterEntry(id="m2")),
        backups=(BackupEntry(id="m1b", master="m1"), BackupEntry(id="m1c", master="m1")),
        workers=(WorkerEntry(id="w1", master="m1"), WorkerEntry(id="w2", master="m2")),
    )
    with EmbeddedCluster(config) as running:
        until(lambda: are_ready(running))
        yield running


def are_ready(cluster: EmbeddedCluster) -> bool:
    nodes: list[Front] = [*cluster.masters.values(), *cluster.processes.values()]
    return all(node.ready()[0] for node in nodes) and len(list(cluster.fronts(["m1", "m2"]))) == 2


def acting(cluster: EmbeddedCluster) -> str:
    until(lambda: list(cluster.fronts(["m1"])))
    return next(name for name, node in cluster.processes.items() if node.role == "master")


def is_taken(db: Client, key: bytes) -> bool:
    """Whether a write was; while primaries take turns it may be refused for a moment."""
    try:
        db.put("t", key, b"x", timeout=WAIT_S)
    except ReadOnly:
        return False
    return True


def test_writes_reads_and_transactions_go_on_while_primaries_are_stopped_and_promoted(cluster: EmbeddedCluster) -> None:
    db = cluster.client("m1")
    db.put("t", b"first", b"1", timeout=WAIT_S)
    # The primary is lost.
    lost = acting(cluster)
    cluster.stop_node(lost)
    db.put("t", b"second", b"2", timeout=WAIT_S)
    assert acting(cluster) != lost
    # It comes back as a backup, and is made primary again by hand.
    cluster.start_node(lost)
    until(lambda: are_ready(cluster))
    rows = {(row["id"], row["role"]): row for row in db.status(timeout=WAIT_S)["nodes"]}
    assert rows["m1", "master"]["primary"] == acting(cluster)
    assert rows[lost, "backup"]["state"] == "ready"
    db.command("promote", {"node": lost, "force": False}, timeout=WAIT_S)
    for number in range(20):
        key = b"n%d" % number
        until(lambda: is_taken(db, key))  # noqa: B023  (done before the next)
    until(lambda: acting(cluster) == lost)
    # Everything is there, through either master.
    with db.transaction() as tx:
        tx.put("t", b"third", b"3")
    for key, value in ((b"first", b"1"), (b"second", b"2"), (b"n0", b"x"), (b"n19", b"x"), (b"third", b"3")):
        assert db.get("t", key, timeout=WAIT_S) == value
        until(lambda: cluster.client("m2").get("t", key, timeout=WAIT_S) == value)  # noqa: B023  (done before the next)


def test_all_processes_are_stopped_and_started_again_with_what_they_had(cluster: EmbeddedCluster) -> None:
    db = cluster.client("m1")
    lsn = db.put("t", b"k", b"v", timeout=WAIT_S).lsn
    names = list(cluster.processes)
    for name in names:
        cluster.stop_node(name)
    for name in reversed(names):
        cluster.start_node(name)
    until(lambda: are_ready(cluster))
    assert db.put("t", b"k2", b"v", timeout=WAIT_S).lsn == lsn + 1
    assert db.get("t", b"k", timeout=WAIT_S) == b"v"
