"""Trimming: which rows go when everything below an LSN is forgotten, in one transaction of bounded size.

The first `Added` records go as whole records; what they alone needed goes with them:

    Added             its own row and record
    EpochInstalled    the same; it adds nothing, and ends the streams before its starts
    bodies            each place in the row counts one for its record; a record goes when all that it brought are counted
                      (the count of a record that still holds others is kept in the table `trimmed`)
    duplicates        their row in `dropped`; their places count as well
    Appended          once the stream is used up to its end below the new first LSN
    Outcomes          once all their LSNs are below it
    small records     Started, ClockReserved, PeerJournal, those about decisions and empty ones, once they are older than the
                      last `Added` that goes; what they say is in the current state, `prepared` and `decided`

A record of a transaction that is prepared and not decided is pinned, and so is the last epoch: they are nowhere else.

So a record that waits for an LSN, or shares one with what is kept, stays, wherever it lies in the log. Ids stay in
`ids` until `forget_ids`. Pages that become free are used again by later turns (compaction.py gives them back).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import lmdb

from brokerha.journal.current import Current
from brokerha.journal.database import Table, Tables
from brokerha.journal.limits import FORGET_IDS, TRIM_LSNS, TRIM_RECORDS
from brokerha.journal.rows import (
    ITEM_BITS,
    AddedRow,
    body_key,
    live_items,
    number_key,
    number_of,
    read_added_key,
    read_added_row,
    read_counted_row,
    stream_key,
)
from brokerha.model.ids import Lsn

Transaction = lmdb.Transaction
"""Opened with ``buffers=True``: only the heads of rows are read, not the records behind them."""


@dataclass(frozen=True, slots=True)
class Cut:
    """What one call drops: `Added` records from the first on, and the epochs between them."""

    first_lsn: Lsn
    """The first LSN that stays."""
    rows: tuple[tuple[bytes, int, AddedRow], ...]
    """Key, record number and row of each `Added` record that goes."""
    mark: tuple[bytes, bytes] | None = None
    """Row of `marks` that comes in their place."""


def plan(txn: Transaction, tables: Tables, below: Lsn) -> Cut:
    """Choose the `Added` records that end below an LSN, up to the limits of one call."""
    rows: list[tuple[bytes, int, AddedRow]] = []
    first_lsn = start = 0
    with txn.cursor(tables.added) as cursor:
        for key, value in cursor:
            first, number = read_added_key(key)
            row = read_added_row(value)
            end = first + len(row.places)
            start = start or first
            if end > below or (first_lsn > start and end - start > TRIM_LSNS) or len(rows) >= TRIM_RECORDS:
                break
            rows.append((bytes(key), number, row))
            first_lsn = end
    return Cut(first_lsn, tuple(rows))


def carry_out(
    txn: Transaction, tables: Tables, current: Current, cut: Cut, swept_to: int, pinned: frozenset[int] = frozenset()
) -> int:
    """Delete what the cut names and what only it needed; moves ``current`` on. Returns the number swept up to.

    Records with ``pinned`` numbers stay.
    """
    if cut.mark is not None:
        txn.put(*cut.mark, db=tables.marks)
    places: Counter[int] = Counter()
    old_trimmed = dict(current.trimmed)
    for key, number, row in cut.rows:
        places.update([place >> ITEM_BITS for place in row.places])
        for origin, txid, place in row.dropped:
            places[place >> ITEM_BITS] += 1
            txn.delete(body_key(origin, txid), db=tables.dropped)
        txn.delete(key, db=tables.added)
        if number not in pinned:
            txn.delete(number_key(number), db=tables.log)
        current.trimmed.update(row.used)
    del places[0]
    current.first_lsn = cut.first_lsn
    for number, count in sorted(places.items()):
        _count_bodies(txn, tables, number, count)
    for origin, end in current.trimmed.items():
        if end > old_trimmed.get(origin, 0):
            _drop_runs(txn, tables, tables.stream, stream_key(origin, 0), end)
    end = cut.rows[-1][1]
    last_result = _drop_runs(txn, tables, tables.outcomes, number_key(0), cut.first_lsn)
    # Whatever else goes is older than the last `Added` record that goes.
    current.lacking_to = max(current.lacking_to, end, last_result)
    return _sweep(txn, tables, swept_to, end, pinned)


def _count_bodies(txn: Transaction, tables: Tables, number: int, count: int) -> None:
    """Note that ``count`` more bodies of a record are not needed; delete it when that was the last of them."""
    key = number_key(number)
    before = txn.get(key, db=tables.trimmed)
    count += 0 if before is None else number_of(before)
    row = txn.get(key, db=tables.log)
    if row is None or count < live_items(row):
        txn.put(key, number_key(count), db=tables.trimmed)
        return
    txn.delete(key, db=tables.log)
    if before is not None:
        txn.delete(key, db=tables.trimmed)


def _drop_runs(txn: Transaction, tables: Tables, index: Table, start: bytes, end: int) -> int:
    """Delete the records of an index, from a key on, whose run of items ends at or below a position.

    Returns the highest number of them, 0 when there are none.
    """
    gone: list[tuple[bytes, int]] = []
    with txn.cursor(index) as cursor:
        found = cursor.set_range(start)
        while found:
            key = bytes(cursor.key())
            number, count = read_counted_row(cursor.value())
            if key[:-8] != start[:-8] or number_of(key[-8:]) + count > end:
                break
            gone.append((key, number))
            found = cursor.next()
    for key, number in gone:
        txn.delete(key, db=index)
        txn.delete(number_key(number), db=tables.log)
    return max([number for _, number in gone], default=0)


def _sweep(txn: Transaction, tables: Tables, start: int, end: int, pinned: frozenset[int]) -> int:
    """Delete small records with numbers from ``start`` to before ``end`` that are not pinned; returns ``end``."""
    gone: list[bytes] = []
    with txn.cursor(tables.log) as cursor:
        found = cursor.set_range(number_key(start))
        while found and number_of(cursor.key()) < end:
            if not live_items(cursor.value()) and number_of(cursor.key()) not in pinned:
                gone.append(bytes(cursor.key()))
            found = cursor.next()
    for key in gone:
        txn.delete(key, db=tables.log)
    return end


def forget_ids(txn: lmdb.Transaction, table: Table, below: Lsn, start: bytes) -> bytes:
    """Delete rows of ids with an LSN below ``below``, looking at a bounded number from a key on.

    Returns the key to go on from, or empty bytes at the end of the table.
    """
    gone: list[bytes] = []
    with txn.cursor(table) as cursor:
        found = cursor.set_range(start) if start else cursor.first()
        for _ in range(FORGET_IDS):
            if not found:
                break
            if read_counted_row(cursor.value())[0] < below:
                gone.append(bytes(cursor.key()))
            found = cursor.next()
        rest = bytes(cursor.key()) if found else b""
    for key in gone:
        txn.delete(key, db=table)
    return rest


def forget_lsns(txn: lmdb.Transaction, tables: Tables, below: Lsn) -> bool:
    """Delete a bounded number of rejections and marks below an LSN; returns whether there are more.

    The newest mark stays, as the times of later ones must not go back behind it, and so does the one just below the LSN:
    it says that everything up to there is old.
    """
    more = False
    for table in (tables.rejected, tables.marks):
        with txn.cursor(table) as cursor:
            last = bytes(cursor.key()) if cursor.last() else b""
            end = number_key(below) if table is tables.rejected else min(number_key(max(below - 1, 0)), last)
            found, count = cursor.first(), 0
            while found and bytes(cursor.key()) < end and count < FORGET_IDS:
                found, count = cursor.delete(), count + 1
            more |= found and bytes(cursor.key()) < end
    return more
