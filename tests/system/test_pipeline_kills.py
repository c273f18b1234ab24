"""The archive and the load on a standalone cluster of Spark: drivers, Python workers, executors and nodes are killed at random.

In the end the table is contiguous, without duplicates and equal to one that was made undisturbed, and what was loaded is there once.

The long form, 30 kills with another seed each time, or with that of `BROKERHA_KILLS_SEED`:

    .venv/bin/python -m tests.support.broker_source run -- .venv/bin/pytest -v -m campaign tests/system/test_pipeline_kills.py
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.spark_servers import ON_CLUSTER, cluster
from tests.system.pipeline_kills import (
    DRIVER,
    EXECUTOR,
    WORKER,
    Killing,
    archive_again_and_again,
    drawn,
    load_again_and_again,
)
from tests.system.processes import ProcessCluster

pytestmark = pytest.mark.slow
SEED = "BROKERHA_KILLS_SEED"


def kill(vhost_url: str, folder: Path, seed: int, archiving: list[str], loading: list[str]) -> str:
    spark = folder / "spark"
    spark.mkdir()
    with ProcessCluster(folder, vhost_url, masters=2, workers_each=1) as nodes, cluster(spark) as master:
        killing = Killing(nodes, random.Random(seed), spark, (*ON_CLUSTER, "--spark-master", master))
        told = [load_again_and_again(killing, folder, loading), archive_again_and_again(killing, folder, archiving)]
    return f"seed {seed}: {'; '.join(told)}"


def test_an_executor_and_a_python_worker_of_each_job_are_killed(
    vhost_url: str, tmp_path: Path, covered: Callable[[str], None]
) -> None:
    covered(kill(vhost_url, tmp_path, 5, [EXECUTOR, WORKER, DRIVER], [EXECUTOR]))


@pytest.mark.campaign
def test_thirty_are_killed_at_random(vhost_url: str, tmp_path: Path, covered: Callable[[str], None]) -> None:
    seed = int(os.environ.get(SEED, random.SystemRandom().randrange(10_000)))
    chance = random.Random(seed)
    covered(kill(vhost_url, tmp_path, seed, drawn(chance, 16), drawn(chance, 14)))
