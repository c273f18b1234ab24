"""Lines of a split, in pieces of bounded size, each with the number of its first line.

    bytes of the file   ....start..........................end.......
    lines of the split      [begins behind a line end ........ ends wherever its last line ends]

A split that does not begin at byte 0 leaves out what is before its first line end: that belongs to the one before. Two splits that
touch have each line exactly once. A line over the limit is read on in pieces and shown by its beginning, longer than the limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, NamedTuple

from brokerha.pipeline.loading import LINE_LIMIT_BYTES

_PIECE_BYTES = 1024 * 1024


class Lines(NamedTuple):
    """Some lines one after the other."""

    first_line: int
    """Number of the first one, from 1 within the split."""
    lines: list[bytes]
    """With their ends. One that is longer than the limit is cut behind it."""
    position: int
    """Bytes of the split that are behind them; of a compressed file, bytes of it that were read."""


def pieces(
    content: IO[bytes], raw: IO[bytes], start: int, end: int, lines_limit: int, size_limit: int
) -> Iterator[Lines]:
    """Lines that begin from ``start`` up to before ``end`` (-1: all). Raises what the file raises when it is damaged."""
    position = _seek(content, start)
    first, size = 1, 0
    lines: list[bytes] = []
    while end < 0 or position < end:
        line = content.readline(LINE_LIMIT_BYTES + 1)
        if not line:
            break
        if lines and (len(lines) >= lines_limit or size + len(line) > size_limit):
            yield Lines(first, lines, (raw.tell() if raw is not content else position) - start)
            first, lines, size = first + len(lines), [], 0
        lines.append(line)
        size += len(line)
        position += len(line)
        if len(line) > LINE_LIMIT_BYTES and not line.endswith(b"\n"):
            position += _skip_rest(content)
    if lines:
        yield Lines(first, lines, (raw.tell() if raw is not content else position) - start)


def lines_before(path: str, start: int, end: int) -> int:
    """How many lines begin from byte ``start`` up to before ``end``. Reads that part of the file once. Raises OSError."""
    count = 1 if start == 0 and end > 0 else 0
    with open(path, "rb") as file:  # noqa: PTH123  (a path as text, as a split has it)
        position = max(0, start - 1)
        file.seek(position)
        while position < end - 1:
            piece = file.read(min(_PIECE_BYTES, end - 1 - position))
            if not piece:
                break
            count += piece.count(b"\n")
            position += len(piece)
    return count


def _seek(content: IO[bytes], start: int) -> int:
    """Go to the first line that begins at ``start`` or behind it; returns where that is."""
    if start == 0:
        return 0
    content.seek(start - 1)
    return start - 1 + _skip_rest(content)


def _skip_rest(content: IO[bytes]) -> int:
    """Go behind the next line end; returns how many bytes that were."""
    count = 0
    while piece := content.readline(_PIECE_BYTES):
        count += len(piece)
        if piece.endswith(b"\n"):
            break
    return count
