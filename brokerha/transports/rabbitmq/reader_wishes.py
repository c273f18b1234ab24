"""What the loop wants of the reading thread: written by the one, read by the other, at any time.

    loop ── settled, doors, followed ──> reading thread, which owns the channels and acts on its next turn

Each outlives connections: a new one finds the wishes as they are now.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from threading import Lock

from brokerha.model.ids import NodeId
from brokerha.transports.lanes import ClientTag


class Sightings:
    """Nodes that were heard, and whose inbox was seen at this broker."""

    def __init__(self) -> None:
        self._heard: set[NodeId] = set()
        self._seen: set[NodeId] = set()
        self._fresh: list[NodeId] = []

    def hear(self, node: NodeId) -> None:
        """A message of this node came for the first time."""
        self._heard.add(node)
        self._fresh.append(node)

    @property
    def is_new(self) -> bool:
        """Whether somebody was heard who was not looked for yet."""
        return bool(self._fresh)

    def begin(self) -> None:
        """A new connection looks for everybody: what was seen through another one may not be there any more, or not yet."""
        self._fresh = sorted(self._heard)

    def take(self) -> list[NodeId]:
        """Whom to look for now."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def see(self, node: NodeId) -> None:
        """Its inbox is there."""
        self._seen.add(node)

    def was_seen(self, node: NodeId) -> bool:
        """Whether its inbox was ever there."""
        return node in self._seen


class Settled:
    """Tags of settled messages on their way from the loop to the reading thread."""

    def __init__(self) -> None:
        self._tags: deque[ClientTag] = deque()

    def add(self, tags: Iterable[ClientTag]) -> None:
        """Callable from any thread; wake the reader afterwards."""
        self._tags.extend(tags)

    def __len__(self) -> int:
        """How many wait to be acknowledged."""
        return len(self._tags)

    def take(self, generation: int) -> list[int]:
        """Delivery tags of this generation; older ones are dropped."""
        taken = []
        while self._tags:
            tag = self._tags.popleft()
            if tag.generation == generation:
                taken.append(tag.delivery_tag)
        return taken


class Doors:
    """Which messages of apps are wanted."""

    def __init__(self, *, is_serving: bool) -> None:
        self.is_sharing = True
        """Writes that any master may take; counts while the other door is open."""
        self.is_serving = is_serving
        """Any at all."""
        self.closings = 0
        """How often that door was closed: what came before must be given back, also if it is open again."""

    def serve(self, is_open: bool) -> None:
        """Open or close the door for everything; only the loop calls it."""
        self.is_serving = is_open
        if not is_open:
            self.closings += 1


class Followed:
    """Queues of transactions that are to be read, each with the number of the wish, so that a later one is another."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = Lock()
        self._wanted: dict[str, int] = {}
        self.version = 0
        """Grows with every wish."""

    def follow(self, queue: str) -> bool:
        """Want a queue from now on; False when there are too many."""
        with self._lock:
            if queue not in self._wanted and len(self._wanted) >= self._most:
                return False
            self.version += 1
            self._wanted[queue] = self.version
            return True

    def leave(self, queue: str) -> None:
        """Want it no longer."""
        with self._lock:
            if self._wanted.pop(queue, None) is not None:
                self.version += 1

    def read(self) -> tuple[int, dict[str, int]]:
        """The version, and the number of the wish for each queue."""
        with self._lock:
            return self.version, dict(self._wanted)

    def gone(self, queue: str, number: int) -> None:
        """The queue is not there (any more): forget this wish, but not one that came after it."""
        with self._lock:
            if self._wanted.get(queue) == number:
                del self._wanted[queue]
