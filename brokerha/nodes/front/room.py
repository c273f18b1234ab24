"""Room for messages that are settled but wait here for a thread: the window of the reader does not bound them.

room.enter(size_bytes)      NotReady when it is full
room.leave(size_bytes)      from any thread
"""

from __future__ import annotations

from threading import Lock
from typing import Final

from brokerha.model.errors import NotReady
from brokerha.model.ids import NodeId

ROOM_COUNT: Final = 1000
ROOM_BYTES: Final = 128 << 20
"""Most messages of one kind that wait at one time, and their bytes; one alone can be longer."""


class Room:
    """Counts the messages of one kind."""

    def __init__(self, node: NodeId, what: str) -> None:
        """``what`` names them in the refusal."""
        self._node = node
        self._what = what
        self._lock = Lock()
        self._count = self._bytes = 0

    def enter(self, size_bytes: int) -> None:
        """Take a message in. Raises NotReady."""
        with self._lock:
            if self._count and (self._count >= ROOM_COUNT or self._bytes + size_bytes > ROOM_BYTES):
                raise NotReady(
                    f"{self._count} {self._what} of apps, {self._bytes >> 20} MiB, wait at {self._node} already, which takes "
                    f"{ROOM_COUNT}, or {ROOM_BYTES >> 20} MiB, at one time: try again"
                )
            self._count += 1
            self._bytes += size_bytes

    def leave(self, size_bytes: int) -> None:
        """Let a message go that was taken in."""
        with self._lock:
            self._count -= 1
            self._bytes -= size_bytes
