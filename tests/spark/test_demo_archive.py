"""The end of the demonstration: a real small cluster, its archive and its audit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from brokerha.cli.machine import demonstration as demo_archive
from brokerha.embedded import EmbeddedCluster
from brokerha.model.errors import StoreError
from brokerha.nodes.config.cluster import ClusterConfig, MasterEntry, WorkerEntry

KEYS = ("a", "b", "c")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    config = ClusterConfig(
        name="demo",
        broker="embedded://demo-archive",
        data=tmp_path / "data",
        masters=(MasterEntry(id="m1"),),
        workers=tuple(WorkerEntry(id=name, master="m1") for name in ("w1a", "w1b")),
    )
    with EmbeddedCluster(config) as running:
        client = running.client("m1")
        for key in KEYS:
            client.put("t", key.encode(), b"1", key=f"demo-{key}")
        client.wait(len(KEYS), "all")
        yield running


@pytest.fixture(autouse=True)
def in_the_session_of_all_tests(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brokerha.spark.session.session", lambda *_: nullcontext(spark))


def fingerprint_of(cluster: EmbeddedCluster) -> str:
    (fingerprint,) = {node.store.applied().fingerprint for node in cluster.workers.values()}
    return fingerprint


def test_equal_copies_and_ids_are_found_equal_and_told_with_spark(cluster: EmbeddedCluster, tmp_path: Path):
    lines: list[str] = []
    ids = [f"demo-{key}" for key in KEYS]
    assert demo_archive.archive_and_audit(cluster, tmp_path, ids, fingerprint_of(cluster), lines.append) == []
    started, archived, audited = lines
    assert started.startswith("Spark 4.")
    assert archived.startswith("archived on Spark: LSN 1 to 3 as 3 rows of a Delta table")
    assert "2 of 2 workers" in audited
    assert "3 of 3 acknowledged transactions" in audited


def test_an_acknowledged_transaction_that_is_not_in_the_log_is_a_problem(cluster: EmbeddedCluster, tmp_path: Path):
    ids = [*(f"demo-{key}" for key in KEYS), "demo-lost"]
    problems = demo_archive.archive_and_audit(cluster, tmp_path, ids, fingerprint_of(cluster), lambda line: None)
    assert problems == ["the audit says differs"]


def test_copies_that_the_archive_does_not_lead_to_are_a_problem(cluster: EmbeddedCluster, tmp_path: Path):
    ids = [f"demo-{key}" for key in KEYS]
    (problem,) = demo_archive.archive_and_audit(cluster, tmp_path, ids, "1:00", lambda line: None)
    assert problem.endswith("and the copies are 1:00")


def test_an_error_of_a_job_is_a_problem_and_no_traceback(cluster: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fails(*_: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr("brokerha.spark.archive.run", fails)
    problems = demo_archive.archive_and_audit(cluster, tmp_path, [], "1:00", lambda line: None)
    assert problems == ["archive or audit failed: the disk is full"]


def test_without_the_extra_the_demonstration_says_what_brings_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(demo_archive, "find_spec", lambda name: None)
    assert not demo_archive.is_possible()
    assert "pip install 'brokerha[spark]'" in demo_archive.MISSING
