"""LmdbWriter: opens a journal's file and appends turns to it; `LmdbJournal` is this, and how it forgets.

A turn goes into one LMDB transaction (turn.py), and memory moves on with it. A turn that is deferred leaves the transaction open, and
the next one goes into the same: one commit for both. Memory is what readers are answered from
(history.py), so it must never say more than the file does.

Invariants: memory (tail, ids, recent records, current state) equals the file, as any other thread sees it; when a commit
fails, memory is read back from the file. One thread appends.

Must never: go on writing after an error that may have left the file half written (anything but a full disk or map):
the journal stays readable and refuses further turns, until the node is started again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path

import lmdb

from brokerha.journal import recovery
from brokerha.journal.beginning import Beginning
from brokerha.journal.database import Database, translated
from brokerha.journal.directory import Directory, check_file, damaged
from brokerha.journal.history import LmdbHistory
from brokerha.journal.limits import (
    CACHE_BYTES,
    IDS_BUFFERED,
    IDS_WRITTEN,
    MAP_SIZE_BYTES,
    READ_AT_ONCE,
    TAIL_RECORDS,
)
from brokerha.journal.promise import keep_promise, read_promise
from brokerha.journal.recovery import HISTORY, STATE, State
from brokerha.journal.rows import BadRow, checked
from brokerha.journal.turn import Turn
from brokerha.journal.verification import verify
from brokerha.model.epochs import Epoch
from brokerha.model.errors import JournalError, JournalFull
from brokerha.model.ids import NodeId
from brokerha.model.records import EpochInstalled, MasterState, Record, StreamState, TxPrepared


class LmdbWriter(LmdbHistory):
    """The writing half of a journal in a directory, for one node of one cluster.

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
        self._pending_bytes = 0
        """Bytes of records that are deferred."""
        self._written_bytes = 0
        """Bytes of records since the journal was opened."""
        self._swept_to = 0
        """Small records before this number are gone as far as they were trimmed."""
        self._promised = 0
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
        recovery.upgrade(database, identity)
        self._promised = read_promise(self._directory.path)
        self._name = str(identity["journal"])
        database.name(self._name)
        recovery.verify_newest(database, recovery.read_state(database).next_number)
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
        self._starts, self._views = state.current.starts, state.current.views
        self._tail = recovery.load_tail(self._database, self._node, state.first_needed)
        recovery.load_streams(self._tail, self._current, self._read_stream)
        self._ids = recovery.load_ids(self._read_ordered, state.first_waiting, self._ids_buffered)
        self._decisions = recovery.load_decisions(self._database)
        self._swept_to = 0

    # ------------------------------------------------------------------------- writing

    def append(self, records: Sequence[Record]) -> None:
        """Write all records of a turn in one commit, with what was deferred before them, and fsync it before returning.

        Raises JournalFull or JournalError; then nothing of it was written, and the journal stays usable for reading.
        """
        if records:
            self._take_turn(records, is_deferred=False)

    def defer(self, records: Sequence[Record]) -> None:
        """Take records that are durable with the next commit. Raises as `append` does; then all that waited is lost."""
        if records:
            self._take_turn(records, is_deferred=True)

    def settle(self) -> None:
        """Make durable what was deferred; nothing is done when nothing was. Raises as `append` does; then it is lost."""
        with self._lock:
            self._settle()

    def _settle(self) -> None:
        pending = self._database.pending
        if pending is None:
            return
        try:
            with translated(self._database.path):
                pending.commit()
        except BaseException as error:
            self._recover_from(error)
            raise
        self._pending_bytes = 0
        self._database.refresh()

    def _take_turn(self, records: Sequence[Record], *, is_deferred: bool) -> None:
        with self._lock:
            turn = self._begun()
            try:
                for record in records:
                    turn.take(record)
                self._write(turn, is_deferred=is_deferred)
            except BadRow as error:
                turn.abort()
                self._recover_from(error)
                raise self._bad_row(error, "a transaction") from error
            except BaseException as error:
                turn.abort()
                self._recover_from(error)
                raise
            self._finish(turn, is_deferred=is_deferred)

    def follow(self, records: Sequence[tuple[int, Record]]) -> None:
        """Write records of another process under its numbers, which grow, in one commit, and fsync it.

        Raises as `append` does, InvariantBroken also for a number that is not above the last one.
        """
        if not records:
            return
        with self._lock:
            turn = self._begun()
            try:
                for number, record in records:
                    turn.take_at(number, record)
                self._write(turn)
            except BadRow as error:
                turn.abort()
                self._recover_from(error)
                raise self._bad_row(error, "a transaction") from error
            except BaseException as error:
                turn.abort()
                self._recover_from(error)
                raise
            self._finish(turn)

    def promise(self, view: int) -> None:
        """Remember durably that this process promised to a view. Raises JournalFull, JournalError."""
        with self._lock:
            self._check_writable()
            if view > self._promised:
                keep_promise(self._directory.path, view)
                self._promised = view

    def _begun(self) -> Turn:
        self._check_writable()
        get_id = self._database.get_id
        turn = Turn(self._next, self._database.seed, self._current, self._tail, self._ids, self._decisions, get_id)
        turn.database, turn.begin = self._database, self._begin
        return turn

    def _begin(self, turn_bytes: int) -> lmdb.Transaction[bytes]:
        """The transaction that the turn goes into: the one that is open, or a new one."""
        self._make_room(self._pending_bytes + turn_bytes)
        with translated(self._database.path):
            return self._database.pending or self._database.env.begin(write=True)

    def _finish(self, turn: Turn, *, is_deferred: bool = False) -> None:
        """Go on from a turn that is written."""
        self._next = turn.number
        self._written_bytes += turn.size_bytes
        self._swept_to = min(self._swept_to, turn.unpinned_from)
        if is_deferred and turn.txn is not None:
            self._pending_bytes += turn.size_bytes
            self._database.keep_open(turn.txn)
        else:
            self._pending_bytes = 0
            self._database.refresh()
        if turn.has_gone_back:
            self._forget_row()
        if turn.cut is not None:
            self._swept_to = 0
            self._recent.clear()
            self._unpacked.clear()
            self._forget_row()
        for number, record, size_bytes in turn.held:
            self._recent.add(number, record, size_bytes)

    def _write(self, turn: Turn, *, is_deferred: bool = False) -> None:
        tables, path = self._database.tables, self._database.path
        if turn.txn is None:
            turn.txn = self._begin(turn.size_bytes)
        else:
            self._make_room(self._pending_bytes + turn.size_bytes)
        self._spill(turn)
        with translated(path):
            turn.write(turn.txn, tables)
            self._ids.write(turn.txn, tables.ids, self._current.lsn + 1, 2 * turn.lsns + IDS_WRITTEN)
            self._put_state(turn.txn, turn.number)
            if not is_deferred:
                turn.txn.commit()

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
            if number < self._next:
                self._tail.spill(number, self._record(number))
            else:
                own = bisect_left(turn.held, number, key=itemgetter(0))
                self._tail.spill(number, turn.held[own][1])

    def _spill_before(self, end: int) -> None:
        """Give all bodies without an LSN in records before ``end`` rows in `waiting`, as their neighbours may go."""
        while (number := self._tail.first_needed(end)) < end:
            self._tail.spill(number, self._record(number))

    def _put_state(self, txn: lmdb.Transaction, next_number: int) -> None:
        needed = self._tail.first_needed(next_number)
        state = State(next_number, needed, self._ids.first_waiting, self._current)
        txn.put(STATE, state.pack(), db=self._database.tables.meta)
        if self._current.starts is not self._starts or self._current.views is not self._views:
            self._starts, self._views = self._current.starts, self._current.views
            txn.put(HISTORY, checked(self._current.pack_history()), db=self._database.tables.meta)

    def _check_writable(self) -> None:
        if self._is_closed:
            raise JournalError(f"the journal {self._database.path} is closed")
        if self._refusal:
            raise JournalError(self._refusal)

    def _recover_from(self, error: BaseException) -> None:
        """Bring memory back to what is durable, after a turn that was not written."""
        if isinstance(error, JournalError) and not isinstance(error, JournalFull):
            self._refusal = f"{error}; nothing more is written until the node is started again"
        self._pending_bytes = 0
        try:
            self._database.refresh()
            self._load()
        except JournalError as second:
            self._refusal = f"{second}; nothing more is written until the node is started again"

    # -------------------------------------------------------------------------- reading

    def state(self) -> MasterState:
        """What a restart begins from. Costs the un-synchronised tail, not the length of the log."""
        with self._lock:
            state = self._current.master_state(self._name)
            state.parked = list(self._tail.parked)
            for origin, entries in self._tail.streams.items():
                state.streams[origin] = StreamState(state.used.get(origin, 0), entries.copy())
            state.last_number, state.promised_view = self.last_number, self._promised
            state.prepared = {txid: self._prepared(number) for txid, number in self._decisions.prepared.items()}
            state.decided = self._decisions.remembered()
            if self._current.installed_by:
                state.installed = self._installed(self._current.installed_by)
            return state

    def _installed(self, number: int) -> Epoch:
        record = self._record(number)
        if not isinstance(record, EpochInstalled) or record.epoch.id != self._current.installed:
            raise damaged(self._database.path, f"record {number} does not hold the epoch {self._current.installed}")
        return record.epoch

    def _prepared(self, number: int) -> TxPrepared:
        record = self._record(number)
        if not isinstance(record, TxPrepared):
            raise damaged(self._database.path, f"record {number} does not hold a prepared transaction")
        return record

    @property
    def last_number(self) -> int:
        """Number of the last record, deferred ones included; 0 when there is none."""
        return self._next - 1

    def numbered(self, first: int, last: int, limit_bytes: int) -> list[tuple[int, bytes]] | None:
        """Encoded records ``first`` to ``last`` with their numbers: as many as ``limit_bytes`` allow, at least one.

        They are what was written, each verified, and are not decoded. Records of results that a `Rebased` behind them made
        void are left out. None when ``first`` lies before `numbered_from`. Raises JournalDamaged.
        """
        with self._lock:
            if first < self.numbered_from():
                return None
            return self._database.encodings(first, last, limit_bytes)

    def numbered_from(self) -> int:
        """Lowest number from which on nothing was trimmed: a follower that has all below may follow from here."""
        return self._current.lacking_to + 1

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
        """Release the directory, with what was deferred durable if it can be. Idempotent."""
        with self._lock:
            if not self._is_closed:
                with suppress(JournalError):
                    self._settle()
                self._is_closed = True
                self._database.close()
                self._directory.close()
