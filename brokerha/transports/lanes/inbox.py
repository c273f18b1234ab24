"""What has arrived and was not taken yet: sync before events of transactions before data before messages of apps.

    reader ── put ──> [sync][tx][data][client] ── take ──> loop

Invariants: a lane over its limit asks the reader to withhold acknowledgements (`has_room`), so that prefetch stops the broker; it asks
again in each turn. The inbox is over its limits by what was prefetched, and by no more. Callable from any thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from threading import Lock

from brokerha.transports.config import LaneLimit
from brokerha.transports.lanes.parcels import ARRIVAL_LANES, CLIENT_LANE, Arrival


class Inbox:
    """See the head of the module. ``limits`` names the lanes that have one; the others are bounded by prefetch."""

    def __init__(self, limits: Mapping[str, LaneLimit]) -> None:
        self._lock = Lock()
        self._lanes: dict[str, deque[Arrival]] = {lane: deque() for lane in ARRIVAL_LANES}
        self._size_bytes = dict.fromkeys(ARRIVAL_LANES, 0)
        self._limits = dict(limits)

    def put(self, arrivals: Iterable[Arrival]) -> None:
        """Add arrivals."""
        with self._lock:
            for arrival in arrivals:
                self._lanes[arrival.lane].append(arrival)
                self._size_bytes[arrival.lane] += len(arrival.body)

    def take(self, limit: int) -> list[Arrival]:
        """Up to ``limit`` arrivals, in the order of the lanes."""
        taken: list[Arrival] = []
        with self._lock:
            for name, lane in self._lanes.items():
                while lane and len(taken) < limit:
                    arrival = lane.popleft()
                    self._size_bytes[name] -= len(arrival.body)
                    taken.append(arrival)
        return taken

    def __len__(self) -> int:
        """How many arrivals wait."""
        return sum(map(len, self._lanes.values()))

    def has_room(self, lane: str) -> bool:
        """Whether what arrived in the lane may be acknowledged."""
        limit = self._limits.get(lane)
        return limit is None or (len(self._lanes[lane]) < limit.messages and self._size_bytes[lane] < limit.size_bytes)

    def drop_clients_before(self, generation: int) -> None:
        """Drop messages of apps that came through older connections: the broker delivers them again."""
        with self._lock:
            kept = [a for a in self._lanes[CLIENT_LANE] if a.tag.generation >= generation]
            self._lanes[CLIENT_LANE] = deque(kept)
            self._size_bytes[CLIENT_LANE] = sum(len(arrival.body) for arrival in kept)
