"""The archive job over RabbitMQ: killed at random moments, its nodes killed under it, and what masters keep for it.

Given two masters with a worker each as processes, when the job is killed again and again while somebody writes, and masters are killed
under it, then what is archived is contiguous, without duplicates, and equal to an archive that was made undisturbed.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import brokerha
from brokerha.pipeline import observations
from brokerha.pipeline.table import LogTable
from tests.system.archive_kills import SMALL, fill, job, kill_again_and_again
from tests.system.processes import ProcessCluster

pytest.importorskip("pyspark")


def test_a_job_that_is_killed_with_its_nodes_archives_each_entry_once(
    vhost_url: str, tmp_path: Path, covered: Callable[[str], None]
) -> None:
    with ProcessCluster(tmp_path, vhost_url, masters=2, workers_each=1) as cluster:
        covered(kill_again_and_again(cluster, tmp_path, kills=3, node_kills=1, seed=4))


@pytest.mark.campaign
@pytest.mark.parametrize("seed", [1, 2])
def test_twenty_kills_of_the_job_and_six_of_masters(
    vhost_url: str, tmp_path: Path, covered: Callable[[str], None], seed: int
) -> None:
    with ProcessCluster(tmp_path, vhost_url, masters=2, workers_each=1) as cluster:
        covered(kill_again_and_again(cluster, tmp_path, kills=20, node_kills=6, seed=seed))


def test_masters_keep_their_log_for_an_archive_and_it_keeps_what_they_say(vhost_url: str, tmp_path: Path) -> None:
    into = tmp_path / "archive"
    with ProcessCluster(tmp_path, vhost_url, masters=2, workers_each=1) as cluster:
        fill(cluster.url("m1"), 100)
        report = report_of(into, "-c", str(cluster.path))
        assert report["pinned_from"] == report["last_lsn"] + 1 == 101
        for master in cluster.masters:
            with brokerha.connect(cluster.url(master)) as db:
                (pin,) = db.pins()["pins"]
                assert (pin["name"], pin["lsn"]) == (
                    f"archive-{LogTable(str(into)).state().id.replace('-', '')[:16]}",
                    101,
                )
        # Through the broker alone: one of the masters is asked, and takes the pin. There is nothing new, so Spark does not start.
        assert report_of(into, "--url", vhost_url)["pinned_from"] == 101
        seen = observations.read(str(into))
        assert {each.node for each in seen} == {"m1", "m2", "m1a", "m2a"}
        assert {each.epoch for each in seen} == {1}


def report_of(into: Path, *options: str) -> dict[str, Any]:
    """What one job says of itself."""
    command = [sys.executable, "-m", "brokerha", "pipeline", "archive", "--into", str(into), "-o", "json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_a_job_that_follows_ends_whole_when_it_is_asked_to(vhost_url: str, tmp_path: Path) -> None:
    into = tmp_path / "archive"
    with ProcessCluster(tmp_path, vhost_url, masters=1, workers_each=1) as cluster:
        fill(cluster.url("m1"), 100)
        with job(cluster, into, "--every", "0.2", *SMALL) as process:
            until_held(into, 100)
            fill(cluster.url("m1"), 100)
            until_held(into, 200)
            process.send_signal(signal.SIGTERM)
            assert process.wait(90) == 0
    assert LogTable(str(into)).state().head.last_lsn == 200


def until_held(into: Path, lsn: int, within_s: float = 180.0) -> None:
    deadline = time.monotonic() + within_s
    while not LogTable(str(into)).exists() or LogTable(str(into)).state().head.last_lsn < lsn:
        assert time.monotonic() < deadline, (into.parent / "jobs.log").read_text("utf-8", "replace")[-3000:]
        time.sleep(0.1)
