"""The job that keeps an archive: from its source to the last entry that it has, in rounds, each of which is kept as soon as it is done.

    open the source ─> same cluster? same history? no gap? ─> pin the log from the next LSN on
      ┌> ranges of a round ─> tasks write them into staging ─> append (one manifest) ─> pin ─┐
      └───────────────────────────── until the source has no more ──────────────────────────┘
    then compaction, vacuum, and with `every_s` all of it again

Who runs the tasks is given (`Tasks`): this process, or Spark. A task that finds no node is tried again for a while; any other
error ends the job, and the archive is as the last round left it. Must never hold entries itself, and never write but through
`ArchiveWriter`.
"""

from __future__ import annotations

import dataclasses
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from brokerha.model.errors import BrokerhaError, NotReady, Unreachable
from brokerha.model.ids import Lsn
from brokerha.model.log_lineages import Rewinds, newest
from brokerha.pipeline.archive import Archive
from brokerha.pipeline.archive_checking import checked_begin
from brokerha.pipeline.archive_compacting import groups
from brokerha.pipeline.archive_files import StagedFile
from brokerha.pipeline.archive_manifest import ArchiveState, ReplacedFile
from brokerha.pipeline.archive_tasks import Done, Failure, Tasks, TasksHere, ranges_of
from brokerha.pipeline.archive_writing import ArchiveWriter, CrashPoint, no_crash, state_or_new, writing
from brokerha.pipeline.observations import append, observed
from brokerha.pipeline.sources import SourceSpec, open_source

T = TypeVar("T")
FILE_ENTRIES = 100_000
HERE_ENTRIES = 20_000
"""Up to so many new entries, this process is faster than Spark starts."""
TOLD_EVERY_US = 10_000_000
"""How often nodes are observed and pins are moved at most."""
PIN_FOR_S = 7 * 24 * 3600
"""How long the log is kept for an archive that does not come back."""
RETRY_S = 30.0
SILENT_S = 3.0
"""After so long a person is told who is waited for."""
_RETRY_PAUSE_S = 0.5
MANY_FILES = 100
"""So many are put together, or deleted, without being asked for: each round writes a manifest that names all files."""
KEEP_REPLACED_S = 3600.0
"""For readers that began before a compaction."""
_ROWS_AS_ENTRY = 10
"""So many rows are put together in the time in which one entry is read and written."""


@dataclass(frozen=True, slots=True)
class ArchiveOptions:
    """What to archive, and where."""

    into: Path
    source: SourceSpec
    from_lsn: Lsn = 0
    """Where a new archive begins; 0: not said, which means 1."""
    to_lsn: Lsn | None = None
    """Stop there; None: at the end of the source."""
    every_s: float | None = None
    """Again after so many seconds, until stopped; None: once."""
    has_compaction: bool = False
    has_vacuum: bool = False
    keep_replaced_s: float = KEEP_REPLACED_S
    is_dry_run: bool = False
    has_pin: bool = True
    file_entries: int = FILE_ENTRIES
    here_entries: int = HERE_ENTRIES
    retry_s: float = RETRY_S
    """How long a node may be away before the job gives up."""


@dataclass(frozen=True, slots=True)
class ArchiveReport:
    """What was done, and what the archive holds now."""

    into: str
    cluster: str = ""
    first_lsn: Lsn = 1
    last_lsn: Lsn = 0
    source_last_lsn: Lsn = 0
    rows: int = 0
    files: int = 0
    size_bytes: int = 0
    chain: str = ""
    added_entries: int = 0
    added_rows: int = 0
    added_files: int = 0
    merged_files: int = 0
    """Files that compaction put together, and into how many."""
    merged_into: int = 0
    deleted_files: int = 0
    deleted_bytes: int = 0
    pinned_from: Lsn = 0
    """The log is kept from this LSN on for the next run; 0: there is no pin."""
    seconds: float = 0.0
    is_dry_run: bool = False
    notes: tuple[str, ...] = ()
    """What a person should know, one sentence each."""


class Cluster(Protocol):
    """The nodes that the log comes from; brokerha's client is one."""

    def pin(self, name: str, lsn: Lsn, for_s: int) -> object:
        """Keep entries from an LSN on, for so long."""

    def status(self) -> Mapping[str, Any]:
        """What nodes say of themselves."""


def _say(text: str) -> None:
    sys.stderr.write(f"brokerha: {text}\n")


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


@dataclass(frozen=True, slots=True)
class Around:
    """What the job is given by the program that runs it."""

    spark: Callable[[], AbstractContextManager[Tasks]]
    """Starts Spark; only called when there is enough to do."""
    tell: Callable[[int, int], None]
    """Is told the entries done, and all that are to be done."""
    cluster: Cluster | None = None
    """None where no node can be asked."""
    warn: Callable[[str], None] = _say
    """Is told what a person should know at once."""
    now_us: Callable[[], int] = lambda: time.time_ns() // 1000
    pause: Callable[[float], bool] = _sleep
    """Waits; true when the job should end."""
    crash_point: CrashPoint = no_crash


