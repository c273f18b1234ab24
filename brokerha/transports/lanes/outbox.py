"""What waits to be published: one bounded lane for each kind of traffic, the protocol's small messages first.

    loop ── put ──> [sync][reply][data] ── take ──> writer: plain channel
                    [firm][bulk]        ── take ──> writer: confirming channel
                    [tx]                ── take ──> writer: channels of transactions

Invariants: `put` never blocks; a full lane drops its oldest publication, and says so, because what is newest is worth
most to a protocol that repeats itself; the order within a lane is kept. Callable from any thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock

from brokerha.transports.config import LaneLimit
from brokerha.transports.lanes.parcels import PUBLICATION_LANES, Publication


class _Lane:
    """One lane; the outbox holds the lock."""

    __slots__ = ("limit", "size_bytes", "waiting")

    def __init__(self, limit: LaneLimit) -> None:
        self.limit = limit
        self.waiting: deque[Publication] = deque()
        self.size_bytes = 0

    def put(self, publication: Publication) -> int:
        self.waiting.append(publication)
        self.size_bytes += len(publication.body)
        dropped = 0
        while self._is_over() and len(self.waiting) > 1:
            self.pop()
            dropped += 1
        return dropped

    def pop(self) -> Publication:
        publication = self.waiting.popleft()
        self.size_bytes -= len(publication.body)
        return publication

    def put_first(self, publication: Publication) -> None:
        self.waiting.appendleft(publication)
        self.size_bytes += len(publication.body)

    def _is_over(self) -> bool:
        return len(self.waiting) > self.limit.messages or self.size_bytes > self.limit.size_bytes


class Outbox:
    """See the head of the module; ``limits`` has one entry for each of `PUBLICATION_LANES`."""

    def __init__(self, limits: Mapping[str, LaneLimit]) -> None:
        self._lock = Lock()
        self._lanes = {lane: _Lane(limits[lane]) for lane in PUBLICATION_LANES}
        self._count = 0

    def put(self, publications: Sequence[Publication]) -> int:
        """Add publications at the ends of their lanes; return how many older ones were dropped."""
        with self._lock:
            dropped = sum([self._lanes[publication.lane].put(publication) for publication in publications])
            self._count += len(publications) - dropped
            return dropped

    def put_back(self, publications: Sequence[Publication]) -> None:
        """Return publications to the heads of their lanes, in their order; used for what must be repeated."""
        with self._lock:
            for publication in reversed(publications):
                self._lanes[publication.lane].put_first(publication)
            self._count += len(publications)

    def take(self, lanes: Iterable[str], most_messages: int, most_bytes: int) -> list[Publication]:
        """Remove publications of these lanes, one lane after the other; at least one if the limits are above zero."""
        taken: list[Publication] = []
        with self._lock:
            for name in lanes:
                lane = self._lanes[name]
                while lane.waiting and len(taken) < most_messages and most_bytes > 0:
                    taken.append(lane.pop())
                    most_bytes -= len(taken[-1].body)
            self._count -= len(taken)
        return taken

    def has_any(self, lanes: Iterable[str]) -> bool:
        """Whether something waits in one of these lanes."""
        return any(self._lanes[name].waiting for name in lanes)

    def drop_older(self, lane: str, than_s: float) -> int:
        """Drop what was queued in a lane before the monotonic time ``than_s``; return how many."""
        dropped = 0
        with self._lock:
            waiting = self._lanes[lane].waiting
            while waiting and waiting[0].queued_s < than_s:
                self._lanes[lane].pop()
                dropped += 1
            self._count -= dropped
        return dropped

    def __len__(self) -> int:
        """How many publications wait."""
        return self._count
