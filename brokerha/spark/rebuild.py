"""The content at an LSN on Spark: what lives is written, sorted, into a staging folder by the tasks, and what is small is brought here.

    files ──a task each──> (item, number of row) ──shuffle──> a task for each group of items: last row of each, if it adds
          ──shuffle──> a task for each file: its living rows, written into graph/, keys/ and messages/

What tasks do is in pipeline/rebuilding_columns.py; the JVM never sees a row, and only items and numbers of rows are shuffled. The driver
merges the sorted files (pipeline/rebuilding_content.py). On a cluster the archive, which the staging folder lies in, has to be a folder
that the driver and all executors see.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from brokerha.model.errors import BrokerhaError, StoreError
from brokerha.model.ids import Lsn
from brokerha.pipeline.archive import Archive, ArchiveFile, ArchiveState
from brokerha.pipeline.archive_tasks import Failure
from brokerha.pipeline.rebuilding_columns import (
    FROM_THE_START,
    Begun,
    Few,
    Places,
    begun_with,
    items_in,
    living,
    main_item,
    small_of,
    stage_rows,
    stores_in,
)
from brokerha.pipeline.rebuilding_content import Small
from brokerha.pipeline.state import MAIN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUP_ROWS: Final = 2_000_000
"""Of all files together, that one task looks through; 50 bytes each."""

Told = tuple[int, Any]
"""What goes from task to task under a number: a block, rows, or the failure that takes their place."""


def stage(spark: SparkSession, archive: Archive, state: ArchiveState, lsn: Lsn, staging: Path) -> Small:
    """Write the content at an LSN into a folder. Raises StoreError, StoreDamaged."""
    if not state.holds_every_state:
        raise StoreError(
            f"the archive in {archive.directory} begins with LSN {state.first_lsn}: no state can be rebuilt"
        )
    context: Any = spark.sparkContext
    # Tasks may run in another folder than this process.
    archive, staging = Archive(archive.directory.absolute()), staging.absolute()
    files = list(enumerate(state.files_of(1, lsn)))
    at_once = int(context.defaultParallelism)
    looked = context.parallelize(files, max(1, len(files))).map(lambda each: _stores(archive, each[1], lsn))
    begun, stores = begun_with([file for _, file in files], _sound(looked.collect()))
    groups = _groups(sum(file.rows for _, file in files), at_once)
    items = context.parallelize(files, max(1, len(files))).flatMap(
        lambda each: _items(archive, each[0], each[1], lsn, groups)
    )
    blocks = items.union(context.parallelize([main_item(groups)], 1)).partitionBy(groups, int)
    # One partition for each file, and one for what no file holds.
    rows = blocks.mapPartitions(_living).partitionBy(len(files) + 1, int)
    few: list[Few] = _sound(rows.mapPartitions(lambda found: _staged(archive, staging, begun, found)).collect())
    return small_of(few, stores)


def _groups(rows: int, at_once: int) -> int:
    """A power of two: groups of bounded size, and enough for all cores."""
    return 1 << (max(at_once, -(-rows // GROUP_ROWS)) - 1).bit_length()


def _sound(results: list[Any]) -> list[Any]:
    """The same results. Raises what went wrong in a task."""
    for each in results:
        if isinstance(each, Failure):
            raise each.error
    return results


# ---- what tasks do. A BrokerhaError must not go through Spark, which would make a page of text of it and try again


def _stores(archive: Archive, file: ArchiveFile, lsn: Lsn) -> Places | Failure:
    try:
        return stores_in(archive, file, lsn)
    except BrokerhaError as error:
        return Failure.of(error)


def _items(archive: Archive, number: int, file: ArchiveFile, lsn: Lsn, groups: int) -> Iterator[Told]:
    try:
        yield from items_in(archive, number, file, lsn, groups)
    except BrokerhaError as error:
        yield 0, Failure.of(error)


def _living(found: Iterator[Told]) -> Iterator[Told]:
    """Of each group of a partition."""
    for group, blocks in _by_number(found).items():
        failed = [each for each in blocks if isinstance(each, Failure)]
        if failed:
            yield group, failed[0]
        else:
            yield from living(blocks)


def _staged(archive: Archive, staging: Path, begun: Sequence[Begun], found: Iterator[Told]) -> Iterator[Few | Failure]:
    """Of each file of a partition."""
    for number, rows in _by_number(found).items():
        failed = [each for each in rows if isinstance(each, Failure)]
        if failed:
            yield failed[0]
        elif number == FROM_THE_START:
            yield Few(repositories=(MAIN,))
        else:
            try:
                yield stage_rows(archive, number, *begun[number], rows, staging)
            except BrokerhaError as error:
                yield Failure.of(error)


def _by_number(found: Iterator[Told]) -> dict[int, list[Any]]:
    together: dict[int, list[Any]] = {}
    for number, each in found:
        together.setdefault(number, []).append(each)
    return together
