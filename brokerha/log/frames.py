"""The bytes of a segment: frames one after the other, and which of them count when the file is opened.

    0-3    length of the payload
    4-7    offset in the file at which the write began that brought this frame
    8-15   number << 8 | kind
    16-23  xxh3-64 of bytes 0 to 15 and the payload, seeded with the journal and the segment
    24-    payload, then zeros up to a multiple of 8

Each `append` is one write, and the last frame of it says so: all of its frames count, or none. Everything before the offset at which it began was synced before, so a frame says of all bytes before its
write that they were durable. That decides about a frame that is not what was written (`scan`):

    nothing after it is whole, or only frames of the same write     the end of the log: a write that a crash tore, and nobody was told of
    a whole frame of a later write is after it                      damage: it was durable, and peers may count on it

Must never: take a frame without its sum, or cut off what a later write says was durable.
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
RECORD, TRIMMED, FORGOTTEN, BEGIN, NOTHING = range(5)
"""Kinds: a record; a trim; ids that were forgotten; what segment this is, the first frame of each; no more than the end of a write."""
LAST = 0x80
"""Set in the kind of the last frame of a write: without it nothing of the write counts."""
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
    """Where the write began that brought it."""
    payload: bytes
    end: int
    """Offset of the next one."""


def seed_of(journal: str, segment: int) -> int:
    """Seed of the sums in a segment, so that a frame of another journal, or of another segment, is as bad as a wrong byte."""
    return xxh3_64_intdigest(f"{journal} {segment}".encode())


def pack_into(out: bytearray, batch: int, number: int, kind: int, payload: bytes, seed: int) -> int:
    """Add a frame of the write that begins at offset ``batch``; returns its size in bytes."""
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
    """The frame at an offset, or None when there is no whole one."""
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
    """The frames of all whole writes in a segment, from its beginning to its end. Raises JournalDamaged for damage before the end."""
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
    """Offset of a whole frame after ``bad`` that a later write brought; None when there is none."""
    rest = data.rstrip(b"\0")
    for offset in range(bad + 8, len(rest) - 16, 8):
        size, batch = HEAD.unpack_from(data, offset)[:2] if offset + HEAD_BYTES <= len(data) else (MOST_BYTES, 0)
        # Most offsets are ruled out by these two; a sum is worked out for what is left.
        if bad < batch <= offset and size <= len(data) - offset - HEAD_BYTES and read_at(data, offset, seed) is not None:
            return offset
    return None


def sealed(value: Any) -> bytes:
    """The bytes of a small file: xxh3-64 of the rest, and a msgpack value."""
    body: bytes = msgpack.packb(value)
    return SUM.pack(xxh3_64_intdigest(body)) + body


def unsealed(data: bytes, place: str) -> Any:
    """The value of a small file. Raises JournalDamaged."""
    if len(data) < SUM.size or xxh3_64_intdigest(data[SUM.size :]) != SUM.unpack_from(data)[0]:
        raise damaged(place, "the file is not what was written")
    return msgpack.unpackb(data[SUM.size :], use_list=False, strict_map_key=False)
