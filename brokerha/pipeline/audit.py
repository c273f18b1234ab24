"""Audit: is the archive what was archived, and does every worker hold what it says?

    files        missing? bytes? rows? hash chain?                                       problems, with file and LSN
    proof        content at LSN L from the rows alone ──> fingerprint == that of entry L
    copies       each worker tells its buckets at its own LSN W ──> content at W from archive and log ──> buckets that differ
                     ──> items of those buckets on both sides ──> differences, with node, store, name, key and both values
    ids          each acknowledged transaction id of a list stands in the log exactly once

What a worker has applied behind the archive's end is read from the log of the cluster (`Tail`); nothing is written anywhere. A worker
goes on meanwhile, so that its items are compared at the LSN that it tells with them.

The log of the cluster and the archive must be one history: the last entry of the archive is compared with the log before anything else.
An archive that is not whole, or whose proof fails, says nothing about workers: they are not compared then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from brokerha.model.errors import ConfigurationError, StoreDiffers, WentBack
from brokerha.model.fingerprints import text_of
from brokerha.model.ids import Lsn, TxId
from brokerha.model.log_lineages import problem as void_of
from brokerha.pipeline.archive import Archive, ArchiveState
from brokerha.pipeline.audit_copies import (
    DIFFERS,
    EQUAL,
    NOT_COMPARED,
    Comparison,
    Copy,
    CopyAudit,
    Tail,
    check_one_history,
)
from brokerha.pipeline.audit_engine import Engine, Found
from brokerha.pipeline.audit_files import Problem, row_differences
from brokerha.pipeline.audit_pieces import EngineOfPieces, Tasks, TasksHere
from brokerha.pipeline.entries import EntrySource
from brokerha.pipeline.sources import SourceSpec, open_source
from brokerha.pipeline.state import state_at
from brokerha.stores.log_pages import LinesMissing

HERE_ROWS: Final = 2_000_000
"""Up to so many rows of the archive, this process is done before Spark has started."""
NAMED_LIMIT: Final = 100
"""Transaction ids that a report names of each kind."""
_EXPLAINED: Final = 20
"""Entries with problems that are compared with the log of the cluster cell by cell."""

Tell = Callable[[int, int], None]
Connect = Callable[[str], AbstractContextManager[Copy]]


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """What to audit."""

    archive: Path
    lsn: Lsn | None = None
    """At which LSN the content is proved; None: the last of the archive."""
    source: SourceSpec | None = None
    """The log of the cluster; None: the archive alone."""
    copies: tuple[tuple[str, str], ...] = ()
    """(name, URL) of nodes whose copies are compared."""
    txids: Path | None = None
    """File with transaction ids, one a line."""
    is_deep: bool = False
    """Compute all rows of all files again, also of those whose bytes are what they were, and prove each entry in this process."""
    timeout_s: float = 60.0
    """How long a worker may take for one answer."""
    here_rows: int = HERE_ROWS
    """Archives with more rows than this are read on Spark."""


@dataclass(frozen=True, slots=True)
class TxidAudit:
    """What became of a list of transaction ids."""

    given: int
    found: int
    rejected: int
    """Of those found: they are in the log, and changed nothing."""
    missing: tuple[TxId, ...] = ()
    """The first hundred."""
    missing_number: int = 0
    repeated: tuple[tuple[TxId, tuple[Lsn, ...]], ...] = ()
    """Ids that stand in the log more than once, with their LSNs; the first hundred."""


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What was found."""

    archive: str
    cluster: str
    first_lsn: Lsn
    last_lsn: Lsn
    files: int
    rows: int
    chain: str
    lsn: Lsn = 0
    """Where the content was proved."""
    fingerprint: str = ""
    """Computed from the rows; empty when it was not."""
    is_proved: bool = False
    """Whether that is the fingerprint that the entry has."""
    problems: tuple[Problem, ...] = ()
    """Of the archive."""
    copies: tuple[CopyAudit, ...] = ()
    txids: TxidAudit | None = None
    engine: str = "here"
    """``here`` or ``spark``."""
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def result(self) -> str:
        """The worst of all that was compared: ``equal``, ``not compared`` or ``differs``."""
        results = {copy.result for copy in self.copies}
        ids = self.txids
        if self.problems or DIFFERS in results or (ids is not None and (ids.missing or ids.repeated)):
            return DIFFERS
        return EQUAL if self.is_proved and NOT_COMPARED not in results else NOT_COMPARED


