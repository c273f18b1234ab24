"""Offering: the source's half of LOAD: requested snapshots, and their chunks.

    SnapshotWanted -> MakeSnapshot ... SnapshotMade -> SnapshotOffered
    ChunksWanted   -> ReadChunks   ... ChunksRead   -> Chunk, Chunk, ...
    Request        -> ReadRange    ... RangeRead    -> Apply
    SnapshotDone, or no request for long -> DropSnapshot

The source keeps writing and answering reads meanwhile. Invariants: at most `snapshots` at once, at most `reading` chunks wait for
the disk; further requests are refused or dropped, and the follower repeats them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from brokerha.model.ids import Instant, NodeId
from brokerha.model.ready import (
    ChunksRead,
    CopyDecision,
    DropSnapshot,
    MakeSnapshot,
    OfferAnswer,
    RangeRead,
    ReadChunks,
    ReadRange,
    SnapshotMade,
)
from brokerha.model.wire.messages import (
    Apply,
    Chunk,
    ChunksWanted,
    Outgoing,
    RangeMissing,
    Request,
    SnapshotDone,
    SnapshotOffered,
    SnapshotWanted,
)

MESSAGE_BYTES = 1024 * 1024


def cut(items: tuple[Any, ...], size_of: Callable[[Any], int]) -> list[tuple[Any, ...]]:
    """Split items into parts of about `MESSAGE_BYTES`, in order; none for no items."""
    parts: list[tuple[Any, ...]] = []
    start, size = 0, 0
    for place, item in enumerate(items):
        size += size_of(item)
        if size >= MESSAGE_BYTES:
            parts.append(items[start : place + 1])
            start, size = place + 1, 0
    if start < len(items):
        parts.append(items[start:])
    return parts


def result_bytes(row: tuple[Any, ...]) -> int:
    """Return the approximate size of a `ResultRow` or `LoggedRow`: its effect is before its fingerprint."""
    return len(row[-2]) + len(row[-3])


@dataclass(frozen=True, slots=True)
class OfferConfig:
    """Limits of a source."""

    snapshots: int = 2
    reading: int = 64
    """Limit of chunks that wait for the disk."""
    lines: int = 1000
    """Limit of lines of the log in one answer; a reader asks again for more."""
    keep_ms: int = 60_000
    """A snapshot without a request for so long is deleted."""


@dataclass(slots=True)
class _Offer:
    follower: NodeId
    touched_ms: int
    made: SnapshotMade | None = field(default=None)


class Offering:
    """The snapshots of one copy."""

    def __init__(self, config: OfferConfig) -> None:
        self.config = config
        self._offers: dict[str, _Offer] = {}
        self._reading = 0
        self._messages: list[Outgoing] = []
        self._decisions: list[CopyDecision] = []

    @property
    def followers(self) -> list[NodeId]:
        """Return the followers that load from here."""
        return [offer.follower for offer in self._offers.values()]

    def on_message(
        self, sender: NodeId, message: Request | SnapshotWanted | ChunksWanted | SnapshotDone, refusal: str, now: Instant
    ) -> None:
        """Take in a request to this copy; ``refusal`` says why it gives no snapshot, or is empty."""
        match message:
            case Request():
                self.on_request(sender, message, refusal)
            case SnapshotWanted():
                self.on_wanted(sender, message, refusal, now)
            case ChunksWanted():
                self.on_chunks_wanted(sender, message, now)
            case SnapshotDone():
                self.on_done(message.snapshot)

    def on_answer(self, answer: OfferAnswer, view: int, now: Instant, lineage: int = 0) -> None:
        """Take in an answer of the disk."""
        match answer:
            case RangeRead():
                self.on_range(answer, view, lineage)
            case SnapshotMade():
                self.on_made(answer, now)
            case ChunksRead():
                self.on_read(answer)

    def on_wanted(self, sender: NodeId, wanted: SnapshotWanted, refusal: str, now: Instant) -> None:
        """Take in a request for a snapshot; ``refusal`` says why this copy gives none, or is empty."""
        offer = self._offers.get(wanted.request)
        if offer is not None:
            offer.touched_ms = now.mono_ms
            self._answer(wanted.request, offer)
            return
        # A follower loads one snapshot at a time: it no longer needs an earlier one.
        for old in [name for name, other in self._offers.items() if other.follower == sender]:
            self.on_done(old)
        if not refusal and len(self._offers) >= self.config.snapshots:
            refusal = f"{len(self._offers)} snapshots are being given already"
        if refusal:
            self._messages.append(Outgoing(sender, SnapshotOffered(wanted.request, "", 0, "", 0, 0, (), refusal)))
            return
        self._offers[wanted.request] = offer = _Offer(sender, now.mono_ms)
        self._decisions.append(MakeSnapshot(wanted.request))
        self._answer(wanted.request, offer)

    def on_made(self, made: SnapshotMade, now: Instant) -> None:
        """Take in a snapshot that was made, or could not be made."""
        offer = self._offers.get(made.snapshot)
        if offer is None:
            self._decisions.append(DropSnapshot(made.snapshot))
            return
        offer.made, offer.touched_ms = made, now.mono_ms
        self._answer(made.snapshot, offer)
        if made.reason:
            del self._offers[made.snapshot]

    def _answer(self, request: str, offer: _Offer) -> None:
        made = offer.made
        if made is None:
            # No name and no reason: it is being made.
            answer = SnapshotOffered(request, "", 0, "", 0, 0, ())
        else:
            name = "" if made.reason else made.snapshot
            answer = SnapshotOffered(
                request, name, made.lsn, made.fingerprint, made.items, made.chunk_bytes, made.files, made.reason
            )
        self._messages.append(Outgoing(offer.follower, answer))

    def on_chunks_wanted(self, sender: NodeId, wanted: ChunksWanted, now: Instant) -> None:
        """Take in a follower's request for chunks."""
        offer = self._offers.get(wanted.snapshot)
        if offer is None or offer.made is None:
            number = wanted.numbers[0] if wanted.numbers else 0
            self._messages.append(Outgoing(sender, Chunk(wanted.snapshot, number, b"", is_gone=True)))
            return
        offer.touched_ms = now.mono_ms
        numbers = wanted.numbers[: max(0, self.config.reading - self._reading)]
        if numbers:
            self._reading += len(numbers)
            self._decisions.append(ReadChunks(sender, wanted.snapshot, numbers))

    def on_read(self, read: ChunksRead) -> None:
        """Send chunks that came from the disk."""
        self._reading -= len(read.chunks)
        # A snapshot of a copy that was found damaged meanwhile is not given away.
        is_offered = read.snapshot in self._offers
        for number, data in read.chunks:
            given = data if is_offered else None
            chunk = Chunk(read.snapshot, number, given or b"", is_gone=given is None)
            self._messages.append(Outgoing(read.to, chunk))

    def on_request(self, sender: NodeId, request: Request, refusal: str) -> None:
        """Take in a request of another follower, or a master, for a part of the log that this copy may still have."""
        if refusal or request.first_lsn > request.last_lsn:
            self._messages.append(Outgoing(sender, RangeMissing(request.first_lsn, request.last_lsn, 0)))
            return
        last = min(request.last_lsn, request.first_lsn + self.config.lines - 1)
        self._decisions.append(ReadRange(sender, request.first_lsn, last))

    def on_range(self, read: RangeRead, view: int, lineage: int = 0) -> None:
        """Send lines of the log that came from the disk."""
        if not read.items:
            missing = RangeMissing(read.first_lsn, read.last_lsn, read.kept_from)
            self._messages.append(Outgoing(read.to, missing))
        first = read.first_lsn
        for part in cut(read.items, result_bytes):
            self._messages.append(Outgoing(read.to, Apply(first, part, view, lineage)))
            first += len(part)

    def on_done(self, snapshot: str) -> None:
        """Drop a snapshot that its follower no longer needs."""
        if self._offers.pop(snapshot, None) is not None:
            self._decisions.append(DropSnapshot(snapshot))

    def forget_all(self) -> None:
        """Drop all snapshots: the copy is not to be trusted any more."""
        for snapshot in list(self._offers):
            self.on_done(snapshot)

    def take(self, now: Instant) -> tuple[list[Outgoing], list[CopyDecision]]:
        """Return the messages and decisions that are due."""
        for snapshot, offer in list(self._offers.items()):
            if now.mono_ms - offer.touched_ms >= self.config.keep_ms:
                self.on_done(snapshot)
        messages, self._messages = self._messages, []
        decisions, self._decisions = self._decisions, []
        return messages, decisions

    def deadline_ms(self) -> int | None:
        """Return when the next snapshot is to be deleted."""
        return min((offer.touched_ms + self.config.keep_ms for offer in self._offers.values()), default=None)
