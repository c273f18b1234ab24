"""JournalLine: records on their way into a backup's journal: in order, with their bodies, whole turns at a time.

    place -> ahead (after a gap) -> pieces (in order) -> take -> disk

A piece is what one message brought. It waits until every body that was left out of it is known (skip set): from the queue of the
transaction, or from the record that prepared it; or until its records have come in full.

Invariants: `position` grows by records that follow each other in the primary's journal only; what is held is bounded; a batch never ends
between the decision to commit a transaction and the record that accepts it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, replace
from enum import StrEnum

from brokerha.model.codec import decode_record
from brokerha.model.errors import ProtocolError
from brokerha.model.ids import TxId
from brokerha.model.records import Accepted, Record, TxDecided, TxPrepared
from brokerha.replication.journal_log import Item, Position, ViewHistory

HALF_BATCHES = 4
"""Batches after which the second half of a decision is not waited for any more."""


class Placed(StrEnum):
    """What became of a message."""

    NEXT = "next"
    """It brought the next records."""
    KNOWN = "known"
    """It brought nothing new."""
    AHEAD = "ahead"
    """Records before it are lacking."""
    DROPPED = "dropped"
    """There is no room; it has to be asked for later."""
    PARTED = "parted"
    """The sender has other records under numbers that are held here: `JournalLine.parted_from`."""
    DAMAGED = "damaged"
    """It cannot be read."""


class Bodies:
    """Bodies of transactions that are prepared, or will be; the oldest are dropped when there are too many bytes of them."""

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
        """A body, or None when it is not held."""
        return self._held.get(txid)

    def drop(self, txid: TxId) -> None:
        """Nobody needs it any more. Idempotent."""
        self._bytes -= len(self._held.pop(txid, b""))


@dataclass(slots=True)
class _Entry:
    number: int
    record: Record
    is_lacking: bool


@dataclass(slots=True)
class _Piece:
    entries: list[_Entry]
    size: int
    is_turn_end: bool = False
    """Whether the primary's journal is known to have ended here once."""


@dataclass(frozen=True, slots=True)
class _Ahead:
    previous: Position
    items: tuple[Item, ...]
    is_full: bool
    size: int


