"""Everything durable of a `MemoryJournal`, and its bytes for a snapshot that goes to another process.

A promise is of the process, not of the journal: it is in an image, which is a disk, and not in the bytes, which are given away.
No clock, no randomness: equal contents have equal bytes in every process.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgpack

from brokerha.journal.beginning import Beginning
from brokerha.journal.current import Current, unpack
from brokerha.journal.decisions import Decisions
from brokerha.journal.memory_rewinds import Rewinds, read_rewinds
from brokerha.model.codec import decode_record, encode_record
from brokerha.model.errors import JournalDamaged, ProtocolError
from brokerha.model.ids import Entry, Lsn, NodeId, Ordered, Timestamp, TxId
from brokerha.model.operations import Result
from brokerha.model.records import Record, TxDecided

Body = tuple[NodeId, TxId]


@dataclass(slots=True)
class Content:
    """Everything durable. Lists begin at the first LSN or number that is still held."""

    current: Current = field(default_factory=Current)
    next_number: int = 1
    records: dict[int, Record] = field(default_factory=dict)
    bodies: dict[Body, tuple[int, bytes]] = field(default_factory=dict)
    """With the number of the record that brought it first."""
    settled: dict[Body, Lsn] = field(default_factory=dict)
    """LSN at which a body was added; for a dropped duplicate the last LSN of the record that used it up."""
    parked: dict[TxId, None] = field(default_factory=dict)
    streams: dict[NodeId, list[Entry]] = field(default_factory=dict)
    lsns: dict[TxId, Lsn] = field(default_factory=dict)
    ordered: list[Ordered] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    first_result: Lsn = 1
    rejected: dict[Lsn, str] = field(default_factory=dict)
    marks: list[tuple[Lsn, Timestamp]] = field(default_factory=list)
    """Trimmed LSNs whose timestamp stays known; both grow."""
    last_trimmed: int = 0
    """Number of the last `Added` record that was trimmed."""
    decisions: Decisions = field(default_factory=Decisions)
    promised_view: int = 0
    rewinds: Rewinds = field(default_factory=Rewinds)

    def copy(self) -> Content:
        """Return an independent copy."""
        return Content(
            self.current.copy(),
            self.next_number,
            self.records.copy(),
            self.bodies.copy(),
            self.settled.copy(),
            self.parked.copy(),
            {origin: entries.copy() for origin, entries in self.streams.items()},
            self.lsns.copy(),
            self.ordered.copy(),
            self.results.copy(),
            self.first_result,
            self.rejected.copy(),
            self.marks.copy(),
            self.last_trimmed,
            self.decisions.copy(),
            self.promised_view,
            self.rewinds.copy(),
        )


def content_at(begin_at: Beginning) -> Content:
    """What a journal of a restored cluster begins with."""
    return Content(
        current=begin_at.current(),
        lsns=dict(begin_at.ids),
        first_result=begin_at.lsn + 1,
        rejected=dict(begin_at.rejections),
        marks=[(begin_at.lsn, begin_at.last[0])],
    )


@dataclass(frozen=True, slots=True)
class JournalImage:
    """What a disk held at one moment. Costs the length of the log to take, at the speed of a copy."""

    node: NodeId
    name: str
    content: Content

    def pack(self) -> bytes:
        """Return its bytes, without the promise."""
        c = self.content
        data: bytes = msgpack.packb(
            [
                self.node,
                self.name,
                c.current.pack(),
                c.current.pack_history(),
                c.next_number,
                [(number, encode_record(record)) for number, record in c.records.items()],
                [(*body, *held) for body, held in c.bodies.items()],
                [(*body, lsn) for body, lsn in c.settled.items()],
                list(c.parked),
                list(c.streams.items()),
                list(c.lsns.items()),
                c.ordered,
                c.results,
                c.first_result,
                list(c.rejected.items()),
                c.marks,
                c.last_trimmed,
                list(c.decisions.prepared.items()),
                [(number, encode_record(record)) for number, record in c.decisions.decided.values()],
                c.rewinds.packed(),
            ]
        )
        return data


def read_image(data: bytes) -> JournalImage:
    """Return the image that `JournalImage.pack` was called on; nothing is promised. Raises JournalDamaged."""
    try:
        node, name, current, history, next_number, records, bodies, settled, parked, *rest = msgpack.unpackb(
            data, use_list=False
        )
        streams, lsns, ordered, results, first_result, rejected, marks, last_trimmed, prepared, decided, rewinds = rest
        decisions = Decisions()
        for txid, number in prepared:
            decisions.load_prepared(number, txid)
        for number, encoded in decided:
            record = decode_record(encoded)
            if isinstance(record, TxDecided):
                decisions.load_decided(number, record)
        content = Content(
            unpack(current, history),
            next_number,
            {number: decode_record(encoded) for number, encoded in records},
            {(origin, txid): (number, body) for origin, txid, number, body in bodies},
            {(origin, txid): lsn for origin, txid, lsn in settled},
            dict.fromkeys(parked),
            {origin: list(entries) for origin, entries in streams},
            dict(lsns),
            list(ordered),
            [Result(*result) for result in results],
            first_result,
            dict(rejected),
            list(marks),
            last_trimmed,
            decisions,
            rewinds=read_rewinds(rewinds),
        )
    except (ValueError, TypeError, ProtocolError, msgpack.UnpackException) as error:
        raise JournalDamaged(f"the journal that was loaded is none: {error}") from error
    return JournalImage(node, name, content)