def run_audit(
    options: AuditOptions,
    engine: Engine,
    source: EntrySource | None,
    connect: Connect,
    tell: Tell = lambda _done, _total: None,
) -> AuditReport:
    """Do all of it. `source` is the log of the cluster, open; ``connect(url)`` is asked for each copy.

    Raises StoreError and its kinds for an archive that cannot be read at all or is that of another cluster, ConfigurationError,
    Unreachable.
    """
    begun_s = time.monotonic()
    archive, state = engine.archive, engine.state
    if source is not None and (void := void_of(source.rewinds(), state.lineage, state.last_lsn)):
        raise WentBack(f"{void}: this archive cannot be compared with the log of now")
    lsn = _wanted_lsn(options, archive, state)
    wanted = read_txids(options.txids) if options.txids is not None else None
    steps = len(state.files) + 1 + len(options.copies) + (wanted is not None)
    progress = _Steps(tell, steps)
    tail = Tail(source, state.last_lsn, options.timeout_s)
    report = AuditReport(
        str(archive.directory), state.cluster, state.first_lsn, state.last_lsn, len(state.files), state.rows, state.chain,
        engine=engine.name,
    )  # fmt: skip
    comparison = Comparison(engine, tail, options.timeout_s)
    problems: list[Problem] = []
    for found in engine.check(is_deep=options.is_deep):
        problems += found
        progress.one_more()
    if problems:
        problems = list(explained(problems, archive, state, tail))
    else:
        check_one_history(archive, state, tail)
        report, problems = _proved(report, engine, comparison, lsn, is_deep=options.is_deep)
    progress.one_more()
    why = _why_no_copy(report, problems)
    compared = []
    for node, url in options.copies:
        compared.append(
            CopyAudit(node, NOT_COMPARED, reason=why) if why else comparison.of(node, partial(connect, url))
        )
        progress.one_more()
    if wanted is not None:
        if any(problem.lsn == 0 for problem in problems):
            note = "the transaction ids were not looked for, because files of the archive are damaged"
            report = replace(report, notes=(*report.notes, note))
        else:
            if source is not None:
                tail.reach_some(source.last_lsn())
            report = replace(report, txids=judged(wanted, engine.transactions(wanted, tail.entries)))
        progress.one_more()
    seconds = round(time.monotonic() - begun_s, 3)
    return replace(report, problems=tuple(problems), copies=tuple(compared), seconds=seconds)


def run(options: AuditOptions, on_spark: Callable[[], AbstractContextManager[Tasks]], tell: Tell) -> AuditReport:
    """The whole job: opens archive and cluster, and asks for Spark only when the archive is large. Raises what `run_audit` does."""
    import brokerha

    archive = Archive(options.archive)
    state = archive.state()
    with ExitStack() as closing:
        source = None if options.source is None else closing.enter_context(open_source(options.source))
        if source is not None and source.cluster and state.cluster and source.cluster != state.cluster:
            raise ConfigurationError(
                f"the archive in {archive.directory} is that of cluster {state.cluster}, and {options.source and options.source.name} is of "
                f"{source.cluster}"
            )
        tasks = closing.enter_context(on_spark()) if state.rows > options.here_rows else TasksHere()
        engine = EngineOfPieces(archive, state, tasks)
        return run_audit(options, engine, source, partial(brokerha.connect, timeout=options.timeout_s), tell)


class _Steps:
    """Tells how far it is."""

    def __init__(self, tell: Tell, steps: int) -> None:
        self._tell = tell
        self._steps = steps
        self._done = 0

    def one_more(self) -> None:
        self._done += 1
        self._tell(self._done, self._steps)


