"""Streams and the incoming queue: entries that are known here and not yet synchronised.

Each origin's entries form a stream. They are numbered from 0, in the order in which the origin stamped them, so that one count says
how much of the stream a master holds. The incoming queue has all entries that are held and not yet added, sorted by (timestamp,
transaction id). It is the paper's *incoming queue*, and merging into it is its *MERGE*.

    stream of m2     0 1 2 3 4 5 6 | 7 8 9            | 10 11
                     used (added)  | held, incoming   | waiting: announced, body not here yet
                                     count = 10

Invariants: an entry is held only when its body is (S8: no master posts an entry without holding its body); entries of one stream
have strictly growing timestamps; ``used <= count``. Entries stay in memory until they are added and every member has confirmed
them, at most a few windows beyond; older ones are read from the journal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from operator import lt

from sortedcontainers import SortedList

from brokerha.model.ids import Entry, NodeId, Timestamp, TxId
from brokerha.model.invariants import invariant

Incoming = tuple[Timestamp, TxId, NodeId, int]
"""Position in the incoming queue: (timestamp, transaction id, origin, number in its stream)."""

FORGET_STEP = 512
"""Entries leave memory in steps of this size, because cutting a list's head costs its length."""


class Asking:
    """Requests for the bodies that a stream waits for; bodies.py reads and writes it."""

    def __init__(self) -> None:
        self.announced: deque[tuple[int, int]] = deque()
        """(number after the last entry, time) of each post that announced entries, oldest first."""
        self.overdue = 0
        """Entries below this number were announced so long ago that their bodies should be here."""
        self.end = 0
        """Bodies of entries below this number were requested."""
        self.count = 0
        """Number of entries held at the last look."""
        self.tries = 0
        """Number of requests in vain for the same bodies."""
        self.again_at_ms: int | None = None
        """Time of the next request for the same bodies; None when nothing was requested."""

    def forget(self) -> None:
        """Note that no body is missing."""
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
        """Number of entries held, which is the number of the next one."""
        self.waiting: list[Entry] = []
        """Announced entries, from number `count` on, whose bodies are not all here."""
        self.last: Timestamp = entries[-1][0] if entries else 0
        self.asking = Asking()

    @property
    def announced(self) -> int:
        """Number of entries known to exist, held or waiting."""
        return self.count + len(self.waiting)

    def announce(self, start: int, entries: Sequence[Entry], limit: int, mono_ms: int) -> None:
        """Take in the entries of a post from number ``start`` on, without known ones and those after a gap or over ``limit``."""
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
        """Return held entries from number ``start`` on, as far as they are in memory; empty when ``start`` is older."""
        place = start - self.start
        return self.entries[place : place + limit] if place >= 0 else []

    @property
    def is_long(self) -> bool:
        """Tell whether so many entries are added that some can leave memory."""
        return self.used - self.start >= FORGET_STEP

    def forget(self, below: int) -> None:
        """Drop added entries below a number from memory."""
        place = min(below, self.used) - self.start
        if place >= FORGET_STEP:
            del self.entries[:place]
            self.start += place


class IncomingQueue:
    """All held entries that are not yet synchronised, sorted by (timestamp, transaction id)."""

    def __init__(self) -> None:
        self._queue: SortedList[Incoming] = SortedList()
        self.count = 0
        """Number of entries in the queue."""

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Incoming]:
        yield from self._queue

    def merge(self, entries: Iterable[Incoming]) -> None:
        """Put entries at their sorting places (MERGE)."""
        self._queue.update(entries)
        self.count = len(self._queue)

    def common_prefix(self, up_to: Timestamp, held: dict[NodeId, int]) -> list[Incoming]:
        """Return entries, from the head on, up to a timestamp that all required members hold.

        ``held`` gives for each origin how many of its entries every required member holds. The first entry that is not among them
        ends the prefix, because no entry may overtake it.
        """
        prefix: list[Incoming] = []
        for entry in self._queue:
            if entry[0] > up_to or entry[3] >= held.get(entry[2], 0):
                break
            prefix.append(entry)
        return prefix

    def remove_head(self, count: int) -> None:
        """Remove the first ``count`` entries: they were added, or dropped as duplicates."""
        del self._queue[:count]
        self.count -= count

    def head(self) -> Incoming | None:
        """Return the next entry to add, or None."""
        return self._queue[0] if self.count else None
