"""LmdbJournal: the durable record of one master, in one LMDB environment (FORMAT.md).

A turn of the loop is one call of `append`: all its records, their index rows and the current state go into one LMDB
transaction, which is fsynced before `append` returns. After a crash all of a turn is there or nothing of it.

    journal = LmdbJournal(Path("data/m1"), cluster="orders", node="m1")
    state = journal.state()                            # what the core begins from
    journal.append([Started(state.incarnation + 1)])   # durable from here on

Invariants: memory (tail, ids, recent records, current state) never says more than the file does, as any other thread
sees it; when a commit fails, memory is read back from the file. One process holds the directory, one thread appends.

Must never: go on writing after an error that may have left the file half written (anything but a full disk or map):
the journal stays readable and refuses further turns, until the node is started again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock

import lmdb

from brokerha.journal import compaction, recovery, trimming
from brokerha.journal.beginning import Beginning
from brokerha.journal.database import Database, translated
from brokerha.journal.directory import Directory, check_file, damaged
from brokerha.journal.history import LmdbHistory
from brokerha.journal.limits import (
    CACHE_BYTES,
    COMPACT_AT_WORK_BYTES,
    COMPACT_FREE_BYTES,
    FORGET_AT_ONCE,
    IDS_BUFFERED,
    IDS_WRITTEN,
    MAP_SIZE_BYTES,
    MARK_LSNS,
    READ_AT_ONCE,
    TAIL_RECORDS,
    TRIM_IDS,
)
from brokerha.journal.recovery import STATE, State
from brokerha.journal.rows import BadRow, count_in_added_row, keyed_row, number_key
from brokerha.journal.turn import Turn
from brokerha.journal.verification import verify
from brokerha.model.errors import JournalError, JournalFull
from brokerha.model.ids import Lsn, NodeId
from brokerha.model.records import MasterState, Record, StreamState


class LmdbJournal(LmdbHistory):
    """A `ports.Journal` in a directory, for one node of one cluster.

    ``cache_bytes`` bounds what was appended last and is kept in memory; ``ids_buffered`` and ``tail_records`` bound
    what a restart reads. ``begin_at`` makes a new journal that begins behind an LSN. Raises JournalInUse, JournalForeign, JournalDamaged, JournalError.
    """

    def __init__(
        self,
        directory: Path,
        cluster: str,
        node: NodeId,
        *,
        map_size_bytes: int = MAP_SIZE_BYTES,
        cache_bytes: int = CACHE_BYTES,
        ids_buffered: int = IDS_BUFFERED,
        tail_records: int = TAIL_RECORDS,
        begin_at: Beginning | None = None,
    ) -> None:
        self._ids_buffered = ids_buffered
        self._tail_records = tail_records
        self._is_closed = False
        self._refusal = ""
        """Why nothing is written any more; empty while all is well."""
        self._swept_to = 0
        self._forget_from = b""
        self._was_trimmed = False
        """Whether the last step of `keep` was a trim: then ids come first, so that neither waits for ever."""
        self._search_below: Lsn = 0
        """What the search for old ids that is under way looks for."""
        self._forgotten_below: Lsn = 0
        """Ids below were looked for and forgotten since the journal was opened."""
        self._written_bytes = 0
        self._compact_after_bytes = 0
        """Not before so much was written: a copy did not fit on the disk."""
        self._compacting = Lock()
        self._directory = Directory(directory)
        try:
            check_file(self._directory.data)
            super().__init__(node, Database(self._directory.data, map_size_bytes), cache_bytes)
        except BaseException:
            self._directory.close()
            raise
        try:
            self._open(cluster, begin_at)
        except BaseException:
            self.close()
            raise

    def _open(self, cluster: str, begin_at: Beginning | None) -> None:
        database = self._database
        identity = recovery.read_identity(database)
        if identity is None:
            self._make_room(recovery.BEGINNING_ROW_BYTES * len(begin_at.ids) if begin_at else 0)
            recovery.create(database, cluster, self._node, begin_at)
            identity = recovery.read_identity(database) or {}
        elif begin_at is not None:
            message = f"there is a journal in {database.path.parent} already: a backup is restored into a new directory"
            raise JournalError(message)
        recovery.check_identity(database, identity, cluster, self._node)
        self._name = str(identity["journal"])
        database.name(self._name)
        recovery.verify_newest(database, recovery.read_state(database).next_number)
        self._compact(sys.maxsize)
        self._load()

    def _load(self) -> None:
        """Read memory back from the file."""
        try:
            self._load_all()
        except BadRow as error:
            raise damaged(self._database.path, f"an index row is not what was written ({error})") from error

    def _load_all(self) -> None:
        self._recent.clear()
        self._unpacked.clear()
        self._forget_row()
        state = recovery.read_state(self._database)
        self._next = state.next_number
        self._current = state.current
        self._tail = recovery.load_tail(self._database, self._node, state.first_needed)
        recovery.load_streams(self._tail, self._current, self._read_stream)
        self._ids = recovery.load_ids(self._read_ordered, state.first_waiting, self._ids_buffered)

    # ------------------------------------------------------------------------- writing

    def append(self, records: Sequence[Record]) -> None:
        """Write all records of a turn in one commit and fsync it before returning.

        Raises JournalFull or JournalError; then nothing of it was written, and the journal stays usable for reading.
        """
        if not records:
            return
        with self._lock:
            self._check_writable()
            try:
                turn = Turn(self._next, self._database.seed, self._current, self._tail, self._ids)
                for record in records:
                    turn.take(record)
                self._write(turn)
            except BaseException as error:
                self._recover_from(error)
                raise
            self._next = turn.number
            self._written_bytes += turn.size_bytes
            self._database.refresh()
            for number, record, size_bytes in turn.held:
                self._recent.add(number, record, size_bytes)

    def _write(self, turn: Turn) -> None:
        env, tables, path = self._database.env, self._database.tables, self._database.path
        self._make_room(turn.size_bytes)
        self._spill(turn)
        with translated(path), env.begin(write=True) as txn:
            turn.write(txn, tables)
            self._ids.write(txn, tables.ids, self._current.lsn + 1, 2 * turn.lsns + IDS_WRITTEN)
            self._put_state(txn, turn.number)

    def _make_room(self, turn_bytes: int) -> None:
        database = self._database
        info = database.env.info()
        try:
            self._directory.keep_ahead(info["last_pgno"], database.page_bytes, info["map_size"], turn_bytes)
        except OSError as error:
            message = f"the journal {database.path} cannot grow: {error.strerror}; nothing of the turn was written"
            raise JournalFull(message) from error

    def _spill(self, turn: Turn) -> None:
        """Keep the number of records that a restart must read for bodies without an LSN within its bound."""
        for _ in range(2 * len(turn.held) + 1):
            number = self._tail.first_needed(turn.number)
            if turn.number - number <= self._tail_records:
                return
            own = number - self._next
            self._tail.spill(number, turn.held[own][1] if own >= 0 else self._record(number))

    def _spill_before(self, end: int) -> None:
        """Give all bodies without an LSN in records before ``end`` rows in `waiting`, as their neighbours may go."""
        while (number := self._tail.first_needed(end)) < end:
            self._tail.spill(number, self._record(number))

    def _put_state(self, txn: lmdb.Transaction, next_number: int) -> None:
        needed = self._tail.first_needed(next_number)
        state = State(next_number, needed, self._ids.first_waiting, self._current)
        txn.put(STATE, state.pack(), db=self._database.tables.meta)

    def _check_writable(self) -> None:
        if self._is_closed:
            raise JournalError(f"the journal {self._database.path} is closed")
        if self._refusal:
            raise JournalError(self._refusal)

    def _recover_from(self, error: BaseException) -> None:
        """Bring memory back to what is durable, after a turn that was not written."""
        if isinstance(error, JournalError) and not isinstance(error, JournalFull):
            self._refusal = f"{error}; nothing more is written until the node is started again"
        try:
            self._database.refresh()
            self._load()
        except JournalError as second:
            self._refusal = f"{second}; nothing more is written until the node is started again"

    # ------------------------------------------------------------------------ forgetting

    def trim(self, below: Lsn) -> int:
        """Forget bodies, entries and results below an LSN, by whole records; ids stay known.

        Returns the number of LSNs dropped: at most `TRIM_LSNS` (or one record's), and fewer, or none, while ids are
        written first. Call it again in later turns. Raises JournalFull or JournalError; then nothing was dropped.
        """
        with self._lock:
            self._check_writable()
            first_lsn = self._current.first_lsn
            try:
                self._trim(min(below, self._current.lsn + 1))
            except BaseException as error:
                self._recover_from(error)
                raise
            self._database.refresh()
            return self._current.first_lsn - first_lsn

    def _trim(self, below: Lsn) -> None:
        tables, path = self._database.tables, self._database.path
        if below < self._current.first_lsn:
            return
        self._make_room(0)
        with translated(path), self._database.env.begin(write=True, buffers=True) as txn:
            self._ids.write_below(below, txn, tables.ids, self._current.lsn + 1, TRIM_IDS)
            try:
                cut = trimming.plan(txn, tables, min(below, self._ids.first_waiting))
                if cut.rows:
                    cut = replace(cut, mark=self._mark(cut.first_lsn - 1))
                    self._move_base(cut.first_lsn)
                    self._spill_before(cut.rows[-1][1])
                    self._tail.write(txn, tables.waiting)
                    self._swept_to = trimming.carry_out(txn, tables, self._current, cut, self._swept_to)
            except BadRow as error:
                raise damaged(path, f"an index row is not what was written ({error})") from error
            self._put_state(txn, self._next)
        if cut.rows:
            self._recent.forget_below(cut.rows[-1][1])
            self._unpacked.clear()
            self._forget_row()

    def _mark(self, lsn: Lsn) -> tuple[bytes, bytes] | None:
        """Return the mark that keeps the time of a trimmed LSN, when the last one is far enough behind it."""
        last_lsn, last_stamped = self._mark_at(lsn)
        if lsn - last_lsn < MARK_LSNS:
            return None
        stamped = max(last_stamped, self._read_ordered(lsn, 1)[0][0])
        return number_key(lsn), keyed_row(number_key(lsn), number_key(stamped))

    def _move_base(self, first_lsn: Lsn) -> None:
        """Keep the fingerprint before the first result that stays, while its record is still there."""
        results_from = self._current.results_after_trim(first_lsn)
        self._current.base = self._read_fingerprint(results_from - 1)
        self._current.results_from = results_from

    def forget_ids(self, below: Lsn) -> bool:
        """Forget which transactions had an LSN below ``below``, as far as they are trimmed.

        Looks at a bounded number of rows; returns whether there are more to look at: call it again in later turns.
        """
        with self._lock:
            self._check_writable()
            below = min(below, self._current.first_lsn)
            with translated(self._database.path), self._database.env.begin(write=True) as txn:
                self._forget_from = trimming.forget_ids(txn, self._database.tables.ids, below, self._forget_from)
                more = trimming.forget_lsns(txn, self._database.tables, below)
            self._database.refresh()
            return more or bool(self._forget_from)

    def keep(self, below: Lsn, ids_below: Lsn) -> bool:
        """Take one bounded step of forgetting: trim below an LSN, or forget ids below another, or give back disk space.

        Returns whether there is more to do at once; costs next to nothing when there is nothing. An id below
        ``ids_below`` may stay known for longer. Raises JournalFull or JournalError, as `trim` does.
        """
        if self._can_trim(below) and not (self._was_trimmed and self._are_ids_due(ids_below)):
            self._was_trimmed = True
            before = (self._current.first_lsn, self._ids.first_waiting)
            self.trim(below)
            if before != (self._current.first_lsn, self._ids.first_waiting):
                return True
        if self._are_ids_due(ids_below):
            self._was_trimmed = False
            if not self._forget_from:
                self._search_below = min(ids_below, self._current.first_lsn)
            if not self.forget_ids(self._search_below):
                self._forgotten_below = self._search_below
            return True
        self.compact()
        return False

    def _can_trim(self, below: Lsn) -> bool:
        with self._lock:
            first_lsn = self._current.first_lsn
            if not first_lsn < min(below, self._current.lsn + 1):
                return False
            (first, _), row = self._added_at(first_lsn)
            return first + count_in_added_row(row) <= below

    def _are_ids_due(self, below: Lsn) -> bool:
        if self._forget_from:
            return True
        old = min(below, self._current.first_lsn) - self._forgotten_below
        if old < FORGET_AT_ONCE:
            return False
        with self._lock:
            return 8 * old >= self._database.count_ids()

    def size(self) -> tuple[int, int]:
        """Bytes that the file takes on the disk, and how many of them hold something."""
        with self._lock:
            return self._database.size()

    def compact(self) -> bool:
        """Give free space of the file back to the disk when it is most of the file; returns whether it did.

        Not while so much is held that a copy of it takes longer than about a second: that waits for the next opening.
        Other threads may read meanwhile. Raises JournalDamaged, and JournalError when the file cannot be exchanged.
        """
        self._check_writable()
        return self._compact(COMPACT_AT_WORK_BYTES)

    def _compact(self, most_bytes: int) -> bool:
        with self._compacting:
            file_bytes, used_bytes = self.size()
            if not compaction.is_due(file_bytes, used_bytes) or used_bytes > most_bytes:
                return False
            if self._written_bytes < self._compact_after_bytes:
                return False
            try:
                compaction.write_copy(self._database, self._directory.copy, used_bytes)
            except JournalFull:
                self._compact_after_bytes = self._written_bytes + COMPACT_FREE_BYTES
                return False
            with self._lock:
                self._exchange()
            return True

    def _exchange(self) -> None:
        try:
            self._database.exchange(self._directory.copy)
            self._directory.measure_anew()
            self._make_room(0)
        except (OSError, lmdb.Error, JournalError) as error:
            self._refusal = f"the file of the journal could not be exchanged ({error}): start the node again"
            raise JournalError(self._refusal) from error

    # -------------------------------------------------------------------------- reading

    def state(self) -> MasterState:
        """What a restart begins from. Costs the un-synchronised tail, not the length of the log."""
        with self._lock:
            state = self._current.master_state(self._name)
            state.parked = list(self._tail.parked)
            for origin, entries in self._tail.streams.items():
                state.streams[origin] = StreamState(state.used.get(origin, 0), entries.copy())
            return state

    def records(self, start: int = 0) -> Iterator[tuple[int, Record]]:
        """All held records with their numbers, from number ``start`` on, each verified. Raises JournalDamaged.

        Goes on while turns are appended, and then returns those as well; it never holds up the journal for long.
        """
        while True:
            with self._lock:
                rows = self._database.records(start, READ_AT_ONCE)
            for number, row in rows:
                yield number, self._database.unseal(number, row)
                start = number + 1
            if len(rows) < READ_AT_ONCE:
                return

    def verify(self) -> Iterator[str]:
        """Every problem of the file, each as a sentence; none for a sound journal. Reads the whole log."""
        return verify(self._database)

    def close(self) -> None:
        """Release the directory. Idempotent."""
        with self._compacting, self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._database.close()
                self._directory.close()
