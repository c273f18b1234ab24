"""One turn on its way into the journal: its records, the index rows that they bring, and memory moved on with them.

    for record in records:        record -> row of `log` (sealed) + index rows; current, tail and ids move on
        turn.take(record)
    turn.write(txn, tables)       all rows into one LMDB transaction

Memory moves on before the commit, because records of one turn build on each other (a transaction may be accepted,
stamped and added in one turn). When anything fails in between, the journal reads memory back from the file.

Invariant: numbers of records only grow, so that `log` and the indexes by LSN are written at their ends.
"""

from __future__ import annotations

import lmdb

from brokerha.journal.current import Current
from brokerha.journal.database import Tables
from brokerha.journal.known_ids import KnownIds
from brokerha.journal.rows import (
    AddedRow,
    added_key,
    body_key,
    counted_row,
    keyed_row,
    number_key,
    seal,
    stream_key,
)
from brokerha.journal.tail import Tail
from brokerha.model.codec import encode_record
from brokerha.model.ids import Lsn
from brokerha.model.operations import REJECTED
from brokerha.model.records import Accepted, Added, Appended, BodiesHeld, Outcomes, Rebased, Record

Row = tuple[bytes, bytes]


class Turn:
    """Collects what one call of `append` writes, from record ``number`` on."""

    def __init__(self, number: int, seed: int, current: Current, tail: Tail, ids: KnownIds) -> None:
        self.number = number
        """Number of the next record."""
        self.held: list[tuple[int, Record, int]] = []
        """(number, record, size in bytes) of each record."""
        self.size_bytes = 0
        self.lsns = 0
        """How many LSNs the turn brings."""
        self._seed = seed
        self._current = current
        self._tail = tail
        self._ids = ids
        self._log: list[Row] = []
        self._added: list[Row] = []
        self._outcomes: list[Row] = []
        self._stream: list[Row] = []
        self._dropped: list[Row] = []
        self._rejected: list[Row] = []
        self._rebased_to: Lsn | None = None
        """Set when all results written before this turn go, and the rejections above this LSN."""

    def take(self, record: Record) -> None:
        """Take one more record. Raises InvariantBroken when it does not follow on the ones before."""
        number, live = self.number, 0
        if isinstance(record, Added):
            live = self._add(number, record)
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
        row = seal(self._seed, number, live, encode_record(record))
        self._log.append((number_key(number), row))
        self.held.append((number, record, len(row)))
        self.size_bytes += len(row)
        self.number = number + 1

    def _add(self, number: int, record: Added) -> int:
        before = {origin: self._current.used.get(origin, 0) for origin in record.used}
        self._current.advance(record, number)
        places, dropped = self._tail.add(record, before)
        row = AddedRow(tuple(places), record.used, tuple(dropped))
        self._added.append((added_key(record.first_lsn, number), row.pack()))
        self._dropped += [(body_key(origin, txid), number_key(place)) for origin, txid, place in dropped]
        self._ids.add(record.first_lsn, record.entries)
        self.lsns += len(places)
        return len(places)

    def _execute(self, number: int, record: Outcomes) -> None:
        if not record.results:
            return
        self._outcomes.append((number_key(record.first_lsn), counted_row(number, len(record.results))))
        for lsn, (outcome, reason, _, _) in enumerate(record.results, record.first_lsn):
            if outcome == REJECTED:
                key = number_key(lsn)
                self._rejected.append((key, keyed_row(key, reason.encode())))

    def _forget_results(self, lsn: Lsn) -> None:
        """Take back the results of this turn, and note that those of all turns before go with it."""
        void = {row[:8] for _, row in self._outcomes}
        self._log = [row for row in self._log if row[0] not in void]
        self._outcomes = []
        self._rejected = [row for row in self._rejected if row[0] <= number_key(lsn)]
        self._rebased_to = lsn if self._rebased_to is None else min(lsn, self._rebased_to)

    def write(self, txn: lmdb.Transaction, tables: Tables) -> None:
        """Write all rows but those of ids and of the current state."""
        if self._rebased_to is not None:
            _drop_results(txn, tables, self._rebased_to)
        for table, rows in ((tables.log, self._log), (tables.added, self._added), (tables.outcomes, self._outcomes)):
            if rows:
                with txn.cursor(table) as cursor:
                    cursor.putmulti(rows, append=True)
        for table, rows in (
            (tables.stream, self._stream),
            (tables.dropped, self._dropped),
            (tables.rejected, self._rejected),
        ):
            for key, value in rows:
                txn.put(key, value, db=table)
        self._tail.write(txn, tables.waiting)


def _drop_results(txn: lmdb.Transaction, tables: Tables, lsn: Lsn) -> None:
    """Delete all results with their records, and which transactions above an LSN were rejected."""
    with txn.cursor(tables.outcomes) as cursor:
        numbers = [row[:8] for row in cursor.iternext(keys=False)]
    for number in numbers:
        txn.delete(number, db=tables.log)
    txn.drop(tables.outcomes, delete=False)
    with txn.cursor(tables.rejected) as cursor:
        found = cursor.set_range(number_key(lsn + 1))
        while found:
            found = cursor.delete()
