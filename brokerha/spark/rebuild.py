"""The state of an archive at any LSN or time: as a backup, or as the directory of one worker.

    state(log up to L) ──sorted by store, name and key on the executors──> Arrow batches ──one partition after the other──> built and proved
                                                                                                            ─> its name

Executors compute and sort. Only the bulk load into one copy is local: it takes the sorted partitions one by one, so no shared
folder is needed, and the driver holds one partition at a time. The archive has the fingerprint that the cluster wrote at that LSN.
The built copy is read again as a whole and must have exactly that fingerprint. ``brokerha restore`` restores a backup. A worker
that starts from a directory reports its LSN and follows the log from the next one on, as long as its master still has it.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgpack
import pyarrow as pa
from pyspark.sql import functions as f

from brokerha.model.control import Check
from brokerha.model.errors import ConfigurationError, InvalidRequest, ProtocolError, StoreDamaged, StoreDiffers, StoreError
from brokerha.model.fingerprints import EMPTY, from_text, text_of
from brokerha.model.ids import Lsn, NodeId, Timestamp, TxId, is_node_id
from brokerha.model.operations import LoggedRow
from brokerha.pipeline.entries import LogEntry
from brokerha.pipeline.places import place
from brokerha.pipeline.rows import ACCEPT, PUBLISH, SCHEMA, entries_in
from brokerha.pipeline.table import LogState, LogTable
from brokerha.spark import frames
from brokerha.spark.session import errors_of_tasks
from brokerha.stores.backup.building import CopyBuilder
from brokerha.stores.backup.building_places import Plan, build_backup, build_worker
from brokerha.stores.backup.directory import BackupFolder
from brokerha.stores.backup.lines import Lines
from brokerha.stores.backup.restore_target import obstacle_in
from brokerha.stores.backup.writing import About, Work
from brokerha.stores.comparing.items import CONTROL, GRAPH, QUEUE, TABLE
from brokerha.stores.copies.frozen import TAIL_LIMIT_BYTES, TAIL_LSNS
from brokerha.stores.tables.queue_change import Counts, Message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NODE: Final[NodeId] = "archive"
"""Node id in the manifest of a backup, in place of a worker."""
PARTITION_ROWS: Final = 250_000
"""Rows of the log for each sorted partition, which the driver holds as a whole."""
_SECTIONS: Final = (GRAPH, TABLE, QUEUE, CONTROL)

Tell = Callable[[int, int], None]
"""Receives (items done, all items); can raise to end the work."""


@dataclass(frozen=True, slots=True)
class RebuildOptions:
    """Source, state and target: one of ``backup`` and ``into``."""

    archive: str
    """Folder or URL (pipeline/places.py)."""
    backup: str = ""
    """Name of the new backup."""
    backups: Path | None = None
    """Folder of the new backup."""
    into: Path | None = None
    """Directory of the new worker."""
    node: NodeId = ""
    """With ``into``: id of the worker; default: the name of the directory."""
    cluster: str = ""
    """Name of the target cluster; default: that of the archive."""
    to_lsn: Lsn | None = None
    to_time_us: Timestamp | None = None
    """Microseconds since 1970: the last transaction at or before it. Default of both: the last one of the archive."""
    is_replaced: bool = False
    """Whether an existing backup or directory can be replaced."""
    has_lines: bool = False
    """Whether the backup also gets all lines of the log up to its LSN."""
    is_dry_run: bool = False


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """Result of a rebuild."""

    archive: str
    cluster: str
    lsn: Lsn
    txid: TxId
    timestamp: Timestamp
    """Microseconds since 1970; 0 for LSN 0."""
    fingerprint: str
    """Fingerprint of the cluster at that LSN; the built copy has it, or there is no report."""
    target: str
    """The backup or the directory."""
    node: NodeId = ""
    rows: int = 0
    """Rows of the archive from which the state was computed."""
    items: int = 0
    """Quads, keys and messages; 0 in a dry run."""
    repositories: int = 0
    seconds: float = 0.0
    is_dry_run: bool = False
    in_the_way: str = ""
    """What prevents the rebuild, in a dry run; else empty."""


def run(
    options: RebuildOptions, start: Callable[[], AbstractContextManager[SparkSession]], tell: Tell,
    now_us: Callable[[], int] = lambda: 0,
) -> RebuildReport:  # fmt: skip
    """Rebuild; Spark starts when nothing prevents it.

    Raises InvalidRequest (no such LSN or time, a wrong name), StoreError (the target exists, no space), StoreDiffers (the archive
    differs from the log), StoreDamaged.
    """
    table = LogTable(place(options.archive))
    with _archive_named(table.where):
        state = table.state()
        report = planned(options, table, state)
        if options.is_dry_run:
            return report
        if report.in_the_way:
            raise StoreError(report.in_the_way)
        begun_s = time.monotonic()
        with start() as spark, errors_of_tasks():
            given = _Given(spark, table, state, report.lsn, tell)
            plan = Plan(
                report.cluster,
                report.lsn,
                report.txid,
                report.timestamp,
                from_text(report.fingerprint),
                given.fill,
                given.read_again,
            )
            if options.into is not None:
                build_worker(options.into, plan, cluster=report.cluster, node=report.node, is_forced=options.is_replaced)
            else:
                _back_up(options, table, state, report, plan, now_us())
        return dataclasses.replace(
            report, items=given.items, repositories=given.repositories, seconds=round(time.monotonic() - begun_s, 3)
        )


def planned(options: RebuildOptions, table: LogTable, state: LogState) -> RebuildReport:
    """Report what would be rebuilt, and what prevents it, without changes. Raises as `run`."""
    lsn = lsn_of(table, state, options.to_lsn, options.to_time_us)
    node, cluster = _names(options, state)
    if options.into is not None:
        target, in_the_way = options.into, _obstacle(options.into, cluster, is_forced=options.is_replaced)
    else:
        backup = _folder(options).backup(options.backup)
        target = backup.path
        is_there = target.exists() and not options.is_replaced
        in_the_way = f"there is a backup {options.backup} already: choose another name, or --replace" if is_there else ""
    entry = next(_entries(table, state, lsn, lsn)) if lsn else None
    txid, timestamp, fingerprint = (entry.txid, entry.timestamp, entry.fingerprint) if entry else ("", 0, EMPTY)
    return RebuildReport(
        archive=table.where,
        cluster=cluster,
        lsn=lsn,
        txid=txid,
        timestamp=timestamp,
        fingerprint=text_of(fingerprint),
        target=str(target),
        node=node,
        rows=sum(file.rows for file in state.files_of(1, lsn)),
        is_dry_run=options.is_dry_run,
        in_the_way=in_the_way,
    )


def lsn_of(table: LogTable, state: LogState, lsn: Lsn | None, time_us: Timestamp | None) -> Lsn:
    """Return the LSN of the options. Raises InvalidRequest, StoreError when no state can be computed from the archive."""
    frames.check_whole(table, state)
    if lsn is not None and time_us is not None:
        raise InvalidRequest("an LSN and a time are two ways to say up to where: give one of them")
    if time_us is not None:
        return table.lsn_at(state, time_us)
    last_lsn = state.head.last_lsn
    lsn = last_lsn if lsn is None else lsn
    if not 0 <= lsn <= last_lsn:
        raise InvalidRequest(
            f"the archive in {table.where} holds the states up to LSN {last_lsn}, not {lsn}: bring it up to date "
            "(brokerha pipeline archive), or name an earlier one"
        )
    return lsn


def _names(options: RebuildOptions, state: LogState) -> tuple[NodeId, str]:
    """Return the target node and cluster. Raises InvalidRequest, ConfigurationError."""
    if bool(options.backup) == (options.into is not None):
        raise InvalidRequest("what is to be made? name a backup, or give the directory of a worker")
    cluster = options.cluster or state.head.cluster
    if not cluster:
        raise ConfigurationError(f"the archive in {options.archive} does not say which cluster it is of: give its name")
    node = NODE
    if options.into is not None:
        node = options.node or options.into.resolve().name
    for name, what in ((cluster, "cluster"), (node, "node")):
        if not is_node_id(name):
            raise InvalidRequest(f"{name!r} is no name of a {what}: it has 1 to 32 of a-z, 0-9 and -")
    return node, cluster


def _folder(options: RebuildOptions) -> BackupFolder:
    if options.backups is None:
        raise ConfigurationError("no folder of backups is named")
    return BackupFolder(options.backups)


def _obstacle(directory: Path, cluster: str, *, is_forced: bool) -> str:
    obstacle = obstacle_in(directory)
    if not obstacle.text or (is_forced and not obstacle.is_locked):
        return ""
    if obstacle.is_locked:
        return obstacle.text
    return f"{obstacle.text}; take another directory, or replace it with --force {cluster}"


@contextmanager
def _archive_named(where: str) -> Iterator[None]:
    """Add to an error about wrong content the archive's name, and what to do."""
    what_to_do = (
        f"the archive in {where} is not what was archived: use a copy of it; "
        f"brokerha pipeline audit --archive {where} says which row it is"
    )
    try:
        yield
    except StoreDiffers as error:
        raise StoreDiffers(f"{error}: {what_to_do}", error.lsn, error.fingerprint) from error
    except ProtocolError as error:
        raise StoreDamaged(f"{error}: {what_to_do}") from error


