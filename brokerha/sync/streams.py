"""Streams and the incoming queue: entries that are known here and not yet synchronised.

Each origin's entries form a stream, numbered from 0, in the order in which the origin stamped them, so that one count
says what a master holds of it. All entries that are held and not yet added stand, sorted by (timestamp, transaction
id), in the incoming queue: that is the paper's *incoming queue*, and merging into it is its *MERGE*.

    stream of m2     0 1 2 3 4 5 6 | 7 8 9            | 10 11
                     used (added)  | held, incoming   | waiting: announced, body not here yet
                                     count = 10

Invariants: an entry is held only when its body is (S8: nobody posts an entry whose body it lacks); entries of one
stream have strictly growing timestamps; ``used <= count``; entries are kept in memory until they are added and every member has
confirmed them, at most a few windows beyond; older ones are read from the journal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from operator import lt

from sortedcontainers import SortedList

from brokerha.model.ids import Entry, NodeId, Timestamp, TxId
from brokerha.model.invariants import invariant

Incoming = tuple[Timestamp, TxId, NodeId, int]
"""One place in the incoming queue: (timestamp, transaction id, origin, number in its stream)."""

FORGET_STEP = 512
"""Entries are dropped from memory in steps, because cutting a list's head costs its length."""


class Asking:
    """What was asked for of the bodies that a stream waits for; bodies.py reads and writes it."""

    def __init__(self) -> None:
        self.announced: deque[tuple[int, int]] = deque()
        """(number after the last entry, when) of each post that announced some, oldest first."""
        self.overdue = 0
        """Entries below this number were announced so long ago that their bodies should be here."""
        self.end = 0
        """Entries below this number were asked for."""
        self.count = 0
        """How many entries were held when it was looked at last."""
        self.tries = 0
        """How often the same was asked for in vain."""
        self.again_at_ms: int | None = None
        """When to ask again for what was asked for; None when nothing was."""

    def forget(self) -> None:
        """Nothing is missing."""
        self.announced.clear()
        self.tries, self.again_at_ms = 0, None


class Stream:
    """One origin's entries."""

    def __init__(self, origin: NodeId, start: int, entries: list[Entry], used: int) -> None:
        self.origin = origin
        self.start = start
        self.entries = entries
        self.used = used
        self.count = start + len(entries)
        """How many entries are held, which is the number of the next one."""
        self.waiting: list[Entry] = []
        """Announced entries from number `count` on whose bodies are not all here."""
        self.last: Timestamp = entries[-1][0] if entries else 0
        self.asking = Asking()

    @property
    def announced(self) -> int:
        """How many entries are known to exist, held or waiting."""
        return self.count + len(self.waiting)

    def announce(self, start: int, entries: Sequence[Entry], limit: int, mono_ms: int) -> None:
        """Take in what a post lists from number ``start`` on; what is known, leaves a gap or is over ``limit`` is left out."""
        skip = self.announced - start
        if skip < 0 or skip >= len(entries):
            return
        room = limit - len(self.waiting)
        if room <= 0:
            return
        fresh = entries[skip : skip + room]
        last = self.waiting[-1][0] if self.waiting else self.last
        for entry in fresh:
            if entry[0] <= last:
                break
            last = entry[0]
            self.waiting.append(entry)
        self.asking.announced.append((self.announced, mono_ms))

    def hold(self, entries: Sequence[Entry]) -> int:
        """Append entries whose bodies are here; return the number of the first."""
        first = self.count
        times = [self.last, *[entry[0] for entry in entries]]
        invariant(all(map(lt, times, times[1:])), "timestamps of a stream grow", origin=self.origin, entries=entries)
        self.last = times[-1]
        self.entries.extend(entries)
        self.count += len(entries)
        return first

    def between(self, start: int, limit: int) -> list[Entry]:
        """Held entries from number ``start`` on, as far as they are in memory; empty when ``start`` is older."""
        place = start - self.start
        return self.entries[place : place + limit] if place >= 0 else []

    @property
    def is_long(self) -> bool:
        """Whether so much of it is added that some may be forgotten."""
        return self.used - self.start >= FORGET_STEP

    def forget(self, below: int) -> None:
        """Drop entries below a number from memory, as far as they are added."""
        place = min(below, self.used) - self.start
        if place >= FORGET_STEP:
            del self.entries[:place]
            self.start += place


class IncomingQueue:
    """All held entries that are not yet synchronised, sorted by (timestamp, transaction id)."""

    def __init__(self) -> None:
        self._queue: SortedList[Incoming] = SortedList()
        self.count = 0
        """How many wait."""

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Incoming]:
        yield from self._queue

    def merge(self, entries: Iterable[Incoming]) -> None:
        """Put entries at their sorting places (MERGE)."""
        self._queue.update(entries)
        self.count = len(self._queue)

    def common_prefix(self, up_to: Timestamp, held: dict[NodeId, int]) -> list[Incoming]:
        """Entries, from the head on, up to a timestamp that are held where they have to be.

        ``held`` says of each origin how many of its entries every required member holds; the first entry that is not
        among them ends the prefix, because nothing may overtake it.
        """
        prefix: list[Incoming] = []
        for entry in self._queue:
            if entry[0] > up_to or entry[3] >= held.get(entry[2], 0):
                break
            prefix.append(entry)
        return prefix

    def remove_head(self, count: int) -> None:
        """Take the first ``count`` entries out: they were added, or dropped as duplicates."""
        del self._queue[:count]
        self.count -= count

    def head(self) -> Incoming | None:
        """The entry that has to be added next, or None."""
        return self._queue[0] if self.count else None
