"""Counts for a report, computed on Spark from the rows of an archive.

    entries   first row of each entry ──> by (bin, origin, outcome, epoch)
    changes   rows ──> gain: +1, -1 or 0 items ──> by (store, name, bin) ──┬─> by (store, bin)     charts
                                                                           └─> by (store, name)    the stores with most changes
    busiest   keys, predicates; reasons of rejections, the latest of them

Effects hold real changes, so each quad, message and delete counts fully; a removed repository has rows that first remove its quads.
Only a put or a check can overwrite its item: these rows are compared with the row before, by item.

The size of the result on the driver is bounded by bins, kinds and tables of the report, not by the number of entries.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.window import Window

from brokerha.model.ids import Lsn
from brokerha.model.operations import APPLIED
from brokerha.model.reserved.staging import TABLE as STAGED_TABLE
from brokerha.pipeline import observations
from brokerha.pipeline.audit_rows import text_of
from brokerha.pipeline.places import place
from brokerha.pipeline.report import (
    OTHERS,
    ROWS_MOST,
    SERIES_MOST,
    STEPS,
    Bins,
    Busy,
    Epoch,
    Rejection,
    ReportFacts,
    ReportOptions,
    Series,
    StoreFacts,
    Tell,
    observed,
    reason_kind,
    running,
    series_of,
    span,
)
from brokerha.pipeline.rows import ACCEPT, ADD, PUBLISH, REMOVE, SCHEMA
from brokerha.pipeline.table import LogState, LogTable
from brokerha.spark.frames import ERA, GONE, ITEM, archived, history
from brokerha.stores.comparing.items import CONTROL, GRAPH, QUEUE, TABLE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

REASONS_MOST = 5_000
"""Most rows of (bin, reason) on the driver; the rest counts as others."""
ITEMS = {GRAPH: "statements", TABLE: "keys", QUEUE: "messages", CONTROL: "checks"}
"""Word for the items of each store."""
BEFORE = -1
"""Bin of changes before the first bin."""
_COLUMNS = ("lsn", "operation", "part", "timestamp", "store", "name", "kind", "tombstone", *ITEM)


@dataclass(slots=True)
class _Work:
    """State of a report in the making."""

    spark: SparkSession
    table: LogTable
    state: LogState
    bins: Bins
    first_lsn: Lsn
    last_lsn: Lsn
    notes: list[str] = field(default_factory=list)

    def rows(self, *columns: str) -> DataFrame:
        """Return the rows within the time of the report."""
        return archived(self.spark, self.table, self.state, self.first_lsn, self.last_lsn, columns)


def report(spark: SparkSession, options: ReportOptions, tell: Tell) -> ReportFacts:
    """Compute all facts of a report. Raises StoreError, StoreDamaged (see `rows`), InvalidRequest for a time without entries."""
    table = LogTable(place(options.archive))
    state = table.state()
    bins, first_lsn, last_lsn = span(table, state, options)
    work = _Work(spark, table, state, bins, first_lsn, last_lsn)
    tell(0, STEPS)
    entries = _entries(work)
    tell(1, STEPS)
    rejections, by_reason = _rejections(work, entries)
    tell(2, STEPS)
    changes = _changes(work)
    tell(3, STEPS)
    keys, predicates = _keys(work), _predicates(work)
    tell(4, STEPS)
    nodes = observed(observations.read(table.where), bins)
    facts = ReportFacts(
        cluster=state.head.cluster,
        first_lsn=first_lsn,
        last_lsn=last_lsn,
        chain=state.head.chain,
        files=len(state.files),
        size_bytes=state.size_bytes,
        made_us=time.time_ns() // 1000,
        bins=bins,
        transactions=entries.transactions,
        rejected=entries.rejected.total(),
        changes=int(sum(changes.counts.values())),
        by_origin=series_of(entries.by_origin, bins),
        by_store=series_of(changes.counts, bins),
        items=changes.items,
        rejected_by_reason=by_reason,
        lag_s=nodes.lag_s,
        keys=keys,
        predicates=predicates,
        stores=changes.stores,
        rejections=rejections,
        epochs=entries.epochs,
        nodes=nodes.nodes,
        events=nodes.events,
        notes=tuple(work.notes),
    )
    tell(STEPS, STEPS)
    return facts


@dataclass(slots=True)
class _Entries:
    transactions: int = 0
    rejected: Counter[int] = field(default_factory=Counter)
    """By bin."""
    by_origin: Counter[tuple[str, int]] = field(default_factory=Counter)
    epochs: tuple[Epoch, ...] = ()


def _entries(work: _Work) -> _Entries:
    columns = ("lsn", "operation", "part", "timestamp", "origin", "outcome", "epoch")
    first_rows = work.rows(*columns).filter((f.col("operation") <= 1) & (f.col("part") == 0))
    counted = first_rows.groupBy(_bin_of(work.bins), "origin", "outcome", "epoch").agg(
        f.count("*").alias("entries"),
        f.min("lsn").alias("first_lsn"),
        f.max("lsn").alias("last_lsn"),
        f.min(f.unix_micros("timestamp")).alias("first_us"),
    )
    found = _Entries()
    epochs: dict[int, Epoch] = {}
    for row in counted.collect():
        found.transactions += row.entries
        found.by_origin[row.origin or "", row.bin] += row.entries
        if row.outcome != APPLIED:
            found.rejected[row.bin] += row.entries
        epoch = Epoch(row.epoch or 0, row.first_lsn, row.last_lsn, row.first_us, row.entries)
        epochs[epoch.epoch] = _joined(epochs[epoch.epoch], epoch) if epoch.epoch in epochs else epoch
    found.epochs = tuple(sorted(epochs.values(), key=lambda each: each.first_lsn))
    if any(not origin for origin, _ in found.by_origin):
        work.notes.append("Where the source of the archive did not say it, origin and epoch are unknown.")
    return found


def _joined(one: Epoch, other: Epoch) -> Epoch:
    return Epoch(
        one.epoch,
        min(one.first_lsn, other.first_lsn),
        max(one.last_lsn, other.last_lsn),
        min(one.first_us, other.first_us),
        one.entries + other.entries,
    )


def _rejections(work: _Work, entries: _Entries) -> tuple[tuple[Rejection, ...], tuple[Series, ...]]:
    if not entries.rejected:
        return (), ()
    columns = ("lsn", "timestamp", "txid", "origin", "outcome", "reason")
    rejected = work.rows(*columns).filter(f.col("outcome") != APPLIED)
    latest = rejected.withColumn("time_us", f.unix_micros("timestamp")).orderBy(f.desc("lsn")).limit(ROWS_MOST)
    listed = tuple(Rejection(row.lsn, row.time_us, row.txid, row.origin or "", row.reason or "") for row in latest.collect())
    kind = f.substring_index("reason", ":", 1).alias("kind")
    by_kind = rejected.groupBy(_bin_of(work.bins), kind).count().orderBy(f.desc("count"), "bin", "kind").limit(REASONS_MOST)
    counts: Counter[tuple[str, int]] = Counter()
    rest = entries.rejected.copy()
    for row in by_kind.collect():
        counts[reason_kind(row.kind or ""), row.bin] += row["count"]
        rest[row.bin] -= row["count"]
    for number, count in rest.items():
        if count > 0:
            counts[OTHERS, number] += count
    return listed, series_of(counts, work.bins, SERIES_MOST)


@dataclass(frozen=True, slots=True)
class _Changes:
    counts: dict[tuple[str, int], int]
    """Changes by (store, bin)."""
    items: tuple[Series, ...]
    """Living items at the end of each bin, for each store that ever had some; empty when the archive does not know."""
    stores: tuple[StoreFacts, ...]
    """Stores with the most changes."""


def _bin_of(bins: Bins) -> Column:
    """Return the bin of a row, as column `bin`; `BEFORE` for an earlier row."""
    since = f.unix_micros("timestamp") - bins.start_us
    return f.greatest(f.floor(since / bins.width_us).cast("int"), f.lit(BEFORE)).alias("bin")


def _changes(work: _Work) -> _Changes:
    """Count all changes up to the end of the report, also earlier ones, which determine the number of items."""
    first_lsn, is_told = work.state.head.first_lsn, work.state.holds_every_state
    log = archived(work.spark, work.table, work.state, first_lsn, work.last_lsn, SCHEMA.names)
    changes, is_asked = history(log)
    counted = _counted(changes.select(*_COLUMNS, ERA, GONE).filter(f.col("operation") > 0), work.bins, is_net=not is_asked).cache()
    try:
        counts, items = _over_time(counted, work.bins, is_told=is_told)
        stores = _stores(counted, is_told=is_told)
    finally:
        counted.unpersist()
    if not is_told:
        work.notes.append(f"The archive begins with LSN {first_lsn}, so it cannot tell how many items there are.")
    return _Changes(counts, items, stores)


def _counted(log: DataFrame, bins: Bins, *, is_net: bool) -> DataFrame:
    """Return store, name, bin, changes, gain, last_lsn. ``is_net``: quad rows are real changes, not requests of large ones."""
    kind = f.col("kind")
    is_placed = f.col("store").isin(TABLE, CONTROL) | (~f.lit(is_net) & kind.isin(ADD, REMOVE))
    gain = f.when(kind.isin(ADD, PUBLISH), 1).when(kind.isin(REMOVE, ACCEPT), -1).otherwise(-f.col(GONE))
    in_order = Window.partitionBy(ERA, *ITEM).orderBy("lsn", "operation", "part")
    was_there = ~f.coalesce(f.lag("tombstone").over(in_order), f.lit(True))
    placed = (~f.col("tombstone")).cast("int") - was_there.cast("int")
    both = log.filter(~is_placed).withColumn("gain", gain).unionByName(log.filter(is_placed).withColumn("gain", placed))
    name = f.when(f.col("store") == CONTROL, f.lit("")).otherwise(f.col("name")).alias("name")
    return both.groupBy("store", name, _bin_of(bins)).agg(
        f.count("*").alias("changes"), f.sum("gain").alias("gain"), f.max("lsn").alias("last_lsn")
    )


def _over_time(counted: DataFrame, bins: Bins, *, is_told: bool) -> tuple[dict[tuple[str, int], int], tuple[Series, ...]]:
    counts: dict[tuple[str, int], int] = {}
    gains: dict[str, Counter[int]] = defaultdict(Counter)
    by_bin = counted.groupBy("store", "bin").agg(f.sum("changes").alias("changes"), f.sum("gain").alias("gain"))
    for row in by_bin.collect():
        if row.bin > BEFORE:
            counts[row.store, row.bin] = row.changes
        gains[row.store][row.bin] += row.gain
    if not is_told:
        return counts, ()
    series = (Series(ITEMS[store], running(gains[store], gains[store][BEFORE], bins)) for store in ITEMS if store in gains)
    return counts, tuple(each for each in series if each.highest)


def _stores(counted: DataFrame, *, is_told: bool) -> tuple[StoreFacts, ...]:
    changes = f.sum(f.when(f.col("bin") > BEFORE, f.col("changes")).otherwise(0)).alias("changes")
    of_store = counted.groupBy("store", "name").agg(changes, f.sum("gain").alias("gain"), f.max("last_lsn").alias("last_lsn"))
    busiest = of_store.where("changes > 0").orderBy(f.desc("changes"), "store", "name").limit(ROWS_MOST).collect()
    return tuple(StoreFacts(row.store, row.name, row.changes, row.gain if is_told else None, row.last_lsn) for row in busiest)


def _keys(work: _Work) -> tuple[Busy, ...]:
    is_key = (f.col("store") == TABLE) & (f.col("name") != STAGED_TABLE)
    of_keys = work.rows("store", "name", "key").filter(is_key).groupBy("name", "key").count()
    found = of_keys.orderBy(f.desc("count"), "name", "key").limit(ROWS_MOST).collect()
    return tuple(Busy(row.name, text_of(bytes(row.key)), row["count"]) for row in found)


def _predicates(work: _Work) -> tuple[Busy, ...]:
    of_quads = work.rows("predicate").filter(f.col("predicate").isNotNull()).groupBy("predicate").count()
    found = of_quads.orderBy(f.desc("count"), "predicate").limit(ROWS_MOST).collect()
    return tuple(Busy("", row.predicate, row["count"]) for row in found)