class _Given:
    """The content at an LSN for a builder; it needs no trust, because the built copy is proved (stores/backup/building.py)."""

    def __init__(self, spark: SparkSession, table: LogTable, state: LogState, lsn: Lsn, tell: Tell) -> None:
        self.items = 0
        """Quads, keys and messages."""
        self.repositories = 0
        self._table, self._state, self._lsn, self._tell = table, state, lsn, tell
        self._log = frames.unfolded(frames.archived(spark, table, state, 1, lsn))
        self._partitions = partitions_of(state, lsn)

    def fill(self, builder: CopyBuilder) -> None:
        """Give the whole content to the builder. Raises errors of the builder and the tasks."""
        sections = itertools.groupby(self._rows(), lambda row: row[0])
        checks: list[Check] = []
        for section, rows in sections:
            store = _SECTIONS[section]
            if store == GRAPH:
                for name, quads in itertools.groupby(rows, lambda row: row[1]):
                    self.repositories += 1
                    builder.repository(name, (row[2].decode() for row in quads if row[2] is not None))
            elif store == TABLE:
                builder.keys((row[2], row[3]) for row in rows)
            elif store == QUEUE:
                builder.messages((row[1], row[5], Message(row[2].decode(), row[4], row[3])) for row in rows)
            else:
                checks = [Check(row[1], *msgpack.unpackb(row[3])) for row in rows]
        builder.checks(checks)
        counts, changes = self._stores()
        builder.counts(counts)
        builder.last_changes(changes)
        builder.lines(last_lines(self._table, self._state, self._lsn))

    def read_again(self, items: int) -> None:
        """Report the number of proved items."""
        self._tell(min(self.items + items, 2 * self.items), 2 * self.items)

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield section, name, key (None for a repository itself), value, content type, place, in the builder's order."""
        for batch in batches_of(in_order(frames.state(self._log, columns=COLUMNS, is_unfolded=True), self._partitions)):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
            self.items += batch.num_rows - batch["key"].null_count
            # Each item is given once, and read once more for the proof.
            self._tell(self.items, 2 * self.items)

    def _stores(self) -> tuple[Mapping[str, Counts], Mapping[tuple[str | None, str], Lsn]]:
        """Return the counters of queues, and the last change of each store that ever existed."""
        kinds = (f.count(f.when(f.col("kind") == kind, 1)).alias(kind) for kind in (PUBLISH, ACCEPT))
        of_stores = self._log.filter(f.col("store").isin(GRAPH, TABLE, QUEUE)).groupBy("store", "name")
        found = of_stores.agg(f.max("lsn").alias("lsn"), *kinds).collect()
        counts = {row.name: Counts(row[PUBLISH], row[ACCEPT]) for row in found if row.store == QUEUE}
        return counts, {(row.store, row.name): row.lsn for row in found}


