"""Loading: the follower's half of LOAD, from the first request to the open copy (PROTOCOL.md, section 5).

    ask a source -> offer -> make room -> chunks, a window of them in flight, in any order -> open
         |                                   |
         +-- silent or refuses: next source  +-- lost: asked again; silent: next source; gone: this source once more

A chunk is requested again after `chunk_wait_ms`, never the whole snapshot; one with a wrong SHA-256 counts as lost. Chunks on disk
from before a crash are found by the name of the snapshot, which survives restarts. So the load continues where it was as long as
the source still has the snapshot.

Invariants: never more than `window` chunks are in flight or waiting for the disk; a chunk is written once; `open` is decided once
all are written. Nothing here touches the old copy.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum

from brokerha.model.ids import Instant, Lsn, NodeId
from brokerha.model.ready import AbandonLoad, BeginLoad, ChunkKept, CopyDecision, KeepChunk, LoadBegun, LoadFailed, OpenLoad
from brokerha.model.wire.messages import Chunk, ChunksWanted, Outgoing, SnapshotDone, SnapshotOffered, SnapshotWanted


@dataclass(frozen=True, slots=True)
class LoadConfig:
    """Windows and timeouts of a load."""

    window: int = 8
    """Limit of chunks in flight or waiting for the disk."""
    ask_ms: int = 2000
    """A source that has not answered is asked again after this long."""
    chunk_wait_ms: int = 5000
    """A chunk that has not come is requested again after this long."""
    patience_ms: int = 20_000
    """A source that was silent for so long is given up."""
    bad_chunks: int = 20
    """Number of wrong chunks after which a source is given up."""


class Phase(StrEnum):
    """The phase of a load."""

    ASKING = "asking"
    MAKING_ROOM = "making room"
    FETCHING = "fetching"
    OPENING = "opening"
    FAILED = "failed"


class Loading:
    """One load. `sources` are tried in order, a snapshot before ``least_lsn`` is of no use; `request` names the snapshot."""

    def __init__(self, config: LoadConfig, sources: tuple[NodeId, ...], request: str, now: Instant, least_lsn: Lsn = 0) -> None:
        self.config = config
        self.sources = sources
        self.least_lsn = least_lsn
        self.request = request
        self.phase = Phase.ASKING if sources else Phase.FAILED
        self.failures: list[str] = []
        """Reasons why sources were given up."""
        self.offer: SnapshotOffered | None = None
        self.done_bytes = 0
        self.total_bytes = 0
        self._place = 0
        self._heard_ms = now.mono_ms
        self._ask_at_ms = now.mono_ms
        self._sizes: list[int] = []
        self._todo: deque[int] = deque()
        self._in_flight: dict[int, int] = {}
        """Chunk number: time of its request; oldest first."""
        self._at_disk: set[int] = set()
        self._kept: set[int] = set()
        self._bad = 0
        self._has_lost_snapshot = False
        """Whether this source had to begin once more already."""
        self._messages: list[Outgoing] = []
        self._decisions: list[CopyDecision] = []

    @property
    def source(self) -> NodeId:
        """Return the source that is asked now."""
        return self.sources[self._place] if self._place < len(self.sources) else ""

    @property
    def lsn(self) -> Lsn:
        """Return the LSN of the snapshot; 0 before there is an offer."""
        return self.offer.lsn if self.offer is not None else 0

    # ---- inputs

    def on_offered(self, sender: NodeId, offer: SnapshotOffered, now: Instant) -> None:
        """Take in a source's offer, its refusal, or the message that it is still making the snapshot."""
        if self.phase is not Phase.ASKING or sender != self.source or offer.request != self.request:
            return
        self._heard_ms = now.mono_ms
        if offer.reason:
            self._give_up(offer.reason, now)
        elif offer.snapshot and offer.lsn < self.least_lsn:
            # An earlier snapshot for this follower, from when a lower LSN was enough.
            self._give_up(too_early(offer.lsn, self.least_lsn), now)
        elif offer.snapshot:
            self.offer = offer
            self.phase = Phase.MAKING_ROOM
            self.total_bytes = sum(size for _, size, _ in offer.files)
            self._decisions.append(BeginLoad(offer))

    def on_answer(self, answer: LoadBegun | ChunkKept | LoadFailed, now: Instant) -> None:
        """Take in an answer of the disk."""
        match answer:
            case LoadBegun():
                self.on_begun(answer, now)
            case ChunkKept():
                self.on_kept(answer, now)
            case LoadFailed():
                self.on_failed(answer.reason, now)

    def on_begun(self, begun: LoadBegun, now: Instant) -> None:
        """Begin to fetch: there is room."""
        if self.phase is not Phase.MAKING_ROOM or self.offer is None or begun.snapshot != self.offer.snapshot:
            return
        self.phase = Phase.FETCHING
        self._heard_ms = now.mono_ms
        # The disk has checked the list of files, which comes from another process.
        self._sizes = chunk_sizes(self.offer)
        self._kept = {number for number in begun.held if number < len(self._sizes)}
        self.done_bytes = sum(self._sizes[number] for number in self._kept)
        self._todo = deque(number for number in range(len(self._sizes)) if number not in self._kept)
        self._open_when_whole()

    def on_chunk(self, sender: NodeId, chunk: Chunk, now: Instant) -> None:
        """Take in a chunk, or the message that the source no longer has the snapshot."""
        if self.phase is not Phase.FETCHING or self.offer is None or chunk.snapshot != self.offer.snapshot:
            return
        if sender != self.source:
            return
        self._heard_ms = now.mono_ms
        if chunk.is_gone and self._has_lost_snapshot:
            self._give_up("lost its snapshot twice", now)
        elif chunk.is_gone:
            self._has_lost_snapshot = True
            self._begin_anew(now)
        elif 0 <= chunk.number < len(self._sizes) and self._is_missing(chunk.number):
            self._in_flight.pop(chunk.number, None)
            self._at_disk.add(chunk.number)
            self._decisions.append(KeepChunk(chunk.number, chunk.data))

    def on_kept(self, kept: ChunkKept, now: Instant) -> None:
        """Note that a chunk is on disk, or was wrong."""
        if self.phase is not Phase.FETCHING or kept.number not in self._at_disk:
            return
        self._at_disk.discard(kept.number)
        # A slow disk here is not the silence of the source.
        self._heard_ms = now.mono_ms
        if kept.is_good:
            self._kept.add(kept.number)
            self.done_bytes += self._sizes[kept.number]
            self._open_when_whole()
            return
        self._bad += 1
        self._todo.appendleft(kept.number)
        if self._bad >= self.config.bad_chunks:
            self._give_up(f"{self._bad} chunks were not what their SHA-256 says", now)

    def on_failed(self, reason: str, now: Instant) -> None:
        """Give up the source: there is no room, or the loaded copy could not be opened."""
        if self.phase in (Phase.MAKING_ROOM, Phase.FETCHING, Phase.OPENING):
            # Each chunk that waited for the disk fails by itself; only the first failure counts.
            self._give_up(reason, now)

    def _is_waiting_for_source(self) -> bool:
        return self.phase is Phase.ASKING or (self.phase is Phase.FETCHING and not self._at_disk)

    def _is_missing(self, number: int) -> bool:
        return number not in self._kept and number not in self._at_disk

    def _open_when_whole(self) -> None:
        if len(self._kept) == len(self._sizes):
            self.phase = Phase.OPENING
            self._decisions.append(OpenLoad())

    def _give_up(self, reason: str, now: Instant) -> None:
        """Leave this source and ask the next one."""
        self.failures.append(f"{self.source}: {reason}")
        self._place += 1
        self._has_lost_snapshot = False
        if self._place >= len(self.sources):
            self.phase = Phase.FAILED
            self._decisions.append(AbandonLoad())
        else:
            self._begin_anew(now)

    def _begin_anew(self, now: Instant) -> None:
        """Request a new snapshot; the time makes its name unique."""
        self.request = new_request(self.request.rpartition("-")[0], now)
        self.phase = Phase.ASKING
        self.offer = None
        self.done_bytes = self.total_bytes = self._bad = 0
        self._heard_ms = now.mono_ms
        self._ask_at_ms = now.mono_ms
        self._in_flight.clear()
        self._at_disk.clear()

    # ---- output

    def farewell(self) -> list[Outgoing]:
        """Return the message that the source can delete its snapshot, because the copy is open."""
        return [Outgoing(self.source, SnapshotDone(self.offer.snapshot))] if self.offer is not None else []

    def take(self, now: Instant) -> tuple[list[Outgoing], list[CopyDecision]]:
        """Return the messages and decisions that are due."""
        if self._is_waiting_for_source() and now.mono_ms - self._heard_ms >= self.config.patience_ms:
            self._give_up(f"silent for {self.config.patience_ms / 1000:.0f} s", now)
        if self.phase is Phase.ASKING and now.mono_ms >= self._ask_at_ms:
            self._ask_at_ms = now.mono_ms + self.config.ask_ms
            self._messages.append(Outgoing(self.source, SnapshotWanted(self.request, self.least_lsn)))
        if self.phase is Phase.FETCHING:
            self._fetch(now)
        messages, self._messages = self._messages, []
        decisions, self._decisions = self._decisions, []
        return messages, decisions

    def _fetch(self, now: Instant) -> None:
        """Fill the window, lost chunks first."""
        for number, asked_ms in list(self._in_flight.items()):
            if now.mono_ms - asked_ms < self.config.chunk_wait_ms:
                break
            del self._in_flight[number]
            self._todo.appendleft(number)
        room = self.config.window - len(self._in_flight) - len(self._at_disk)
        # Half a window at a time: a message for each chunk would cost the source as much as the chunk.
        if not self._todo or (room < self.config.window // 2 and len(self._todo) > room):
            return
        wanted: list[int] = []
        while self._todo and len(wanted) < room:
            number = self._todo.popleft()
            if self._is_missing(number) and number not in self._in_flight:
                self._in_flight[number] = now.mono_ms
                wanted.append(number)
        if wanted and self.offer is not None:
            self._messages.append(Outgoing(self.source, ChunksWanted(self.offer.snapshot, tuple(wanted))))

    def deadline_ms(self) -> int | None:
        """Return when a request is to be repeated."""
        if self.phase is Phase.ASKING:
            return min(self._ask_at_ms, self._heard_ms + self.config.patience_ms)
        if self.phase is Phase.FETCHING:
            due = [asked_ms + self.config.chunk_wait_ms for asked_ms in list(self._in_flight.values())[:1]]
            if self._is_waiting_for_source():
                due.append(self._heard_ms + self.config.patience_ms)
            return min(due, default=None)
        return None


def new_request(follower: NodeId, now: Instant) -> str:
    """Return a name for a snapshot that this follower requests."""
    return f"{follower}-{now.wall_us}"


def too_early(lsn: Lsn, least_lsn: Lsn) -> str:
    """Return why a snapshot at an LSN is of no use."""
    return f"it is at LSN {lsn}, the log goes on after {least_lsn}"


def chunk_sizes(offer: SnapshotOffered) -> list[int]:
    """Return the size in bytes of each chunk of a snapshot, by its number."""
    sizes: list[int] = []
    for _, size, _ in offer.files:
        whole, rest = divmod(size, offer.chunk_bytes)
        sizes += [offer.chunk_bytes] * whole + ([rest] if rest else [])
    return sizes


class Loads:
    """The loads of one follower, one at a time. A snapshot's name survives a restart, so that chunks are not fetched twice."""

    def __init__(self, config: LoadConfig, name: NodeId, pending: str) -> None:
        """Take ``pending``, the snapshot whose load was under way when the process ended; empty for none."""
        self.current: Loading | None = None
        self.is_opening = False
        """Whether the loaded copy is replacing the present one: nothing else can change it."""
        self._config = config
        self._name = name
        self._pending = pending

    @property
    def is_under_way(self) -> bool:
        """Tell whether a load is under way."""
        return self.current is not None and self.current.phase is not Phase.FAILED

    def begin(self, sources: tuple[NodeId, ...], now: Instant, least_lsn: Lsn = 0) -> None:
        """Load from the first of these that gives a snapshot of ``least_lsn`` or later; this replaces a load under way."""
        request = self._pending or new_request(self._name, now)
        self._pending = ""
        self.current = Loading(self._config, sources, request, now, least_lsn)

    def stop(self) -> None:
        """End the load, whatever its result."""
        self.current = None

    def on_message(self, sender: NodeId, message: SnapshotOffered | Chunk, now: Instant) -> None:
        """Take in a message of a source."""
        if self.current is None:
            return
        if isinstance(message, Chunk):
            self.current.on_chunk(sender, message, now)
        else:
            self.current.on_offered(sender, message, now)

    def on_answer(self, answer: LoadBegun | ChunkKept | LoadFailed, now: Instant) -> None:
        """Take in an answer of the disk; `on_opened` tells that the copy is open."""
        self.is_opening = self.is_opening and not isinstance(answer, LoadFailed)
        if self.current is not None:
            self.current.on_answer(answer, now)

    def on_opened(self) -> list[Outgoing]:
        """Note that there is another copy, whatever was decided meanwhile; return the messages to its source."""
        self.is_opening, self._pending = False, ""
        return self.current.farewell() if self.current is not None else []

    def take(self, now: Instant) -> tuple[list[Outgoing], list[CopyDecision], str]:
        """Return (messages, decisions, each source's reason if none gave a snapshot); the reason is empty as long as one may."""
        if self.current is None:
            return [], [], ""
        messages, decisions = self.current.take(now)
        self.is_opening = self.is_opening or any(isinstance(each, OpenLoad) for each in decisions)
        failures = ""
        if self.current.phase is Phase.FAILED:
            self._pending = ""
            failures = "; ".join(self.current.failures) or "there is no other one"
        return messages, decisions, failures

    def deadline_ms(self) -> int | None:
        """Return when a request is to be repeated."""
        return self.current.deadline_ms() if self.current is not None else None
