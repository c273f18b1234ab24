"""The archive job over RabbitMQ: killed at random moments, its nodes killed under it, and what masters keep for it.

Given two masters with a worker each as processes, when the job is killed again and again while somebody writes, and masters are killed
under it, then what is archived is contiguous, without duplicates, and equal to an archive that was made undisturbed. The last job follows
until SIGTERM and ends whole; masters keep their log behind it, and what nodes said of themselves lies beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import brokerha
from brokerha.pipeline import observations
from brokerha.pipeline.table import LogTable
from tests.support import spark_servers
from tests.system.archive_kills import a_python_worker, archived, its_java, kill_again_and_again, of_cluster, the_job
from tests.system.processes import ProcessCluster

pytest.importorskip("pyspark")


def test_a_job_that_is_killed_with_its_nodes_archives_each_entry_once_and_its_masters_keep_what_it_lacks(
    vhost_url: str, tmp_path: Path, covered: Callable[[str], None]
) -> None:
    into = tmp_path / "archive"
    with ProcessCluster(tmp_path, vhost_url, masters=2, workers_each=1) as cluster:
        covered(kill_again_and_again(cluster, tmp_path, kills=1, node_kills=1, seed=7))
        state = LogTable(str(into)).state()
        following = state.head.last_lsn + 1
        for master in cluster.masters:
            with brokerha.connect(cluster.url(master)) as db:
                (pin,) = db.pins()["pins"]
                assert (pin["name"], pin["lsn"]) == (f"archive-{state.id.replace('-', '')[:16]}", following)
        # Through the broker alone: one of the masters is asked, and takes the pin. There is nothing new, so Spark does not start.
        assert archived(into, "--url", vhost_url)["pinned_from"] == following
        seen = observations.read(str(into))
        assert {each.node for each in seen} == {"m1", "m2", "m1a", "m2a"}
        assert {each.epoch for each in seen} == {1}


@pytest.mark.campaign
def test_thirty_kills_of_whatever_takes_part_and_eight_of_masters(
    vhost_url: str, tmp_path: Path, covered: Callable[[str], None]
) -> None:
    """The command, its Java machine, which is driver and executor, and Python workers."""
    with ProcessCluster(tmp_path, vhost_url, masters=2, workers_each=1) as cluster:
        victims = (the_job, its_java, a_python_worker)
        covered(kill_again_and_again(cluster, tmp_path, kills=30, node_kills=8, seed=1, victims=victims))


@pytest.mark.campaign
def test_thirty_kills_on_a_standalone_cluster(vhost_url: str, tmp_path: Path, covered: Callable[[str], None]) -> None:
    """The command, its driver, executors and what these run Python in."""
    folder = tmp_path / "spark"
    with (
        spark_servers.cluster(folder) as url,
        ProcessCluster(tmp_path, vhost_url, masters=2, workers_each=1) as cluster,
    ):
        victims = (the_job, its_java, *of_cluster(folder))
        spark = ("--spark-master", url, *spark_servers.ON_CLUSTER)
        covered(kill_again_and_again(cluster, tmp_path, kills=30, node_kills=4, seed=2, victims=victims, spark=spark))
