"""The tasks of the archive job on Spark: each reads its range and writes its file in a Python worker; the JVM never sees a row.

    with tasks(SparkOptions()) as some:            # starts Spark
        run(options, Around(spark=lambda: tasks(…), …))

On a cluster the folder of the archive has to be one that all processes of Spark see under the same path, and so has a
journal or a backup that is read. A task that is lost with its process is run again by Spark; its second attempt writes another file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brokerha.model.errors import StoreError
from brokerha.pipeline.archive_compacting import Group
from brokerha.pipeline.archive_files import Range
from brokerha.pipeline.archive_tasks import Done, merged, written
from brokerha.pipeline.sources import SourceSpec
from brokerha.spark.session import SparkOptions, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TasksOnSpark:
    """Tasks on one session."""

    def __init__(self, spark: SparkSession) -> None:
        self._context: Any = spark.sparkContext

    @property
    def parallel(self) -> int:
        """Cores of all its processes, as far as Spark knows them now."""
        return max(1, int(self._context.defaultParallelism))

    def write(self, spec: SourceSpec, staging: Path, ranges: Sequence[Range]) -> list[Done]:
        """A task for each range."""
        return self._run(ranges, lambda wanted: written(spec, wanted, staging))

    def merge(self, archive: Path, staging: Path, wanted: Sequence[Group]) -> list[Done]:
        """A task for each group."""
        return self._run(wanted, lambda group: merged(archive, group, staging))

    def _run(self, wanted: Sequence[Any], task: Any) -> list[Done]:
        from py4j.protocol import Py4JNetworkError

        try:
            done: list[Done] = self._context.parallelize(list(wanted), len(wanted)).map(task).collect()
        except (Py4JNetworkError, ConnectionError):
            raise StoreError("Spark has ended under this job, which was perhaps out of memory: run it again") from None
        return done


@contextmanager
def tasks(options: SparkOptions) -> Iterator[TasksOnSpark]:
    """Tasks on Spark, which starts with the block and stops with it. Raises ConfigurationError."""
    with session("archive", options) as spark:
        yield TasksOnSpark(spark)
