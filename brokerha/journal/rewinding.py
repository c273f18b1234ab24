"""Going back in the file: what one `Rewound` changes of what was written before it, all of it in the commit of its turn.

    added      rows wholly behind the LSN go, the one across it becomes shorter; one row comes for the `Rewound` itself, without places
    outcomes   the same, and nothing comes
    given      numbers of the records behind those rows: they stay for followers until the row of the `Rewound` is trimmed
    ids, rejected      rows behind the LSN go
    dropped    duplicates of what is given up are none any more
    waiting    every body that has no LSN now
    splits     what was given up, for people (split_book.py)

The row of a `Rewound` has what trimming needs of all rows that went: how far streams are used, which duplicates are still dropped,
and the foreign bodies that have no LSN any more. Those of them that nothing uses or wants by then go with that row (`expired`).

Everything reads through the transaction of the turn, into which all records before were written already. It costs what is given up.

Must never: change a record, or what is at or below the LSN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import lmdb

from brokerha.journal import split_book
from brokerha.journal.current import Current
from brokerha.journal.database import Database, Table, Tables
from brokerha.journal.directory import damaged
from brokerha.journal.known_ids import KnownIds
from brokerha.journal.rows import (
    AddedRow,
    added_key,
    body_key,
    count_in_added_row,
    counted_row,
    number_key,
    number_of,
    read_added_key,
    read_added_row,
    read_counted_row,
)
from brokerha.journal.tail import Tail
from brokerha.journal.trimming import Cut
from brokerha.model.fingerprints import UNKNOWN
from brokerha.model.given_up import UNKNOWN_OUTCOME, GivenUp, Split
from brokerha.model.ids import Lsn, NodeId, Ordered, TxId
from brokerha.model.operations import APPLIED, REJECTED
from brokerha.model.records import Added, Outcomes, Rewound

ADDED, OUTCOMES = b"A", b"O"
"""Rows of `given`."""

Body = tuple[NodeId, TxId, int]
"""Origin, transaction id, place."""


@dataclass(slots=True)
class _Taken:
    """What is taken away."""

    entries: list[tuple[Lsn, Ordered]] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    dropped: list[Body] = field(default_factory=list)
    """What the rows that went say of duplicates, and earlier `Rewound` of bodies without an LSN."""
    given: list[tuple[int, bytes]] = field(default_factory=list)


class Rewinding:
    """One `Rewound`, record ``number``, on its way into the file. All records before are in ``txn`` already."""

    def __init__(self, txn: lmdb.Transaction, database: Database, number: int, record: Rewound) -> None:
        self._txn = txn
        self._database = database
        self._tables: Tables = database.tables
        self._number = number
        self._lsn = record.lsn
        self._wanted = record

    def carry_out(self, current: Current, tail: Tail, ids: KnownIds) -> None:
        """Change the file and move memory on. Raises JournalDamaged, BadRow."""
        end, old = self._lsn + 1, current.lsn
        taken = self._take_added()
        txids = {entry[1] for _, entry in taken.entries}
        self._write_book(current, taken)
        executed = self._content_at(current)
        taken.given += self._take_outcomes()
        ids.go_back(end, txids, self._txn, self._tables.ids)
        self._drop_rejections(old)
        bodies = [(o, t, place) for (_, (_, t, o)), place in zip(taken.entries, taken.places, strict=True) if place]
        bodies += self._revive_dropped(txids, taken)
        left = [body for body in taken.dropped if self._is_left(body, tail)]
        tail.revive(bodies)
        left += [body for body in bodies if body[0] != tail.node]
        row = AddedRow((), dict(current.used), tuple(dict.fromkeys(left)))
        self._txn.put(added_key(end, self._number), row.pack(), db=self._tables.added)
        for number, kind in taken.given:
            self._txn.put(number_key(number), kind, db=self._tables.given)
        current.go_back(self._lsn, self._number, self._last(current), *executed)

    def _take_added(self) -> _Taken:
        """Take the rows behind the LSN out of `added`, and make the one across it shorter."""
        taken, end, table = _Taken(), self._lsn + 1, self._tables.added
        rows: list[tuple[bytes, bytes]] = []
        with self._txn.cursor(table) as cursor:
            there = cursor.set_range(added_key(end, 0))
            if cursor.prev() if there else cursor.last():
                rows.append((bytes(cursor.key()), bytes(cursor.value())))
        for key, data in _rows_from(self._txn, table, added_key(end, 0)):
            if read_added_key(key)[0] > end or count_in_added_row(data):
                rows.append((key, data))
        for key, data in rows:
            first, number = read_added_key(key)
            row = read_added_row(data)
            kept = max(0, min(len(row.places), end - first))
            if first <= self._lsn and kept == len(row.places):
                continue
            if len(row.places) > kept:
                entries = self._added(number, first).entries[kept : len(row.places)]
                taken.entries += enumerate(entries, first + kept)
                taken.places += row.places[kept:]
            if kept:
                self._txn.put(key, AddedRow(row.places[:kept], row.used, row.dropped).pack(), db=table)
            else:
                taken.dropped += row.dropped
                taken.given.append((number, ADDED))
                self._txn.delete(key, db=table)
        return taken

    def _take_outcomes(self) -> list[tuple[int, bytes]]:
        """Take the rows behind the LSN out of `outcomes`, and make the one across it shorter; gives the records that go."""
        end, table = self._lsn + 1, self._tables.outcomes
        gone: list[tuple[int, bytes]] = []
        for key, row in _rows_from(self._txn, table, number_key(end)):
            gone.append((read_counted_row(row)[0], OUTCOMES))
            self._txn.delete(key, db=table)
        with self._txn.cursor(table) as cursor:
            if cursor.last():
                key, (number, count) = bytes(cursor.key()), read_counted_row(cursor.value())
                if number_of(key) + count > end:
                    self._txn.put(key, counted_row(number, end - number_of(key)), db=table)
        return gone

    def _write_book(self, current: Current, taken: _Taken) -> None:
        rejected = {number_of(key) for key, _ in _rows_from(self._txn, self._tables.rejected, number_key(self._lsn + 1))}
        known = range(current.results_from, current.executed_lsn + 1)

        def outcome(lsn: Lsn) -> str:
            if lsn in rejected:
                return REJECTED
            return APPLIED if lsn in known else UNKNOWN_OUTCOME

        given_up = [GivenUp(lsn, txid, origin, outcome(lsn)) for lsn, (_, txid, origin) in taken.entries]
        last = taken.entries[-1][1][0] if taken.entries else 0
        about = self._wanted.epoch, self._wanted.lineage, self._wanted.keeps_content
        head = Split(self._number, *about, self._lsn, len(given_up), last, len(given_up))
        split_book.write(self._txn, self._tables.splits, head, given_up)

    def _content_at(self, current: Current) -> tuple[bytes, int]:
        """Fingerprint and items at the LSN, as far as they are known; of interest when results are given up."""
        lsn = self._lsn
        if lsn >= current.executed_lsn:
            return current.fingerprint, current.items
        if lsn < current.results_from:
            return (current.base if lsn == current.results_from - 1 else UNKNOWN), 0
        with self._txn.cursor(self._tables.outcomes) as cursor:
            there = cursor.set_range(number_key(lsn + 1))
            if not (cursor.prev() if there else cursor.last()):
                raise damaged(self._database.path, f"the result of LSN {lsn} is in no record")
            number = read_counted_row(cursor.value())[0]
        record = self._record(number)
        if not isinstance(record, Outcomes) or not 0 <= lsn - record.first_lsn < len(record.results):
            raise damaged(self._database.path, f"record {number} does not hold the result of LSN {lsn}")
        place = lsn - record.first_lsn
        return record.results[place][3], record.items if place + 1 == len(record.results) else 0

    def _drop_rejections(self, old: Lsn) -> None:
        for key, _ in _rows_from(self._txn, self._tables.rejected, number_key(self._lsn + 1)):
            if number_of(key) <= old:
                self._txn.delete(key, db=self._tables.rejected)

    def _revive_dropped(self, txids: set[TxId], taken: _Taken) -> list[Body]:
        """Take bodies that were duplicates of what is given up out of `dropped`, and out of the rows that name them."""
        found: list[Body] = []
        with self._txn.cursor(self._tables.dropped) as cursor:
            for txid in sorted(txids) if cursor.first() else ():
                prefix = body_key("", txid)
                there = cursor.set_range(prefix)
                while there and bytes(cursor.key()).startswith(prefix):
                    origin = bytes(cursor.key())[len(prefix) :].decode()
                    found.append((origin, txid, number_of(cursor.value())))
                    there = cursor.next()
        for origin, txid, _ in found:
            self._txn.delete(body_key(origin, txid), db=self._tables.dropped)
        left = set(found).difference(taken.dropped)
        if left:
            self._take_out(left)
        return found

    def _take_out(self, left: set[Body]) -> None:
        """Take bodies out of the rows of `added` that name them: the one across the LSN, or of an epoch that left them out."""
        with self._txn.cursor(self._tables.added) as cursor:
            rows = [(key, read_added_row(data)) for key, data in cursor]
        for key, row in rows:
            if not left.isdisjoint(row.dropped):
                kept = tuple(body for body in row.dropped if body not in left)
                self._txn.put(key, AddedRow(row.places, row.used, kept).pack(), db=self._tables.added)

    def _is_left(self, body: Body, tail: Tail) -> bool:
        """Whether a body that a row named is still a dropped duplicate, or still without an LSN."""
        origin, txid, place = body
        return tail.place_of(origin, txid) == place or _dropped_place(self._txn, self._tables, origin, txid) == place

    def _last(self, current: Current) -> Ordered | None:
        """The entry at the LSN; None when it is not held."""
        if self._lsn < current.first_lsn:
            return None
        with self._txn.cursor(self._tables.added) as cursor:
            there = cursor.set_range(added_key(self._lsn, 2**64 - 1))
            if not (cursor.prev() if there else cursor.last()):
                raise damaged(self._database.path, f"LSN {self._lsn} is in no record")
            first, number = read_added_key(cursor.key())
        return self._added(number, first).entries[self._lsn - first]

    def _added(self, number: int, first: Lsn) -> Added:
        record = self._record(number)
        if not isinstance(record, Added) or record.first_lsn != first:
            raise damaged(self._database.path, f"record {number} does not add LSN {first}")
        return record

    def _record(self, number: int) -> object:
        row = self._txn.get(number_key(number), db=self._tables.log)
        if row is None:
            raise damaged(self._database.path, f"record {number} is missing")
        return self._database.unseal(number, bytes(row))


def _rows_from(txn: lmdb.Transaction, table: Table, start: bytes) -> list[tuple[bytes, bytes]]:
    with txn.cursor(table) as cursor:
        return [(bytes(key), bytes(row)) for key, row in cursor] if cursor.set_range(start) else []


def _dropped_place(txn: lmdb.Transaction, tables: Tables, origin: NodeId, txid: TxId) -> int:
    row = txn.get(body_key(origin, txid), db=tables.dropped)
    return 0 if row is None else number_of(row)


def last_void(txn: lmdb.Transaction, tables: Tables, before: int) -> int:
    """Drop the results that were given up, as no result before a `Rebased` stays.

    Returns the last record of results below number ``before``, as followers know from it what had become of what was given up;
    0 for none.
    """
    numbers = [read_counted_row(row)[0] for _, row in _rows_from(txn, tables.outcomes, number_key(0))]
    for key, row in _rows_from(txn, tables.given, number_key(0)):
        if row == OUTCOMES:
            numbers.append(number_of(key))
            txn.delete(key, db=tables.log)
            txn.delete(key, db=tables.given)
    return max((number for number in numbers if number < before), default=0)


# --------------------------------------------------------------------------------- trimming


def expired(
    txn: lmdb.Transaction, tables: Tables, cut: Cut, tail: Tail, is_wanted: Callable[[NodeId, TxId], bool]
) -> list[AddedRow]:
    """The rows of a cut with those bodies only that go with it: still dropped duplicates, or without an LSN and not wanted.

    The latter are taken out of the tail.
    """
    rows: list[AddedRow] = []
    for _, _, row in cut.rows:
        gone: list[Body] = []
        for origin, txid, place in row.dropped:
            if tail.place_of(origin, txid) == place:
                if not is_wanted(origin, txid):
                    tail.forget(origin, txid)
                    gone.append((origin, txid, place))
            elif _dropped_place(txn, tables, origin, txid) == place:
                gone.append((origin, txid, place))
        rows.append(row._replace(dropped=tuple(gone)))
    return rows


def trim_given(txn: lmdb.Transaction, tables: Tables, below: int, pinned: frozenset[int]) -> None:
    """Delete given-up records below number ``below``, which is that of the last `Rewound` whose row was trimmed."""
    for key, _ in _rows_from(txn, tables.given, number_key(0)):
        if number_of(key) < below and number_of(key) not in pinned:
            txn.delete(key, db=tables.log)
        if txn.get(key, db=tables.log) is None:
            txn.delete(key, db=tables.given)



def is_given(database: Database, number: int) -> bool:
    """Whether a record was given up."""
    return database.get(number_key(number), database.tables.given) is not None
