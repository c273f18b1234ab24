"""Input of commands: an argument, a file, or standard input, with a limit and clear errors."""

from __future__ import annotations

import bz2
import gzip
import lzma
import sys
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import typer

from brokerha.cli.common.terminal import progress
from brokerha.model.errors import InvalidRequest, TooLarge
from brokerha.model.operations import BODY_LIMIT_BYTES, TOO_LARGE

STANDARD_INPUT = "-"

_DECOMPRESSORS: dict[str, Callable[[BinaryIO], object]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
"""How to open compressed files, by suffix."""


def read_text(argument: str | None, file: Path | None, what: str) -> str:
    """Read the text of an argument (``-`` for standard input) or of a file; exactly one of the two must be given.

    Raises typer.BadParameter (usage), InvalidRequest (not UTF-8), TooLarge.
    """
    return as_text(read_bytes(argument, file, what), what)


def as_text(content: bytes, what: str) -> str:
    """Decode UTF-8, with or without a byte order mark. Raises InvalidRequest for other bytes."""
    content = content.removeprefix(BOM_UTF8)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{what} is not UTF-8: byte {error.start} is 0x{content[error.start]:02x}; save it as UTF-8") from None


def read_bytes(argument: str | None, file: Path | None, what: str, advice: str = TOO_LARGE) -> bytes:
    """Read the bytes of an argument (``-`` for standard input) or of a file; exactly one of the two must be given."""
    with first_bytes(argument, file, what) as (content, whole):
        if whole is not None:
            raise TooLarge(f"{what} is larger than {BODY_LIMIT_BYTES} bytes, the limit of one transaction: {advice}")
        return content


@contextmanager
def first_bytes(argument: str | None, file: Path | None, what: str) -> Iterator[tuple[bytes, Source | None]]:
    """Read as `read_bytes`; for an input longer than a transaction yield its beginning, and the whole as an open input."""
    if (argument is None) == (file is None):
        raise typer.BadParameter(f"give {what} as one argument, as --file FILE, or as - for standard input")
    if argument is not None and argument != STANDARD_INPUT:
        yield argument.encode("utf-8", "surrogateescape"), None
        return
    with opened(str(file) if file is not None else STANDARD_INPUT) as source:
        content = source.content.read(BODY_LIMIT_BYTES + 1)
        whole = source._replace(content=cast("BinaryIO", Begun(content, source.content)))
        yield content, whole if len(content) > BODY_LIMIT_BYTES else None


class Source(NamedTuple):
    """An open input."""

    content: BinaryIO
    """Decompressed content."""
    raw: BinaryIO
    """The file itself: its position shows the progress, also of a compressed file."""
    size_bytes: int | None
    """Size of the file; None for standard input and for pipes."""


@contextmanager
def opened(name: str, advice: str = "") -> Iterator[Source]:
    """Open a file, decompressed by its suffix, or standard input for ``-``. Raises typer.BadParameter, with advice, when unreadable."""
    if name == STANDARD_INPUT:
        yield Source(sys.stdin.buffer, sys.stdin.buffer, None)
        return
    path = Path(name)
    try:
        with path.open("rb") as raw:
            decompress = _DECOMPRESSORS.get(path.suffix)
            content = cast("BinaryIO", decompress(raw)) if decompress is not None else raw
            yield Source(content, raw, path.stat().st_size if path.is_file() else None)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise typer.BadParameter(f"{name} cannot be read: {getattr(error, 'strerror', None) or error}{advice}") from None


@contextmanager
def read_progress(name: str, source: Source) -> Iterator[Callable[[], None]]:
    """Show the progress of reading an input: call the yielded function after each read."""
    with progress(name, source.size_bytes, "bytes") as meter:
        read_bytes = 0

        def look() -> None:
            nonlocal read_bytes
            if source.size_bytes is not None:
                before, read_bytes = read_bytes, source.raw.tell()
                meter.advance(read_bytes - before)

        yield look


def plain_suffix(name: str) -> str:
    """Return the suffix for the content of a file, without that of its compression.

    >>> plain_suffix("schema.nt.xz")
    '.nt'
    """
    path = Path(name)
    return (path.with_suffix("") if path.suffix in _DECOMPRESSORS else path).suffix.lower()


class Begun:
    """A file whose beginning has been read already."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head = head
        self._rest = rest

    def read(self, size: int, /) -> bytes:
        """Return at most ``size`` bytes; empty at the end."""
        data, self._head = self._head[:size], self._head[size:]
        return data or self._rest.read(size)
