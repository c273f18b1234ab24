"""Audit: queries that compare the archive with its hashes, and workers with the archive. Nothing is written.

    files        missing? bytes? ──suspicious──> rows computed again, in the order of LSNs        problems, with file and LSN
    chain        entry hashes by blocks: no gap, nothing twice, the chain of the last commit
    proof        content at LSN L from the rows alone ──> fingerprint == that of entry L; if not, halving finds the entry
    copies       each worker reports its buckets at its own LSN W ──> content at W from archive and log ──> buckets that differ
                     ──> items of those buckets on both sides ──> differences, with node, store, name, key and both values
    ids          each acknowledged transaction id of a list stands in the log exactly once

Entries that a worker applied after the archive's end come from the log of the cluster, through the data source. A worker continues
meanwhile, so its items are compared at the LSN that it reports with them. Log and archive must be one history, so the last entry of
the archive is first compared with the log. A damaged archive, or one whose proof fails, says nothing about workers.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgpack
import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from brokerha.model.errors import ConfigurationError, InvalidRequest, NotReady, StoreError, WentBack
from brokerha.model.fingerprints import DIGEST_BYTES, EMPTY, text_of
from brokerha.model.forgetting import MARK, forgotten_below
from brokerha.model.ids import Lsn, TxId
from brokerha.model.log_lineages import problem as void_of
from brokerha.pipeline.audit_copies import (
    BITS,
    DIFFERS,
    EQUAL,
    NOT_COMPARED,
    SHOWN_BYTES,
    TEXT_BYTES,
    Bucket,
    Copy,
    CopyAudit,
    ItemRow,
    Place,
    Summary,
    compare,
)
from brokerha.pipeline.audit_rows import DIFFERS as BYTES_DIFFER
from brokerha.pipeline.audit_rows import FILE, Problem, check_file, checked, row_differences, rows_of
from brokerha.pipeline.entries import LogEntry
from brokerha.pipeline.places import place, sha256_of
from brokerha.pipeline.rows import SCHEMA, table_of
from brokerha.pipeline.sources import OpenSource, SourceSpec, open_source
from brokerha.pipeline.table import BLOCK, LogFile, LogState, LogTable, next_chain
from brokerha.spark import frames
from brokerha.spark.session import errors_of_tasks
from brokerha.stores.backup.lines import LinesMissing
from brokerha.stores.comparing.items import CONTROL, GRAPH

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

NAMED_LIMIT: Final = 100
"""Most transaction ids of each kind in a report."""
PROBLEMS_LIMIT: Final = 100
STEPS: Final = 3
"""Files, chain, proof; each copy and the ids add one."""
BEHIND_S: Final = 0.2
"""Pause between two questions for entries that a master does not have yet."""
_EXPLAINED: Final = 20
"""Most entries with problems that are compared with the log of the cluster cell by cell."""
_TASKS_MOST: Final = 200
_UNSIGNED: Final = -(1 << 63)

Tell = Callable[[int, int], None]
Connect = Callable[[str], AbstractContextManager[Copy]]


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """Subject of an audit."""

    archive: str
    """Folder or URL (pipeline/places.py)."""
    lsn: Lsn | None = None
    """LSN whose content is proved; None: the last of the archive."""
    source: SourceSpec | None = None
    """The log of the cluster; None: the archive alone."""
    copies: tuple[tuple[str, str], ...] = ()
    """(name, URL) of nodes whose copies are compared."""
    txids: Path | None = None
    """File with transaction ids, one in each line."""
    is_deep: bool = False
    """Recompute all rows of all files, even when the bytes of a file are unchanged."""
    timeout_s: float = 60.0
    """Timeout of one answer of a worker."""


@dataclass(frozen=True, slots=True)
class TxidAudit:
    """Result for a list of transaction ids."""

    given: int
    found: int
    rejected: int
    """Number of found transactions that were rejected, so changed nothing."""
    missing: tuple[TxId, ...] = ()
    """The first hundred missing ids."""
    missing_number: int = 0
    repeated: tuple[tuple[TxId, tuple[Lsn, ...]], ...] = ()
    """Ids that came again while they were known (model/forgetting.py), with their LSNs; the first hundred."""


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Result of an audit."""

    archive: str
    cluster: str
    first_lsn: Lsn
    last_lsn: Lsn
    files: int
    rows: int
    chain: str
    lsn: Lsn = 0
    """LSN whose content was proved."""
    fingerprint: str = ""
    """Computed from the rows; empty when it was not computed."""
    is_proved: bool = False
    """Whether it equals the fingerprint in the entry."""
    problems: tuple[Problem, ...] = ()
    """Problems of the archive."""
    copies: tuple[CopyAudit, ...] = ()
    txids: TxidAudit | None = None
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def result(self) -> str:
        """The worst result of all comparisons: ``equal``, ``not compared`` or ``differs``."""
        results = {copy.result for copy in self.copies}
        ids = self.txids
        if self.problems or DIFFERS in results or (ids is not None and (ids.missing or ids.repeated)):
            return DIFFERS
        return EQUAL if self.is_proved and NOT_COMPARED not in results else NOT_COMPARED