COLUMNS: Final = (
    "store", "name", frames.IS_REPOSITORY, "key", "subject", "predicate", "object", "graph", "value", "content_type", frames.PLACE,
    *frames.ITEM,
)  # fmt: skip


def partitions_of(state: LogState, lsn: Lsn) -> int:
    """Return the number of partitions for sorting the content at an LSN."""
    return max(2, -(-sum(file.rows for file in state.files_of(1, lsn)) // PARTITION_ROWS))


def in_order(state: DataFrame, partitions: int) -> DataFrame:
    """Sort over all partitions: repositories, each before its quads; then keys, messages by place, and checks."""
    store, name, nothing = f.col("store"), f.col("name").cast("binary"), f.lit(b"\0")
    section = f.lit(len(_SECTIONS) - 1)
    for number, each in enumerate(_SECTIONS[:-1]):
        section = f.when(store == each, number).otherwise(section)
    line = f.concat_ws(" ", "subject", "predicate", "object", "graph").cast("binary")
    key = (
        f.when(store == TABLE, f.concat(name, nothing, f.col("key")))
        .when(store == QUEUE, f.col("key"))
        .when((store == GRAPH) & ~f.col(frames.IS_REPOSITORY), line)
    )
    order = f.when(store == TABLE, key).when(f.col(frames.IS_REPOSITORY), name).otherwise(f.concat(name, nothing))
    rows = state.select(
        section.alias("section"),
        "name",
        key.alias("key"),
        "value",
        "content_type",
        frames.PLACE,
        order.alias("order"),
        *frames.ITEM,
    )
    sorting = ("section", "order", frames.PLACE, *frames.ITEM)
    sorted_rows = rows.repartitionByRange(partitions, *sorting).sortWithinPartitions(*sorting)
    return sorted_rows.select("section", "name", "key", "value", "content_type", frames.PLACE)


def batches_of(rows: DataFrame) -> Iterator[pa.RecordBatch]:
    """Yield rows as Arrow batches, partition by partition in order; the driver holds one partition at a time."""
    for packed in rows.mapInArrow(_packed, "batch binary").toLocalIterator(prefetchPartitions=True):
        yield from pa.ipc.open_stream(bytes(packed.batch))


def _packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.RecordBatch.from_arrays([pa.array([sink.getvalue().to_pybytes()], pa.binary())], ["batch"])


def last_lines(table: LogTable, state: LogState, lsn: Lsn) -> list[LoggedRow]:
    """Return the last lines of the log up to an LSN, as many as a copy keeps. Raises StoreDamaged, ProtocolError."""
    found: deque[LoggedRow] = deque(maxlen=TAIL_LSNS)
    size_bytes = 0
    for entry in _entries(table, state, max(1, lsn - TAIL_LSNS + 1), lsn) if lsn else ():
        found.append(line_of(entry))
        size_bytes += len(entry.effect)
        while size_bytes > TAIL_LIMIT_BYTES and len(found) > 1:
            size_bytes -= len(found.popleft()[4])
    return list(found)


def _entries(table: LogTable, state: LogState, first_lsn: Lsn, last_lsn: Lsn) -> Iterator[LogEntry]:
    return entries_in(table.batches(state, first_lsn, last_lsn, SCHEMA.names))


def line_of(entry: LogEntry) -> LoggedRow:
    """Return the log line that workers keep for an entry."""
    return entry.txid, entry.timestamp, entry.outcome, entry.reason, entry.effect, entry.fingerprint


def _back_up(options: RebuildOptions, table: LogTable, state: LogState, report: RebuildReport, plan: Plan, now_us: int) -> None:
    history: Lines | None = None
    if options.has_lines:
        history = ((entry.lsn, line_of(entry)) for entry in (_entries(table, state, 1, report.lsn) if report.lsn else ()))
    work = Work(About(report.cluster, NODE), now_us)
    build_backup(_folder(options), options.backup, plan, work, history=history, replace=options.is_replaced)
