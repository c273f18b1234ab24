"""Line: received records that wait for the disk, in order, and those that came too early.

    durable   in order        ahead
    ... 6     7 8 9     . .   12 13        gap: 10 to 11

A **piece** has the records of one message: those after a number. Pieces in order follow each other without a gap. Those ahead wait
for the missing records between, so that only these are requested. Numbers in a piece grow, and need not be neighbours: the leader
may have made some void.

>>> line = Line(0, Limits(entries=10))
>>> line.add(piece(1, ("a", "b"))), line.add(piece(4, ("d",))), line.gap()
(2, 0, (3, 3))
>>> line.add(piece(3, ("c",))), line.gap(), line.end
(2, None, 4)

Invariants: `end` grows only by records that follow each other at the leader; records in order, and those ahead, are each bounded by
the limits plus one piece; records dropped for want of room are a gap later.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from sortedcontainers import SortedDict

from brokerha.following.asking import Range
from brokerha.model.invariants import invariant


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the records in order, and again of those ahead of a gap."""

    entries: int = 10**9
    bytes: int = 10**12


@dataclass(slots=True)
class Piece:
    """Records after the number `after`."""

    after: int
    numbers: Sequence[int]
    items: Sequence[Any]
    sizes: Sequence[int]
    kind: Any = None
    """A common property of all its records, known to the holder."""
    size: int = 0

    def __post_init__(self) -> None:
        self.size = sum(self.sizes)


def piece(first: int, items: Sequence[Any], sizes: Sequence[int] = (), kind: Any = None) -> Piece:
    """Return a piece of neighbouring records."""
    return Piece(first - 1, range(first, first + len(items)), items, sizes or (0,) * len(items), kind)


class Line:
    """``is_bound`` tells whether a record must not be the last one before a cut, because the next one belongs to it."""

    def __init__(self, end: int, limits: Limits, is_bound: Callable[[Any], bool] | None = None) -> None:
        self.limits = limits
        self.end = end
        """Last number before which no record is missing."""
        self.pieces: deque[Piece] = deque()
        self._is_bound = is_bound
        self._entries = self._bytes = 0
        self._ahead: SortedDict[int, Piece] = SortedDict()
        self._ahead_entries = self._ahead_bytes = 0
        self._goal = end
        """Highest number that is known to exist although it is not here."""

    def __len__(self) -> int:
        """Return the number of waiting records."""
        return self._entries + self._ahead_entries

    @property
    def has_room(self) -> bool:
        """Tell whether there is room for an answer."""
        return self._entries < self.limits.entries and self._bytes < self.limits.bytes

    # ---- inputs

    def add(self, came: Piece) -> int:
        """Take in a piece; return by how much the gapless part grew."""
        before = self.end
        if came.after > before:
            self.hold(came)
            return 0
        self.put(came)
        while (held := self.release()) is not None:
            self.put(held)
        return self.end - before

    def hold(self, came: Piece) -> bool:
        """Keep a piece that came too early; return whether there was room. A piece without records also shows a gap."""
        self._goal = max(self._goal, came.after)
        if not came.numbers:
            return True
        known = self._ahead.get(came.after)
        if known is not None and len(known.numbers) >= len(came.numbers):
            return True
        if known is not None:
            self._forget(self._ahead.pop(came.after))
        is_over = self._ahead_bytes + came.size > self.limits.bytes
        if self._ahead and (is_over or self._ahead_entries + len(came.numbers) > self.limits.entries):
            self._goal = max(self._goal, came.numbers[-1])
            return False
        self._ahead[came.after] = came
        self._ahead_entries += len(came.numbers)
        self._ahead_bytes += came.size
        return True

    def release(self) -> Piece | None:
        """Remove and return the first piece ahead, if it is the next one now."""
        if not self._ahead or self._ahead.peekitem(0)[0] > self.end:
            return None
        held: Piece = self._ahead.popitem(0)[1]
        self._forget(held)
        return held

    def _forget(self, held: Piece) -> None:
        self._ahead_entries -= len(held.numbers)
        self._ahead_bytes -= held.size

    def put(self, came: Piece) -> Piece | None:
        """Take in the next piece; return its new records that found room, or None."""
        invariant(came.after <= self.end, "a piece in order leaves no gap", after=came.after, end=self.end)
        start = bisect_right(came.numbers, self.end)
        stop = self._fitting(came, start)
        if stop < len(came.numbers):
            self._goal = max(self._goal, came.numbers[-1])
        if stop <= start:
            return None
        fresh = came
        if stop - start < len(came.numbers):
            part = slice(start, stop)
            fresh = Piece(max(came.after, self.end), came.numbers[part], came.items[part], came.sizes[part], came.kind)
        self.pieces.append(fresh)
        self._entries += len(fresh.numbers)
        self._bytes += fresh.size
        self.end = fresh.numbers[-1]
        return fresh

    def _fitting(self, came: Piece, start: int) -> int:
        """Return up to which record of a piece there is room; at least one record when none waits."""
        room, room_bytes = self.limits.entries - self._entries, self.limits.bytes - self._bytes
        stop = len(came.numbers)
        if stop - start <= room and came.size <= room_bytes:
            return stop
        least = start + (not self.pieces)
        sums = list(accumulate(came.sizes[start:]))
        fits = max(min(start + room, start + bisect_right(sums, room_bytes), stop), min(least, stop))
        while self._is_bound is not None and fits < stop and fits > start + 1 and self._is_bound(came.items[fits - 1]):
            fits -= 1
        return fits

    # ---- output

    def gap(self) -> Range | None:
        """Return the first range of records that exist and did not come; None when there is none."""
        last = self._ahead.peekitem(0)[0] if self._ahead else self._goal
        return (self.end + 1, last) if last > self.end else None

    def pop(self) -> Piece:
        """Remove and return the next piece, for the disk; there must be one."""
        taken = self.pieces.popleft()
        self._entries -= len(taken.numbers)
        self._bytes -= taken.size
        return taken

    def restart(self, end: int) -> None:
        """Forget all records; the next one is that after ``end``."""
        self.end = self._goal = end
        self.pieces.clear()
        self._ahead.clear()
        self._entries = self._bytes = self._ahead_entries = self._ahead_bytes = 0
