"""A picture is the same after it was made small, as far as 256 colours reach."""

from __future__ import annotations

import random
import struct
import zlib
from pathlib import Path

import pytest

from tests.support.page_pictures import FOLDER
from tests.support.small_png import MOST_COLOURS, Picture, read, shrink, with_palette

LARGEST_BYTES = 150_000
SIGNATURE = b"\x89PNG\r\n\x1a\n"


def chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def png(width: int, lines: list[bytes], kind: int = 2, depth: int = 8) -> bytes:
    """A PNG of lines that are filtered already."""
    head = struct.pack(">IIBBBBB", width, len(lines), depth, kind, 0, 0, 0)
    return SIGNATURE + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"".join(lines))) + chunk(b"IEND", b"")


def test_every_filter_is_undone() -> None:
    # Given a picture of two columns, each row written with another filter, by PNG's specification
    none = b"\0" + bytes([10, 20, 30, 11, 22, 33])
    left = b"\1" + bytes([10, 20, 30, 1, 2, 3])
    above = b"\2" + bytes([5, 5, 5, 255, 255, 255])
    mean = b"\3" + bytes([3, 8, 13, 1, 1, 1])
    paeth = b"\4" + bytes([1, 1, 1, 1, 1, 1])

    rows = read(png(2, [none, left, above, mean, paeth])).rows

    assert rows[0] == rows[1] == [(10, 20, 30), (11, 22, 33)]
    assert rows[2] == [(15, 25, 35), (10, 21, 32)]
    assert rows[3] == [(10, 20, 30), (11, 21, 32)]
    assert rows[4] == [(11, 21, 31), (12, 22, 33)]


def test_transparency_is_left_out() -> None:
    assert read(png(1, [b"\0" + bytes([1, 2, 3, 255])], kind=6)).rows == [[(1, 2, 3)]]


def test_few_colours_stay_as_they_are_and_the_file_is_smaller(tmp_path: Path) -> None:
    drawn = random.Random(7)
    rows = [bytes(drawn.choice((0, 128, 255)) for _ in range(3 * 100)) for _ in range(50)]
    file = tmp_path / "picture.png"
    file.write_bytes(png(100, [b"\0" + row for row in rows]))
    before, size = read(file.read_bytes()), file.stat().st_size

    assert shrink(file) == file.stat().st_size < size
    written = file.read_bytes()
    head, palette = written[8:33], written[33:]
    assert struct.unpack(">IIBB", head[8:18]) == (100, 50, 8, 3)
    colours = struct.unpack(">I", palette[:4])[0] // 3
    assert colours == len({colour for row in before.rows for colour in row}) == 27
    # And what the palette says of each pixel is what it was
    table = [tuple(palette[8 + 3 * n : 11 + 3 * n]) for n in range(colours)]
    data = palette[palette.index(b"IDAT") + 4 :]
    lines = zlib.decompress(data[: -4 - 12])
    assert [[table[place] for place in lines[1 + 101 * n : 101 * (n + 1)]] for n in range(50)] == before.rows


def test_rare_colours_become_the_nearest() -> None:
    # Given one colour more than there is room for, seen once
    common = [(n, 0, 0) for n in range(MOST_COLOURS)]
    rows = [common, common, [(7, 1, 0), *common[1:]]]

    small = with_palette(Picture(MOST_COLOURS, rows))

    lines = zlib.decompress(small[small.index(b"IDAT") + 4 : -16])
    palette = small[small.index(b"PLTE") + 4 :]
    place = lines[2 * (MOST_COLOURS + 1) + 1]
    assert tuple(palette[3 * place : 3 * place + 3]) == (7, 0, 0)


@pytest.mark.parametrize("content", [b"GIF89a", png(1, [b"\0\0"], kind=0), png(1, [b"\0" + bytes(6)], depth=16)])
def test_what_no_browser_writes_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="PNG"):
        read(content)


def test_the_pictures_of_the_pages_were_made_small() -> None:
    pictures = list(FOLDER.glob("*.png"))

    assert pictures
    assert {file.name: file.stat().st_size for file in pictures if file.stat().st_size > LARGEST_BYTES} == {}
