"""Makes pictures of the screen small: a PNG with a palette of at most 256 colours instead of three bytes for each pixel.

What a browser paints has few colours, and those of smoothed edges are close to others: nobody sees a difference, and the
file has half of the size or less. Only PNGs as browsers write them can be read: 8 bits for each channel, not interlaced.
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

MOST_COLOURS: Final = 256
_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_CHANNELS: Final = {2: 3, 6: 4}
"""Bytes of a pixel by PNG's colour type: red, green and blue, and with transparency."""
_PALETTE: Final = 3

Colour = tuple[int, int, int]


class Picture(NamedTuple):
    """Rows of pixels; transparency is left out, since pages have none."""

    width: int
    rows: list[list[Colour]]


def shrink(file: Path) -> int:
    """Write a picture again with a palette, if that is smaller; its bytes afterwards."""
    before = file.read_bytes()
    after = with_palette(read(before))
    if len(after) < len(before):
        file.write_bytes(after)
    return min(len(before), len(after))


def read(png: bytes) -> Picture:
    """The pixels of a PNG. Raises ValueError for one of another kind."""
    chunks = list(_chunks(png))
    width, _height, depth, kind, _compression, _filter, interlace = struct.unpack(">IIBBBBB", chunks[0][1])
    if depth != 8 or kind not in _CHANNELS or interlace:
        raise ValueError(f"a PNG of colour type {kind} with {depth} bits, interlaced {interlace}, is not read here")
    channels = _CHANNELS[kind]
    raw = zlib.decompress(b"".join(content for name, content in chunks if name == b"IDAT"))
    step = width * channels
    rows, above = [], bytes(step)
    for start in range(0, len(raw), step + 1):
        above = _unfiltered(raw[start], raw[start + 1 : start + 1 + step], above, channels)
        rows.append(list(zip(above[0::channels], above[1::channels], above[2::channels], strict=True)))
    return Picture(width, rows)


def with_palette(picture: Picture) -> bytes:
    """A PNG of the most frequent colours; each other one becomes the nearest of them."""
    counted = Counter(colour for row in picture.rows for colour in row)
    palette = [colour for colour, _ in counted.most_common(MOST_COLOURS)]
    places = {colour: place for place, colour in enumerate(palette)}
    for colour in counted.keys() - places.keys():
        places[colour] = min(range(len(palette)), key=lambda place: _distance(palette[place], colour))
    lines = b"".join(b"\0" + bytes(map(places.__getitem__, row)) for row in picture.rows)
    head = struct.pack(">IIBBBBB", picture.width, len(picture.rows), 8, _PALETTE, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"PLTE", b"".join(map(bytes, palette))), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return _SIGNATURE + b"".join(_chunk(name, content) for name, content in chunks)


def _distance(one: Colour, other: Colour) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    if not png.startswith(_SIGNATURE):
        raise ValueError("this is no PNG")
    place = len(_SIGNATURE)
    while place < len(png):
        length, name = struct.unpack_from(">I4s", png, place)
        yield name, png[place + 8 : place + 8 + length]
        place += 12 + length


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def _unfiltered(kind: int, line: bytes, above: bytes, channels: int) -> bytes:
    """One row as it was before PNG's filter: none, left, above, mean of both, or Paeth's."""
    if kind == 0:
        return line
    row = bytearray(line)
    if kind == 2:
        return bytes((a + b) & 255 for a, b in zip(row, above, strict=True))
    for place, value in enumerate(row):
        left = row[place - channels] if place >= channels else 0
        corner = above[place - channels] if place >= channels else 0
        guess = {1: left, 3: (left + above[place]) >> 1}[kind] if kind != 4 else _paeth(left, above[place], corner)
        row[place] = (value + guess) & 255
    return bytes(row)


def _paeth(left: int, above: int, corner: int) -> int:
    to_left, to_above, to_corner = abs(above - corner), abs(left - corner), abs(left + above - 2 * corner)
    if to_left <= to_above and to_left <= to_corner:
        return left
    return above if to_above <= to_corner else corner
