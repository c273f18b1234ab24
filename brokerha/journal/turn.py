"""One turn on its way into the journal: its records, the index rows that they bring, and memory moved on with them.

    for record in records:        record -> row of `log` (sealed) + index rows; current, tail and ids move on
        turn.take(record)
    turn.write(txn, tables)       all rows into one LMDB transaction

Memory moves on before the commit, because records of one turn build on each other (a transaction may be accepted,
stamped and added in one turn). When anything fails in between, the journal reads memory back from the file.

A `Rewound` changes what earlier records wrote, so that all before it is written first (rewinding.py), in the same transaction.

Invariant: numbers of records only grow, so that `log` and the indexes by LSN are written at their ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import lmdb

from brokerha.journal.current import Current
from brokerha.journal.database import Database, Table, Tables, translated
from brokerha.journal.decisions import Decision, Decisions
from brokerha.journal.directory import damaged
from brokerha.journal.known_ids import Get, KnownIds
from brokerha.journal.limits import REWOUND_BYTES
from brokerha.journal.rewinding import Rewinding, last_void, trim_given
from brokerha.journal.rows import (
    AddedRow,
    BadRow,
    added_key,
    body_key,
    counted_row,
    keyed_row,
    number_key,
    number_of,
    read_counted_row,
    seal,
    stream_key,
)
from brokerha.journal.state_taken import Cut, mark
from brokerha.journal.tail import Tail
from brokerha.model.codec import encode_record
from brokerha.model.ids import Lsn, TxId
from brokerha.model.invariants import invariant
from brokerha.model.operations import REJECTED
from brokerha.model.records import (
    Accepted,
    Added,
    Appended,
    BodiesHeld,
    EpochInstalled,
    IdsTaken,
    Outcomes,
    Rebased,
    Record,
    Rewound,
    StateTaken,
)

Row = tuple[bytes, bytes]


class Turn:
    """Collects what one call of `append` or `follow` writes, from record ``number`` on."""

    def __init__(
        self, number: int, seed: int, current: Current, tail: Tail, ids: KnownIds, decisions: Decisions, get_id: Get
    ) -> None:
        self.number = number
        """Number of the next record."""
        self.unpinned_from = number
        """No record before is any longer pinned in vain: lowest one of a decided transaction, or of the last epoch."""
        self.held: list[tuple[int, Record, int]] = []
        """(number, record, size in bytes) of each record."""
        self.size_bytes = 0
        self.lsns = 0
        """How many LSNs the turn brings."""
        self._seed = seed
        self._current = current
        self._tail = tail
        self._ids = ids
        self._decisions = decisions
        self._get_id = get_id
        self._log: list[Row] = []
        self._added: list[Row] = []
        self._outcomes: list[Row] = []
        self._stream: list[Row] = []
        self._dropped: list[Row] = []
        self._rejected: list[Row] = []
        self._trimmed: list[Row] = []
        self._marks: list[Row] = []
        self.cut: Cut | None = None
        """What stays of everything before the last `StateTaken` of this turn."""
        self._rebased_to: Lsn | None = None
        """Set when all results written before this turn go, and the rejections above this LSN."""
        self._first_rebased: Lsn = 0
        self.database: Database
        self.begin: Callable[[int], lmdb.Transaction[bytes]]
        """Begins the transaction of the turn before its end, with room for so many bytes. These two are set by who began the turn."""
        self.txn: lmdb.Transaction[bytes] | None = None
        """The transaction, once something was written."""
        self.has_gone_back = False
        self._cut_written: Cut | None = None
        self._rebased_end = b""
        """Key of the last LSN whose rejection goes with them."""

    def take_at(self, number: int, record: Record) -> None:
        """Take a record of another process under its number. Raises InvariantBroken, also when numbers do not grow."""
        invariant(number >= self.number, "numbers of records grow", number=number, following=self.number)
        self.number = number
        self.take(record)

    def _go_back(self, number: int, record: Rewound) -> None:
        """Write all records before, and change in the file what is behind the LSN; the rest of the turn follows."""
        self._current.check_back(record.lsn)
        if self.txn is None:
            self.txn = self.begin(self.size_bytes + REWOUND_BYTES * (self._current.lsn - record.lsn))
        self.has_gone_back = True
        database = self.database
        with translated(database.path):
            self.write(self.txn, database.tables)
            for rows in (self._log, self._added, self._outcomes, self._stream, self._dropped, self._rejected):
                rows.clear()
            self._trimmed.clear()
            self._rebased_to, self._cut_written = None, self.cut
            self._get_id = self._get_id_early
            try:
                Rewinding(self.txn, database, number, record).carry_out(self._current, self._tail, self._ids)
            except BadRow as error:
                raise damaged(database.path, f"an index row is not what was written ({error})") from error

    def _get_id_early(self, key: bytes) -> bytes | None:
        row = None if self.txn is None else self.txn.get(key, db=self.database.tables.ids)
        return None if row is None else bytes(row)

    def abort(self) -> None:
        """Take back what was written, and what was deferred before it."""
        if self.txn is not None:
            self.txn.abort()

    def take(self, record: Record) -> None:
        """Take one more record. Raises InvariantBroken when it does not follow on the ones before."""
        number, live = self.number, 0
        if isinstance(record, Added):
            live = self._add(number, record)
        elif isinstance(record, EpochInstalled):
            self._install(number, record)
        else:
            self._current.advance(record, number)
            if isinstance(record, (Accepted, BodiesHeld)):
                live = self._tail.hold(number, record)
            elif isinstance(record, Appended):
                live = len(record.entries)
                self._tail.append(record)
                if live:
                    self._stream.append((stream_key(record.origin, record.start), counted_row(number, live)))
            elif isinstance(record, Outcomes):
                live = len(record.results)
                self._execute(number, record)
            elif isinstance(record, Rebased):
                self._forget_results(record.lsn)
            elif isinstance(record, IdsTaken):
                self._ids.take(record.ids)
                self._reject(record.rejections)
            elif isinstance(record, StateTaken):
                self._take_state(record)
            elif isinstance(record, Rewound):
                self._go_back(number, record)
            elif isinstance(record, Decision):
                self._decide(number, record)
        row = seal(self._seed, number, live, encode_record(record))
        self._log.append((number_key(number), row))
        self.held.append((number, record, len(row)))
        self.size_bytes += len(row)
        self.number = number + 1

    def _add(self, number: int, record: Added) -> int:
        before = {origin: self._current.used.get(origin, 0) for origin in record.used}
        self._current.advance(record, number)
        places, dropped = self._tail.add(record, before)
        self._index(number, record.first_lsn, AddedRow(tuple(places), record.used, tuple(dropped)))
        self._ids.add(record.first_lsn, record.entries)
        self.lsns += len(places)
        return len(places)

    def _install(self, number: int, record: EpochInstalled) -> None:
        epoch, last = record.epoch, self._current.installed_by
        self._current.advance(record, number)
        if last:
            self.unpinned_from = min(self.unpinned_from, last)
        dropped = self._tail.install(epoch)
        self._index(number, epoch.base_lsn + 1, AddedRow((), epoch.starts, tuple(dropped)))

    def _index(self, number: int, first_lsn: Lsn, row: AddedRow) -> None:
        """Note what a record made of the ends of streams; what it dropped goes when it is trimmed."""
        self._added.append((added_key(first_lsn, number), row.pack()))
        self._dropped += [(body_key(origin, txid), number_key(place)) for origin, txid, place in row.dropped]

    def _execute(self, number: int, record: Outcomes) -> None:
        if not record.results:
            return
        self._outcomes.append((number_key(record.first_lsn), counted_row(number, len(record.results))))
        found = enumerate(record.results, record.first_lsn)
        self._reject([(lsn, reason) for lsn, (outcome, reason, _, _) in found if outcome == REJECTED])

    def _reject(self, reasons: Iterable[tuple[Lsn, str]]) -> None:
        keyed = [(number_key(lsn), reason) for lsn, reason in reasons]
        self._rejected += [(key, keyed_row(key, reason.encode())) for key, reason in keyed]

    def _take_state(self, record: StateTaken) -> None:
        """Note what stays of the log, and forget all else of this turn; the `Added` records that go say no ids any more."""

        def is_known(txid: TxId) -> bool:
            return (self._ids.find(txid, self._get_id) or record.lsn + 1) <= record.lsn

        bodies = self._tail.take_state(is_known)
        pinned = frozenset([*self._decisions.prepared.values(), self._current.installed_by])
        self.cut = cut = Cut(bodies, dict(self._current.used), pinned)
        self._ids.write_all_next()
        self._stream = cut.runs(self._stream)
        needed = cut.needed(self._stream)
        self._log = [row for row in self._log if number_of(row[0]) in needed]
        self._trimmed = cut.gone(self._log)
        self._marks.append(mark(record))
        self._added, self._outcomes, self._dropped, self.held = [], [], [], []

    def _decide(self, number: int, record: Decision) -> None:
        pinned = self._decisions.prepared.get(record.txid, number)
        self._decisions.take(number, record)
        if record.txid not in self._decisions.prepared:
            self.unpinned_from = min(self.unpinned_from, pinned)

    def _forget_results(self, lsn: Lsn) -> None:
        """Take back the results of this turn, and note that those of all turns before go with it."""
        self._note_lacking([(number_of(key), read_counted_row(row)) for key, row in self._outcomes], lsn)
        void = {row[:8] for _, row in self._outcomes}
        self._log = [row for row in self._log if row[0] not in void]
        self._outcomes = []
        # What is behind the queue came with the state of another master, and is no result of this site.
        self._rebased_end = number_key(self._current.lsn)
        self._rejected = [row for row in self._rejected if not number_key(lsn) < row[0] <= self._rebased_end]
        if self._rebased_to is None:
            self._rebased_to = self._first_rebased = lsn
        self._rebased_to = min(lsn, self._rebased_to)

    def _note_lacking(self, void: list[tuple[Lsn, tuple[int, int]]], lsn: Lsn) -> None:
        """Note the last record that says of a transaction up to an LSN that it was rejected, and goes all the same."""
        rejected = [number_of(key) for key, _ in self._rejected if key <= number_key(lsn)]
        for first_lsn, (number, count) in void:
            if any(first_lsn <= found < first_lsn + count for found in rejected):
                self._current.lacking_to = max(self._current.lacking_to, number)

    def write(self, txn: lmdb.Transaction, tables: Tables) -> None:
        """Write all rows but those of ids and of the current state."""
        if self._rebased_to is not None:
            lacking = _last_rejecting(txn, tables, self._first_rebased)
            lacking = max(lacking, last_void(txn, tables, self._current.rewound_by))
            self._current.lacking_to = max(self._current.lacking_to, lacking)
            _drop_results(txn, tables, self._rebased_to, self._rebased_end)
        if self.cut is not None and self.cut is not self._cut_written:
            self.cut.carry_out(txn, tables)
            trim_given(txn, tables, 0, frozenset())
        for table, rows in ((tables.log, self._log), (tables.added, self._added), (tables.outcomes, self._outcomes)):
            if rows:
                with txn.cursor(table) as cursor:
                    cursor.putmulti(rows, append=True)
        for table, rows in (
            (tables.stream, self._stream),
            (tables.dropped, self._dropped),
            (tables.rejected, self._rejected),
            (tables.trimmed, self._trimmed),
            (tables.marks, self._marks),
        ):
            for key, value in rows:
                txn.put(key, value, db=table)
        self._tail.write(txn, tables.waiting)
        if self._decisions.prepared_rows or self._decisions.decided_rows:
            self._write_decisions(txn, tables)

    def _write_decisions(self, txn: lmdb.Transaction, tables: Tables) -> None:
        decisions = self._decisions
        for number, txid in decisions.prepared_rows.items():
            _put_keyed(txn, tables.prepared, number, None if txid is None else txid.encode())
        for number, record in decisions.decided_rows.items():
            _put_keyed(txn, tables.decided, number, None if record is None else encode_record(record))
        decisions.forget_rows()


def _put_keyed(txn: lmdb.Transaction, table: Table, number: int, data: bytes | None) -> None:
    key = number_key(number)
    if data is None:
        txn.delete(key, db=table)
    else:
        txn.put(key, keyed_row(key, data), db=table)


def _last_rejecting(txn: lmdb.Transaction, tables: Tables, lsn: Lsn) -> int:
    """Number of the last record of results that says of a transaction up to an LSN that it was rejected; 0 for none."""
    with txn.cursor(tables.rejected) as rejected, txn.cursor(tables.outcomes) as outcomes:
        if not (_at_or_below(rejected, lsn) and _at_or_below(outcomes, number_of(rejected.key()))):
            return 0
        number, count = read_counted_row(outcomes.value())
        return number if number_of(rejected.key()) < number_of(outcomes.key()) + count else 0


def _at_or_below(cursor: lmdb.Cursor, lsn: Lsn) -> bool:
    """Move to the last row whose key is not above an LSN; whether there is one."""
    found = cursor.set_range(number_key(lsn + 1))
    return bool(cursor.prev() if found else cursor.last())


def _drop_results(txn: lmdb.Transaction, tables: Tables, lsn: Lsn, end: bytes) -> None:
    """Delete all results with their records, and which transactions above an LSN were rejected, up to a key."""
    with txn.cursor(tables.outcomes) as cursor:
        numbers = [row[:8] for row in cursor.iternext(keys=False)]
    for number in numbers:
        txn.delete(number, db=tables.log)
    txn.drop(tables.outcomes, delete=False)
    with txn.cursor(tables.rejected) as cursor:
        found = cursor.set_range(number_key(lsn + 1))
        while found and bytes(cursor.key()) <= end:
            found = cursor.delete()