class JournalLine:
    """What was received and is not at the disk yet. ``views`` is the history of the own journal, which ends at ``last_number``."""

    def __init__(self, views: ViewHistory, last_number: int, bodies: Bodies, limit_bytes: int) -> None:
        self.views = views
        self.position: Position = views.position(last_number)
        """After the last record that is held in order."""
        self.bodies = bodies
        self.parted_from = 0
        """First number at which a sender's journal is known to differ from this one; 0 when it is not known which."""
        self.limit_bytes = limit_bytes
        self._held_bytes = 0
        self._pieces: deque[_Piece] = deque()
        self._ahead: dict[int, _Ahead] = {}
        self._ahead_bytes = 0
        self._goal = 0
        self._lacking: dict[int, _Entry] = {}

    def restart(self, last_number: int) -> None:
        """Give up whatever was received after this number."""
        self.views.cut(last_number)
        self.position = self.views.position(last_number)
        self._pieces.clear()
        self._ahead.clear()
        self._lacking.clear()
        self._held_bytes = self._ahead_bytes = self._goal = 0

    # ---- inputs

    def place(self, previous: Position, items: tuple[Item, ...], *, is_full: bool) -> Placed:
        """Take in records that follow ``previous``; without any it says only where the sender's journal stands there.

        ``is_full``: no bodies were left out.
        """
        if previous[1] > self.position[1]:
            return self._put_ahead(previous, items, is_full)
        placed = self._place(previous, items, is_full)
        if placed is Placed.NEXT:
            self._take_ahead()
        return placed

    def _place(self, previous: Position, items: tuple[Item, ...], is_full: bool) -> Placed:
        number = self.position[1]
        if not self._is_same(previous):
            self.parted_from = 0
            return Placed.PARTED
        try:
            records = [(each, decode_record(data)) for each, data in items]
        except ProtocolError:
            return Placed.DAMAGED
        if self._parts(previous, records):
            return Placed.PARTED
        entries = [_Entry(each, record, is_lacking=False) for each, record in records if each > number]
        if is_full:
            self._complete([(each, record) for each, record in records if each <= number])
        if not entries:
            return Placed.KNOWN
        count = self._fitting([len(data) for each, data in items if each > number])
        if count < len(entries):
            self._goal = max(self._goal, items[-1][0])
            while count > 1 and _is_first_half(entries[count - 1].record):
                count -= 1
        if not count:
            return Placed.DROPPED
        size = sum(len(data) for each, data in items if number < each <= entries[count - 1].number)
        self._append(entries[:count], size, is_full)
        return Placed.NEXT

    def _fitting(self, sizes: list[int]) -> int:
        """How many of the next records there is room for; one at least when nothing is held."""
        count = total = 0
        for size in sizes:
            if (count or self._held_bytes) and self._held_bytes + total + size > self.limit_bytes:
                break
            count, total = count + 1, total + size
        return count

    def on_turn_end(self, number: int) -> None:
        """The primary's journal ended with this record once."""
        if self._pieces and self._pieces[-1].entries[-1].number == number:
            self._pieces[-1].is_turn_end = True

    def _is_same(self, position: Position) -> bool:
        view, number = position
        own = self.views.of(number)
        return number == 0 or not own or not view or own == view

    def _parts(self, previous: Position, records: list[tuple[int, Record]]) -> bool:
        """Whether one of these records, or the place before the first new one, is of another view here."""
        theirs = ViewHistory([] if previous[1] == 0 else [(previous[0], 0)])
        number = self.position[1]
        for each, record in records:
            theirs.note(each, record)
            if each <= number and not self._is_same(theirs.position(each)):
                self.parted_from = each
                return True
        if records and records[-1][0] > number and not self._is_same(theirs.position(number)):
            self.parted_from = 0
            return True
        return False

    def _put_ahead(self, previous: Position, items: tuple[Item, ...], is_full: bool) -> Placed:
        self._goal = max(self._goal, previous[1])
        size = sum(len(data) for _, data in items)
        if not items or previous[1] in self._ahead:
            return Placed.AHEAD
        if self._ahead and self._ahead_bytes + size > self.limit_bytes:
            return Placed.DROPPED
        self._ahead[previous[1]] = _Ahead(previous, items, is_full, size)
        self._ahead_bytes += size
        return Placed.AHEAD

    def _take_ahead(self) -> None:
        """What waited after the gap may be next now; what does not fit after all is dropped, and asked for again."""
        while self._ahead:
            number = self.position[1]
            if number not in self._ahead:
                number = min(self._ahead)
            if number > self.position[1]:
                return
            ahead = self._ahead.pop(number)
            self._ahead_bytes -= ahead.size
            self._place(ahead.previous, ahead.items, ahead.is_full)

    def _append(self, entries: list[_Entry], size: int, is_full: bool) -> None:
        for entry in entries:
            self.views.note(entry.number, entry.record)
            if not is_full and _lacks(entry.record) and not self._fill(entry):
                entry.is_lacking = True
                self._lacking[entry.number] = entry
            else:
                self._learn(entry.record)
        self.position = self.views.position(entries[-1].number)
        self._pieces.append(_Piece(entries, size))
        self._held_bytes += size

    # ---- bodies

    def _fill(self, entry: _Entry) -> bool:
        """Put bodies where they were left out; returns whether all are there now."""
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
        """Keep the body of what was prepared until it was accepted or rolled back."""
        match record:
            case TxPrepared():
                self.bodies.put(record.txid, record.body)
            case TxDecided(is_commit=False):
                self.bodies.drop(record.txid)
            case Accepted():
                for txid, _ in record.items:
                    self.bodies.drop(txid)

    def _complete(self, records: list[tuple[int, Record]]) -> None:
        """Records came in full."""
        for number, record in records:
            entry = self._lacking.pop(number, None)
            if entry is not None:
                entry.record, entry.is_lacking = record, False
                self._learn(record)

    def fill(self) -> None:
        """Try again to put bodies where they were left out."""
        for number, entry in list(self._lacking.items()):
            if self._fill(entry):
                entry.is_lacking = False
                del self._lacking[number]
                self._learn(entry.record)

    def lacking(self) -> tuple[int, int] | None:
        """First run of neighbouring records that lack a body; None when none does."""
        if not self._lacking:
            return None
        first = last = min(self._lacking)
        while last + 1 in self._lacking:
            last += 1
        return first, last

    # ---- output

    def gap(self) -> tuple[int, int] | None:
        """First range of records that are known to exist and were not received; None when there is none."""
        last = min(self._ahead, default=self._goal)
        return (self.position[1] + 1, last) if last > self.position[1] else None

    def take(self, limit_bytes: int) -> list[tuple[int, Record]]:
        """The next records for the disk: whole pieces without a gap, about as much as the limit says."""
        batch: list[tuple[int, Record]] = []
        halves = _Halves()
        size = count = end = 0
        for place, piece in enumerate(self._pieces, 1):
            if any(entry.is_lacking for entry in piece.entries) or (count and size + piece.size > limit_bytes):
                break
            batch += [(entry.number, entry.record) for entry in piece.entries]
            size += piece.size
            halves.look(piece.entries)
            # Should a half never come, the journal does not stand still for it.
            if piece.is_turn_end or not halves.are_open or size > HALF_BATCHES * limit_bytes:
                halves = _Halves()
                count, end = place, len(batch)
        for _ in range(count):
            self._held_bytes -= self._pieces.popleft().size
        return batch[:end]


class _Halves:
    """A commit is decided and accepted in one turn; a message may have been cut between the two."""

    def __init__(self) -> None:
        self._decided: set[TxId] = set()
        self._accepted: set[TxId] = set()

    def look(self, entries: list[_Entry]) -> None:
        """Take in what comes next."""
        for entry in entries:
            match entry.record:
                case TxDecided(is_commit=True):
                    self._decided.add(entry.record.txid)
                case Accepted():
                    self._accepted.update(txid for txid, _ in entry.record.items)

    @property
    def are_open(self) -> bool:
        """Whether a second half is to come."""
        return bool(self._decided - self._accepted)


def _is_first_half(record: Record) -> bool:
    return isinstance(record, TxDecided) and record.is_commit


def _lacks(record: Record) -> bool:
    match record:
        case TxPrepared():
            return not record.body and bool(record.participants)
        case Accepted():
            return not all(body for _, body in record.items)
    return False
