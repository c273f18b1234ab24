"""The store of one worker: all its RDF repositories, key-value tables and queues, with one applied LSN.

    execute / apply
        -> Batch          evaluates, writes results + keys + state row into one LMDB transaction
        -> LMDB commit    the batch is durable, with one fsync
        -> repositories   each gets its net change and its position in one atomic write
        -> view           readers see the new LSN

The order is the invariant: LMDB first, engines after it, readers last. So an engine is never ahead of the record, lacks at most
one commit after a kill, and a reader never sees data that can still be lost. Opening brings engines up to date from the effects
log. Engines are flushed every `flush_after_lsns` LSNs; only lines that all of them have durably are trimmed.

When an engine cannot follow (disk full), the batch is durable all the same: StoreError is raised, the applied LSN stays, and the
next call first lets the engine catch up. A caller in doubt gives the same batch again: applied transactions are answered from the
effects log, not executed twice.

One thread writes at a time, any number read. Must never wait for the network, nor hold more than a batch in memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock

from brokerha.model.errors import StoreError
from brokerha.model.fingerprints import packed
from brokerha.model.ids import Lsn, Timestamp, TxId
from brokerha.model.invariants import invariant
from brokerha.model.operations import Logged, LoggedRow, Result
from brokerha.ports.store import Applied, ReadAnswer
from brokerha.stores.comparing.digests import walk_of
from brokerha.stores.comparing.fingerprint import repository_digest, text_of
from brokerha.stores.control.suite import read_suite
from brokerha.stores.copies.frozen import TAIL_LSNS, Frozen, Held, answer, backed_up, held, recompute
from brokerha.stores.execution.batch import Batch, Books
from brokerha.stores.execution.effects_log import EffectsLog, bring_up
from brokerha.stores.execution.evaluation import CLEAR_ABOVE_QUADS
from brokerha.stores.execution.last_changes import begin_at, lower_rows
from brokerha.stores.execution.prepared import BEGINNING as PREPARED
from brokerha.stores.execution.prepared import Prepared
from brokerha.stores.execution.staged import BEGINNING as STAGED
from brokerha.stores.execution.staged import Parts, parts_of
from brokerha.stores.execution.state import StoreState, read_lineage, read_state, write_lineage, write_state
from brokerha.stores.files.durable import no_crash
from brokerha.stores.files.environment import (
    CHANGES_SINCE,
    FORMAT,
    MAP_SIZE_BYTES,
    format_of,
    open_environment,
    random_name,
    store_errors,
    write_format,
)
from brokerha.stores.rdf.drafts import Drafts
from brokerha.stores.rdf.repositories import OpenEngine, Repositories
from brokerha.stores.rdf.repository import RdfRepository
from brokerha.stores.reads.kinds import MSGPACK, WALKS, View, check_arguments, together_answer, wanted_reads
from brokerha.stores.reads.observing import is_observing, observed
from brokerha.stores.reads.on_files import TogetherRun
from brokerha.stores.reads.pending import Pending
from brokerha.stores.reads.reading import Reader, Reading
from brokerha.stores.tables.key_range import in_pieces
from brokerha.stores.tables.key_value import checked_rows, snapshots_in, stored_value

MAIN_REPOSITORY = "main"
LOGGED_BYTES = 4 * 1024 * 1024
"""Effects after which an answer from the effects log ends: a line has up to 10 MiB, and lines are asked for by thousands."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Options of a store."""

    map_size_bytes: int = MAP_SIZE_BYTES
    keep_results: int = 100_000
    """Smallest number of results in the effects log; it is trimmed when the engines are flushed."""
    keep_bytes: int = 1024**3
    """Size above which the effects log keeps fewer results, so that a bulk load does not fill the disk twice."""
    tail_lsns: int = TAIL_LSNS
    """Number of last lines of the log in a snapshot."""
    flush_after_lsns: int = 10_000
    flush_after_bytes: int = 256 * 1024**2
    flush_after_s: float = 30.0
    """Engines are flushed after this many LSNs, this many bytes of effects, or by the first commit after this many seconds."""
    clear_above_quads: int = CLEAR_ABOVE_QUADS
    """All copies of a cluster must have the same value; tests use a smaller one."""


