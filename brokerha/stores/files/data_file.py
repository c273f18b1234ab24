"""Check that an LMDB data file is complete, before LMDB maps it into memory.

LMDB reads its file through the memory map and trusts its own page numbers. A page after the end of a truncated file kills the
process with SIGBUS instead of raising an error. So this module reads the file with ordinary reads first:

    meta pages 0 and 1  ->  the newer one names the last page ever used and the list of free pages
    file long enough for the last page          complete
    shorter, and every missing page is free     complete too: LMDB does not write pages that it used and freed in one transaction
                                                (frequent after deletes, half of all commits in a trial)
    anything else                               truncated

Layout: LMDB 0.9 on a 64-bit machine in its own byte order. Must never write. Must check each number before it is used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from struct import Struct, error
from typing import NamedTuple

from brokerha.model.errors import StoreDamaged

_MAGIC = 0xBEEFC0DE
HEADER_BYTES = 16
_META = Struct("=16x I I 8x 8x I H H Q Q Q Q Q 48x Q Q")
"""Page header; magic, version, address, map size; table of free pages (page size, flags, depth, branch pages, leaf pages,
overflow pages, entries, root); table of tables; last page, transaction number."""
PAGE = Struct("=Q H H H H")
NODE = Struct("=H H H H")
_NUMBER = Struct("=Q")
BRANCH, LEAF = 0x01, 0x02
_ON_OVERFLOW_PAGES = 0x01
NO_PAGE = 0xFFFF_FFFF_FFFF_FFFF
_DEPTH_LIMIT = 32


class Head(NamedTuple):
    """Content of one of the two heads."""

    page_bytes: int
    free_root: int
    last_page: int
    number: int
    """Number of the transaction that wrote it."""


class Damaged(Exception):
    """The file contradicts itself."""


def check_data_file(path: Path) -> None:
    """Raise StoreDamaged when the LMDB file at ``path`` lacks pages that are in use. A missing file is fine."""
    if not path.exists() or path.stat().st_size == 0:
        return
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            _check(file.fileno(), size)
        except (Damaged, error, OverflowError) as problem:
            # OverflowError: page numbers that lie beyond any file.
            raise StoreDamaged(
                f"{path.name} ({size} bytes) is damaged or cut off: {problem}; take the content from another worker"
            ) from None


def _check(descriptor: int, size_bytes: int) -> None:
    meta = max(heads(descriptor), key=lambda head: head.number)
    held_pages = size_bytes // meta.page_bytes
    missing = meta.last_page + 1 - held_pages
    if missing > 0:
        free = {page for page in _free_pages(descriptor, meta) if held_pages <= page <= meta.last_page}
        if len(free) != missing:
            raise Damaged(f"{missing - len(free)} pages in use lie after its end")


def heads(descriptor: int) -> list[Head]:
    """Return both heads of a file, or the valid one. Raises Damaged."""
    first = os.pread(descriptor, _META.size, 0)
    metas = []
    page_bytes = _meta(first).page_bytes
    for offset in (0, page_bytes):
        try:
            metas.append(_meta(os.pread(descriptor, _META.size, offset)))
        except (Damaged, error):
            continue
    if not metas:
        raise Damaged("it has no valid head")
    return metas


def _meta(raw: bytes) -> Head:
    magic, version, page_bytes, _, _, _, _, _, _, free_root, last_page, number = _META.unpack(raw)
    if magic != _MAGIC or version != 1 or page_bytes < 512 or page_bytes & (page_bytes - 1):
        raise Damaged("its head is not one of LMDB 0.9")
    return Head(page_bytes, free_root, last_page, number)


def _free_pages(descriptor: int, meta: Head) -> Iterator[int]:
    """Yield the numbers of all free pages: the values of a small B+ tree, each a count and that many page numbers."""
    if meta.free_root == NO_PAGE:
        return
    waiting = [(meta.free_root, 0)]
    while waiting:
        number, depth = waiting.pop()
        page = _read(descriptor, meta, number, 1)
        if depth > _DEPTH_LIMIT:
            raise Damaged("its list of free pages is endless")
        _, _, flags, lower, _ = PAGE.unpack_from(page)
        for place in range(HEADER_BYTES, lower, 2):
            offset = int.from_bytes(page[place : place + 2], sys.byteorder)
            low, high, node_flags, key_bytes = NODE.unpack_from(page, offset)
            if flags & BRANCH:
                waiting.append((low | high << 16 | node_flags << 32, depth + 1))
            elif flags & LEAF:
                yield from _numbers(descriptor, meta, page[offset + NODE.size + key_bytes :], low | high << 16, node_flags)
            else:
                raise Damaged(f"page {number} is not part of its list of free pages")


def _numbers(descriptor: int, meta: Head, data: bytes, data_bytes: int, node_flags: int) -> Iterator[int]:
    if node_flags & _ON_OVERFLOW_PAGES:
        (first,) = _NUMBER.unpack_from(data)
        pages = (HEADER_BYTES - 1 + data_bytes) // meta.page_bytes + 1
        data = _read(descriptor, meta, first, pages)[HEADER_BYTES:]
    count = _NUMBER.unpack_from(data)[0]
    if (count + 1) * _NUMBER.size > data_bytes:
        raise Damaged("its list of free pages is damaged")
    for index in range(1, count + 1):
        yield _NUMBER.unpack_from(data, index * _NUMBER.size)[0]


def _read(descriptor: int, meta: Head, page: int, count: int) -> bytes:
    raw = os.pread(descriptor, count * meta.page_bytes, page * meta.page_bytes)
    if len(raw) != count * meta.page_bytes:
        raise Damaged("its list of free pages lies after its end")
    return raw
