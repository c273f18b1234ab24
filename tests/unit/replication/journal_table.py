"""A master's processes on a table, one of them primary: real cores, plain journals, and a wire that the test may harm.

table = JournalTable("p0", "p1", "p2")
table.write(filler(1), filler(2))      # of plain_log.py
table.settle()
assert table.are_equal()
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

from brokerha.following.offering import OfferConfig, Offering
from brokerha.model.ids import Instant, NodeId, TxId
from brokerha.model.ready import (
    BeginLoad,
    ChunkKept,
    ChunksRead,
    CopyDecision,
    KeepChunk,
    LoadBegun,
    MakeSnapshot,
    OpenLoad,
    ReadChunks,
    SnapshotMade,
)
from brokerha.model.records import Record, ViewStarted
from brokerha.model.wire.messages import Chunk, ChunksWanted, Message, Outgoing, SnapshotDone, SnapshotOffered, SnapshotWanted
from brokerha.model.wire.process_messages import Confirmed, Records, RecordsMissing, RecordsWanted, Replicate
from brokerha.replication.journal.feed import JournalFeed, JournalFeedConfig
from brokerha.replication.journal.follower import JournalFollower, JournalFollowerConfig
from tests.unit.replication.plain_log import PlainLog

CHUNK_BYTES = 200
Choice = Callable[[NodeId, Outgoing], bool]


def everything(_sender: NodeId, _out: Outgoing) -> bool:
    """Nothing is lost."""
    return True


class Process:
    """One process: its disk, and the core of its present role."""

    def __init__(self, node: NodeId, name: str) -> None:
        self.node = node
        self.log = PlainLog(name)
        self.feed: JournalFeed | None = None
        self.follower: JournalFollower | None = None
        self.offering = Offering(OfferConfig(keep_ms=10**9))
        self.snapshots: dict[str, bytes] = {}
        self.loaded: dict[int, bytes] = {}
        self.load: SnapshotOffered | None = None
        self.open: list[TxId] = []
        self.loads = 0


class JournalTable:
    """Processes, and what is under way between them."""

    def __init__(
        self, *names: NodeId, same_name: bool = True, feed: dict[str, Any] | None = None, follower: dict[str, Any] | None = None
    ) -> None:
        self.ms = 10_000
        self.names = names
        self._feed_settings = feed or {}
        self._follower_settings = follower or {}
        self.processes = {name: Process(name, "j" if same_name else f"j-{name}") for name in names}
        self.mail: list[tuple[NodeId, Outgoing]] = []
        self.sent: list[tuple[NodeId, Outgoing]] = []
        self.primary = names[0]
        for name in names[1:]:
            self.start(name)
        self.lead(names[0], 10)

    @property
    def now(self) -> Instant:
        """The clocks of everybody."""
        return Instant(self.ms, 1_000_000 + self.ms * 1000)

    # ---- processes

    def start(self, name: NodeId) -> None:
        """Start a process as a backup, from its disk."""
        process = self.processes[name]
        process.feed, process.offering = None, Offering(OfferConfig(keep_ms=10**9))
        others = tuple(each for each in self.names if each != name)
        config = JournalFollowerConfig(name, others, **self._follower_settings)
        process.load, process.loaded = None, {}
        process.follower = JournalFollower(config, process.log, process.log.state())

    def crash(self, name: NodeId) -> None:
        """Stop a process at once; what was under way to it is lost."""
        process = self.processes[name]
        process.feed = process.follower = None
        process.snapshots.clear()
        self.mail = [letter for letter in self.mail if letter[1].to != name]

    def lead(self, name: NodeId, view: int) -> None:
        """Make a process primary of a view; the one before goes on until it hears of it."""
        process = self.processes[name]
        process.follower = None
        process.log.promised = view
        process.log.append([ViewStarted(view, name)])
        backups = tuple(each for each in self.names if each != name)
        process.open = []
        process.feed = JournalFeed(
            JournalFeedConfig(backups, **self._feed_settings),
            process.log,
            view=view,
            journal=process.log.name,
            views=process.log.history.views,
            prepared=process.log.prepared,
            open_transactions=lambda: [*process.open, *process.log.prepared],
        )
        self.primary = name

    @property
    def feed(self) -> JournalFeed:
        """That of the primary."""
        feed = self.processes[self.primary].feed
        assert feed is not None
        return feed

    def follower(self, name: NodeId) -> JournalFollower:
        """The core of a backup."""
        follower = self.processes[name].follower
        assert follower is not None
        return follower

    # ---- work

    def write(self, *records: Record, by: NodeId = "") -> None:
        """One turn of the primary."""
        process = self.processes[by or self.primary]
        if process.feed is not None and records:
            process.feed.note(process.log.append(records), records)

    def turn(self, name: NodeId) -> None:
        """One turn of one process, its disk included."""
        process = self.processes[name]
        messages: list[Outgoing] = []
        if process.feed is not None:
            messages += process.feed.messages(self.now)
        elif process.follower is not None:
            ready = process.follower.take(self.now)
            messages += ready.messages
            if ready.records:
                process.log.follow(ready.records)
                process.follower.followed(ready.records[-1][0])
            for decision in ready.decisions:
                self._carry_out(process, process.follower, decision)
        offered, decisions = process.offering.take(self.now)
        messages += offered
        for decision in decisions:
            self._give(process, decision)
        self.mail += [(name, out) for out in messages]
        self.sent += [(name, out) for out in messages]

    def _give(self, process: Process, decision: CopyDecision) -> None:
        if isinstance(decision, MakeSnapshot):
            data = process.log.packed()
            process.snapshots[decision.snapshot] = data
            digests = b"".join(sha256(piece).digest() for piece in pieces(data))
            made = SnapshotMade(decision.snapshot, process.log.last_number, "", 0, CHUNK_BYTES, (("f", len(data), digests),))
            process.offering.on_answer(made, 0, self.now)
        elif isinstance(decision, ReadChunks):
            held = pieces(process.snapshots.get(decision.snapshot, b""))
            chunks = tuple((number, held[number] if number < len(held) else None) for number in decision.numbers)
            process.offering.on_answer(ChunksRead(decision.to, decision.snapshot, chunks), 0, self.now)

    def _carry_out(self, process: Process, follower: JournalFollower, decision: CopyDecision) -> None:
        if isinstance(decision, BeginLoad):
            process.load, process.loaded = decision.offer, {}
            follower.follower.loads.on_answer(LoadBegun(decision.offer.snapshot, ()), self.now)
        elif isinstance(decision, KeepChunk):
            assert process.load is not None
            right = process.load.files[0][2][32 * decision.number : 32 * decision.number + 32]
            is_good = sha256(decision.data).digest() == right
            if is_good:
                process.loaded[decision.number] = decision.data
            follower.follower.loads.on_answer(ChunkKept(decision.number, is_good), self.now)
        elif isinstance(decision, OpenLoad):
            data = b"".join(process.loaded[number] for number in sorted(process.loaded))
            process.log = PlainLog.unpacked(data, process.log.promised)
            process.loads += 1
            follower.on_loaded(process.log, process.log.state())

    def deliver(self, choice: Choice = everything) -> None:
        """Deliver what is under way; what is not chosen is lost."""
        letters, self.mail = self.mail, []
        for sender, out in letters:
            if choice(sender, out) and out.to in self.processes:
                self.receive(out.to, sender, out.message)

    def receive(self, name: NodeId, sender: NodeId, message: Message) -> None:
        """Give one message to a process."""
        process = self.processes[name]
        if process.feed is None and process.follower is None:
            return
        if isinstance(message, SnapshotWanted | ChunksWanted | SnapshotDone):
            process.offering.on_message(sender, message, "", self.now)
        elif process.feed is not None:
            self._to_feed(process, process.feed, sender, message)
        elif process.follower is not None:
            self._to_follower(process.follower, sender, message)

    def _to_feed(self, process: Process, feed: JournalFeed, sender: NodeId, message: Message) -> None:
        match message:
            case Confirmed():
                feed.on_confirmed(sender, message, self.now)
            case RecordsWanted():
                feed.on_records_wanted(sender, message)
            case Replicate() if message.view > feed.view:
                self.start(process.node)
                assert process.follower is not None
                process.follower.on_replicate(sender, message, self.now)

    def _to_follower(self, follower: JournalFollower, sender: NodeId, message: Message) -> None:
        match message:
            case Replicate():
                follower.on_replicate(sender, message, self.now)
            case Records():
                follower.on_records(sender, message, self.now)
            case RecordsMissing():
                follower.on_records_missing(sender, message, self.now)
            case RecordsWanted():
                follower.on_records_wanted(sender, message)
            case SnapshotOffered() | Chunk():
                follower.follower.loads.on_message(sender, message, self.now)

    def round(self, choice: Choice = everything, step_ms: int = 10) -> None:
        """A turn of everybody, then the mail."""
        for name in self.names:
            self.turn(name)
        self.deliver(choice)
        self.ms += step_ms

    def settle(self, rounds: int = 30, choice: Choice = everything, step_ms: int = 10) -> None:
        """Rounds."""
        for _ in range(rounds):
            self.round(choice, step_ms)

    # ---- questions

    def sent_by(self, name: NodeId, kind: type) -> list[Message]:
        """All messages of a kind that a process ever sent."""
        return [out.message for sender, out in self.sent if sender == name and isinstance(out.message, kind)]

    def numbers(self) -> dict[NodeId, int]:
        """Last number of each journal."""
        return {name: process.log.last_number for name, process in self.processes.items()}

    def differences(self) -> list[str]:
        """Where journals that are up are not that of the primary."""
        right = self.processes[self.primary].log
        found = []
        for name, process in self.processes.items():
            first = max(right.kept_from, process.log.kept_from)
            mine = {number: data for number, data in process.log.items.items() if number >= first}
            theirs = {number: data for number, data in right.items.items() if number >= first}
            if process.log.last_number != right.last_number or mine != theirs:
                odd = sorted(number for number in mine.keys() | theirs.keys() if mine.get(number) != theirs.get(number))
                found.append(f"{name}: ends at {process.log.last_number}, not {right.last_number}; differs at {odd[:5]}")
        return found

    def are_equal(self) -> bool:
        """Whether all journals hold the same records."""
        return not self.differences()


def pieces(data: bytes) -> list[bytes]:
    """A snapshot in chunks."""
    return [data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES)]
