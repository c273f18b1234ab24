"""The chunks of a journal's snapshot: one file, cut into pieces of equal size, the last one may be short.

The list comes from another process, so nothing of it is used before it was checked here.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from brokerha.model.errors import JournalError
from brokerha.ports.copies import Snapshot

SUM_BYTES = 32
CHUNK_LIMIT_BYTES = 64 * 1024 * 1024


class Chunks:
    """Where each chunk of a snapshot lies in the file ``name``, and whether bytes are those of a chunk.

    Raises JournalError when the snapshot has other files, or contradicts itself.
    """

    def __init__(self, snapshot: Snapshot, name: str) -> None:
        if [path for path, _, _ in snapshot.files] != [name]:
            raise JournalError(f"the snapshot has other files than {name}: it is none of a journal")
        _, self.size_bytes, self._sums = snapshot.files[0]
        self._chunk_bytes = snapshot.chunk_bytes
        if not 0 < self._chunk_bytes <= CHUNK_LIMIT_BYTES or self.size_bytes <= 0:
            raise JournalError(f"the snapshot has chunks of {self._chunk_bytes} and a file of {self.size_bytes} bytes")
        if len(self._sums) != len(self) * SUM_BYTES:
            raise JournalError(f"the snapshot gives {len(self._sums)} bytes of sums for {len(self)} chunks")

    def __len__(self) -> int:
        return (self.size_bytes + self._chunk_bytes - 1) // self._chunk_bytes

    def place(self, number: int) -> tuple[int, int]:
        """(offset, size in bytes) of a chunk; the size is 0 for a number that there is not."""
        offset = number * self._chunk_bytes
        return offset, max(0, min(self._chunk_bytes, self.size_bytes - offset)) if number >= 0 else 0

    def is_right(self, number: int, data: bytes) -> bool:
        """Whether these are the bytes of a chunk."""
        if not data or len(data) != self.place(number)[1]:
            return False
        return sha256(data).digest() == self._sums[number * SUM_BYTES : (number + 1) * SUM_BYTES]


def sums_of(pieces: Iterable[bytes]) -> bytes:
    """SHA-256 of each chunk, one after the other."""
    return b"".join(sha256(piece).digest() for piece in pieces)
