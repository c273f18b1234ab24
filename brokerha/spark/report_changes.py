"""How much was changed in a report's time, and how many items there were at the end of each bin: on Spark, from all rows of the log.

    rows ──> gain: +1, -1 or 0 items ──> by (store, name, era, bin) ──┬─> by (store, bin)     charts
                                                                      ├─> by (store, name)    the stores with most changes
                                                                      └─> by (name, era)      what a removal took away

Effects say what really changed, so each quad, message and delete counts as it is. Only a put, or a check, may find its item there: these
are looked at in the order of their item. Removing a repository is one change, and takes away what was in it: rows of a repository carry
the number of its removals before them, its **era**, and what an era had is taken off in the bin where it ends.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f
from pyspark.sql.window import Window

from brokerha.model.ids import Lsn
from brokerha.pipeline.report import ROWS_MOST, Bins, Series, StoreFacts, running
from brokerha.pipeline.rows import ACCEPT, ADD, DROP, PUBLISH, REMOVE
from brokerha.pipeline.table import LogState, LogTable
from brokerha.spark.frames import archived
from brokerha.stores.items import CONTROL, GRAPH, QUEUE, TABLE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

REMOVALS_MOST = 100_000
"""Of repositories; with more, nothing is told about items."""
ITEMS = {GRAPH: "statements", TABLE: "keys", QUEUE: "messages", CONTROL: "checks"}
"""What the items of each store are called."""
BEFORE = -1
"""Bin of what was before the first."""
_COLUMNS = (
    "lsn", "operation", "part", "timestamp", "store", "name", "kind", "tombstone", "item_high", "item_low",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Changes:
    """What is found."""

    counts: dict[tuple[str, int], int]
    """Changes by (store, bin)."""
    items: tuple[Series, ...]
    """Living items at the end of each bin, for each store that ever had some; empty where that cannot be told."""
    stores: tuple[StoreFacts, ...]
    """With the most changes."""
    note: str = ""
    """Why nothing is told about items."""


@dataclass(frozen=True, slots=True)
class _Removal:
    """The end of an era of a repository."""

    place: int
    """Bin."""
    lsn: Lsn
    operation: int


def bin_of(bins: Bins) -> Column:
    """The bin of a row, as column `bin`; `BEFORE` for one that was earlier."""
    since = f.unix_micros("timestamp") - bins.start_us
    return f.greatest(f.floor(since / bins.width_us).cast("int"), f.lit(BEFORE)).alias("bin")


def changes_of(spark: SparkSession, table: LogTable, state: LogState, bins: Bins, last_lsn: Lsn) -> Changes:
    """Changes up to an LSN. Raises what `frames.archived` does."""
    log = archived(spark, table, state, state.head.first_lsn, last_lsn, _COLUMNS).filter(f.col("operation") > 0)
    removals = _removals(log, bins)
    note = ""
    if not state.holds_every_state:
        note = f"The archive begins with LSN {state.head.first_lsn}, so it cannot tell how many items there are."
    elif removals is None:
        note = "So many repositories were removed that items were not counted."
    counted = _counted(spark, log, bins, removals or {}).cache()
    try:
        taken = _taken(counted, removals or {})
        is_told = not note
        counts, items = _over_time(counted, bins, taken, is_told=is_told)
        return Changes(counts, items, _stores(counted, taken, is_told=is_told), note)
    finally:
        counted.unpersist()


def _removals(log: DataFrame, bins: Bins) -> dict[str, list[_Removal]] | None:
    """Of each repository that was removed, in order; None when there are too many."""
    dropped = log.filter(f.col("kind") == DROP).select("name", "lsn", "operation", bin_of(bins))
    found = dropped.limit(REMOVALS_MOST + 1).collect()
    if len(found) > REMOVALS_MOST:
        return None
    removals: dict[str, list[_Removal]] = defaultdict(list)
    for row in sorted(found, key=lambda row: (row.lsn, row.operation)):
        removals[row.name].append(_Removal(row.bin, row.lsn, row.operation))
    return dict(removals)


def _counted(spark: SparkSession, log: DataFrame, bins: Bins, removals: dict[str, list[_Removal]]) -> DataFrame:
    """Columns store, name, era, bin, changes, gain, last_lsn."""
    kinds = f.col("kind")
    gain = f.when(kinds.isin(ADD, PUBLISH), 1).when(kinds.isin(REMOVE, ACCEPT), -1).otherwise(0)
    by_store = f.col("store").isin(TABLE, CONTROL)
    plain = _with_eras(spark, log.filter(~by_store).withColumn("gain", gain), removals)
    in_order = Window.partitionBy("item_high", "item_low").orderBy("lsn", "operation", "part")
    was_there = ~f.coalesce(f.lag("tombstone").over(in_order), f.lit(True))
    is_there = ~f.col("tombstone")
    placed = log.filter(by_store).withColumn("gain", is_there.cast("int") - was_there.cast("int"))
    columns = ("store", "name", "era", "timestamp", "gain", "lsn")
    placed = placed.withColumn("name", f.when(f.col("store") == CONTROL, f.lit("")).otherwise(f.col("name")))
    both = plain.select(*columns).unionByName(placed.withColumn("era", f.lit(0)).select(*columns))
    return both.groupBy("store", "name", "era", bin_of(bins)).agg(
        f.count("*").alias("changes"), f.sum("gain").alias("gain"), f.max("lsn").alias("last_lsn")
    )


def _with_eras(spark: SparkSession, log: DataFrame, removals: dict[str, list[_Removal]]) -> DataFrame:
    if not removals:
        return log.withColumn("era", f.lit(0))
    ends = [(GRAPH, name, [(each.lsn, each.operation) for each in ends]) for name, ends in removals.items()]
    schema = "store string, name string, ends array<struct<lsn: bigint, operation: int>>"
    table = spark.createDataFrame(ends, schema)
    at = f.struct(f.col("lsn"), f.col("operation"))
    passed = f.size(f.filter("ends", lambda end: end < at))
    return log.join(f.broadcast(table), ["store", "name"], "left").withColumn(
        "era", f.when(f.col("ends").isNull(), 0).otherwise(passed)
    )


def _taken(counted: DataFrame, removals: dict[str, list[_Removal]]) -> dict[tuple[str, int], int]:
    """Items that each removal took away, by (name, bin)."""
    if not removals:
        return {}
    of_removed = counted.filter((f.col("store") == GRAPH) & f.col("name").isin(*removals))
    taken: Counter[tuple[str, int]] = Counter()
    for row in of_removed.groupBy("name", "era").agg(f.sum("gain").alias("gain")).collect():
        if row.era < len(removals[row.name]):
            taken[row.name, removals[row.name][row.era].place] += row.gain
    return dict(taken)


def _over_time(
    counted: DataFrame, bins: Bins, taken: dict[tuple[str, int], int], *, is_told: bool
) -> tuple[dict[tuple[str, int], int], tuple[Series, ...]]:
    counts: dict[tuple[str, int], int] = {}
    gains: dict[str, Counter[int]] = defaultdict(Counter)
    by_bin = counted.groupBy("store", "bin").agg(f.sum("changes").alias("changes"), f.sum("gain").alias("gain"))
    for row in by_bin.collect():
        if row.bin > BEFORE:
            counts[row.store, row.bin] = row.changes
        gains[row.store][row.bin] += row.gain
    for (_, place), number in taken.items():
        gains[GRAPH][place] -= number
    if not is_told:
        return counts, ()
    series = (
        Series(ITEMS[store], running(gains[store], gains[store][BEFORE], bins)) for store in ITEMS if store in gains
    )
    return counts, tuple(each for each in series if each.highest)


def _stores(counted: DataFrame, taken: dict[tuple[str, int], int], *, is_told: bool) -> tuple[StoreFacts, ...]:
    changes = f.sum(f.when(f.col("bin") > BEFORE, f.col("changes")).otherwise(0)).alias("changes")
    of_store = counted.groupBy("store", "name").agg(
        changes, f.sum("gain").alias("gain"), f.max("last_lsn").alias("last_lsn")
    )
    gone: Counter[str] = Counter()
    for (name, _), number in taken.items():
        gone[name] += number
    busiest: list[Any] = of_store.orderBy(f.desc("changes"), "store", "name").limit(ROWS_MOST).collect()
    return tuple(
        StoreFacts(
            row.store,
            row.name,
            row.changes,
            row.gain - (gone[row.name] if row.store == GRAPH else 0) if is_told else None,
            row.last_lsn,
        )
        for row in busiest
        if row.changes
    )
