"""What has arrived and was not taken yet: sync before events of transactions before data before messages of apps.

    reader thread ── put ──> [sync][tx][data][client] ── take, waiting ──> loop

Invariants: `take` sleeps until there is something, until it is woken, or until its time is over, and never polls; a
lane over its limit asks the reader to withhold acknowledgements (`has_room`), so that prefetch stops the broker, and
`on_room` tells it when there is room again. The inbox is over its limits by what was prefetched, and by no more.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from threading import Condition

from brokerha.transports.config import LaneLimit
from brokerha.transports.parcels import ARRIVAL_LANES, CLIENT_LANE, Arrival


class Inbox:
    """See the head of the module. ``limits`` names the lanes that have one; the others are bounded by prefetch."""

    def __init__(self, limits: Mapping[str, LaneLimit], on_room: Callable[[], None]) -> None:
        self._ready = Condition()
        self._lanes: dict[str, deque[Arrival]] = {lane: deque() for lane in ARRIVAL_LANES}
        self._size_bytes = dict.fromkeys(ARRIVAL_LANES, 0)
        self._limits = dict(limits)
        self._withheld: set[str] = set()
        """Lanes for which `has_room` said no."""
        self._on_room = on_room
        self._woken = False

    def put(self, arrivals: Iterable[Arrival]) -> None:
        """Add arrivals and wake the loop."""
        with self._ready:
            for arrival in arrivals:
                self._lanes[arrival.lane].append(arrival)
                self._size_bytes[arrival.lane] += len(arrival.body)
            self._ready.notify()

    def take(self, limit: int, timeout_s: float) -> list[Arrival]:
        """Up to ``limit`` arrivals, waiting at most ``timeout_s`` for the first one or for `wake`."""
        deadline_s = time.monotonic() + timeout_s
        with self._ready:
            while not self._woken and not any(self._lanes.values()):
                left_s = deadline_s - time.monotonic()
                if left_s <= 0 or not self._ready.wait(left_s):
                    break
            self._woken = False
            taken = self._pop(limit)
            has_new_room = self._has_new_room()
        if has_new_room:
            self._on_room()
        return taken

    def wake(self) -> None:
        """Make a waiting `take`, or else the next one, return at once. Callable from any thread."""
        with self._ready:
            self._woken = True
            self._ready.notify()

    def has_room(self, lane: str) -> bool:
        """Whether what arrived in the lane may be acknowledged; if not, `on_room` is called once it may."""
        with self._ready:
            if self._is_full(lane):
                self._withheld.add(lane)
                return False
            return True

    def drop_clients_before(self, generation: int) -> None:
        """Drop messages of apps that came through older connections: the broker delivers them again."""
        with self._ready:
            kept = [a for a in self._lanes[CLIENT_LANE] if a.tag.generation >= generation]
            self._lanes[CLIENT_LANE] = deque(kept)
            self._size_bytes[CLIENT_LANE] = sum(len(arrival.body) for arrival in kept)

    def _pop(self, limit: int) -> list[Arrival]:
        taken: list[Arrival] = []
        for name, lane in self._lanes.items():
            while lane and len(taken) < limit:
                arrival = lane.popleft()
                self._size_bytes[name] -= len(arrival.body)
                taken.append(arrival)
        return taken

    def _has_new_room(self) -> bool:
        relieved = {lane for lane in self._withheld if not self._is_full(lane)}
        self._withheld -= relieved
        return bool(relieved)

    def _is_full(self, lane: str) -> bool:
        limit = self._limits.get(lane)
        return limit is not None and (
            len(self._lanes[lane]) >= limit.messages or self._size_bytes[lane] >= limit.size_bytes
        )