class WorkerStore:
    """All data of one worker in one directory. Fulfils `ports.store.Store`."""

    def __init__(
        self,
        directory: Path,
        *,
        cluster: str,
        node: str,
        options: StoreOptions | None = None,
        open_engine: OpenEngine = RdfRepository,
        clock: Callable[[], float] = time.monotonic,
        crash_point: Callable[[str], None] = no_crash,
        new_name: Callable[[], str] = random_name,
    ) -> None:
        """Open or make it. Raises StoreDamaged, also for missing parts; StoreError: in use, foreign, no space."""
        self._options = options or StoreOptions()
        self._clock = clock
        self._crash_point = crash_point
        self._writing = Lock()
        self._reading = Reading()
        self._environment = open_environment(directory, cluster, node, self._options.map_size_bytes, new_name)
        self._log = EffectsLog(self._environment.effects)
        self._reader = Reader(self._environment, self._reading)
        self._repositories = Repositories(self._environment.repositories, open_engine, crash_point)
        self._running: Batch | None = None
        self._is_behind = False
        self._drafts = Drafts(self._repositories)
        self._books: Books | None = None
        """Content of reserved tables, shared with the running batch; None before the first batch, and after a failed one."""
        try:
            with store_errors("cannot open the store"):
                self._state = self._opened()
                with self._environment.lmdb.begin() as transaction:
                    self._lineage = read_lineage(transaction, self._environment.meta)
        except BaseException:
            self._repositories.close()
            self._environment.close()
            raise
        self._flushed_lsn = self._state.lsn
        self._flushed_at = clock()
        self._waiting_bytes = 0
        self._view = self._viewed()

    @property
    def journal(self) -> str:
        """The name of this copy: another name under the same node id is another copy."""
        return self._environment.identity.journal

    @property
    def lineage(self) -> int:
        """The number of the log that this copy follows; 0 if it was never set. Any thread."""
        return self._lineage

    def begin_lineage(self, lineage: int, lsn: Lsn = -1) -> None:
        """Let later lines belong to this lineage; durable on return. Raises StoreError.

        If ``lsn`` is below the applied LSN, it becomes the applied LSN: the content stays, and the effects log is cleared.
        """
        with self._exclusively("cannot write down which log is followed"):
            state = self._state
            is_moved = 0 <= lsn < state.lsn
            if is_moved:
                # Engines carry their position: it must not count before it can change.
                self._repositories.flush(state.lsn)
                self._repositories.disown_positions()
                self._write_state(state)
                self._crash_point("moving: positions do not count")
                self._repositories.move_to(lsn)
                self._crash_point("moving: engines moved")
            with self._environment.lmdb.begin(write=True) as transaction:
                write_lineage(transaction, self._environment.meta, lineage)
                if is_moved:
                    state = state._replace(lsn=lsn, repositories=self._repositories.states())
                    write_state(transaction, self._environment.meta, state)
                    self._log.clear(transaction)
                    self._drafts.clear()
                    lower_rows(transaction, self._environment.changes, lsn)
            self._lineage = lineage
            if is_moved:
                # Only after the commit: an uncommitted move must be repeated as a whole.
                self._state = state
                self._flushed_lsn = lsn
                self._view = self._viewed()
                self._crash_point("moving: moved")

    def _write_state(self, state: StoreState) -> None:
        self._state = state._replace(repositories=self._repositories.states())
        with self._environment.lmdb.begin(write=True) as transaction:
            write_state(transaction, self._environment.meta, self._state)

    def execute(self, first_lsn: Lsn, items: Sequence[tuple[TxId, Timestamp, bytes]]) -> list[Result]:
        """Execute transactions in order; durable together on return. Applied ones are answered again.

        Raises StoreError. Large batches are committed in parts, so that the first parts can stay then.
        """
        with self._exclusively("cannot execute"):
            results = self._again(first_lsn, len(items))
            batch = self._batch()
            for txid, timestamp, body in items[len(results) :]:
                results.append(batch.execute(txid, timestamp, body))
            batch.commit()
            if batch.staged or self._drafts.transactions:
                self._draft(batch)
            self._flush_when_due(batch)
        return results

    def apply(self, first_lsn: Lsn, items: Sequence[LoggedRow]) -> None:
        """Apply lines of the log in order, leaving out those at or below the applied LSN; durable on return.

        Raises StoreError, and StoreDiffers at the first line that leads to other content than it says. That line and later ones
        are not kept. Earlier lines of the batch stay only in parts that were committed for their size: the applied LSN tells, and
        the caller can give the same batch again.
        """
        with self._exclusively("cannot apply"):
            skipped = self._skipped(first_lsn)
            batch = self._batch()
            for line in items[skipped:]:
                batch.apply(line)
            batch.commit()
            if batch.staged or self._drafts.transactions:
                self._draft(batch)
            self._flush_when_due(batch)

    def logged(self, first_lsn: Lsn, last_lsn: Lsn) -> list[Logged]:
        """Return lines from the effects log; fewer where it ends, or from `LOGGED_BYTES` on. None where it was trimmed. Any thread."""
        with self._reading.one(), store_errors("cannot read the log"), self._environment.lmdb.begin() as transaction:
            return self._log.read(transaction, first_lsn, min(last_lsn, self._view.lsn), LOGGED_BYTES)

    def logged_from(self) -> Lsn:
        """Return the lowest LSN in the effects log; one more than the applied one when it is empty. Any thread."""
        next_lsn = self._view.lsn + 1
        with self._reading.one(), store_errors("cannot read the log"), self._environment.lmdb.begin() as transaction:
            first_lsn = self._log.first_lsn(transaction)
        return next_lsn if first_lsn is None else min(first_lsn, next_lsn)

    def applied(self) -> Applied:
        """Return the applied LSN with fingerprint and count. Any thread."""
        view = self._view
        return Applied(view.lsn, text_of(view.fingerprint), view.items)

    def read(self, kind: str, name: str, arguments: dict[str, object], may_go_on: Callable[[], bool] = lambda: True) -> ReadAnswer:
        """Answer a read (reads/reading.py lists the kinds). The calling thread must take the pieces."""
        self._reading.check()
        if kind == "together":
            return self._read_together(name, arguments, may_go_on)
        if kind in WALKS:
            check_arguments(kind, name, arguments)
            walk = walk_of(kind, arguments, may_go_on)
            with self._held(f"cannot read the {kind}") as found:
                return ReadAnswer(MSGPACK, found.view.lsn, in_pieces(answer(found, walk)))
        return self._reader.read(self._view, kind, name, arguments, may_go_on)

    def _read_together(self, name: str, arguments: dict[str, object], may_go_on: Callable[[], bool]) -> ReadAnswer:
        """Answer several reads at one LSN; writers wait until all snapshots are taken."""
        check_arguments("together", name, arguments)
        reads = wanted_reads(arguments)
        pending, tables = Pending.of(arguments), self._reader.tables
        run = TogetherRun(tables, reads, pending, may_go_on)
        doing = "cannot read together"
        with self._reading.one(), store_errors(doing), ExitStack() as turn:
            turn.enter_context(self._at_rest(doing))
            view = self._view
            with self._environment.lmdb.begin() as transaction:
                if is_observing(arguments):
                    before = tables.before(transaction, packed(view.fingerprint))
                    answer = partial(run.answers, view, transaction, begun=turn.close)
                    return observed(arguments, reads, pending, view.lsn, before, answer)
                answers = run.answers(view, transaction, begun=turn.close)
        return together_answer(view.lsn, answers)

    def recompute(self, paced: Callable[[int], None] = lambda _items: None) -> Applied:
        """Compute fingerprint and count from the data itself. Any thread; writers wait while it takes its snapshots.

        ``paced`` is called about every thousand items with their number so far; an exception that it raises ends this. Raises
        StoreDamaged for an unreadable or damaged item.
        """
        with self._held("cannot recompute the fingerprint") as found:
            return recompute(found, paced)

    @contextmanager
    def _held(self, doing: str) -> Iterator[Held]:
        """Hold the whole content at the applied LSN. Writers wait only at its start. The thread that entered it must leave it."""
        with self._reading.one(), store_errors(doing):
            with self._at_rest(doing):
                found = held(self._view, self._environment)
            with found.transaction:
                yield found

    @contextmanager
    def frozen(self, repositories: Path) -> Iterator[Frozen]:
        """Hold the whole content at the applied LSN: backups of the engines below a directory, and the tables.

        Writers wait only at its start. The thread that entered it must leave it. Raises StoreError.
        """
        with self._reading.one(), store_errors("cannot make a snapshot"):
            for repository in self._view.repositories.values():
                # This flush only shortens the wait below, where errors of an engine are raised.
                with suppress(StoreError):
                    repository.engine.flush()
            with self._at_rest("cannot make a snapshot"):
                state = backed_up(self._state, self._repositories, repositories)
                lineage = self._lineage
                transaction = self._environment.lmdb.begin()
            with transaction:
                yield Frozen(state, lineage, transaction, self._environment)

    def tables_bytes(self) -> int:
        """Return the file size of the tables, an upper limit for a copy of them; 0 when it is unknown."""
        with suppress(OSError):
            return self._environment.file.stat().st_size
        return 0

    def close(self) -> None:
        """Release the directory after the running reads. Idempotent."""
        self._reading.refuse()
        with self._writing:
            self._drafts.clear()
        # Outside the writer's turn: a read that waits for the turn (`_held`) is refused when it gets it.
        has_ended = self._reading.wait()
        with self._writing:
            if has_ended and not self._environment.lock.closed:
                self._repositories.close()
                self._environment.close()

    def _opened(self) -> StoreState:
        """Read the state and bring the repositories up to date; make the first repository in a new store."""
        self._upgrade()
        with self._environment.lmdb.begin() as transaction:
            state = read_state(transaction, self._environment.meta)
            if state is not None:
                self._repositories.open(state.repositories)
                bring_up(self._repositories, self._log, transaction, state.lsn)
                self._repositories.know_digests(state.repositories)
                suite = read_suite(transaction, self._environment.control)
                return state._replace(repositories=self._repositories.states(), suite=suite)
        self._repositories.open({})
        main = self._repositories.make(MAIN_REPOSITORY, lsn=1)
        self._repositories.listed[MAIN_REPOSITORY] = main
        state = StoreState(0, repository_digest(MAIN_REPOSITORY), 0, self._repositories.states())
        with self._environment.lmdb.begin(write=True) as transaction:
            write_state(transaction, self._environment.meta, state)
        self._repositories.commit(0)
        return state

    def _upgrade(self) -> None:
        """Give the copy of an older version the present format."""
        meta = self._environment.meta
        with self._environment.lmdb.begin() as transaction:
            if (found := format_of(transaction, meta)) == FORMAT:
                return
            state = read_state(transaction, meta)
        with self._environment.lmdb.begin(write=True) as writing:
            if found < CHANGES_SINCE:
                begin_at(writing, self._environment.changes, 0 if state is None else state.lsn)
            write_format(writing, meta)

    @contextmanager
    def _exclusively(self, doing: str) -> Iterator[None]:
        """Hold the writer's turn for a write; an error drops uncommitted changes."""
        with self._at_rest(doing):
            try:
                yield
            except BaseException:
                self._abandon()
                raise

    @contextmanager
    def _at_rest(self, doing: str) -> Iterator[None]:
        """Hold the writer's turn: engines catch up before it. An error of a read in it leaves drafts and books as they are."""
        with self._writing, store_errors(doing):
            self._reading.check()
            if self._is_behind:
                self._follow(self._state)
            yield

    def _batch(self) -> Batch:
        if self._books is None:
            keys = self._environment.keys
            with self._environment.lmdb.begin() as transaction:
                self._books = Books(
                    Prepared(checked_rows(transaction, keys, PREPARED)),
                    snapshots_in(transaction, keys),
                    Parts(checked_rows(transaction, keys, STAGED)),
                )
        self._running = Batch(
            self._environment,
            self._log,
            self._repositories,
            self._state,
            self._books,
            self._drafts,
            self._follow,
            self._options.clear_above_quads,
        )
        return self._running

    def _abandon(self) -> None:
        self._books = None
        self._drafts.clear()
        if self._running is not None:
            self._running.abandon()
        if not self._is_behind:
            self._repositories.roll_back(self._state.repositories)

    def _follow(self, state: StoreState) -> None:
        """Bring the engines to ``state``, which LMDB has durably, then let readers see it."""
        self._state = state
        self._is_behind = True
        self._crash_point("LMDB committed")
        self._repositories.commit(state.lsn)
        self._is_behind = False
        self._crash_point("engines committed")
        self._view = self._viewed()

    def _draft(self, batch: Batch) -> None:
        """Continue the drafts of the parts that a batch has staged, and drop those of dropped transactions."""
        parts = batch.books.parts.names
        with self._environment.lmdb.begin() as transaction:
            stored = partial(stored_value, transaction, self._environment.keys)
            for name in sorted(batch.staged.intersection(parts)):
                try:
                    self._drafts.stage(name, parts_of(stored, name), partial(self._log.effects_from, transaction), self._state.lsn)
                except StoreError:
                    # The disk can be full: the commit needs the draft, staging does not.
                    self._drafts.drop(name)
        self._drafts.keep(parts)

    def _viewed(self) -> View:
        state = self._state
        counts = {name: repository.items for name, repository in state.repositories.items()}
        return View(state.lsn, state.fingerprint, state.items, dict(self._repositories.listed), counts, state.suite)

    def _skipped(self, first_lsn: Lsn) -> int:
        """Return how many transactions of a batch that begins at ``first_lsn`` are applied already."""
        next_lsn = self._state.lsn + 1
        invariant(1 <= first_lsn <= next_lsn, "batches follow each other without a gap", first=first_lsn, next=next_lsn)
        return next_lsn - first_lsn

    def _again(self, first_lsn: Lsn, count: int) -> list[Result]:
        """Return the results of the applied transactions of a batch."""
        wanted = min(self._skipped(first_lsn), count)
        if not wanted:
            return []
        with self._environment.lmdb.begin() as transaction:
            found = self._log.read(transaction, first_lsn, first_lsn + wanted - 1)
        if len(found) != wanted:
            raise StoreError(f"LSN {first_lsn} was executed long ago; its result is not kept any more")
        return [Result(line.outcome, line.reason, line.effect, line.fingerprint) for line in found]

    def _flush_when_due(self, batch: Batch) -> None:
        """Flush the engines when it is due, and trim the lines that all of them have durably."""
        options = self._options
        lsn = self._state.lsn
        self._waiting_bytes += batch.logged_bytes
        is_due = (
            lsn - self._flushed_lsn >= options.flush_after_lsns
            or self._waiting_bytes >= options.flush_after_bytes
            or self._clock() - self._flushed_at >= options.flush_after_s
        )
        if not is_due or lsn == self._flushed_lsn:
            return
        self._repositories.flush(lsn)
        self._crash_point("engines flushed")
        self._state = self._state._replace(repositories=self._repositories.states())
        with self._environment.lmdb.begin(write=True) as transaction:
            write_state(transaction, self._environment.meta, self._state)
            self._log.trim(transaction, below=lsn - options.keep_results + 1, limit_bytes=options.keep_bytes)
        self._flushed_lsn = lsn
        self._flushed_at = self._clock()
        self._waiting_bytes = 0
