"""JournalLine: records on their way into a backup's journal: in order, with their bodies, whole turns at a time.

    place -> Line (following/line.py) -> take -> disk

A piece of the line has the records of one message. It waits until every body that was left out of it is known (skip set): from the
queue of the transaction, or from the record that prepared it; or until its records have come in full.

Invariants: `position` grows only by records that follow each other in the primary's journal; a batch never ends between the
decision to commit a transaction and the record that accepts it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from brokerha.following.asking import Range
from brokerha.following.line import Limits, Line, Piece
from brokerha.model.errors import ProtocolError
from brokerha.model.ids import TxId
from brokerha.model.records import Accepted, Record, TxDecided, TxPrepared
from brokerha.model.wire.codec import decode_record
from brokerha.replication.journal.log import Item, Position, ViewHistory

HALF_BATCHES = 4
"""Number of batches after which the second half of a decision is no longer awaited."""
TURN_END = "turn end"
"""Kind of a piece that once ended the primary's journal."""


class Placed(StrEnum):
    """The result of placing a message."""

    NEXT = "next"
    """It had the next records."""
    KNOWN = "known"
    """It had no new records."""
    AHEAD = "ahead"
    """Records before it are missing."""
    DROPPED = "dropped"
    """There is no room; it must be requested later."""
    PARTED = "parted"
    """The sender has other records under numbers that are held here: `JournalLine.parted_from`."""
    DAMAGED = "damaged"
    """It cannot be read."""


