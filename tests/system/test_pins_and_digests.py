"""What is held for somebody outside, and what two copies say of their content, on whole clusters with their disks.

Given a master that keeps few transactions, when a pin is set and many more are written, then the log is there from the pin on, after a
restart too, until it is taken back or is over; and a backup that takes over holds it as well. Given two workers with the
same content, when one quad and one key of one of them are changed on its disk, then the digests of the two differ in those places only.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import lmdb
import pytest
from pyoxigraph import NamedNode, Quad, Store

import brokerha
from brokerha.client import Client
from brokerha.embedded import EmbeddedCluster
from brokerha.http import HttpServer, create_app
from brokerha.model.errors import InvalidRequest
from brokerha.nodes.config.cluster import BackupEntry, ClusterConfig
from tests.support.configs import config_of
from tests.support.waiting import until

WAIT_S = 30.0
KEPT = 100
_numbers = itertools.count()


def pinned(folder: Path, backups: tuple[BackupEntry, ...] = ()) -> ClusterConfig:
    settings = {"min_in_sync": 1, "fail_over_after_ms": 400, "tx_log_max_size": KEPT, "backups": backups}
    return config_of("pinned", f"embedded://pinned-{next(_numbers)}", folder, {"m1": "w1 w2"}, **settings)


def write(db: Client, count: int) -> int:
    with db.pipeline(window=100) as pipeline:
        for number in range(count):
            pipeline.put("t", str(number), "v")
    return db.put("t", "last", "v", timeout=WAIT_S).lsn


def test_a_pin_holds_the_log_over_a_restart_until_it_is_taken_back(tmp_path: Path) -> None:
    with EmbeddedCluster(pinned(tmp_path)) as cluster:
        db = cluster.client()
        write(db, 3)
        assert db.pin("archive", 2, 3600)["lsn"] == 2
        lsn = write(db, 2 * KEPT)
        cluster.stop_node("m1")
        cluster.start_node("m1")
        until(lambda: cluster.masters["m1"].ready()[0])
        (row,) = db.pins()["pins"]
        assert (row["name"], row["lsn"], row["entries"], row["dropped"]) == ("archive", 2, lsn - 1, False)
        journal = cluster.masters["m1"].journal
        retention = cluster.masters["m1"].runner.core.retention
        looked_ms = retention.deadline_ms() or 0
        until(lambda: (retention.deadline_ms() or 0) > looked_ms)
        assert journal.first_lsn() <= 2
        assert len(db.log(2, lsn, timeout=WAIT_S)) == lsn - 1
        assert cluster.masters["m1"].metrics()["pinned_entries"] == lsn - 1
        assert db.unpin("archive") is True
        assert db.unpin("archive") is False
        until(lambda: journal.first_lsn() > lsn - 2 * KEPT)
        with pytest.raises(InvalidRequest, match=f"begins at {journal.first_lsn()}"):
            db.pin("archive", 2, 3600)


def test_a_pin_that_is_over_holds_nothing(tmp_path: Path) -> None:
    with EmbeddedCluster(pinned(tmp_path)) as cluster:
        db = cluster.client()
        db.pin("short", 1, 1)
        write(db, 2 * KEPT)
        until(lambda: not db.pins()["pins"], db.pins)
        journal = cluster.masters["m1"].journal
        until(lambda: journal.first_lsn() > KEPT // 2, lambda: (journal.first_lsn(), db.status()["nodes"]))


def test_a_process_that_takes_over_holds_the_pin(tmp_path: Path) -> None:
    with EmbeddedCluster(pinned(tmp_path, (BackupEntry(id="m1b", master="m1"),))) as cluster:

        def acting() -> str:
            return next((name for name, node in cluster.processes.items() if node.role == "master"), "")

        until(lambda: acting() and all(node.ready()[0] for node in cluster.processes.values()))
        db = cluster.client()
        db.pin("archive", 1, 3600, timeout=WAIT_S)
        first = acting()
        db.command("promote", {"node": next(name for name in cluster.processes if name != first), "force": False})
        until(lambda: acting() not in {"", first})
        write(db, 3)
        assert [row["name"] for row in db.pins(timeout=WAIT_S)["pins"]] == ["archive"]


@contextmanager
def doors(cluster: EmbeddedCluster) -> Iterator[dict[str, Client]]:
    """Clients of each worker at its own door."""
    with ExitStack() as stack:
        clients: dict[str, Client] = {}
        for name, node in cluster.workers.items():
            server = HttpServer(create_app(node), "127.0.0.1", 0)
            server.start()
            stack.callback(server.stop, 5.0)
            clients[name] = stack.enter_context(brokerha.connect(f"http://127.0.0.1:{server.port}"))
        yield clients


def change_on_disk(directory: Path) -> None:
    """One quad and one key of a stopped worker become others, as no write of the cluster made them."""
    (copy,) = directory.glob("copy.*")
    (repository,) = (copy / "repositories").glob("main.*")
    store = Store(str(repository))
    store.remove(Quad(NamedNode("urn:s"), NamedNode("urn:p"), NamedNode("urn:7")))
    store.add(Quad(NamedNode("urn:s"), NamedNode("urn:p"), NamedNode("urn:x")))
    store.flush()
    del store
    with lmdb.Environment(str(copy / "data"), map_size=64 * 1024**3, max_dbs=16) as environment:
        keys = environment.open_db(b"kv", create=False)
        with environment.begin(write=True, db=keys) as writing:
            row = writing.get(b"t\0" + b"7")
            assert row is not None
            writing.put(b"t\0" + b"7", row[:16] + b"changed")


def rows_of(client: Client, places: list[tuple[str, str, int]], bits: int) -> dict[bytes, bytes]:
    found = client.bucket_items(places, bits, timeout=WAIT_S)
    assert found["more"] is False
    return {text: value for *_, text, value in found["rows"]}


def test_digests_name_what_was_changed_on_the_disk_of_one_worker(tmp_path: Path) -> None:
    with EmbeddedCluster(pinned(tmp_path)) as cluster:
        db = cluster.client()
        quads = "".join(f"<urn:s> <urn:p> <urn:{number}> ." for number in range(50))
        db.update("main", f"INSERT DATA {{ {quads} }}")
        lsn = write(db, 50)
        db.wait(lsn, "all", timeout=WAIT_S)
        with doors(cluster) as clients:
            found = [client.digests(8, min_lsn=lsn, timeout=WAIT_S) for client in clients.values()]
            assert found[0] == found[1] == db.digests(8, timeout=WAIT_S)
            assert found[0]["lsn"] == lsn
        cluster.stop_node("w2")
        change_on_disk(tmp_path / "w2")
        cluster.start_node("w2")
        with doors(cluster) as clients:
            until(lambda: cluster.workers["w2"].runner.core.state.value == "basic")
            buckets: dict[str, Any] = {}
            for name, client in clients.items():
                buckets[name] = {row[:3]: row[3:] for row in client.digests(16, min_lsn=lsn, timeout=WAIT_S)["buckets"]}
            differing = buckets["w1"].items() ^ buckets["w2"].items()
            places = sorted({place for place, _ in differing})
            assert {place[:2] for place in places} == {("graph", "main"), ("table", "t")}
            good, bad = rows_of(clients["w1"], places, 16), rows_of(clients["w2"], places, 16)
            only_good = {text: value for text, value in good.items() if bad.get(text) != value}
            only_bad = {text: value for text, value in bad.items() if good.get(text) != value}
        assert only_good == {b"7": b"v", b"<urn:s> <urn:p> <urn:7>": b""}
        assert only_bad == {b"7": b"changed", b"<urn:s> <urn:p> <urn:x>": b""}
