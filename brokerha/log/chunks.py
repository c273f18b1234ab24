"""The chunks of a snapshot of a log: its files one after the other, each cut into pieces of equal size, the last one of a file may be short.

The list comes from another process, so nothing of it is used before it was checked here.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

from brokerha.model.errors import JournalError
from brokerha.ports.copies import Snapshot

SUM_BYTES = 32
CHUNK_LIMIT_BYTES = 64 * 1024 * 1024
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")


class Place(NamedTuple):
    """Where a chunk lies."""

    file: str
    offset: int
    size: int


class Chunks:
    """Where each chunk of a snapshot lies, and whether bytes are those of a chunk. Raises JournalError when it contradicts itself."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._chunk_bytes = snapshot.chunk_bytes
        if not 0 < self._chunk_bytes <= CHUNK_LIMIT_BYTES:
            raise JournalError(f"the snapshot has chunks of {self._chunk_bytes} bytes")
        self.sizes: dict[str, int] = {}
        self._firsts: list[int] = []
        self._sums = b""
        for name, size, sums in snapshot.files:
            count = (size + self._chunk_bytes - 1) // self._chunk_bytes
            if not _NAME.fullmatch(name) or name in self.sizes or size < 0:
                raise JournalError(f"the snapshot has a file {name!r} of {size} bytes: it is none of a log")
            if len(sums) != count * SUM_BYTES:
                raise JournalError(f"the snapshot gives {len(sums)} bytes of sums for {count} chunks of {name}")
            self._firsts.append(len(self))
            self.sizes[name] = size
            self._sums += sums
        if not self._sums:
            raise JournalError("the snapshot has no chunks: it is none of a log")
        self._names = list(self.sizes)

    def __len__(self) -> int:
        return len(self._sums) // SUM_BYTES

    def place(self, number: int) -> Place | None:
        """Where a chunk lies; None for a number that there is not."""
        if not 0 <= number < len(self):
            return None
        at = bisect_right(self._firsts, number) - 1
        while not self.sizes[self._names[at]]:
            at -= 1
        offset = (number - self._firsts[at]) * self._chunk_bytes
        return Place(self._names[at], offset, min(self._chunk_bytes, self.sizes[self._names[at]] - offset))

    def is_right(self, number: int, data: bytes) -> bool:
        """Whether these are the bytes of a chunk."""
        place = self.place(number)
        if place is None or len(data) != place.size:
            return False
        return sha256(data).digest() == self._sums[number * SUM_BYTES : (number + 1) * SUM_BYTES]


def sums_of(pieces: Iterable[bytes]) -> bytes:
    """SHA-256 of each chunk, one after the other."""
    return b"".join(sha256(piece).digest() for piece in pieces)
