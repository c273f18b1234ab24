"""Each job of the pipeline has Spark do its work: a command that runs nothing there is a second engine."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from brokerha.cli.pipeline.command import JOBS
from brokerha.embedded import EmbeddedCluster
from brokerha.http import HttpServer, create_app
from brokerha.nodes.config.cluster import ClusterConfig, MasterEntry, WorkerEntry
from tests.support.commands_on_spark import answer, lent

STATEMENTS = 40


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Of a cluster of a master and a worker in this process."""
    config = ClusterConfig(
        name="jobs", broker="embedded://jobs", data=tmp_path / "data",
        masters=(MasterEntry(id="m1"),), workers=(WorkerEntry(id="w1", master="m1"),),
    )  # fmt: skip
    with EmbeddedCluster(config) as cluster:
        server = HttpServer(create_app(cluster.masters["m1"]), "127.0.0.1", 0)
        server.start()
        cluster.client("m1").put("ready", b"k", b"v", timeout=30)
        yield server.url
        server.stop(1)


def jobs_begun(spark: Any) -> int:
    """How many jobs Spark has begun since it started, those of streams among them; by the store behind its page and its REST API."""
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    return max((jobs.apply(number).jobId() + 1 for number in range(jobs.size())), default=0)


def test_every_job_runs_on_spark(spark: Any, url: str, tmp_path: Path) -> None:
    file, archive = tmp_path / "things.nt", str(tmp_path / "archive")
    file.write_text("".join(f"<urn:s:{number}> <urn:p> <urn:o> .\n" for number in range(STATEMENTS)))
    commands = {
        "load": (str(file), "--url", url),
        "archive": ("--into", archive, "--url", url),
        "audit": ("--archive", archive, "--url", url),
        "rebuild": ("--archive", archive, "--into", str(tmp_path / "w9")),
        "export": ("--archive", archive, "--into", str(tmp_path / "out")),
        "report": ("--archive", archive, "--out", str(tmp_path / "report.html")),
    }
    assert set(commands) == {each.name for each in entry_points(group=JOBS)}
    begun, answers = {}, {}
    # A load changes settings of its session; those of the other tests stay as they are.
    with lent(spark.newSession()):
        for name, words in commands.items():
            before = jobs_begun(spark)
            code, answers[name] = answer("pipeline", name, *words)
            assert code == 0, answers[name]
            begun[name] = jobs_begun(spark) - before
    assert min(begun.values()) > 0, begun
    assert answers["load"]["items"] == STATEMENTS
    assert answers["audit"]["result"] == "equal"
    assert answers["rebuild"]["fingerprint"] == answers["export"]["fingerprint"] == answers["audit"]["fingerprint"]
    assert answers["export"]["quads"] == STATEMENTS
