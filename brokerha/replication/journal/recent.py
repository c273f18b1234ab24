"""The newest records of a journal, encoded, so that feeding backups does not read the journal; and what may be left out of them.

**Skip set**: a participant has the operations of a transaction from its queue, so the `TxPrepared` record goes to it without
its body; a backup that confirmed that record has the body, so the `Accepted` that follows from it goes without it too. Only bodies
that are known to be the same are left out, so that records end up identical.

Invariants: numbers are contiguous; at most `limit_bytes` are held, the newest record always.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from brokerha.model.ids import NodeId, TxId
from brokerha.model.records import Accepted, Record, TxDecided, TxPrepared
from brokerha.model.wire.codec import encode_record
from brokerha.replication.journal.log import Item

PREPARED_KEPT = 10_000
"""Prepared transactions whose bodies may be left out; those of older ones are sent."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A backup, as far as it matters for what may be left out."""

    node: NodeId
    confirmed: int
    guard: int
    """It was fed live from here on: it can have the events of transactions that were prepared after that."""


@dataclass(slots=True)
class _Kept:
    data: bytes
    is_turn_end: bool
    end_bytes: int
    """Bytes of all records up to this one, since the beginning."""
    participants: tuple[NodeId, ...] = ()
    without_body: bytes = b""
    """Of a `TxPrepared` with participants."""
    accepted: Accepted | None = None
    skippable: tuple[tuple[int, int], ...] = ()
    """(place in `accepted`, number of the record that brought the same body)"""


@dataclass(frozen=True, slots=True)
class _Prepared:
    number: int
    digest: bytes


class Recent:
    """Records from `first` to `last`; none when ``first > last``."""

    def __init__(self, last_number: int, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.first = last_number + 1
        self.last = last_number
        self.noted_bytes = 0
        """Bytes of all records that were ever noted."""
        self._kept: dict[int, _Kept] = {}
        self._held_bytes = 0
        self._prepared: OrderedDict[TxId, _Prepared] = OrderedDict()

    def note(self, first_number: int, records: Sequence[Record]) -> None:
        """One turn was appended to the journal, from this number on."""
        if first_number != self.last + 1:
            self._kept.clear()
            self._held_bytes = 0
            self.first = first_number
        for number, record in enumerate(records, first_number):
            kept = self._keep(number, record)
            self.noted_bytes += len(kept.data)
            kept.end_bytes = self.noted_bytes
            self._held_bytes += len(kept.data)
            self._kept[number] = kept
            self.last = number
        if records:
            self._kept[self.last].is_turn_end = True
        while self._held_bytes > self.limit_bytes and self.first < self.last:
            self._held_bytes -= len(self._kept.pop(self.first).data)
            self.first += 1

    def _keep(self, number: int, record: Record) -> _Kept:
        kept = _Kept(encode_record(record), is_turn_end=False, end_bytes=0)
        match record:
            case TxPrepared():
                self._prepared[record.txid] = _Prepared(number, sha256(record.body).digest())
                while len(self._prepared) > PREPARED_KEPT:
                    self._prepared.popitem(last=False)
                if record.participants and record.body:
                    kept.participants = record.participants
                    kept.without_body = encode_record(replace(record, body=b""))
            case TxDecided(is_commit=False):
                self._prepared.pop(record.txid, None)
            case Accepted():
                kept.skippable = tuple(self._skippable(record))
                kept.accepted = record if kept.skippable else None
        return kept

    def _skippable(self, record: Accepted) -> list[tuple[int, int]]:
        if not self._prepared:
            return []
        places = []
        for place, (txid, body) in enumerate(record.items):
            prepared = self._prepared.pop(txid, None)
            if prepared is not None and body and sha256(body).digest() == prepared.digest:
                places.append((place, prepared.number))
        return places

    def prepared_at(self, txid: TxId) -> int | None:
        """Number of the record that prepared a transaction, as long as it is not decided."""
        prepared = self._prepared.get(txid)
        return prepared.number if prepared is not None else None

    def bytes_after(self, number: int) -> int | None:
        """Bytes of the records after this number; None when they are not all held."""
        if number >= self.last:
            return 0
        kept = self._kept.get(number + 1)
        return self.noted_bytes - kept.end_bytes + len(kept.data) if kept is not None else None

    def read(self, first: int, last: int, limit_bytes: int, reader: Reader | None = None) -> list[Item] | None:
        """Records ``first`` to ``last``, as many as the limit allows, at least one; None when they are not all held.

        With a ``reader`` what it has already is left out, and the end is that of a turn when the limit allows.
        """
        if first < self.first or first > last or last > self.last:
            return None
        items: list[Item] = []
        size = turn_end = 0
        for number in range(first, last + 1):
            kept = self._kept[number]
            data = kept.data if reader is None else _without_known(number, kept, reader)
            if items and size + len(data) > limit_bytes:
                return items[:turn_end] if turn_end and reader is not None else items
            items.append((number, data))
            size += len(data)
            if kept.is_turn_end:
                turn_end = len(items)
        return items


def _without_known(number: int, kept: _Kept, reader: Reader) -> bytes:
    if kept.without_body and reader.node in kept.participants and number > reader.guard:
        return kept.without_body
    places = {place for place, prepared_at in kept.skippable if prepared_at <= reader.confirmed}
    if kept.accepted is None or not places:
        return kept.data
    items = tuple((txid, b"" if place in places else body) for place, (txid, body) in enumerate(kept.accepted.items))
    return encode_record(Accepted(items))
