"""How much was changed in a report's time, and how many items there were at the end of each bin: on Spark, from all rows of the log.

    rows ──> gain: +1, -1 or 0 items ──> by (store, name, bin) ──┬─> by (store, bin)     charts
                                                                 └─> by (store, name)    the stores with most changes

Effects say what really changed, so each quad, message and delete counts as it is; a repository that is removed has its quads removed before, by rows
of their own. Only a put, or a check, may find its item there: these are looked at in the order of their item.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.window import Window

from brokerha.model.ids import Lsn
from brokerha.pipeline.report import ROWS_MOST, Bins, Series, StoreFacts, running
from brokerha.pipeline.rows import ACCEPT, ADD, PUBLISH, REMOVE
from brokerha.pipeline.table import LogState, LogTable
from brokerha.spark.frames import ITEM, archived
from brokerha.stores.comparing.items import CONTROL, GRAPH, QUEUE, TABLE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ITEMS = {GRAPH: "statements", TABLE: "keys", QUEUE: "messages", CONTROL: "checks"}
"""What the items of each store are called."""
BEFORE = -1
"""Bin of what was before the first."""
_COLUMNS = ("lsn", "operation", "part", "timestamp", "store", "name", "kind", "tombstone", *ITEM)


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


def bin_of(bins: Bins) -> Column:
    """The bin of a row, as column `bin`; `BEFORE` for one that was earlier."""
    since = f.unix_micros("timestamp") - bins.start_us
    return f.greatest(f.floor(since / bins.width_us).cast("int"), f.lit(BEFORE)).alias("bin")


def changes_of(spark: SparkSession, table: LogTable, state: LogState, bins: Bins, last_lsn: Lsn) -> Changes:
    """Changes up to an LSN. Raises what `frames.archived` does."""
    log = archived(spark, table, state, state.head.first_lsn, last_lsn, _COLUMNS).filter(f.col("operation") > 0)
    is_told = state.holds_every_state
    note = f"The archive begins with LSN {state.head.first_lsn}, so it cannot tell how many items there are."
    counted = _counted(log, bins).cache()
    try:
        counts, items = _over_time(counted, bins, is_told=is_told)
        return Changes(counts, items, _stores(counted, is_told=is_told), "" if is_told else note)
    finally:
        counted.unpersist()


def _counted(log: DataFrame, bins: Bins) -> DataFrame:
    """Columns store, name, bin, changes, gain, last_lsn."""
    kind, is_placed = f.col("kind"), f.col("store").isin(TABLE, CONTROL)
    gain = f.when(kind.isin(ADD, PUBLISH), 1).when(kind.isin(REMOVE, ACCEPT), -1).otherwise(0)
    in_order = Window.partitionBy(*ITEM).orderBy("lsn", "operation", "part")
    was_there = ~f.coalesce(f.lag("tombstone").over(in_order), f.lit(True))
    placed = (~f.col("tombstone")).cast("int") - was_there.cast("int")
    both = log.filter(~is_placed).withColumn("gain", gain).unionByName(log.filter(is_placed).withColumn("gain", placed))
    name = f.when(f.col("store") == CONTROL, f.lit("")).otherwise(f.col("name")).alias("name")
    return both.groupBy("store", name, bin_of(bins)).agg(
        f.count("*").alias("changes"), f.sum("gain").alias("gain"), f.max("lsn").alias("last_lsn")
    )


def _over_time(
    counted: DataFrame, bins: Bins, *, is_told: bool
) -> tuple[dict[tuple[str, int], int], tuple[Series, ...]]:
    counts: dict[tuple[str, int], int] = {}
    gains: dict[str, Counter[int]] = defaultdict(Counter)
    by_bin = counted.groupBy("store", "bin").agg(f.sum("changes").alias("changes"), f.sum("gain").alias("gain"))
    for row in by_bin.collect():
        if row.bin > BEFORE:
            counts[row.store, row.bin] = row.changes
        gains[row.store][row.bin] += row.gain
    if not is_told:
        return counts, ()
    series = (
        Series(ITEMS[store], running(gains[store], gains[store][BEFORE], bins)) for store in ITEMS if store in gains
    )
    return counts, tuple(each for each in series if each.highest)


def _stores(counted: DataFrame, *, is_told: bool) -> tuple[StoreFacts, ...]:
    changes = f.sum(f.when(f.col("bin") > BEFORE, f.col("changes")).otherwise(0)).alias("changes")
    of_store = counted.groupBy("store", "name").agg(
        changes, f.sum("gain").alias("gain"), f.max("last_lsn").alias("last_lsn")
    )
    busiest = of_store.where("changes > 0").orderBy(f.desc("changes"), "store", "name").limit(ROWS_MOST).collect()
    return tuple(
        StoreFacts(row.store, row.name, row.changes, row.gain if is_told else None, row.last_lsn) for row in busiest
    )
