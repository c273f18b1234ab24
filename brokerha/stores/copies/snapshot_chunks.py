"""The chunks of a snapshot: the place of each, and the check of a list of files.

Chunks are numbered over all files in their order; a file of 2.5 chunks takes three numbers, an empty file takes none:

    data/data.mdb           2.5 chunks    0 1 2
    repositories/main.0/A   empty
    repositories/main.0/B   1 chunk       3

The list comes from another process, so it is checked here before use: paths stay inside ``data/`` and ``repositories/``, no path
occurs twice or goes through a file, and sizes agree with the checksums.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from hashlib import sha256
from itertools import accumulate
from typing import NamedTuple

from brokerha.model.errors import StoreError
from brokerha.ports.copies import Snapshot

FOLDERS = ("data", "repositories")
FILES_LIMIT = 1_000_000
CHUNK_LIMIT_BYTES = 64 * 1024 * 1024
SUM_BYTES = 32
_PATH_LIMIT_BYTES = 1000


class Place(NamedTuple):
    """Place and checksum of a chunk."""

    path: str
    offset: int
    size_bytes: int
    sha256: bytes

    def is_right(self, data: bytes) -> bool:
        """Tell whether these are the bytes of the chunk."""
        return len(data) == self.size_bytes and sha256(data).digest() == self.sha256


class Chunks:
    """The chunks of one snapshot. Raises StoreError when the snapshot contradicts itself or leads out of its directory."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._files = snapshot.files
        self._chunk_bytes = snapshot.chunk_bytes
        if not 0 < snapshot.chunk_bytes <= CHUNK_LIMIT_BYTES or len(self._files) > FILES_LIMIT:
            raise StoreError(f"the snapshot has chunks of {snapshot.chunk_bytes} bytes and {len(self._files)} files")
        _check_paths([path for path, _, _ in self._files])
        counts = []
        for path, size_bytes, sums in self._files:
            count = -(-size_bytes // snapshot.chunk_bytes)
            if size_bytes < 0 or len(sums) != count * SUM_BYTES:
                raise StoreError(f"the snapshot gives {len(sums)} bytes of sums for {path!r} of {size_bytes} bytes")
            counts.append(count)
        self._starts = [0, *accumulate(counts)]
        self.size_bytes = sum(size_bytes for _, size_bytes, _ in self._files)

    def __len__(self) -> int:
        return self._starts[-1]

    def place(self, number: int) -> Place | None:
        """Return the place of a chunk; None for an unknown number."""
        if not 0 <= number < len(self):
            return None
        # The last file that begins at or below the number holds it: an empty file begins where the next file does.
        path, size_bytes, sums = self._files[index := bisect_right(self._starts, number) - 1]
        nth = number - self._starts[index]
        offset = nth * self._chunk_bytes
        length = min(self._chunk_bytes, size_bytes - offset)
        return Place(path, offset, length, sums[nth * SUM_BYTES : (nth + 1) * SUM_BYTES])

    def places(self) -> Iterator[tuple[int, Place]]:
        """Yield all chunks in order, file by file."""
        for number in range(len(self)):
            place = self.place(number)
            if place is not None:
                yield number, place


def sums_of(pieces: Iterator[bytes]) -> bytes:
    """Return the SHA-256 of each chunk, concatenated."""
    return b"".join(sha256(piece).digest() for piece in pieces)


def _check_paths(paths: list[str]) -> None:
    files = set(paths)
    if len(files) != len(paths):
        raise StoreError("the snapshot names a file twice")
    for path in paths:
        parts = path.split("/")
        is_plain = all(part not in {"", ".", ".."} and "\0" not in part for part in parts)
        if not is_plain or parts[0] not in FOLDERS or len(parts) < 2 or len(path.encode()) > _PATH_LIMIT_BYTES:
            raise StoreError(f"the snapshot has a file {path[:200]!r}, which does not belong into a copy")
        if any("/".join(parts[:depth]) in files for depth in range(1, len(parts))):
            raise StoreError(f"the snapshot has {path!r} inside of another file")
