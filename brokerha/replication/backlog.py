"""The backlog of a worker: what came and waits for the store, in LSN order, and what came too early.

    applied   queued            held
    ... 6     7 8 9     . .     12 13        gap: 10 to 11

`queued` pieces follow each other without a gap and go to the store; `held` ones wait for what is missing between, so that
only that is asked for. Both together are bounded; what would exceed the bound is dropped and comes again. A piece that came
too early and was dropped still shows the gap before it.

>>> backlog = Backlog(0, limit=10)
>>> backlog.add(False, 1, ("a", "b")), backlog.add(False, 4, ("d",)), backlog.gap()
(2, 0, (3, 3))
>>> backlog.add(False, 3, ("c",)), backlog.gap(), backlog.queued
(1, None, 4)
"""

from __future__ import annotations

from collections import deque
from typing import Any

from sortedcontainers import SortedDict

from brokerha.model.ids import Lsn

Items = tuple[Any, ...]


class Backlog:
    """Pieces of (is it to be executed, first LSN, items)."""

    def __init__(self, applied: Lsn, limit: int) -> None:
        self.limit = limit
        self.applied = applied
        self.queued = applied
        """Last LSN before which nothing is missing."""
        self._pieces: deque[tuple[bool, Lsn, Items]] = deque()
        self._held: SortedDict[Lsn, tuple[bool, Items]] = SortedDict()
        self._held_count = 0
        self._dropped: Lsn | None = None
        """Lowest first LSN of what came too early and found no room."""

    def __len__(self) -> int:
        """Transactions that wait, those with the store included."""
        return self.queued - self.applied + self._held_count

    @property
    def has_pieces(self) -> bool:
        """Whether something can go to the store."""
        return bool(self._pieces)

    def add(self, is_execute: bool, first: Lsn, items: Items) -> int:
        """Take in a piece; returns by how much the gapless part grew because of it (0 for one that is held or known)."""
        before = self.queued
        fresh = items[max(0, self.queued + 1 - first) :]
        first = max(first, self.queued + 1)
        if first > self.queued + 1:
            self._hold(is_execute, first, fresh)
            return 0
        fresh = fresh[: max(0, self.limit - len(self))]
        if not fresh:
            return 0
        self._queue(is_execute, first, fresh)
        while self._held and self._held.peekitem(0)[0] <= self.queued + 1:
            first, (is_execute, held_items) = self._held.popitem(0)
            self._held_count -= len(held_items)
            rest = held_items[self.queued + 1 - first :]
            if rest:
                self._queue(is_execute, self.queued + 1, rest)
        self._forget_dropped()
        return self.queued - before

    def _hold(self, is_execute: bool, first: Lsn, items: Items) -> None:
        """Keep a piece that came too early; only half of the room, so that what is missing always finds some."""
        before = self._held.get(first)
        known = len(before[1]) if before is not None else 0
        room = min(self.limit // 2 - self._held_count, self.limit - len(self))
        fresh = items[: max(0, room + known)]
        if len(fresh) > known:
            self._held_count += len(fresh) - known
            self._held[first] = (is_execute, fresh)
        elif items and not known and (self._dropped is None or first < self._dropped):
            self._dropped = first

    def _forget_dropped(self) -> None:
        """What was dropped shows no gap any more once nothing is missing before it."""
        if self._dropped is not None and self._dropped <= self.queued + 1:
            self._dropped = None

    def _queue(self, is_execute: bool, first: Lsn, items: Items) -> None:
        self._pieces.append((is_execute, first, items))
        self.queued += len(items)

    def gap(self) -> tuple[Lsn, Lsn] | None:
        """The first range that is missing although later ones came; both ends included."""
        shown = [first for first in (self._dropped, next(iter(self._held), None)) if first is not None]
        return (self.queued + 1, min(shown) - 1) if shown else None

    def take(self, items_limit: int, bytes_limit: int) -> tuple[bool, Lsn, Items]:
        """The next pieces of one kind, put together; there has to be one."""
        is_execute, first, _ = self._pieces[0]
        items: list[Any] = []
        size = 0
        while self._pieces and self._pieces[0][0] == is_execute and len(items) < items_limit:
            piece = self._pieces.popleft()[2]
            items.extend(piece)
            # The body of a transaction, or the effect in a line of the log.
            size += sum(len(item[2 if is_execute else 4]) for item in piece)
            if size >= bytes_limit:
                break
        return is_execute, first, tuple(items)

    def on_applied(self, applied: Lsn) -> None:
        """The store stands at ``applied``."""
        self.applied = applied
        self.queued = max(self.queued, applied)
        self._forget_dropped()

    def restart(self, applied: Lsn) -> None:
        """Forget everything; the next record is ``applied`` + 1."""
        self.applied = self.queued = applied
        self._pieces.clear()
        self._held.clear()
        self._held_count = 0
        self._dropped = None