class Found(NamedTuple):
    """One transaction id in the log."""

    txid: TxId
    lsn: Lsn
    is_applied: bool


def run(options: AuditOptions, start: Callable[[], AbstractContextManager[SparkSession]], tell: Tell) -> AuditReport:
    """Run the whole audit; Spark starts after the check that archive and log are of one cluster.

    Raises StoreError and its kinds for an archive that is unreadable or of another cluster, InvalidRequest for an LSN that it does
    not hold, ConfigurationError, Unreachable.
    """
    import brokerha

    table = LogTable(place(options.archive))
    state = table.state()
    wanted = read_txids(options.txids) if options.txids is not None else None
    _wanted_lsn(options, table, state)
    with ExitStack() as closing:
        source = None if options.source is None else closing.enter_context(open_source(options.source))
        if source is not None and source.cluster and state.head.cluster and source.cluster != state.head.cluster:
            raise ConfigurationError(
                f"the archive in {table.where} is that of cluster {state.head.cluster}, and {source.spec.name} is of {source.cluster}"
            )
        log = AuditedLog(table, state, source, options.timeout_s)
        log.check_one_history()
        log.spark = closing.enter_context(start())
        return run_audit(options, log, wanted, partial(brokerha.connect, timeout=options.timeout_s), tell)


def run_audit(options: AuditOptions, log: AuditedLog, wanted: Sequence[TxId] | None, connect: Connect, tell: Tell) -> AuditReport:
    """Run all checks in a session; ``connect(url)`` is called for each copy."""
    begun_s = time.monotonic()
    table, state = log.table, log.state
    head = state.head
    lsn = _wanted_lsn(options, table, state)
    steps, done = STEPS + len(options.copies) + (wanted is not None), iter(range(1, 1 << 30))
    report = AuditReport(table.where, head.cluster, head.first_lsn, head.last_lsn, len(state.files), state.rows, head.chain)
    with errors_of_tasks():
        problems = log.file_problems(is_deep=options.is_deep)
        tell(next(done), steps)
        if not problems:
            problems = log.chain_problems()
        tell(next(done), steps)
        if problems:
            problems = list(log.explained(problems[:PROBLEMS_LIMIT]))
        else:
            report, problems = _proved(report, log, lsn)
        tell(next(done), steps)
        why = _why_no_copy(report, problems)
        compared = []
        for node, url in options.copies:
            found = CopyAudit(node, NOT_COMPARED, reason=why)
            compared.append(found if why else compare(node, partial(connect, url), log, options.timeout_s))
            tell(next(done), steps)
        if wanted is not None:
            if any(problem.lsn == 0 for problem in problems):
                note = "the transaction ids were not looked for, because files of the archive are damaged"
                report = replace(report, notes=(*report.notes, note))
            else:
                report = replace(report, txids=judged(wanted, log.transactions(wanted)))
            tell(next(done), steps)
    seconds = round(time.monotonic() - begun_s, 3)
    return replace(report, problems=tuple(problems), copies=tuple(compared), seconds=seconds)


