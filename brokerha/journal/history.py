"""LmdbHistory: the reading half of the journal; what a core may ask about its own past.

Where an answer comes from, in this order: what was appended last, as it was (recent.py); what has no LSN yet (tail.py,
known_ids.py); the file, through one snapshot (database.py), each record unpacked once for a whole range.

    lsn_of("t-1")     buffer or `ids`
    body("m2", "t-1") recent | place in the tail | LSN -> row of `added` -> place | row of `dropped`
    ordered(5, 100)   highest row of `added` at or below 5 -> its record -> the next row, ...

Every record that is read from the file is verified, and must be the one that the index promised: a wrong index row is
damage (JournalDamaged) and never a wrong answer. All methods may be called by any thread: one lock, held for
microseconds by reads, and by `append` until its fsync is done, so that nobody sees what is not durable.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable
from typing import TypeVar

from brokerha.journal.current import Current
from brokerha.journal.database import Database
from brokerha.journal.decisions import Decisions
from brokerha.journal.directory import damaged
from brokerha.journal.known_ids import KnownIds
from brokerha.journal.limits import CACHE_BYTES, UNPACKED_BYTES
from brokerha.journal.recent import Recent, Unpacked
from brokerha.journal.rows import (
    ITEM_BITS,
    ITEMS_LIMIT,
    AddedRow,
    BadRow,
    added_key,
    body_key,
    count_in_added_row,
    number_key,
    number_of,
    read_added_key,
    read_added_row,
    read_counted_row,
    read_keyed_row,
    read_stream_key,
    stream_key,
)
from brokerha.journal.split_book import read_given_up, read_splits
from brokerha.journal.tail import Tail
from brokerha.model.errors import JournalDamaged
from brokerha.model.fingerprints import UNKNOWN
from brokerha.model.given_up import GivenUp, Split
from brokerha.model.ids import Entry, Lsn, NodeId, Ordered, Timestamp, TxId
from brokerha.model.operations import Result, ResultRow
from brokerha.model.records import Accepted, Added, Appended, BodiesHeld, Outcomes, Record, Remembered

Item = TypeVar("Item")
_NO_ROW = AddedRow((), {}, ())
_LAST = ITEMS_LIMIT - 1


class LmdbHistory:
    """`History` of node ``node`` over an open database; the writing half is `LmdbJournal`."""

    def __init__(self, node: NodeId, database: Database, cache_bytes: int = CACHE_BYTES) -> None:
        self._node = node
        self._database = database
        self._lock = threading.Lock()
        self._current = Current()
        self._tail = Tail(node)
        self._ids = KnownIds(0)
        self._decisions = Decisions()
        self._recent = Recent(node, cache_bytes)
        self._unpacked = Unpacked(UNPACKED_BYTES)
        self._forget_row()
        self._row: tuple[Lsn, Lsn, AddedRow]
        """The row of `added` that was read last, with its first LSN and the one behind its last."""

    def lsn_of(self, txid: TxId) -> Lsn | None:
        """LSN of a synchronised transaction, or None. Raises JournalDamaged."""
        with self._lock:
            try:
                return self._ids.find(txid, self._database.get_id)
            except BadRow as error:
                raise self._bad_row(error, f"transaction {txid}") from error

    def body(self, origin: NodeId, txid: TxId) -> bytes | None:
        """Body of a transaction by origin and id, or None when it is not held. Raises JournalDamaged."""
        with self._lock:
            body = self._recent.body(origin, txid)
            if body is not None:
                return body
            try:
                return self._find_body(origin, txid)
            except BadRow as error:
                raise self._bad_row(error, f"transaction {txid}") from error

    def stream(self, origin: NodeId, start: int, limit: int) -> list[Entry]:
        """Up to ``limit`` entries of a stream from number ``start`` on; fewer or none where it ends or was trimmed."""
        with self._lock:
            try:
                return self._read_stream(origin, start, limit)
            except BadRow as error:
                raise self._bad_row(error, f"entry {start} of {origin}") from error

    def ordered(self, first_lsn: Lsn, limit: int) -> list[Ordered]:
        """Up to ``limit`` entries of the synchronised queue from ``first_lsn`` on; none where it was trimmed."""
        with self._lock:
            try:
                return self._read_ordered(first_lsn, limit)
            except BadRow as error:
                raise self._bad_row(error, f"LSN {first_lsn}") from error

    def epochs(self, first_lsn: Lsn, limit: int) -> list[int]:
        """Numbers of the epochs that added the entries of `ordered`, one for each; none where it gives none."""
        with self._lock:
            if first_lsn < self._current.first_lsn:
                return []
            try:
                return _gather(self._epochs_at, first_lsn, self._current.lsn + 1, limit)
            except BadRow as error:
                raise self._bad_row(error, f"LSN {first_lsn}") from error

    def results(self, first_lsn: Lsn, limit: int) -> list[Result]:
        """Up to ``limit`` results of execution from ``first_lsn`` on; fewer where they are not known yet."""
        with self._lock:
            if first_lsn < self._current.results_from:
                return []
            try:
                found = _gather(self._results_at, first_lsn, self._current.executed_lsn + 1, limit)
            except BadRow as error:
                raise self._bad_row(error, f"the result of LSN {first_lsn}") from error
            return [Result(*result) for result in found]

    def first_lsn(self) -> Lsn:
        """Lowest LSN whose body is still held; one more than the last when the log is empty."""
        return self._current.first_lsn

    def epoch(self) -> int:
        """Of the entries that were added last."""
        return self._current.epoch

    def results_from(self) -> Lsn:
        """Lowest LSN whose result is held; one more than the last executed one when none is."""
        return self._current.results_from

    def fingerprint_at(self, lsn: Lsn) -> bytes:
        """Fingerprint of the content at an LSN, from `results_from` - 1 on; unknown (empty) elsewhere."""
        with self._lock:
            try:
                return self._read_fingerprint(lsn)
            except BadRow as error:
                raise self._bad_row(error, f"the result of LSN {lsn}") from error

    def rejection(self, lsn: Lsn) -> str | None:
        """Why the transaction at an LSN was rejected, also after trimming; None when it was not, or was forgotten."""
        key = number_key(max(lsn, 0))
        with self._lock:
            row = self._database.get(key, self._database.tables.rejected)
        try:
            return None if row is None else read_keyed_row(key, row).decode()
        except (BadRow, UnicodeDecodeError) as error:
            raise self._bad_row(error, f"the rejection of LSN {lsn}") from error

    def remembered(self, cursor: bytes, up_to: Lsn, limit: int) -> Remembered:
        """The remembered transactions up to an LSN, ``limit`` of all looked at, from a cursor on. Raises JournalDamaged."""
        tables = self._database.tables
        with self._lock:
            try:
                page = self._ids.page(cursor, limit, lambda start, most: self._database.rows(tables.ids, start, most))
            except BadRow as error:
                raise self._bad_row(error, "a transaction's LSN") from error
        ids = tuple((key[2:].decode(), lsn) for key, lsn in page if lsn <= up_to)
        reasons = [(lsn, self.rejection(lsn)) for _, lsn in ids]
        rejections = tuple((lsn, reason) for lsn, reason in reasons if reason is not None)
        return Remembered(ids, rejections, page[-1][0] if len(page) == limit else b"")

    def items_at(self, lsn: Lsn) -> int:
        """Quads and keys at an LSN; 0 when that is not known. Raises JournalDamaged."""
        with self._lock:
            current = self._current
            if lsn == current.executed_lsn or not current.results_from <= lsn < current.executed_lsn:
                return current.items if lsn == current.executed_lsn else 0
            try:
                record = self._outcomes_at(lsn)
            except BadRow as error:
                raise self._bad_row(error, f"the result of LSN {lsn}") from error
            return record.items if lsn == record.first_lsn + len(record.results) - 1 else 0

    def lsn_before(self, timestamp: Timestamp) -> Lsn:
        """Highest LSN up to which everything was stamped before a timestamp, as far as that is known; 0 for nothing."""
        with self._lock:
            try:
                return self._find_lsn_before(timestamp)
            except BadRow as error:
                raise self._bad_row(error, "the time of an LSN") from error

    def splits(self) -> list[Split]:
        """What was given up when the queue went back, by head lines, oldest first. Raises JournalDamaged."""
        with self._lock:
            try:
                return read_splits(self._split_rows)
            except BadRow as error:
                raise self._bad_row(error, "the split book") from error

    def given_up(self, number: int, first_lsn: Lsn, limit: int) -> list[GivenUp]:
        """Up to ``limit`` transactions of a split, from an old LSN on; none when they are not listed any more."""
        with self._lock:
            try:
                return read_given_up(self._split_rows, number, first_lsn, limit)
            except BadRow as error:
                raise self._bad_row(error, "the split book") from error

    # ---------------------------------------------------------------- behind the lock

    def _split_rows(self, start: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        return self._database.rows(self._database.tables.splits, start, limit)

    def _find_lsn_before(self, timestamp: Timestamp) -> Lsn:
        first, end = self._current.first_lsn, self._current.lsn + 1
        held = bisect_left(range(first, end), timestamp, key=lambda lsn: self._read_ordered(lsn, 1)[0][0])
        if held:
            return first + held - 1
        low, high = 0, first - 1
        while low < high:
            middle = (low + high + 1) // 2
            lsn, stamped = self._mark_at(middle)
            if stamped < timestamp:
                low = middle
            else:
                high = lsn - 1
        return self._mark_at(low)[0]

    def _mark_at(self, lsn: Lsn) -> tuple[Lsn, Timestamp]:
        """Return the highest mark up to an LSN: (its LSN, when it was stamped); (0, 0) for none."""
        found = self._database.floor(number_key(lsn), self._database.tables.marks)
        return (0, 0) if found is None else (number_of(found[0]), number_of(read_keyed_row(*found)))

    def _read_stream(self, origin: NodeId, start: int, limit: int) -> list[Entry]:
        if start < self._current.stream_begin(origin):
            return []
        end = self._current.counts.get(origin, 0)

        def find(position: int) -> tuple[int, tuple[Entry, ...]]:
            return self._entries_at(origin, position)

        return _gather(find, start, end, limit)

    def _read_ordered(self, first_lsn: Lsn, limit: int) -> list[Ordered]:
        if first_lsn < self._current.first_lsn:
            return []
        return _gather(self._ordered_at, first_lsn, self._current.lsn + 1, limit)

    def _read_fingerprint(self, lsn: Lsn) -> bytes:
        current = self._current
        if lsn == current.executed_lsn:
            return current.fingerprint
        if lsn == current.results_from - 1:
            return current.base
        if not current.results_from <= lsn < current.executed_lsn:
            return UNKNOWN
        first, results = self._results_at(lsn)
        if lsn - first >= len(results):
            raise damaged(self._database.path, f"the result of LSN {lsn} is in no record")
        return results[lsn - first][3]

    def _forget_row(self) -> None:
        self._row = (0, 0, _NO_ROW)

    def _bad_row(self, error: ValueError, what: str) -> JournalDamaged:
        return damaged(self._database.path, f"an index row of {what} is not what was written ({error})")

    def _find_body(self, origin: NodeId, txid: TxId) -> bytes | None:
        place = self._tail.place_of(origin, txid)
        if not place:
            lsn = self._ids.find(txid, self._database.get_id)
            if lsn is not None and lsn >= self._current.first_lsn:
                found = self._body_at(self._place_of_lsn(lsn), txid)
                # The transaction may have been added under another origin; then this body may be a duplicate of it.
                if found is not None and found[0] == origin:
                    return found[1]
            row = self._database.get(body_key(origin, txid), self._database.tables.dropped)
            if row is None:
                return None
            place = number_of(row)
        found = self._body_at(place, txid)
        if found is None or found[0] != origin:
            raise damaged(self._database.path, f"place {place} does not hold transaction {txid} of {origin}")
        return found[1]

    def _body_at(self, place: int, txid: TxId) -> tuple[NodeId, bytes] | None:
        """Return origin and body at a place, or None when there is no place. Raises JournalDamaged for another body."""
        if not place:
            return None
        record, index = self._record(place >> ITEM_BITS), place & _LAST
        if isinstance(record, Accepted) and index < len(record.items):
            found, body = record.items[index]
            if found == txid:
                return self._node, body
        elif isinstance(record, BodiesHeld) and index < len(record.items):
            origin, found, body = record.items[index]
            if found == txid:
                return origin, body
        raise damaged(self._database.path, f"place {place} does not hold transaction {txid}")

    def _place_of_lsn(self, lsn: Lsn) -> int:
        first, end, row = self._row
        if not first <= lsn < end:
            (first, _), data = self._added_at(lsn)
            row = read_added_row(data)
            self._row = (first, first + len(row.places), row)
        if lsn - first >= len(row.places):
            raise damaged(self._database.path, f"LSN {lsn} has no place")
        return row.places[lsn - first]

    def _added_at(self, lsn: Lsn) -> tuple[tuple[Lsn, int], bytes]:
        """Return first LSN, record number and row of the `Added` record that covers an LSN."""
        # No record has the number 2**64 - 1, so the row at or below that key has the highest first LSN up to this one.
        found = self._database.floor(added_key(lsn, 2**64 - 1), self._database.tables.added)
        if found is None:
            raise damaged(self._database.path, f"LSN {lsn} is in no record")
        return read_added_key(found[0]), found[1]

    def _ordered_at(self, lsn: Lsn) -> tuple[Lsn, tuple[Ordered, ...]]:
        record, count = self._record_at(lsn)
        # The end of the record may be given up; then the row has fewer places.
        return record.first_lsn, record.entries[:count]

    def _epochs_at(self, lsn: Lsn) -> tuple[Lsn, tuple[int, ...]]:
        record, count = self._record_at(lsn)
        return record.first_lsn, (record.epoch,) * count

    def _record_at(self, lsn: Lsn) -> tuple[Added, int]:
        """Return the record that covers an LSN, and how many of its entries still count."""
        (first, number), data = self._added_at(lsn)
        record = self._record(number)
        if not isinstance(record, Added) or record.first_lsn != first:
            raise damaged(self._database.path, f"record {number} does not add LSN {first}")
        return record, count_in_added_row(data)

    def _results_at(self, lsn: Lsn) -> tuple[Lsn, tuple[ResultRow, ...]]:
        record = self._outcomes_at(lsn)
        row = self._database.get(number_key(record.first_lsn), self._database.tables.outcomes)
        # The end of the record may be given up; then the row counts fewer.
        return record.first_lsn, record.results[: None if row is None else read_counted_row(row)[1]]

    def _outcomes_at(self, lsn: Lsn) -> Outcomes:
        found = self._database.floor(number_key(lsn), self._database.tables.outcomes)
        number = self._number_in(found, f"the result of LSN {lsn}")
        record = self._record(number)
        if not isinstance(record, Outcomes):
            raise damaged(self._database.path, f"record {number} does not hold the result of LSN {lsn}")
        return record

    def _entries_at(self, origin: NodeId, position: int) -> tuple[int, tuple[Entry, ...]]:
        found = self._database.floor(stream_key(origin, position), self._database.tables.stream)
        if found is not None and read_stream_key(found[0])[0] != origin:
            found = None
        number = self._number_in(found, f"entry {position} of {origin}")
        record = self._record(number)
        if not isinstance(record, Appended) or record.origin != origin:
            raise damaged(self._database.path, f"record {number} does not hold entry {position} of {origin}")
        return record.start, record.entries

    def _number_in(self, found: tuple[bytes, bytes] | None, what: str) -> int:
        if found is None:
            raise damaged(self._database.path, f"{what} is in no record")
        return read_counted_row(found[1])[0]

    def _record(self, number: int) -> Record:
        """Return a record, from memory when it was appended or unpacked lately. Raises JournalDamaged."""
        record = self._recent.get(number) or self._unpacked.get(number)
        if record is None:
            record, size_bytes = self._database.record(number)
            self._unpacked.add(number, record, size_bytes)
        return record


def _gather(find: Callable[[int], tuple[int, tuple[Item, ...]]], start: int, end: int, limit: int) -> list[Item]:
    """Return up to ``limit`` items from ``start`` to before ``end``; ``find`` gives the run of items around a position."""
    items: list[Item] = []
    end = min(end, start + limit)
    while start < end:
        first, run = find(start)
        found = run[start - first : end - first]
        if not found:
            # An index that points beside is noticed by its record; this ends the loop when a run is too short.
            break
        items += found
        start += len(found)
    return items
