"""Many clients at two masters, keys and graphs: histories show no anomaly that their level forbids, also while workers come and go."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from functools import partial

import pytest

from brokerha.client.transactions import Transaction
from brokerha.embedded import EmbeddedCluster
from brokerha.model.errors import Aborted, Conflict, UnknownRepository, WrongState
from brokerha.model.outside.isolation import ISOLATIONS, SERIALIZABLE, SNAPSHOT
from brokerha.nodes.config.cluster import ClusterConfig, MasterEntry, WorkerEntry
from tests.support.appending import Appending
from tests.support.histories import FORBIDDEN, anomalies

WAIT_S = 60.0
COMMITS = 60
_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    config = ClusterConfig(
        name="isolated",
        broker=f"embedded://isolated-{next(_numbers)}",
        data=tmp_path_factory.mktemp("isolated"),
        masters=(MasterEntry(id="m1"), MasterEntry(id="m2")),
        workers=(WorkerEntry(id="w1", master="m1"), WorkerEntry(id="w2", master="m2"), WorkerEntry(id="w3", master="m2")),
    )
    with EmbeddedCluster(config) as running:
        deadline = time.monotonic() + WAIT_S
        while not all(node.ready()[0] for node in running.masters.values()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield running


@pytest.mark.parametrize("level", ISOLATIONS)
def test_no_history_shows_what_its_level_forbids(cluster: EmbeddedCluster, level: str, covered) -> None:
    db = cluster.client("m1")
    appending = Appending(level, seed=7)
    clients = [partial(cluster.client, master) for master in ("m1", "m1", "m2", "m2")]
    with appending.running(clients):
        deadline = time.monotonic() + WAIT_S
        for share in (1, 2, 3):
            while sum(ran.committed for ran in appending.history) < share * COMMITS // 3:
                assert time.monotonic() < deadline, appending.errors
                time.sleep(0.02)
            if share == 1:
                cluster.stop_node("w3")
            elif share == 2:
                cluster.start_node("w3")
    found = anomalies(appending.history, appending.last(db))
    assert not found & FORBIDDEN[level], (found, appending.history)
    covered(f"isolation {level}: {len(appending.history)} transactions, {appending.errors}; shown: {sorted(found)}")


def test_a_conflict_is_told_by_the_read_and_by_the_commit(cluster: EmbeddedCluster) -> None:
    first, second = cluster.client("m1"), cluster.client("m2")
    first.write([("put", "told", b"a", b"1"), ("put", "told", b"b", b"1")])
    with first.transaction(isolation=SNAPSHOT) as tx:
        assert tx.get("told", "a") == b"1"
        second.put("told", "b", b"2")
        # Nothing that was read has changed: all of it is of now.
        assert tx.get("told", "b", min_lsn="latest") == b"2"
        second.put("told", "a", b"2")
        with pytest.raises(Conflict, match=r"^conflict: key 'a' of table 'told'"):
            tx.get("told", "b", min_lsn="latest")
        tx.rollback()
    tx = first.transaction(isolation=SERIALIZABLE).begin()
    assert tx.get("told", "a", min_lsn="latest") == b"2"
    tx.put("told", "c", b"")
    second.put("told", "a", b"3")
    with pytest.raises(Conflict):
        tx.commit()
    assert dict(first.range("told", min_lsn="latest")) == {b"a": b"3", b"b": b"2"}


@pytest.mark.parametrize("level", [SNAPSHOT, SERIALIZABLE])
def test_a_write_skew_is_a_snapshot_and_not_serializable(cluster: EmbeddedCluster, level: str) -> None:
    first, second = cluster.client("m1"), cluster.client("m2")
    first.write([("put", "skew", b"a", b"on"), ("put", "skew", b"b", b"on")])
    one, other = first.transaction(isolation=level).begin(), second.transaction(isolation=level).begin()
    for tx, key in ((one, "a"), (other, "b")):
        assert tx.get("skew", "a", min_lsn="latest") == tx.get("skew", "b", min_lsn="latest") == b"on"
        tx.put("skew", key, b"off")
    one.commit()
    if level == SERIALIZABLE:
        with pytest.raises(Conflict):
            other.commit()
    else:
        other.commit()
    on = [key for key, value in first.range("skew", min_lsn="latest") if value == b"on"]
    assert on == ([] if level == SNAPSHOT else [b"b"])


def test_a_phantom_is_a_conflict(cluster: EmbeddedCluster) -> None:
    first, second = cluster.client("m1"), cluster.client("m2")
    first.put("seats", "row1-a", b"")

    def count(beginning: str, between: str) -> int:
        with first.transaction(isolation=SERIALIZABLE) as tx:
            found = len(list(tx.range("seats", prefix=beginning, min_lsn="latest")))
            tx.put("seats", "count", str(found))
            second.put("seats", between, b"")
        return found

    with pytest.raises(Conflict):
        count("row1-", "row1-b")
    assert count("row1-", "row2-a") == 2
    with pytest.raises(Conflict):
        count("row3-", "row3-a")


def test_that_there_is_no_key_is_something_read(cluster: EmbeddedCluster) -> None:
    first, second = cluster.client("m1"), cluster.client("m2")
    tx = first.transaction(isolation=SERIALIZABLE).begin()
    assert tx.get("none", "a", min_lsn="latest") is None
    with pytest.raises(UnknownRepository, match=r"^repository 'none' does not exist$"):
        tx.size("none")
    tx.put("none", "b", b"")
    second.put("none", "a", b"")
    with pytest.raises(Conflict):
        tx.commit()


def test_a_transaction_is_run_again_until_it_commits(cluster: EmbeddedCluster) -> None:
    first, second = cluster.client("m1"), cluster.client("m2")
    first.put("counter", "n", b"0")
    runs: list[int] = []

    def add(tx: Transaction, disturbed: int = 1) -> int:
        number = int(tx.get("counter", "n", min_lsn="latest") or b"")
        runs.append(number)
        if len(runs) <= disturbed:
            second.put("counter", "n", str(number + 10))
        tx.put("counter", "n", str(number + 1))
        return number + 1

    assert first.run_transaction(add) == 11
    assert runs == [0, 10]
    with pytest.raises(Conflict):
        first.run_transaction(partial(add, disturbed=100), attempts=3)
    assert runs == [0, 10, 11, 21, 31]
    assert first.get("counter", "n", min_lsn="latest") == b"41"


def test_a_transaction_that_is_not_open_any_more_does_not_say_that_a_key_is_not_there(cluster: EmbeddedCluster) -> None:
    # Given a transaction of which its master knows nothing, as after a fail-over
    db = cluster.client("m1")
    db.put("counter", "there", b"1")
    tx = db.transaction().begin()
    tx.put("counter", "other", b"1")
    tx.flush()
    tx.txid = "m1.0a1b2c3d.2.1"
    # When it reads a key that is there
    with pytest.raises(Aborted, match=r"m1\.0a1b2c3d\.2\.1 is not open any more"):
        tx.get("counter", "there")
    # Then it is over, and may be run again
    with pytest.raises(WrongState):
        tx.commit()
