"""The archive job: a Structured Streaming query from the log into the Delta table of an archive (pipeline/table.py).

    readStream.format("brokerha") ──foreachBatch──> mapInArrow: a file for each piece ──> one commit ──> next batch
                pieces of the log                   in the place, named by its SHA-256     version of the transaction: the last LSN

Only pieces (first and last LSN) and descriptions of files go through the JVM. The task of a piece reads and writes it: passing the
rows through the JVM and back took half of the time.

The table is the only record of progress; the query's checkpoint is a temporary folder. Each run begins after the last commit. So
the archive can be copied, moved or restored as a whole, a lost checkpoint costs nothing, and LSNs reveal a repeated batch. A kill
at any moment leaves at most files that no version names.

Before Spark starts, the job checks the log: same cluster, same history, no gap. When a node is unreachable the query ends, and a
new one is tried for `retry_s`, or without end in follow mode. Must never commit rows of two lineages of the log.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from brokerha.model.errors import BrokerhaError, InvalidRequest, NotReady, StoreError, Unreachable, WentBack
from brokerha.model.fingerprints import text_of
from brokerha.model.ids import Lsn
from brokerha.model.log_lineages import Rewinds, newest, problem
from brokerha.pipeline import observations
from brokerha.pipeline.places import place
from brokerha.pipeline.ranges import VIEW_PIECES
from brokerha.pipeline.sources import OpenSource, SourceSpec, open_source
from brokerha.pipeline.table import WRITTEN_SCHEMA, Head, LogFile, LogState, LogTable, Written, groups, write_log
from brokerha.spark.session import errors_of_tasks
from brokerha.stores.backup.lines import LinesMissing

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BATCH_ENTRIES: Final = 400_000
"""Most entries of one commit, which a kill can lose."""
TOLD_EVERY_S: Final = 10.0
"""Shortest time between two observations of nodes and moves of pins."""
PIN_FOR_S: Final = 7 * 24 * 3600
"""How long the log is kept for an archive that does not come back."""
KEEP_S: Final = 7 * 24 * 3600.0
"""Time for which files stay for readers of earlier versions."""
RETRY_S: Final = 30.0
SILENT_S: Final = 3.0
"""Time after which the user is told which source the job waits for."""
MANY_FILES: Final = 100
"""Number of small files that are merged without the option."""
_LOOK_S: Final[Any] = 0.2
"""PySpark's annotation says whole seconds, but its code accepts fractions."""
_RETRY_PAUSE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class ArchiveOptions:
    """Source and target of the archive job."""

    into: str
    """Folder or URL (pipeline/places.py)."""
    source: SourceSpec
    from_lsn: Lsn = 0
    """First LSN of a new archive; 0 means the default, 1."""
    to_lsn: Lsn | None = None
    """Last LSN; None: the end of the source."""
    every_s: float | None = None
    """Follow the log until stopped, with at least this time between batches; None: run once."""
    has_compaction: bool = False
    has_vacuum: bool = False
    keep_s: float = KEEP_S
    is_dry_run: bool = False
    has_pin: bool = True
    batch_entries: int = BATCH_ENTRIES
    retry_s: float = RETRY_S
    """How long the job waits for an unreachable node."""


@dataclass(frozen=True, slots=True)
class ArchiveReport:
    """What the job did, and the content of the archive now."""

    into: str
    cluster: str = ""
    first_lsn: Lsn = 1
    last_lsn: Lsn = 0
    source_last_lsn: Lsn = 0
    rows: int = 0
    files: int = 0
    size_bytes: int = 0
    chain: str = ""
    version: int = -1
    """Version of the table."""
    added_entries: int = 0
    added_rows: int = 0
    batches: int = 0
    merged_files: int = 0
    """Files that compaction merged."""
    deleted_files: int = 0
    pinned_from: Lsn = 0
    """LSN from which the log is kept for the next run; 0: there is no pin."""
    seconds: float = 0.0
    is_dry_run: bool = False
    notes: tuple[str, ...] = ()
    """Remarks for the user, one sentence each."""