def _wanted_lsn(options: AuditOptions, table: LogTable, state: LogState) -> Lsn:
    head = state.head
    lsn = head.last_lsn if options.lsn is None else options.lsn
    first = 0 if state.holds_every_state else head.first_lsn
    if not first <= lsn <= head.last_lsn:
        held = f"LSN {head.first_lsn:,} to {head.last_lsn:,}" if state.files else "nothing yet"
        raise InvalidRequest(f"the archive in {table.where} holds {held}, not LSN {lsn:,}")
    return lsn


def _why_no_copy(report: AuditReport, problems: Sequence[Problem]) -> str:
    if problems:
        return "the archive is not what was archived"
    return "" if report.is_proved else "no content can be computed from the archive"


def _proved(report: AuditReport, log: AuditedLog, lsn: Lsn) -> tuple[AuditReport, list[Problem]]:
    """Compute the content at an LSN and compare it with the fingerprint in its entry."""
    if not log.state.holds_every_state:
        note = (
            f"the archive begins with LSN {log.state.head.first_lsn:,}, so no content can be computed from it, and only its files were "
            "checked: an archive from LSN 1 on proves the content and compares workers"
        )
        return replace(report, notes=(*report.notes, note)), []
    found = log.summary(lsn).fingerprint
    is_proved = found == log.fingerprint_at(lsn)
    report = replace(report, lsn=lsn, fingerprint=text_of(found), is_proved=is_proved)
    return report, [] if is_proved else [log.misfit(lsn)]