def _wanted_lsn(options: AuditOptions, archive: Archive, state: ArchiveState) -> Lsn:
    lsn = state.last_lsn if options.lsn is None else options.lsn
    first = 0 if state.holds_every_state else state.first_lsn
    if not first <= lsn <= state.last_lsn:
        is_empty = state.last_lsn < state.first_lsn
        held = "nothing yet" if is_empty else f"LSN {state.first_lsn:,} to {state.last_lsn:,}"
        raise ConfigurationError(f"the archive in {archive.directory} holds {held}, not LSN {lsn:,}")
    return lsn


def _why_no_copy(report: AuditReport, problems: Sequence[Problem]) -> str:
    if problems:
        return "the archive is not what was archived"
    return "" if report.is_proved else "no content can be computed from the archive"


def _proved(
    report: AuditReport, engine: Engine, comparison: Comparison, lsn: Lsn, *, is_deep: bool
) -> tuple[AuditReport, list[Problem]]:
    """The content at an LSN, computed and compared with what its entry says."""
    state = engine.state
    if not state.holds_every_state:
        note = (
            f"the archive begins with LSN {state.first_lsn:,}, so no content can be computed from it, and only its files were checked: "
            "an archive from LSN 1 on proves the content and compares workers"
        )
        return replace(report, notes=(*report.notes, note)), []
    report = replace(report, lsn=lsn)
    expected = engine.archive.fingerprint_at(lsn)
    found = comparison.summary(lsn).fingerprint
    is_right = found == expected
    problem = misfit(engine.archive, state, lsn) if is_deep or not is_right else None
    if problem is None and not is_right:
        what = "its rows do not lead to the fingerprint of its entry, although each entry does: columns that follow from others were changed"
        problem = Problem(_file_of(state, lsn), lsn, what)
    report = replace(report, fingerprint=text_of(found), is_proved=problem is None)
    return report, [] if problem is None else [problem]


def misfit(archive: Archive, state: ArchiveState, lsn: Lsn) -> Problem | None:
    """The first entry up to an LSN that does not lead to the fingerprint that it has: folded one by one, which is slow and exact."""
    from brokerha.pipeline.rows import entries_of

    entries = (entry for file in state.files_of(1, lsn) for entry in entries_of(archive.table(file)))
    try:
        state_at(entries, lsn)
    except StoreDiffers as error:
        return Problem(_file_of(state, error.lsn), error.lsn, f"does not fit what is before it: {error}")
    except LinesMissing as error:
        return Problem("", lsn, str(error))
    return None


def _file_of(state: ArchiveState, lsn: Lsn) -> str:
    return next((file.path for file in state.files_of(lsn, lsn)), "")


def explained(problems: Sequence[Problem], archive: Archive, state: ArchiveState, tail: Tail) -> Iterator[Problem]:
    """The same problems; those of an entry say which cells are others in the log of the cluster, if that still has it."""
    from brokerha.pipeline.rows import table_of

    for number, problem in enumerate(problems):
        what = problem.what
        if problem.lsn and number < _EXPLAINED:
            for entry in tail.peek(problem.lsn):
                file = state.files_of(problem.lsn, problem.lsn)[0]
                kept = archive.table(file, filters=[("lsn", "=", problem.lsn)])
                cells = row_differences(kept, table_of([entry]))
                what = "; ".join([what, *cells[:3]])
        yield replace(problem, what=what)


def read_txids(path: Path) -> tuple[TxId, ...]:
    """The ids of a file, one a line, each once. Raises ConfigurationError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"cannot read transaction ids from {path}: {reason}") from None
    return tuple(dict.fromkeys(line.strip() for line in lines if line.strip()))


def judged(wanted: Sequence[TxId], found: Iterable[Found]) -> TxidAudit:
    """What became of the ids of a list."""
    places: dict[TxId, list[Found]] = {}
    for each in found:
        places.setdefault(each.txid, []).append(each)
    missing = [txid for txid in wanted if txid not in places]
    repeated = [(txid, tuple(each.lsn for each in places[txid])) for txid in wanted if len(places.get(txid, ())) > 1]
    return TxidAudit(
        given=len(wanted),
        found=len(places),
        rejected=sum(not each[0].is_applied for each in places.values()),
        missing=tuple(missing[:NAMED_LIMIT]),
        missing_number=len(missing),
        repeated=tuple(repeated[:NAMED_LIMIT]),
    )
