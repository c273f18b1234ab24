r"""A file with lines of the log, part of an incremental backup (BACKUP.md, section 3).

    "brokerha lines 1\n"
    block   u64 first LSN | u32 count | u32 size | u32 CRC-32 of these three and of the body | body
    block   ...                                               body: msgpack list of [txid, timestamp, outcome, reason, effect, fingerprint]

Blocks follow each other without gap or overlap, and numbers are big-endian. A block has at most 1,000 lines and ends with the
line that reaches 1 MiB, so a reader or writer holds at most that and one line. A reader checks a whole block before it yields a
line. It knows size and SHA-256 of the file from the manifest, so a file that was cut between two blocks does not pass for a
shorter log.

`pages` reads lines from a source: a worker's own log, a journal, a master behind a connection.

    for lsn, row in pages(store.logged, 1, 5000): ...

The page size starts small and doubles while pages stay small, so that memory holds neither many large effects nor a long log. A
missing line raises an error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from os import SEEK_CUR
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple
from zlib import crc32

import msgpack

from brokerha.model.errors import StoreDamaged, StoreError
from brokerha.model.ids import Lsn
from brokerha.model.operations import LoggedRow
from brokerha.stores.files.environment import store_errors
from brokerha.stores.tables.key_range import in_batches

PAGE_LINES = 16
"""Lines of the first page; doubled up to the next constant while pages stay small."""
PAGE_LINES_MOST = 1_024
PAGE_BYTES = 4 * 1024 * 1024
HEAD = b"brokerha lines 1\n"
BLOCK_LINES = 1_000
BLOCK_BYTES = 1024 * 1024
BODY_LIMIT_BYTES = 1024 * 1024 * 1024
"""Limit of a block; a longer one is damage, and must not be read into memory."""

_RANGE = Struct(">QII")
_SUM = Struct(">I")

Lines = Iterable[tuple[Lsn, LoggedRow]]
"""Lines of the log with their LSNs, in order."""


class LinesMissing(StoreError):
    """The log does not have this line, or no longer."""


def row_of(line: Sequence[Any]) -> LoggedRow:
    """Return a line in its form on the wire and on disk."""
    txid, timestamp, outcome, reason, effect, fingerprint = line
    return txid, timestamp, outcome, reason, effect, fingerprint


def pages(logged: Callable[[Lsn, Lsn], list[Any]], first_lsn: Lsn, last_lsn: Lsn) -> Iterator[tuple[Lsn, LoggedRow]]:
    """Yield lines of a log in pages that start small. Raises LinesMissing at the first missing line."""
    following, count = first_lsn, PAGE_LINES
    while following <= last_lsn:
        with store_errors("cannot read the log"):
            found = logged(following, min(following + count - 1, last_lsn))
        if not found:
            raise LinesMissing(f"LSN {following} is not in the log (any more)")
        size_bytes = 0
        for row in found:
            yield following, row_of(row)
            following += 1
            size_bytes += len(row[4])
        count = min(2 * count, PAGE_LINES_MOST) if size_bytes < PAGE_BYTES // 2 else max(1, count // 2)


class Written(NamedTuple):
    """Result of a write."""

    last_lsn: Lsn
    last: LoggedRow
    size_bytes: int
    sha256: str


def write_lines(file: Any, lines: Lines, note: Callable[[int], None] = lambda _bytes: None) -> Written:
    """Write all lines, at least one, into an open file. ``note`` is called with the size of each block."""
    digest = hashlib.sha256(HEAD)
    file.write(HEAD)
    size_bytes = len(HEAD)
    last: tuple[Lsn, LoggedRow] | None = None
    packed: Iterator[tuple[Lsn, bytes]] = ((lsn, msgpack.packb(tuple(row))) for lsn, row in lines)
    for each in in_batches(packed, lambda line: len(line[1]), BLOCK_LINES, BLOCK_BYTES):
        first_lsn, rows = each[0][0], [row for _, row in each]
        body: bytes = b"".join((msgpack.Packer().pack_array_header(len(rows)), *rows))
        head = _RANGE.pack(first_lsn, len(rows), len(body))
        block = head + _SUM.pack(crc32(body, crc32(head))) + body
        file.write(block)
        digest.update(block)
        size_bytes += len(block)
        last = (first_lsn + len(rows) - 1, row_of(msgpack.unpackb(rows[-1])))
        note(len(block))
    if last is None:
        raise StoreError("there are no lines to write")
    return Written(*last, size_bytes, digest.hexdigest())


def read_lines(
    path: Path, first_lsn: Lsn, last_lsn: Lsn, note: Callable[[bytes], None] = lambda _data: None, from_lsn: Lsn = 0
) -> Iterator[tuple[Lsn, LoggedRow]]:
    """Yield all lines of a file with exactly these LSNs. ``note`` gets every byte that was read. Raises StoreDamaged.

    Blocks that end before ``from_lsn`` are skipped unchecked, for readers of a part.
    """
    following = first_lsn
    with path.open("rb") as file:
        head = file.read(len(HEAD))
        note(head)
        if head != HEAD:
            raise StoreDamaged(f"{path.name} does not begin as lines of the log do")
        while head := file.read(_RANGE.size + _SUM.size):
            note(head)
            if len(head) == _RANGE.size + _SUM.size:
                block_first, count, size_bytes = _RANGE.unpack_from(head)
                if block_first == following and following + count <= from_lsn:
                    file.seek(size_bytes, SEEK_CUR)
                    following += count
                    continue
            rows = _read_block(file, head, following, path.name, note)
            for row in rows:
                yield following, row
                following += 1
    if following != last_lsn + 1:
        raise StoreDamaged(f"{path.name} ends with LSN {following - 1}, not with {last_lsn}")


def _read_block(file: Any, head: bytes, following: Lsn, name: str, note: Callable[[bytes], None]) -> list[LoggedRow]:
    where = f"{name} is damaged at LSN {following}"
    if len(head) < _RANGE.size + _SUM.size:
        raise StoreDamaged(f"{where}: it ends inside of a block")
    first_lsn, count, size_bytes = _RANGE.unpack_from(head)
    if first_lsn != following or size_bytes > BODY_LIMIT_BYTES:
        raise StoreDamaged(f"{where}: the head of a block is not what was written")
    body = file.read(size_bytes)
    note(body)
    if _SUM.unpack_from(head, _RANGE.size)[0] != crc32(body, crc32(head[: _RANGE.size])):
        raise StoreDamaged(f"{where}: a checksum differs")
    rows = [row_of(row) for row in msgpack.unpackb(body)]
    if len(rows) != count:
        raise StoreDamaged(f"{where}: {len(rows)} lines instead of {count}")
    return rows