class Cluster(Protocol):
    """The nodes of the log; `sources.SourceCluster` implements it."""

    def pin(self, name: str, lsn: Lsn, for_s: int) -> object:
        """Keep entries from an LSN on for ``for_s`` seconds."""

    def status(self) -> Mapping[str, Any]:
        """Return the status of the nodes."""


def _say(text: str) -> None:
    sys.stderr.write(f"brokerha: {text}\n")


@dataclass(frozen=True, slots=True)
class Around:
    """The parts that the program gives to the job."""

    spark: Callable[[], AbstractContextManager[SparkSession]]
    """Starts Spark; called when there is work."""
    tell: Callable[[int, int], None] = lambda _done, _total: None
    """Receives the number of entries done, and the total."""
    cluster: Cluster | None = None
    """None when no node can be asked."""
    warn: Callable[[str], None] = _say
    """Receives urgent remarks for the user."""
    stop: threading.Event = dataclasses.field(default_factory=threading.Event)
    """Set when the job must end."""


def run(options: ArchiveOptions, around: Around) -> ArchiveReport:
    """Run the job. Raises InvalidRequest, LinesMissing, StoreError, Unreachable, NotReady; earlier commits stay."""
    options = dataclasses.replace(options, into=place(options.into))
    if options.is_dry_run:
        return _dry_run(options)
    begun_s = time.monotonic()
    with ExitStack() as stack:
        job = _Job(options, around, stack)
        job.archive()
        job.tidy()
        job.pin()
        return dataclasses.replace(job.report(), seconds=round(time.monotonic() - begun_s, 3))