class AuditedLog:
    """An archive and the log of its cluster; implements `audit_copies.Log`."""

    spark: SparkSession

    def __init__(self, table: LogTable, state: LogState, source: OpenSource | None, timeout_s: float) -> None:
        self.table = table
        self.state = state
        """State of the archive when the audit began; the archive can grow meanwhile."""
        self._source = source
        self._timeout_s = timeout_s
        self._known: Summary | None = None

    # ---- files and chain

    def file_problems(self, *, is_deep: bool) -> list[Problem]:
        """Return problems of files, and of the rows of changed files."""
        files = self.state.files
        told = self._tasks(len(files)).mapInArrow(partial(_check_files, self.table.where, files), "number long, what string")
        found = {row.number: row.what for row in told.collect()}
        problems = [Problem(files[number].path, 0, what) for number, what in sorted(found.items()) if what]
        unreadable = {number for number, what in found.items() if what and what != BYTES_DIFFER}
        again = [
            file for number, file in enumerate(files)
            if number not in unreadable and (is_deep or found[number] or not sha256_of(file.path))
        ]  # fmt: skip
        return problems + self._row_problems(again)

    def _row_problems(self, files: Sequence[LogFile]) -> list[Problem]:
        if not files:
            return []
        schema = from_arrow_schema(SCHEMA.append(pa.field(FILE, pa.string())))
        rows = self._tasks(len(files)).mapInArrow(partial(_rows_of, self.table.where, files), schema)
        in_order = rows.repartition("lsn").sortWithinPartitions("lsn", "operation", "part")
        found = in_order.mapInArrow(_checked, f"{FILE} string, lsn long, what string").orderBy("lsn").limit(PROBLEMS_LIMIT)
        return [Problem(*row) for row in found.collect()]

    def chain_problems(self) -> list[Problem]:
        """Return missing and repeated entries, and a chain that differs from the last commit."""
        head = self.state.head
        if not self.state.files:
            return []
        first_rows = self._archived(head.last_lsn, ["lsn", "operation", "part", "entry_hash"], head.first_lsn).filter(_IS_FIRST)
        block = f.floor((f.col("lsn") - head.first_lsn) / BLOCK).alias("block")
        # One aggregate returns all facts of a block; a separate count of distinct LSNs would be a second pass over all rows.
        in_order = f.array_sort(f.collect_list(f.struct("lsn", f.hex("entry_hash").alias("hex")))).alias("entries")
        blocks = (
            first_rows.groupBy(block)
            .agg(in_order)
            .select(
                "block",
                f.size("entries").alias("entries"),
                f.size(f.array_distinct("entries.lsn")).alias("lsns"),
                f.sha2(f.array_join("entries.hex", "").cast("binary"), 256).alias("digest"),
            )
        )
        found = {row.block: row for row in blocks.collect()}
        chain = ""
        for number in range((head.last_lsn - head.first_lsn) // BLOCK + 1):
            begin = head.first_lsn + number * BLOCK
            end = min(begin + BLOCK - 1, head.last_lsn)
            row = found.get(number)
            if row is None or row.entries != row.lsns or row.lsns != end - begin + 1:
                return self._gaps(begin, end)
            chain = next_chain(chain, row.digest)
        if chain != head.chain:
            what = (
                "the entries fit each other and are not those of the hash chain: entries were replaced together with their hashes"
            )
            return [Problem("", 0, what)]
        return []

    def _gaps(self, begin: Lsn, end: Lsn) -> list[Problem]:
        rows = self._archived(end, ["lsn", "operation", "part"], begin).filter(_IS_FIRST)
        counted = {row.lsn: row["count"] for row in rows.groupBy("lsn").count().collect()}
        problems = []
        for lsn in range(begin, end + 1):
            file = next((each.path for each in self.state.files_of(lsn, lsn)), "")
            if lsn not in counted:
                problems.append(Problem(file, lsn, "is missing"))
            elif counted[lsn] > 1:
                problems.append(Problem(file, lsn, "stands twice"))
        return problems

    def explained(self, problems: Sequence[Problem]) -> Iterator[Problem]:
        """Yield the problems, with the cells in which an entry differs from the log of the cluster, if that still has it."""
        for number, problem in enumerate(problems):
            what = problem.what
            for entry in self._peek(problem.lsn) if problem.lsn and number < _EXPLAINED else ():
                kept = self.table.rows(self.state, problem.lsn, problem.lsn, SCHEMA.names)
                what = "; ".join([what, *row_differences(kept, table_of([entry]))[:3]])
            yield problem._replace(what=what)

    def misfit(self, lsn: Lsn) -> Problem:
        """Find an entry that does not lead to its fingerprint, while the entry before it does; by bisection."""
        right, wrong = 0, lsn
        while wrong - right > 1:
            middle = (right + wrong) // 2
            is_right = frames.fingerprint(self._log(middle)) == self.table.fingerprint_at(self.state, middle)
            right, wrong = (middle, wrong) if is_right else (right, middle)
        found = text_of(frames.fingerprint(self._log(wrong)))
        says = text_of(self.table.fingerprint_at(self.state, wrong))
        file = self.state.files_of(wrong, wrong)[0].path
        return Problem(file, wrong, f"does not fit what is before it: it leads to {found}, and the entry says {says}")

    # ---- the log of the cluster

    def check_one_history(self) -> None:
        """Raise WentBack, or StoreError when the cluster has another entry at the end of the archive."""
        head = self.state.head
        if self._source is not None and (void := void_of(self._source.rewinds(), head.lineage, head.last_lsn)):
            raise WentBack(f"{void}: this archive cannot be compared with the log of now")
        for entry in self._peek(head.last_lsn) if self.state.files else ():
            if text_of(entry.fingerprint) != head.fingerprint or entry.txid != head.txid:
                raise StoreError(
                    f"the archive in {self.table.where} and the log of the cluster are two histories: LSN {head.last_lsn:,} is another entry "
                    "there; is it the archive of this cluster?"
                )

    def _peek(self, lsn: Lsn) -> Iterator[LogEntry]:
        """Yield one entry of the cluster's log; nothing when the log lacks it or no node can be asked."""
        if self._source is None:
            return
        try:
            if self._source.first_lsn() <= lsn <= self._source.last_lsn():
                yield from self._source.read(lsn, lsn)
        except LinesMissing:
            return

    def _reach(self, lsn: Lsn) -> None:
        """Raise NotReady when neither the archive nor, in time, the log of the cluster has an LSN."""
        if lsn <= self.state.head.last_lsn:
            return
        if self._source is None:
            raise NotReady(
                f"it is at LSN {lsn:,}, and the archive ends with {self.state.head.last_lsn:,}: archive first (brokerha pipeline archive)"
            )
        deadline_s = time.monotonic() + self._timeout_s
        behind = threading.Event()
        while self._source.last_lsn() < lsn:
            if time.monotonic() > deadline_s:
                raise NotReady(f"it is at LSN {lsn:,}, and the log of the cluster cannot be read that far yet")
            behind.wait(BEHIND_S)

    # ---- the content at an LSN

    def summary(self, lsn: Lsn) -> Summary:
        """See the protocol; the last summary is cached, because workers of a quiet cluster are at the same LSN."""
        if self._known is None or self._known.lsn != lsn:
            self._known = self._summary(lsn)
        return self._known

    def _summary(self, lsn: Lsn) -> Summary:
        log = frames.unfolded(self._log(lsn))
        columns = ("store", "name", frames.IS_REPOSITORY, "item_high", *frames.DIGEST)
        name = f.when((f.col("store") == CONTROL), "").otherwise(f.col("name")).alias("name")
        counted = (
            frames.state(log, columns=columns, is_unfolded=True)
            .groupBy("store", name, frames.IS_REPOSITORY, _bucket())
            .agg(f.count("*").alias("number"), *map(frames.xor, frames.DIGEST))
        )
        buckets: dict[Place, Bucket] = {}
        repositories: list[str] = []
        total = 0
        for row in counted.collect():
            digest = frames.joined(row.digest_high, row.digest_low)
            total ^= digest
            if row.is_repository:
                repositories.append(row.name)
            else:
                buckets[row.store, row.name, row.bucket] = Bucket(row.number, digest)
        counters = frames.counters(log, is_unfolded=True)
        return Summary(lsn, frames.fingerprint_from(total, counters), buckets, counters, tuple(sorted(repositories)))

    def fingerprint_at(self, lsn: Lsn) -> bytes:
        """See the protocol."""
        if lsn == 0:
            return EMPTY
        if lsn <= self.state.head.last_lsn:
            return self.table.fingerprint_at(self.state, lsn)
        return next(self._peek(lsn)).fingerprint

    def items(self, lsn: Lsn, places: Sequence[Place], limit: int) -> list[ItemRow]:
        """See the protocol."""
        columns = (
            "store", "name", frames.IS_REPOSITORY, "key", "subject", "predicate", "object", "graph", *frames.ITEM, *frames.DIGEST, "value",
            "lsn",
        )  # fmt: skip
        name = f.when(f.col("store") == CONTROL, "").otherwise(f.col("name"))
        place_of = f.struct(f.col("store"), name.alias("name"), _bucket())
        wanted = f.array(
            *(
                f.struct(f.lit(store).alias("store"), f.lit(of).alias("name"), f.lit(bucket).alias("bucket"))
                for store, of, bucket in places
            )
        )
        found = frames.state(self._log(lsn), columns=columns).filter(
            ~f.col(frames.IS_REPOSITORY) & f.array_contains(wanted, place_of)
        )
        in_order = found.orderBy("store", name, *(f.col(half).bitwiseXOR(f.lit(_UNSIGNED)) for half in frames.ITEM)).limit(
            limit + 1
        )
        cut = f.when(f.col("store") == CONTROL, f.col("value")).otherwise(f.substring("value", 1, SHOWN_BYTES)).alias("value")
        return [_item_row(row) for row in in_order.select(*(each for each in columns if each != "value"), cut, _bucket()).collect()]

    def transactions(self, wanted: Collection[TxId]) -> list[Found]:
        """Return the positions of these transactions, and of entries that forget ids, in archive and log, in the order of LSNs."""
        end = self.state.head.last_lsn
        if self._source is not None:
            end = max(end, self._source.last_lsn())
        if not wanted or end < self.state.head.first_lsn:
            return []
        ids = self.spark.createDataFrame([(txid,) for txid in wanted], "txid string")
        log = self._log(end, ["lsn", "operation", "part", "txid", "outcome"]).filter(_IS_FIRST)
        listed = f.broadcast(ids.withColumn("listed", f.lit(1)))
        is_wanted = f.col("listed").isNotNull() | f.col("txid").startswith(MARK)
        found = log.join(listed, "txid", "left").filter(is_wanted).orderBy("lsn").select("txid", "lsn", "outcome")
        return [Found(row.txid, row.lsn, row.outcome == "applied") for row in found.collect()]

    def _log(self, lsn: Lsn, columns: Sequence[str] = SCHEMA.names) -> DataFrame:
        """Return all rows up to an LSN; those after the archive come from the log of the cluster."""
        self._reach(lsn)
        last_lsn = self.state.head.last_lsn
        log = self._archived(min(lsn, last_lsn), columns, self.state.head.first_lsn)
        if lsn <= last_lsn or self._source is None:
            return log
        return log.unionByName(frames.logged(self.spark, self._source.spec, last_lsn + 1, lsn, columns))

    def _archived(self, last_lsn: Lsn, columns: Sequence[str], first_lsn: Lsn) -> DataFrame:
        return frames.archived(self.spark, self.table, self.state, first_lsn, last_lsn, columns)

    def _tasks(self, count: int) -> DataFrame:
        return self.spark.range(0, count, numPartitions=max(1, min(count, _TASKS_MOST)))


_IS_FIRST: Final = "operation <= 1 AND part = 0"
"""Condition for the first row of an entry."""


def _bucket() -> Column:
    return f.shiftrightunsigned("item_high", 64 - BITS).cast("int").alias("bucket")


def _item_row(row: Any) -> ItemRow:
    item, digest = (frames.joined(row[f"{of}_high"], row[f"{of}_low"]).to_bytes(DIGEST_BYTES, "big") for of in ("item", "digest"))
    value = bytes(row.value or b"")
    if row.store == CONTROL:
        text, value = row.name.encode(), json.dumps(msgpack.unpackb(value)).encode()
    elif row.store == GRAPH:
        terms = (row.subject, row.predicate, row.object, row.graph)
        text = " ".join(term for term in terms if term is not None).encode()
    else:
        text = bytes(row.key)
    name = "" if row.store == CONTROL else row.name
    return ItemRow(row.store, name, row.bucket, item, digest, text[:TEXT_BYTES], value[:SHOWN_BYTES], row.lsn)


# ---- in tasks


def _check_files(where: str, files: Sequence[LogFile], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        numbers = batch[0].to_pylist()
        yield pa.RecordBatch.from_pydict(
            {
                "number": pa.array(numbers, pa.int64()),
                "what": pa.array([check_file(where, files[number]) for number in numbers], pa.string()),
            }
        )


def _rows_of(where: str, files: Sequence[LogFile], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from rows_of(where, [files[number] for number in batch[0].to_pylist()])


def _checked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    problems = list(checked(batches))
    if problems:
        yield pa.RecordBatch.from_pylist([problem._asdict() for problem in problems])


# ---- ids


def read_txids(path: Path) -> tuple[TxId, ...]:
    """Read the ids of a file, one in each line, without duplicates. Raises ConfigurationError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"cannot read transaction ids from {path}: {reason}") from None
    return tuple(dict.fromkeys(line.strip() for line in lines if line.strip()))


def judged(wanted: Sequence[TxId], found: Iterable[Found]) -> TxidAudit:
    """Compare the ids of a list with the found ones, in the order of LSNs.

    An id that was forgotten can come again as another transaction.
    """
    places: dict[TxId, list[Found]] = {}
    ids_from, again = 0, set[TxId]()
    listed = frozenset(wanted)
    for each in found:
        if each.txid in listed:
            before = places.setdefault(each.txid, [])
            if before and before[-1].lsn >= ids_from:
                again.add(each.txid)
            before.append(each)
        ids_from = max(ids_from, forgotten_below(each.txid))
    missing = [txid for txid in wanted if txid not in places]
    repeated = [(txid, tuple(each.lsn for each in places[txid])) for txid in wanted if txid in again]
    return TxidAudit(
        given=len(wanted),
        found=len(places),
        rejected=sum(not each[0].is_applied for each in places.values()),
        missing=tuple(missing[:NAMED_LIMIT]),
        missing_number=len(missing),
        repeated=tuple(repeated[:NAMED_LIMIT]),
    )
