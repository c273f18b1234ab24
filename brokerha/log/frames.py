"""The bytes of a segment: frames one after the other, and which of them count after a crash.

    0-3    length of the payload
    4-7    offset in the file of the write that this frame belongs to
    8-15   number << 8 | kind
    16-23  xxh3-64 of bytes 0 to 15 and the payload, seeded with the journal and the segment
    24-    payload, then zeros up to a multiple of 8

Each `append` is one write, and its last frame is marked: all of its frames count, or none. Bytes before a write were synced
before it, so each frame proves that the bytes before its write were durable. That decides about a damaged frame (`scan`):

    no whole frame after it, or only frames of the same write     end of the log: a crash tore a write that was never confirmed
    a whole frame of a later write after it                         damage: it was durable, and peers can count on it

Must never accept a frame with a wrong checksum, or cut off bytes that a later write proves durable.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any, NamedTuple

import msgpack
from xxhash import xxh3_64_intdigest

from brokerha.model.errors import JournalDamaged

HEAD = Struct("<IIQQ")
HEAD_BYTES = HEAD.size
_SUMMED = Struct("<IIQ")
SUM = Struct("<Q")
RECORD, TRIMMED, BEGIN, NOTHING = 0, 1, 3, 4
"""Kinds: a record; a trim; the identity of the segment, its first frame; an empty last frame of a write."""
LAST = 0x80
"""Flag in the kind of the last frame of a write: without it no frame of the write counts."""
MOST_BYTES = 1 << 31

WHAT_TO_DO = (
    "this node's copy is damaged, its peers hold the same data: stop the node, move the directory away and keep it as it is; an older "
    "copy must not be put in its place (docs/operating.md)"
)


def damaged(place: str, what: str) -> JournalDamaged:
    """Return the error that names the damage, the place, and what to do."""
    return JournalDamaged(f"{what} in {place}", WHAT_TO_DO)


class Frame(NamedTuple):
    """A whole frame."""

    offset: int
    number: int
    kind: int
    batch: int
    """Offset at which its write began."""
    payload: bytes
    end: int
    """Offset of the next frame."""


def seed_of(journal: str, segment: int) -> int:
    """Return the seed of the checksums in a segment, so that a frame of another journal or segment is rejected."""
    return xxh3_64_intdigest(f"{journal} {segment}".encode())


def pack_into(out: bytearray, batch: int, number: int, kind: int, payload: bytes, seed: int) -> int:
    """Add a frame of the write that begins at offset ``batch``; return its size in bytes."""
    size = len(payload)
    summed = _SUMMED.pack(size, batch, number << 8 | kind)
    out += summed
    out += SUM.pack(xxh3_64_intdigest(summed + payload, seed))
    out += payload
    padding = -size & 7
    if padding:
        out += bytes(padding)
    return HEAD_BYTES + size + padding


def read_at(data: bytes | bytearray | memoryview, offset: int, seed: int) -> Frame | None:
    """Return the frame at an offset, or None when there is no whole one."""
    if offset + HEAD_BYTES > len(data):
        return None
    size, batch, key, wanted = HEAD.unpack_from(data, offset)
    start = offset + HEAD_BYTES
    if size > len(data) - start or not key | wanted:
        return None
    payload = bytes(data[start : start + size])
    if xxh3_64_intdigest(bytes(data[offset : offset + 16]) + payload, seed) != wanted:
        return None
    return Frame(offset, key >> 8, key & 0xFF, batch, payload, start + size + (-size & 7))


def scan(data: bytes, seed: int, place: str) -> Iterator[Frame]:
    """Yield the frames of all whole writes in a segment, in order. Raises JournalDamaged for damage before the end."""
    begin = offset = 0
    write: list[Frame] = []
    while (frame := read_at(data, offset, seed)) is not None and frame.batch == begin:
        write.append(frame)
        offset = frame.end
        if frame.kind & LAST:
            yield from write
            begin, write = offset, []
    if (later := _written_after(data, begin, seed)) is not None:
        raise damaged(
            place,
            f"the bytes from offset {begin:,} on, which were durable before those at {later:,} were written, are not what was written",
        )


def _written_after(data: bytes, bad: int, seed: int) -> int | None:
    """Return the offset of a whole frame of a later write after ``bad``; None when there is none."""
    rest = data.rstrip(b"\0")
    for offset in range(bad + 8, len(rest) - 16, 8):
        size, batch = HEAD.unpack_from(data, offset)[:2] if offset + HEAD_BYTES <= len(data) else (MOST_BYTES, 0)
        # These two conditions exclude most offsets; the checksum is computed for the rest.
        if bad < batch <= offset and size <= len(data) - offset - HEAD_BYTES and read_at(data, offset, seed) is not None:
            return offset
    return None


def sealed(value: Any) -> bytes:
    """Return the bytes of a small file: xxh3-64 of the rest, and a msgpack value."""
    body: bytes = msgpack.packb(value)
    return SUM.pack(xxh3_64_intdigest(body)) + body


def unsealed(data: bytes, place: str) -> Any:
    """Return the value of a small file. Raises JournalDamaged."""
    if len(data) < SUM.size or xxh3_64_intdigest(data[SUM.size :]) != SUM.unpack_from(data)[0]:
        raise damaged(place, "the file is not what was written")
    return msgpack.unpackb(data[SUM.size :], use_list=False, strict_map_key=False)
