"""Benches for the two halves of following a journal: one core, a plain journal, a clock, and no world around them."""

from __future__ import annotations

from typing import Any

from brokerha.following.machine import State
from brokerha.model.ids import Instant, NodeId, TxId
from brokerha.model.records import Record, TxPrepared, ViewStarted
from brokerha.model.wire.codec import encode_record
from brokerha.model.wire.messages import Message
from brokerha.model.wire.process_messages import Confirmed, Records, RecordsWanted, Replicate
from brokerha.replication.journal.backups import BackupRow
from brokerha.replication.journal.feed import JournalFeed, JournalFeedConfig
from brokerha.replication.journal.follower import FollowerReady, JournalFollower, JournalFollowerConfig
from brokerha.replication.journal.log import Position
from tests.unit.replication.plain_log import PlainLog, filler

VIEW = 20
"""Of the primary, p0."""
BODY = b"body" * 100
PREPARED = TxPrepared("t1", "", BODY, ("b1",), 0)
WITHOUT = TxPrepared("t1", "", b"", ("b1",), 0)


class FeedBench:
    """A primary p0 of view 20 with backups b1 and b2, whose journal has 10 records of view 10 and its `ViewStarted`, 11."""

    def __init__(self, *, open_transactions: tuple[TxId, ...] = (), **settings: Any) -> None:
        self.ms = 10_000
        self.log = PlainLog("j")
        self.log.append([ViewStarted(10, "p1"), *[filler(number) for number in range(2, 11)]])
        self.log.append([ViewStarted(VIEW, "p0")])
        self.open = list(open_transactions)
        self.feed = JournalFeed(
            JournalFeedConfig(("b1", "b2"), **settings),
            self.log,
            view=VIEW,
            journal="j",
            views=self.log.history.views,
            prepared=self.log.prepared,
            open_transactions=lambda: self.open,
        )

    @property
    def now(self) -> Instant:
        return Instant(self.ms, self.ms * 1000)

    def write(self, *records: Record) -> None:
        self.feed.note(self.log.append(records), records)

    def say(self, last: Position, node: NodeId = "b1", **fields: Any) -> None:
        """A backup says how far it is."""
        word = {"view": VIEW, "journal": "j", "last": last, "follows": "basic", **fields}
        self.feed.on_confirmed(node, Confirmed(**word), self.now)

    def sent(self, node: NodeId = "b1") -> list[Replicate]:
        """What a backup is sent now."""
        found = [out.message for out in self.feed.messages(self.now) if out.to == node]
        return [message for message in found if isinstance(message, Replicate)]

    def numbers(self, node: NodeId = "b1") -> list[int]:
        """Numbers of the records that a backup is sent now."""
        return [number for message in self.sent(node) for number, _ in message.items]

    def row(self, node: NodeId = "b1") -> BackupRow:
        return next(row for row in self.feed.rows() if row.node == node)

    def join(self, node: NodeId = "b1") -> None:
        """A backup that has everything is there."""
        self.say((self.feed.last_number and VIEW, self.feed.last_number), node)
        self.sent(node)


class FollowerBench:
    """Backup b1 of the processes p0, b1, b2, with five records of view 10; p0 is primary of view 20, which began with record 6."""

    def __init__(self, *, is_coined: bool = True, pending_load: str = "", **settings: Any) -> None:
        self.ms = 10_000
        self.log = PlainLog("j")
        self.log.append([ViewStarted(10, "b2"), *[filler(number) for number in range(2, 6)]])
        config = JournalFollowerConfig("b1", ("p0", "b2"), **settings)
        self.core = JournalFollower(config, self.log, self.log.state(), pending_load)
        self.out: list[tuple[NodeId, Message]] = []
        if is_coined:
            self.records(6, ViewStarted(VIEW, "p0"), previous=(10, 5))
            self.turn()
            self.turn()
            self.out.clear()

    @property
    def now(self) -> Instant:
        return Instant(self.ms, self.ms * 1000)

    def records(self, first: int, *records: Record, previous: Position | None = None, **fields: Any) -> bool:
        """Records of the primary come, from this number on."""
        items = tuple((number, encode_record(record)) for number, record in enumerate(records, first))
        sender = fields.pop("sender", "p0")
        end = {"view": VIEW, "last_number": first + len(records) - 1, "journal": "j"}
        message = Replicate(previous=previous or (VIEW, first - 1), items=items, **{**end, **fields})
        return self.core.on_replicate(sender, message, self.now)

    def fillers(self, first: int, last: int, **fields: Any) -> bool:
        """Plain records of a range come."""
        return self.records(first, *[filler(number) for number in range(first, last + 1)], **fields)

    def answer(self, first: int, last: int, sender: NodeId = "p0") -> None:
        """Plain records that were asked for come."""
        items = tuple((number, encode_record(filler(number))) for number in range(first, last + 1))
        self.core.on_records(sender, Records((VIEW, first - 1), items), self.now)

    def on_damaged(self) -> None:
        """The own journal was found to be damaged."""
        self.core.on_damaged("record 3 is damaged", self.now)

    def turn(self) -> FollowerReady:
        """A turn with its disk; messages gather in `out`."""
        ready = self.core.take(self.now)
        self.out += [(out.to, out.message) for out in ready.messages]
        if ready.records:
            self.log.follow(ready.records)
            self.core.followed(ready.records[-1][0])
        return ready

    def follows(self) -> State:
        """Where it stands."""
        return self.core.state

    def numbers(self) -> list[int]:
        """Numbers of the records that are written in this turn."""
        return [number for number, _ in self.turn().records]

    def asked(self) -> list[tuple[NodeId, int, int]]:
        """Questions of this turn."""
        self.out.clear()
        self.turn()
        return [(to, each.first, each.last) for to, each in self.out if isinstance(each, RecordsWanted)]

    def confirmed(self) -> list[Position]:
        """What was confirmed so far, in order, the next turn included."""
        self.turn()
        return [message.last for _, message in self.out if isinstance(message, Confirmed)]
