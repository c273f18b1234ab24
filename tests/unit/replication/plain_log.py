"""PlainLog: a numbered journal that knows nothing of its records but views, what is prepared, and that a `Rebased` makes results void."""

from __future__ import annotations

from collections.abc import Sequence

import msgpack

from brokerha.model.ids import TxId
from brokerha.model.records import MasterState, Outcomes, Rebased, Record, TxDecided, TxPrepared, WorkersChanged
from brokerha.model.wire.codec import decode_record, encode_record
from brokerha.replication.journal.log import Item, ViewHistory


def filler(number: int, size: int = 0) -> Record:
    """A record that says nothing but its number."""
    return WorkersChanged(((f"w{number}-{'x' * size}", True, True),))


class PlainLog:
    """A journal by number, kept in memory."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.items: dict[int, bytes] = {}
        self.history = ViewHistory()
        self.kept_from = 1
        self.last_number = 0
        self.prepared: dict[TxId, TxPrepared] = {}
        self.promised = 0

    def append(self, records: Sequence[Record]) -> int:
        """Write a turn; returns the number of its first record."""
        first = self.last_number + 1
        self.follow(list(enumerate(records, first)))
        return first

    def follow(self, records: Sequence[tuple[int, Record]]) -> None:
        """Write records under their numbers."""
        for number, record in records:
            assert number > self.last_number
            if isinstance(record, Rebased):
                void = [each for each, data in self.items.items() if isinstance(decode_record(data), Outcomes)]
                for each in void:
                    del self.items[each]
            elif isinstance(record, TxPrepared):
                self.prepared[record.txid] = record
            elif isinstance(record, TxDecided):
                self.prepared.pop(record.txid, None)
            self.history.note(number, record)
            self.items[number] = encode_record(record)
            self.last_number = number

    def numbered(self, first: int, last: int, limit_bytes: int) -> list[Item] | None:
        """As `ports.Journal.numbered`."""
        if first < self.kept_from:
            return None
        found: list[Item] = []
        size = 0
        for number in range(first, last + 1):
            data = self.items.get(number)
            if data is None:
                continue
            if found and size + len(data) > limit_bytes:
                break
            found.append((number, data))
            size += len(data)
        return found

    def numbered_from(self) -> int:
        """As `ports.Journal.numbered_from`."""
        return self.kept_from

    def trim(self, below: int) -> None:
        """Forget records below a number."""
        self.kept_from = max(self.kept_from, min(below, self.last_number + 1))
        self.items = {number: data for number, data in self.items.items() if number >= self.kept_from}

    def state(self) -> MasterState:
        """As `ports.Journal.state`, as far as anybody here asks."""
        return MasterState(
            self.name,
            last_number=self.last_number,
            views=self.history.views,
            promised_view=self.promised,
            prepared=dict(self.prepared),
        )

    def packed(self) -> bytes:
        """All of it as bytes."""
        prepared = [encode_record(record) for record in self.prepared.values()]
        items = list(self.items.items())
        data: bytes = msgpack.packb([self.name, self.history.views, self.kept_from, self.last_number, items, prepared])
        return data

    @staticmethod
    def unpacked(data: bytes, promised: int) -> PlainLog:
        """The journal that is made of these bytes."""
        name, views, kept_from, last_number, items, prepared = msgpack.unpackb(data)
        log = PlainLog(name)
        log.history = ViewHistory([(view, number) for view, number in views])
        log.kept_from, log.last_number, log.promised = kept_from, last_number, promised
        log.items = dict(items)
        for each in prepared:
            record = decode_record(each)
            assert isinstance(record, TxPrepared)
            log.prepared[record.txid] = record
        return log
