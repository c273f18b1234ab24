"""The tasks of an audit on Spark: the same functions as in one process (pipeline/audit_columns.py), in Python workers, many at once.

    things ──a task each──> (group, block) ──shuffle──> blocks of a group ──a task each──> results

The JVM never sees a row: blocks are arrays of numbers, and Spark carries them. On a cluster the folder of the archive has to be one that
the driver and all executors see under the same path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from brokerha.pipeline.audit_columns import Block
from brokerha.pipeline.audit_pieces import Grouped
from brokerha.spark.session import SparkOptions, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TasksOnSpark:
    """Fulfils `pipeline.audit_pieces.Tasks`, on the executors of one session."""

    name = "spark"

    def __init__(self, spark: SparkSession) -> None:
        self._context: Any = spark.sparkContext

    @property
    def parallel(self) -> int:
        """Cores of all executors, as far as Spark knows them now."""
        return max(1, int(self._context.defaultParallelism))

    def map(self, function: Callable[[Any], Any], things: Sequence[Any]) -> list[Any]:
        """A task for each thing."""
        if not things:
            return []
        found: list[Any] = self._context.parallelize(list(things), len(things)).map(function).collect()
        return found

    def exchange(
        self, cut: Callable[[Any], Grouped], things: Sequence[Any], merge: Callable[[list[Block]], Any], groups: int
    ) -> list[Any]:
        """A task for each thing, then one for each group."""
        pieces = self._context.parallelize(list(things), len(things)).flatMap(cut)
        together = pieces.partitionBy(groups, int).mapPartitions(lambda found: _together(found, merge))
        results: list[Any] = together.collect()
        return results


def _together(found: Iterator[tuple[int, Block]], merge: Callable[[list[Block]], Any]) -> Iterator[Any]:
    """The result of each group of a partition."""
    groups: dict[int, list[Block]] = {}
    for group, block in found:
        groups.setdefault(group, []).append(block)
    return (merge(groups.pop(group)) for group in sorted(groups))


@contextmanager
def tasks(options: SparkOptions) -> Iterator[TasksOnSpark]:
    """Tasks on Spark, which starts with the block and stops with it. Raises ConfigurationError."""
    with session("audit", options) as spark:
        yield TasksOnSpark(spark)