class Bodies:
    """Bodies of transactions that are or will be prepared; over a limit of bytes the oldest are dropped."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._held: OrderedDict[TxId, bytes] = OrderedDict()

    def put(self, txid: TxId, body: bytes) -> None:
        """Keep a body until it is dropped."""
        self.drop(txid)
        self._held[txid] = body
        self._bytes += len(body)
        while self._bytes > self._limit_bytes and len(self._held) > 1:
            self._bytes -= len(self._held.popitem(last=False)[1])

    def of(self, txid: TxId) -> bytes | None:
        """Return a body, or None when it is not held."""
        return self._held.get(txid)

    def drop(self, txid: TxId) -> None:
        """Drop a body that is no longer needed. Idempotent."""
        self._bytes -= len(self._held.pop(txid, b""))


@dataclass(slots=True)
class _Entry:
    number: int
    record: Record
    is_lacking: bool = False


class JournalLine:
    """Received records that are not at the disk yet. ``views`` is the history of the own journal, which ends at ``last_number``."""

    def __init__(self, views: ViewHistory, last_number: int, bodies: Bodies, limit_bytes: int) -> None:
        self.views = views
        self.bodies = bodies
        self.parted_from = 0
        """First number at which a sender's journal is known to differ from this one; 0 when it is not known."""
        self.line = Line(last_number, Limits(bytes=limit_bytes), _is_first_half)
        self._lacking: dict[int, _Entry] = {}

    @property
    def position(self) -> Position:
        """Return the position after the last record that is held in order."""
        return self.views.position(self.line.end)

    def restart(self, end: int) -> None:
        """Drop all records received after this number."""
        self.views.cut(end)
        self.line.restart(end)
        self._lacking.clear()

    # ---- inputs

    def place(self, previous: Position, items: tuple[Item, ...], *, is_full: bool) -> Placed:
        """Take in records after ``previous``; without records, compare only the sender's journal at that position.

        ``is_full``: no bodies were left out.
        """
        if previous[1] > self.line.end:
            data = [each for _, each in items]
            sizes = [len(each) for each in data]
            ahead = Piece(previous[1], [number for number, _ in items], data, sizes, (previous, is_full))
            return Placed.AHEAD if self.line.hold(ahead) else Placed.DROPPED
        placed = self._place(previous, items, is_full)
        # Records that waited after the gap may be next now; those without room are dropped, and requested again.
        while placed is Placed.NEXT and (held := self.line.release()) is not None:
            before, is_whole = held.kind
            self._place(before, tuple(zip(held.numbers, held.items, strict=True)), is_whole)
        return placed

    def _place(self, previous: Position, items: tuple[Item, ...], is_full: bool) -> Placed:
        number = self.line.end
        if not self._is_same(previous):
            self.parted_from = 0
            return Placed.PARTED
        try:
            records = [decode_record(data) for _, data in items]
        except ProtocolError:
            return Placed.DAMAGED
        numbers = [each for each, _ in items]
        if self._parts(previous, numbers, records):
            return Placed.PARTED
        if is_full:
            self._complete(numbers, records)
        if not numbers or numbers[-1] <= number:
            return Placed.KNOWN
        entries = [_Entry(each, record) for each, record in zip(numbers, records, strict=True)]
        fresh = self.line.put(Piece(previous[1], numbers, entries, [len(data) for _, data in items]))
        if fresh is None:
            return Placed.DROPPED
        for entry in fresh.items:
            self.views.note(entry.number, entry.record)
            if not is_full and _lacks(entry.record) and not self._fill(entry):
                entry.is_lacking = True
                self._lacking[entry.number] = entry
            else:
                self._learn(entry.record)
        return Placed.NEXT

    def on_turn_end(self, number: int) -> None:
        """Note that the primary's journal once ended with this record."""
        if self.line.end == number and self.line.pieces:
            self.line.pieces[-1].kind = TURN_END

    def _is_same(self, position: Position) -> bool:
        view, number = position
        own = self.views.of(number)
        return number == 0 or not own or not view or own == view

    def _parts(self, previous: Position, numbers: list[int], records: list[Record]) -> bool:
        """Tell whether one of these records, or the place before the first new one, is of another view here."""
        theirs = ViewHistory([] if previous[1] == 0 else [(previous[0], 0)])
        number = self.line.end
        for each, record in zip(numbers, records, strict=True):
            theirs.note(each, record)
            if each <= number and not self._is_same(theirs.position(each)):
                self.parted_from = each
                return True
        if numbers and numbers[-1] > number and not self._is_same(theirs.position(number)):
            self.parted_from = 0
            return True
        return False

    # ---- bodies

    def _fill(self, entry: _Entry) -> bool:
        """Insert bodies that were left out; return whether all are there now."""
        record = entry.record
        if isinstance(record, TxPrepared):
            body = self.bodies.of(record.txid)
            if body is None:
                return False
            entry.record = replace(record, body=body)
        elif isinstance(record, Accepted):
            found = [(txid, body or self.bodies.of(txid)) for txid, body in record.items]
            items = tuple((txid, body) for txid, body in found if body is not None)
            if len(items) < len(found):
                return False
            entry.record = Accepted(items)
        return True

    def _learn(self, record: Record) -> None:
        """Keep the body of a prepared transaction until it was accepted or rolled back."""
        match record:
            case TxPrepared():
                self.bodies.put(record.txid, record.body)
            case TxDecided(is_commit=False):
                self.bodies.drop(record.txid)
            case Accepted():
                for txid, _ in record.items:
                    self.bodies.drop(txid)

    def _complete(self, numbers: list[int], records: list[Record]) -> None:
        """Complete records with their full versions."""
        for number, record in zip(numbers, records, strict=True):
            entry = self._lacking.pop(number, None)
            if entry is not None:
                entry.record, entry.is_lacking = record, False
                self._learn(record)

    def fill(self) -> None:
        """Try again to insert bodies that were left out."""
        for number, entry in list(self._lacking.items()):
            if self._fill(entry):
                entry.is_lacking = False
                del self._lacking[number]
                self._learn(entry.record)

    def lacking(self) -> Range | None:
        """Return the first run of neighbouring records that lack a body; None when none does."""
        if not self._lacking:
            return None
        first = last = min(self._lacking)
        while last + 1 in self._lacking:
            last += 1
        return first, last

    # ---- output

    def take(self, limit_bytes: int) -> list[tuple[int, Record]]:
        """Remove and return the next records for the disk: whole pieces without a gap, about as many bytes as the limit."""
        batch: list[tuple[int, Record]] = []
        halves = _Halves()
        size = count = end = 0
        for place, piece in enumerate(self.line.pieces, 1):
            if any(entry.is_lacking for entry in piece.items) or (count and size + piece.size > limit_bytes):
                break
            batch += [(entry.number, entry.record) for entry in piece.items]
            size += piece.size
            halves.look(piece.items)
            # The journal does not wait for a half that never comes.
            if piece.kind is TURN_END or not halves.are_open or size > HALF_BATCHES * limit_bytes:
                halves = _Halves()
                count, end = place, len(batch)
        for _ in range(count):
            self.line.pop()
        return batch[:end]


class _Halves:
    """Commits of one turn, decided and accepted; a message may have been cut between the two."""

    def __init__(self) -> None:
        self._decided: set[TxId] = set()
        self._accepted: set[TxId] = set()

    def look(self, entries: Sequence[_Entry]) -> None:
        """Take in the next records."""
        for entry in entries:
            match entry.record:
                case TxDecided(is_commit=True):
                    self._decided.add(entry.record.txid)
                case Accepted():
                    self._accepted.update(txid for txid, _ in entry.record.items)

    @property
    def are_open(self) -> bool:
        """Tell whether a second half is to come."""
        return bool(self._decided - self._accepted)


def _is_first_half(entry: _Entry) -> bool:
    return isinstance(entry.record, TxDecided) and entry.record.is_commit


def _lacks(record: Record) -> bool:
    match record:
        case TxPrepared():
            return not record.body and bool(record.participants)
        case Accepted():
            return not all(body for _, body in record.items)
    return False
