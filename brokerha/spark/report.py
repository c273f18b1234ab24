"""The counts of a report, computed on Spark from the rows of an archive.

    entries   first row of each entry ──> by (bin, origin, outcome, epoch)
    changes   all rows of changes ──> report_changes.py: how many, and how many items there are
    busiest   keys, predicates; reasons of rejections, the latest of them

What is brought here is bounded by bins, kinds and tables of the report, never by the number of entries.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from brokerha.model.ids import Lsn
from brokerha.model.operations import APPLIED
from brokerha.pipeline import observations, report_nodes
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
    Tell,
    reason_kind,
    series_of,
    span,
)
from brokerha.pipeline.table import LogState, LogTable
from brokerha.spark.frames import archived
from brokerha.spark.report_changes import bin_of, changes_of
from brokerha.stores.comparing.items import TABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REASONS_MOST = 5_000
"""Rows of (bin, reason) that are brought here; the rest is counted as others."""


@dataclass(slots=True)
class _Work:
    """One report that is being made."""

    spark: SparkSession
    table: LogTable
    state: LogState
    bins: Bins
    first_lsn: Lsn
    last_lsn: Lsn
    notes: list[str] = field(default_factory=list)

    def rows(self, *columns: str) -> DataFrame:
        """Rows within the time of the report."""
        return archived(self.spark, self.table, self.state, self.first_lsn, self.last_lsn, columns)


def report(spark: SparkSession, options: ReportOptions, tell: Tell) -> ReportFacts:
    """Everything that a report tells. Raises StoreError, StoreDamaged (see `rows`), InvalidRequest for a time with no entries."""
    table = LogTable(place(options.archive))
    state = table.state()
    bins, first_lsn, last_lsn = span(table, state, options)
    work = _Work(spark, table, state, bins, first_lsn, last_lsn)
    tell(0, STEPS)
    entries = _entries(work)
    tell(1, STEPS)
    rejections, by_reason = _rejections(work, entries)
    tell(2, STEPS)
    changes = changes_of(spark, table, state, bins, last_lsn)
    if changes.note:
        work.notes.append(changes.note)
    tell(3, STEPS)
    keys, predicates = _keys(work), _predicates(work)
    tell(4, STEPS)
    nodes = report_nodes.observed(observations.read(table.where), bins)
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
    counted = first_rows.groupBy(bin_of(work.bins), "origin", "outcome", "epoch").agg(
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
    listed = tuple(
        Rejection(row.lsn, row.time_us, row.txid, row.origin or "", row.reason or "") for row in latest.collect()
    )
    kind = f.substring_index("reason", ":", 1).alias("kind")
    by_kind = (
        rejected.groupBy(bin_of(work.bins), kind).count().orderBy(f.desc("count"), "bin", "kind").limit(REASONS_MOST)
    )
    counts: Counter[tuple[str, int]] = Counter()
    rest = entries.rejected.copy()
    for row in by_kind.collect():
        counts[reason_kind(row.kind or ""), row.bin] += row["count"]
        rest[row.bin] -= row["count"]
    for number, count in rest.items():
        if count > 0:
            counts[OTHERS, number] += count
    return listed, series_of(counts, work.bins, SERIES_MOST)


def _keys(work: _Work) -> tuple[Busy, ...]:
    of_keys = work.rows("store", "name", "key").filter(f.col("store") == TABLE).groupBy("name", "key").count()
    found = of_keys.orderBy(f.desc("count"), "name", "key").limit(ROWS_MOST).collect()
    return tuple(Busy(row.name, text_of(bytes(row.key)), row["count"]) for row in found)


def _predicates(work: _Work) -> tuple[Busy, ...]:
    of_quads = work.rows("predicate").filter(f.col("predicate").isNotNull()).groupBy("predicate").count()
    found = of_quads.orderBy(f.desc("count"), "predicate").limit(ROWS_MOST).collect()
    return tuple(Busy("", row.predicate, row["count"]) for row in found)
