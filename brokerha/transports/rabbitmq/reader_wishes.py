"""Requests of the loop to the reading half of its link, which acts on them in its next turn.

    loop ── doors, followed, sightings ──> reading half, which owns the channels

Each outlives connections: a new connection finds the present wishes.
"""

from __future__ import annotations

from brokerha.model.ids import NodeId


class Sightings:
    """Nodes that were heard, and nodes whose inbox was seen at this broker."""

    def __init__(self) -> None:
        self._heard: set[NodeId] = set()
        self._seen: set[NodeId] = set()
        self._fresh: list[NodeId] = []

    def hear(self, node: NodeId) -> None:
        """Note the first message of a node."""
        self._heard.add(node)
        self._fresh.append(node)

    @property
    def is_new(self) -> bool:
        """Whether a node was heard that was not looked for yet."""
        return bool(self._fresh)

    def begin(self) -> None:
        """Look for all nodes again with a new connection: inboxes seen through another one are possibly gone, or not back yet."""
        self._fresh = sorted(self._heard)

    def take(self) -> list[NodeId]:
        """Return the nodes to look for now."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def see(self, node: NodeId) -> None:
        """Note that its inbox exists."""
        self._seen.add(node)

    def was_seen(self, node: NodeId) -> bool:
        """Tell whether its inbox ever existed."""
        return node in self._seen


class Doors:
    """The wanted messages of apps."""

    def __init__(self, *, is_serving: bool) -> None:
        self.is_sharing = True
        """Whether to take writes for any master; counts while the other door is open."""
        self.is_serving = is_serving
        """Whether to take any messages of apps."""
        self.closings = 0
        """Number of closings of that door: earlier messages must be given back, even if it is open again."""

    def serve(self, is_open: bool) -> None:
        """Open or close the door for everything; only the loop calls it."""
        self.is_serving = is_open
        if not is_open:
            self.closings += 1


class Followed:
    """Wanted queues of transactions, each with the number of its wish, so that a repeated wish is a new one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._wanted: dict[str, int] = {}
        self.version = 0
        """Grows with every wish."""

    def follow(self, queue: str) -> bool:
        """Want a queue from now on; return False when there are too many."""
        if queue not in self._wanted and len(self._wanted) >= self._most:
            return False
        self.version += 1
        self._wanted[queue] = self.version
        return True

    def leave(self, queue: str) -> None:
        """Stop wanting a queue."""
        if self._wanted.pop(queue, None) is not None:
            self.version += 1

    def read(self) -> tuple[int, dict[str, int]]:
        """Return the version, and the number of the wish for each queue."""
        return self.version, dict(self._wanted)

    def gone(self, queue: str, number: int) -> None:
        """Forget this wish for a missing queue, but not a later one."""
        if self._wanted.get(queue) == number:
            del self._wanted[queue]
