"""The load on Spark: each split is one partition, run by `brokerha.pipeline.loading_split`; the JVM never sees a line.

A split that runs twice, because Spark lost sight of a task, sends the same transactions under the same ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from brokerha.model.errors import NotReady
from brokerha.pipeline.loading import LoadJob, Split, SplitResult
from brokerha.pipeline.loading_job import told_again_and_again
from brokerha.pipeline.loading_split import run_split
from brokerha.spark.session import words_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_splits(
    spark: SparkSession, job: LoadJob, splits: list[Split], progress: Callable[[], None]
) -> list[SplitResult]:
    """Run all splits, as many at a time as Spark has places for tasks. Raises NotReady when Spark itself gives up."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        partitions = spark.sparkContext.parallelize(splits, len(splits))
        with told_again_and_again(progress):
            found: list[SplitResult] = partitions.mapPartitions(partial(_results, job)).collect()
    except (Py4JError, PySparkException) as error:
        raise NotReady(f"Spark gave up ({words_of(error)}); the same command goes on behind what is loaded") from None
    return found


def _results(job: LoadJob, splits: Iterable[Split]) -> Iterator[SplitResult]:
    """What one task of Spark does."""
    for split in splits:
        yield run_split(job, split)
