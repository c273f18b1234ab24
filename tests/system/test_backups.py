"""Backups of a running site over RabbitMQ, and its log read back from the stream.

Given a site of three workers that is written to, when a backup is made and extended, then it restores elsewhere to what the
site had; and lines from the log stream lead a new directory to the same fingerprint.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from brokerha.embedded import EmbeddedCluster
from brokerha.model.errors import NotFound
from brokerha.nodes.restoring import Restoring, places_of
from brokerha.stores.backup.directory import BackupFolder
from brokerha.stores.backup.restore_target import choose_target
from brokerha.stores.backup.restoring import check_backup, replay
from brokerha.stores.copies.worker_copy import WorkerCopy
from brokerha.transports.log_stream.reader import LogReader
from tests.support.configs import config_of
from tests.support.waiting import until

WAIT_S = 30.0
WORKERS = {"m1": "w1 w2 w3"}


@pytest.fixture
def cluster(vhost_url: str, tmp_path: Path) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config_of("backed", vhost_url, tmp_path / "data", WORKERS)) as running:
        yield running


def write(cluster: EmbeddedCluster, count: int, word: str) -> int:
    db = cluster.client("m1")
    for n in range(count):
        db.put("t", b"%s-%d" % (word.encode(), n), b"v" * 100, timeout=WAIT_S)
    lsn = db.update("main", f'INSERT DATA {{ <urn:{word}> <urn:is> "here" }}', timeout=WAIT_S).lsn
    db.wait(lsn, "all", timeout=WAIT_S)
    return lsn


def back_up(cluster: EmbeddedCluster, *, incremental: bool = False) -> dict[str, Any]:
    db = cluster.client("m1")
    deadline = time.monotonic() + WAIT_S
    task = db.backup("monday", incremental=incremental, timeout=WAIT_S)
    while task["state"] == "running":
        assert time.monotonic() < deadline, task
        time.sleep(0.05)
        task = db.task(task["request"], timeout=WAIT_S) or {}
    assert task["state"] == "done", task
    answer: dict[str, Any] = task["answer"]
    return answer


def test_a_backup_restores_as_another_cluster_that_goes_on(cluster: EmbeddedCluster, tmp_path: Path):
    write(cluster, 20, "before")
    whole = back_up(cluster)
    lsn = write(cluster, 20, "after")
    assert back_up(cluster, incremental=True)["lsn"] == lsn
    # When it is restored under another name, in one process without a broker
    backup = BackupFolder(tmp_path / "data" / "backups").backup("monday")
    manifest = backup.manifest()
    target = choose_target(backup, manifest)
    other = config_of("restored", "embedded://restored", tmp_path / "other", WORKERS)
    work = Restoring(backup, manifest, target, other.name, places_of(other), "m1")
    work.run(check_backup(backup, manifest))
    # Then the new cluster has everything, and goes on after it
    with EmbeddedCluster(other) as restored:
        db = restored.client("m1")
        written = db.put("t", b"new", b"v", timeout=WAIT_S)
        assert written.lsn == lsn + 1
        assert db.get("t", b"after-19", timeout=WAIT_S) == b"v" * 100
        assert db.query("main", "ASK { <urn:before> <urn:is> 'here' }", timeout=WAIT_S)
    assert whole["lsn"] < lsn


def test_the_log_stream_leads_a_new_directory_to_the_same_content(cluster: EmbeddedCluster, vhost_url: str, tmp_path: Path):
    lsn = write(cluster, 50, "streamed")
    followers = cluster.masters["m1"].followers
    assert followers is not None
    until(lambda: followers.published_lsn() >= lsn)
    copy = WorkerCopy(tmp_path / "w9", cluster="backed", node="w9")
    with LogReader(vhost_url, "m1") as reader:
        assert (reader.cluster, reader.last_lsn) == ("backed", lsn)
        assert replay(copy, reader.lines(1, 10), 1, 10) == 10
        assert [each for each, _ in reader.lines(8, 99)] == list(range(8, lsn + 1))
        assert replay(copy, reader.lines(8, lsn), 8, lsn) == lsn - 10
    assert copy.applied() == cluster.workers["w1"].store.applied()
    copy.close()
    with pytest.raises(NotFound, match="which master"):
        LogReader(vhost_url, "m9")