class _Job:
    """One run."""

    def __init__(self, options: ArchiveOptions, around: Around, stack: ExitStack) -> None:
        self._options = options
        self._around = around
        self._stack = stack
        self._table = LogTable(options.into)
        self._before: LogState | None = None
        self._spark: SparkSession | None = None
        self._told_s: float | None = None
        self._facts: dict[str, Any] = {"batches": 0, "merged_files": 0, "deleted_files": 0, "pinned_from": 0, "notes": ()}

    def archive(self) -> None:
        """Archive until the source has no more, or until stopped; repeat queries that reach no node."""
        options, around = self._options, self._around
        until_s = time.monotonic() + options.retry_s
        is_told = False
        while not around.stop.is_set():
            before = self._facts["batches"]
            try:
                self._once()
            except (Unreachable, NotReady) as error:
                if self._facts["batches"] > before:
                    until_s, is_told = time.monotonic() + options.retry_s, False
                if options.every_s is None and time.monotonic() > until_s:
                    raise
                if not is_told:
                    around.warn(f"{error}: trying again" + ("" if options.every_s else f" for {options.retry_s:g} seconds"))
                is_told = True
                around.stop.wait(_RETRY_PAUSE_S)
            else:
                return

    def _once(self) -> None:
        """Run one query."""
        options = self._options
        with self._told_when_slow(), open_source(options.source) as source:
            state = self._table.state_or_new()
            first_lsn = checked_begin(self._table, state, source, options.from_lsn)
            cluster, last_lsn, rewinds = source.cluster, source.last_lsn(), source.rewinds()
        if not state.id:
            state = self._table.begin(Head(cluster, first_lsn, first_lsn - 1, lineage=newest(rewinds)))
        self._before = self._before or state
        self._facts["source_last_lsn"] = last_lsn
        self._tell_cluster(state.head.last_lsn + 1)
        end = last_lsn if options.to_lsn is None else min(last_lsn, options.to_lsn)
        if state.head.last_lsn >= end and options.every_s is None:
            return
        with tempfile.TemporaryDirectory(prefix="brokerha-archive-") as checkpoint:
            self._stream(state, end, rewinds, checkpoint)

    def _stream(self, state: LogState, end: Lsn, rewinds: Rewinds, checkpoint: str) -> None:
        options, begin = self._options, state.head.last_lsn
        given: dict[str, Any] = {
            **options.source.options(),
            "view": VIEW_PIECES,
            "startingLsn": begin + 1,
            "maxEntriesPerTrigger": options.batch_entries,
        }
        if options.to_lsn is not None:
            given["endingLsn"] = options.to_lsn
        pieces = self._session().readStream.format("brokerha").options(**given).load()
        keep_s = options.keep_s if options.has_vacuum else None
        take = partial(take_batch, options.into, options.source, rewinds, keep_s)
        writing = pieces.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint).queryName("brokerha archive")
        if options.every_s is None:
            writing = writing.trigger(availableNow=True)
        else:
            writing = writing.trigger(processingTime=f"{options.every_s * 1000:.0f} milliseconds")
        with errors_of_tasks():
            query = writing.start()
            try:
                while not query.awaitTermination(_LOOK_S):
                    self._look(query, begin, end)
                    if self._around.stop.is_set() or self._is_at_end(query):
                        break
                self._look(query, begin, end)
            finally:
                query.stop()

    def _is_at_end(self, query: StreamingQuery) -> bool:
        """Tell whether a following job has reached its last LSN."""
        return self._options.to_lsn is not None and _reached(query) >= self._options.to_lsn

    def _look(self, query: StreamingQuery, begin: Lsn, end: Lsn) -> None:
        progress = query.lastProgress
        if progress is None:
            return
        reached = _reached(query)
        self._facts["batches"] = max(self._facts["batches"], progress["batchId"] + 1 if reached > begin else 0)
        self._around.tell(max(reached - begin, 0), max(end, reached) - begin)
        self._tell_cluster(max(reached, begin) + 1)

    def tidy(self) -> None:
        """Compact and vacuum: on request, and when many files slow down reading the table."""
        options = self._options
        state = self._table.state()
        wanted = groups(state.files)
        if wanted and (options.has_compaction or sum(map(len, wanted)) >= MANY_FILES):
            self._facts["merged_files"] += compact(self._session(), self._table)
        if options.has_vacuum:
            self._facts["deleted_files"] += self._table.vacuum(options.keep_s)

    def _session(self) -> SparkSession:
        if self._spark is None:
            self._spark = self._stack.enter_context(self._around.spark())
        return self._spark

    def _tell_cluster(self, following: Lsn) -> None:
        """Observe and pin, but rarely, so that batches do not wait for it."""
        now_s = time.monotonic()
        if self._around.cluster is None or (self._told_s is not None and now_s < self._told_s + TOLD_EVERY_S):
            return
        self._told_s = now_s
        try:
            status = self._around.cluster.status()
        except BrokerhaError:
            # Nothing depends on observations, and the pin shows at once whether nodes can be reached.
            pass
        else:
            observations.append(self._options.into, observations.observed(status, time.time_ns() // 1000))
        self.pin(following)

    def pin(self, following: Lsn = 0) -> None:
        """Set a pin. Without one the log can be trimmed before the next run: warn, but go on archiving."""
        if self._around.cluster is None or not self._options.has_pin:
            return
        state = self._table.state()
        following = following or state.head.last_lsn + 1
        if self._facts["pinned_from"] == following:
            return
        try:
            self._around.cluster.pin(f"archive-{state.id.replace('-', '')[:16]}", following, PIN_FOR_S)
        except BrokerhaError as error:
            self._facts |= {"pinned_from": 0, "notes": (f"the cluster does not keep its log for this archive: {error}",)}
            return
        self._facts |= {"pinned_from": following, "notes": ()}

    @contextmanager
    def _told_when_slow(self) -> Iterator[None]:
        """Tell the user which source is awaited when it does not answer at once; a frozen node is silent until the timeout."""
        source = self._options.source
        words = f"waiting for {source.name}, for {source.timeout_s:g} seconds at most"
        timer = threading.Timer(SILENT_S, self._around.warn, [words])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def report(self) -> ArchiveReport:
        """Return the report of the work so far."""
        state = self._table.state()
        before = self._before or state
        return dataclasses.replace(
            _with_state(ArchiveReport(self._options.into), state),
            added_entries=state.head.last_lsn - before.head.last_lsn,
            added_rows=state.rows - before.rows,
            **self._facts,
        )


def _reached(query: StreamingQuery) -> Lsn:
    """Return the last LSN of the committed batches."""
    progress = query.lastProgress
    ends = [source["endOffset"] for source in progress["sources"]] if progress is not None else []
    found = [json.loads(end) if isinstance(end, str) else end for end in ends if end]
    return int(found[0]["lsn"]) if found else 0


def take_batch(into: str, spec: SourceSpec, rewinds: Rewinds, keep_s: float | None, pieces: DataFrame, _batch: int) -> None:
    """Write the pieces of one batch and commit them; skip a batch that is in the table already. Called by Spark.

    No other writer is active between two batches. So a following job merges files then, and deletes those unused for `keep_s`.
    """
    table = LogTable(into)
    found = pieces.mapInArrow(partial(_write, into, spec), WRITTEN_SCHEMA).collect()
    written = sorted((_written(row) for row in found), key=lambda each: each.first_lsn)
    state = table.state()
    if not written or written[-1].last_lsn <= state.head.last_lsn:
        return
    lineage, cluster = newest(rewinds), ""
    if spec.kind in {"http", "stream"}:
        with open_source(spec) as source:
            cluster = source.cluster
            if source.rewinds() != rewinds:
                raise NotReady("the log went back after a split while it was read: archive again")
    state = table.append(state, written, lineage, cluster)
    if sum(map(len, groups(state.files))) >= MANY_FILES:
        compact(pieces.sparkSession, table)
        if keep_s is not None:
            table.vacuum(keep_s)


def _written(row: Any) -> Written:
    return Written._make(bytes(value) if isinstance(value, bytearray) else value for value in row)


def _write(into: str, spec: SourceSpec, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write one piece, in a task."""
    import pyarrow as pa

    from brokerha.pipeline.rows import SCHEMA, collector_at_rest

    for batch in batches:
        for first_lsn, last_lsn in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            # Rows are many objects without cycles, so scanning them for garbage is useless.
            with open_source(spec) as source, collector_at_rest():
                written = write_log(into, source.batches(first_lsn, last_lsn, SCHEMA.names, None))
            if written is not None:
                yield pa.RecordBatch.from_pylist([written._asdict()])


def compact(spark: SparkSession, table: LogTable) -> int:
    """Merge small files, one task for each group; return the number of merged files. Raises StoreDamaged, StoreError."""
    merged = 0
    # The result of one pass can be worth a second one; each pass halves the number of small files.
    while wanted := groups((state := table.state()).files):
        tasks = spark.range(0, len(wanted), numPartitions=len(wanted))
        with errors_of_tasks():
            done = tasks.mapInArrow(partial(_merge, table.where, wanted), f"place long, {WRITTEN_SCHEMA}").collect()
        table.replace(state, [(wanted[row[0]], _written(row[1:])) for row in done])
        merged += sum(map(len, wanted))
    return merged


def _merge(into: str, wanted: Sequence[tuple[LogFile, ...]], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    from brokerha.pipeline.rows import SCHEMA

    table = LogTable(into)
    for batch in batches:
        for number in batch[0].to_pylist():
            files = wanted[number]
            ends = (files[0].first_lsn, files[-1].last_lsn)
            written = write_log(into, table.batches(LogState(files=files), *ends, SCHEMA.names))
            if written is not None:
                yield pa.RecordBatch.from_pylist([{"place": number, **written._asdict()}])


def checked_begin(table: LogTable, state: LogState, source: OpenSource, from_lsn: Lsn) -> Lsn:
    """Return the LSN at which the archive begins, after checking that the source continues it: same cluster and history, no gap.

    Raises LinesMissing at a gap, InvalidRequest, StoreError for another history, WentBack for one that was given up in a split.
    """
    first_lsn, last_lsn = source.first_lsn(), source.last_lsn()
    head = state.head
    if head.cluster and source.cluster and head.cluster != source.cluster:
        raise InvalidRequest(
            f"the archive in {table.where} is of cluster {head.cluster}, the source is of {source.cluster}: choose another folder"
        )
    if not state.id or (not state.files and head.first_lsn == (from_lsn or head.first_lsn)):
        begin = from_lsn or head.first_lsn
        if begin < first_lsn:
            raise LinesMissing(
                f"the source begins at LSN {first_lsn}, and lacks what is before it: archive that from a journal, a stream or a backup first, "
                f"or begin here with --from-lsn {first_lsn}; then audit and rebuild lack the state before it"
            )
        if begin > last_lsn + 1:
            raise InvalidRequest(
                f"the source ends at LSN {last_lsn}, and the archive would begin at {begin}: choose an earlier one"
            )
        return begin
    if from_lsn and from_lsn != head.first_lsn:
        raise InvalidRequest(f"the archive in {table.where} begins at LSN {head.first_lsn} already: leave out --from-lsn")
    rewinds = source.rewinds()
    if void := problem(rewinds, head.lineage, head.last_lsn):
        raise WentBack(f"{void}, with an archive in another folder (or a copy of this one that ends there or before)")
    if newest(rewinds) < head.lineage and last_lsn > head.last_lsn:
        raise StoreError(
            f"the source is of lineage {newest(rewinds)} of the log, the archive of {head.lineage}: what the source has may be void since a "
            "split; archive from a master that runs, or into another folder"
        )
    if head.last_lsn + 1 < first_lsn:
        raise LinesMissing(
            f"the archive ends at LSN {head.last_lsn} and the source begins at {first_lsn}: "
            f"archive what is between them from a journal, a stream or a backup"
        )
    common = min(head.last_lsn, last_lsn)
    if max(first_lsn, head.first_lsn) <= common:
        entry = next(source.read(common, common))
        if text_of(entry.fingerprint) != text_of(table.fingerprint_at(state, common)):
            raise StoreError(
                f"the source has another history than the archive: at LSN {common} the content differs; is it the same cluster?"
            )
    return head.first_lsn


def _dry_run(options: ArchiveOptions) -> ArchiveReport:
    """Report what a run would do, without writing."""
    table = LogTable(options.into)
    state = table.state_or_new()
    with open_source(options.source) as source:
        first_lsn = checked_begin(table, state, source, options.from_lsn)
        cluster, last_lsn = source.cluster, source.last_lsn()
    head = state.head
    if not state.files:
        head = dataclasses.replace(head, cluster=head.cluster or cluster, first_lsn=first_lsn, last_lsn=first_lsn - 1)
    until = last_lsn if options.to_lsn is None else min(last_lsn, options.to_lsn)
    wanted = groups(state.files) if options.has_compaction else []
    return dataclasses.replace(
        _with_state(ArchiveReport(options.into), dataclasses.replace(state, head=head)),
        source_last_lsn=last_lsn,
        added_entries=max(0, until - head.last_lsn),
        merged_files=sum(map(len, wanted)),
        deleted_files=table.vacuum(options.keep_s, is_dry_run=True) if options.has_vacuum and state.id else 0,
        is_dry_run=True,
    )


def _with_state(report: ArchiveReport, state: LogState) -> ArchiveReport:
    head = state.head
    return dataclasses.replace(
        report, cluster=head.cluster, first_lsn=head.first_lsn, last_lsn=head.last_lsn, rows=state.rows, files=len(state.files),
        size_bytes=state.size_bytes, chain=head.chain, version=state.version,
    )  # fmt: skip