def run(options: ArchiveOptions, around: Around) -> ArchiveReport:
    """Do all of it. Raises InvalidRequest, LinesMissing, StoreError, Unreachable, NotReady; what was kept before stays kept."""
    # Tasks may run in another folder than this process.
    options = dataclasses.replace(options, into=options.into.absolute())
    if options.is_dry_run:
        return _dry_run(options, around.now_us())
    begun_us = around.now_us()
    with writing(options.into, around.now_us, around.crash_point) as writer, ExitStack() as stack:
        job = _Job(options, around, writer, stack)
        while True:
            try:
                job.once()
            except (Unreachable, NotReady) as error:
                if options.every_s is None:
                    raise
                # A node that is away now may be back at the next turn; the archive is whole meanwhile.
                around.warn(f"{error}: trying again")
            if options.every_s is None or around.pause(options.every_s):
                break
        if job.report.pinned_from != writer.state.last_lsn + 1:
            job.pin()
        job.report = dataclasses.replace(job.report, seconds=(around.now_us() - begun_us) / 1e6)
        return job.report


class _Job:
    """One run, under the lock of its archive."""

    def __init__(self, options: ArchiveOptions, around: Around, writer: ArchiveWriter, stack: ExitStack) -> None:
        self.report = _with_state(ArchiveReport(str(options.into)), writer.state)
        self._options = options
        self._around = around
        self._writer = writer
        self._stack = stack
        self._spark: Tasks | None = None
        self._told_us = 0
        self._rewinds: Rewinds = ()

    def once(self) -> None:
        """From where the archive ends to where the source ends now."""
        options, writer = self._options, self._writer
        with self._told_when_slow(), open_source(options.source) as source:
            cluster, last_lsn, self._rewinds = source.cluster, source.last_lsn(), source.rewinds()
            first_lsn = checked_begin(source, writer.state, options.from_lsn, writer.archive)
        writer.begin(cluster, first_lsn, max(writer.state.lineage, newest(self._rewinds)))
        self._tell_cluster()
        self._note(source_last_lsn=last_lsn)
        self._archive(last_lsn if options.to_lsn is None else min(last_lsn, options.to_lsn))
        self._tidy()

    def _archive(self, last_lsn: Lsn) -> None:
        writer, begin = self._writer, self._writer.state.last_lsn
        total = last_lsn - begin
        while writer.state.last_lsn < last_lsn:
            tasks = self._tasks(total)
            following = writer.state.last_lsn + 1
            wanted = ranges_of(following, last_lsn, tasks.parallel, self._options.file_entries)
            with writer.staging() as staging:
                work = partial(tasks.write, self._options.source, staging)
                staged = self._finished(wanted, work)
                self._check_lineage()
                writer.append(staged)
            report = self.report
            self._note(
                added_entries=report.added_entries + writer.state.last_lsn - following + 1,
                added_rows=report.added_rows + sum(file.rows for file in staged),
                added_files=report.added_files + len(staged),
            )
            self._around.tell(writer.state.last_lsn - begin, total)
            self._tell_cluster()

    def _check_lineage(self) -> None:
        """Raise NotReady when the log went back while it was read: what was read may be of two lineages, and is not kept."""
        spec = self._options.source
        if spec.kind in ("journal", "backup"):
            # Nobody writes a journal that is read so, and a backup stays what it is.
            return
        with open_source(spec) as source:
            if source.rewinds() != self._rewinds:
                raise NotReady("the log went back after a split while it was read: archive again")

    def _tidy(self) -> None:
        """Compaction and vacuum: when asked for, and when there are so many files that the manifest becomes long."""
        options, writer = self._options, self._writer
        if options.has_compaction or sum(map(len, groups(writer.state.files))) >= MANY_FILES:
            self._compact()
        keep_us = round(options.keep_replaced_s * 1e6)
        if options.has_vacuum or len(_old(writer.state, self._around.now_us() - keep_us)) >= MANY_FILES:
            files, size_bytes = writer.vacuum(keep_us)
            report = self.report
            self._note(deleted_files=report.deleted_files + files, deleted_bytes=report.deleted_bytes + size_bytes)

    def _compact(self) -> None:
        writer = self._writer
        # What one pass makes may be worth a second one; each pass halves the number of small files.
        while wanted := groups(writer.state.files):
            tasks = self._tasks(sum(file.rows for group in wanted for file in group) // _ROWS_AS_ENTRY)
            for place in range(0, len(wanted), tasks.parallel):
                some = wanted[place : place + tasks.parallel]
                with writer.staging() as staging:
                    staged = self._finished(some, partial(tasks.merge, self._options.into, staging))
                    writer.replace(staged)
                report = self.report
                self._note(
                    merged_files=report.merged_files + sum(len(group) for group in some),
                    merged_into=report.merged_into + len(staged),
                )

    def _finished(self, wanted: Sequence[T], tasks: Callable[[Sequence[T]], list[Done]]) -> list[StagedFile]:
        """The files of all tasks; those that found no node are run again for a while."""
        staged: list[StagedFile] = []
        until_us = self._around.now_us() + round(self._options.retry_s * 1e6)
        is_told = False
        while wanted:
            failed: list[T] = []
            problem: BrokerhaError | None = None
            for each, done in zip(wanted, tasks(wanted), strict=True):
                if not isinstance(done, Failure):
                    staged += done
                    continue
                failed.append(each)
                if problem is None or not isinstance(done.error, Unreachable | NotReady):
                    problem = done.error
            if problem is not None and not isinstance(problem, Unreachable | NotReady):
                raise problem
            if problem is not None and (self._around.now_us() > until_us or self._around.pause(_RETRY_PAUSE_S)):
                raise problem
            if problem is not None and not is_told:
                is_told = True
                self._around.warn(f"{problem}: trying again for {self._options.retry_s:g} seconds")
            wanted = failed
        return staged

    @contextmanager
    def _told_when_slow(self) -> Iterator[None]:
        """Say who is waited for when the source does not answer at once; a frozen node is silent until the time-out."""
        source = self._options.source
        words = f"waiting for {source.name}, for {source.timeout_s:g} seconds at most"
        timer = threading.Timer(SILENT_S, self._around.warn, [words])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _tasks(self, entries: int) -> Tasks:
        if self._spark is None and entries <= self._options.here_entries:
            return TasksHere()
        if self._spark is None:
            self._spark = self._stack.enter_context(self._around.spark())
        return self._spark

    def _tell_cluster(self) -> None:
        """Observe and pin, but not so often that rounds wait for it."""
        now_us = self._around.now_us()
        if now_us >= self._told_us + TOLD_EVERY_US:
            self._told_us = now_us
            self._observe()
            self.pin()

    def pin(self) -> None:
        """Without a pin the log may be trimmed before the next run: worth a word, and no reason to archive nothing now."""
        if self._around.cluster is None or not self._options.has_pin:
            return
        following = self._writer.state.last_lsn + 1
        try:
            self._around.cluster.pin(f"archive-{self._writer.state.id}", following, PIN_FOR_S)
        except BrokerhaError as error:
            note = f"the cluster does not keep its log for this archive: {error}"
            if note not in self.report.notes:
                self._note(pinned_from=0, notes=(*self.report.notes, note))
            return
        self._note(pinned_from=following, notes=())

    def _observe(self) -> None:
        if self._around.cluster is None:
            return
        try:
            status = self._around.cluster.status()
        except BrokerhaError:
            # Nothing depends on observations; whether nodes can be reached shows at once.
            return
        append(self._options.into, observed(status, self._around.now_us()))

    def _note(self, **changes: Any) -> None:
        self.report = dataclasses.replace(_with_state(self.report, self._writer.state), **changes)


def _dry_run(options: ArchiveOptions, now_us: int) -> ArchiveReport:
    """What would be done; nothing is written, not even a lock."""
    state = state_or_new(options.into)
    with open_source(options.source) as source:
        first_lsn = checked_begin(source, state, options.from_lsn, Archive(options.into))
        cluster, last_lsn = source.cluster, source.last_lsn()
    state = dataclasses.replace(state, first_lsn=first_lsn, cluster=state.cluster or cluster)
    until = last_lsn if options.to_lsn is None else min(last_lsn, options.to_lsn)
    wanted = groups(state.files) if options.has_compaction else []
    old = _old(state, now_us - round(options.keep_replaced_s * 1e6)) if options.has_vacuum else []
    return dataclasses.replace(
        _with_state(ArchiveReport(str(options.into)), state),
        source_last_lsn=last_lsn,
        added_entries=max(0, until - state.last_lsn),
        merged_files=sum(len(group) for group in wanted),
        merged_into=len(wanted),
        deleted_files=len(old),
        deleted_bytes=sum(file.size_bytes for file in old),
        is_dry_run=True,
    )


def _old(state: ArchiveState, before_us: int) -> list[ReplacedFile]:
    """Files that were replaced then or before."""
    return [each for each in state.replaced if each.replaced_us <= before_us]


def _with_state(report: ArchiveReport, state: ArchiveState) -> ArchiveReport:
    return dataclasses.replace(
        report,
        cluster=state.cluster,
        first_lsn=state.first_lsn,
        last_lsn=state.last_lsn,
        rows=state.rows,
        files=len(state.files),
        size_bytes=state.size_bytes,
        chain=state.chain,
    )
