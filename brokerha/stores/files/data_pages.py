"""Check with ordinary reads that LMDB can walk through the pages of a file.

LMDB trusts its pages. A page that a disk has emptied or mixed up ends the process (SIGABRT), or hides a key. So this module walks
all tables from their roots before LMDB does, without the memory map:

    head -> table of tables -> each table: branch page -> branch page -> leaf page        each once, all at one depth
                                                              `-> first page of a long value (not its content)

    each page      holds its own number, has the kind that its place requires, and its nodes lie within it
    each key       is greater than the one before it, and within the bounds of the branches above it
    each table     has as many pages of each kind and as many keys as its head says

Values have their own checksums. The file can be in use: a read transaction keeps all pages of its state unchanged, so the head of
that transaction is walked. Without a read transaction, no process must write meanwhile.

Layout: LMDB 0.9 on a 64-bit machine in its own byte order. Must never write. Must check each number before it is used.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct, error
from typing import Final, NamedTuple

from brokerha.model.errors import StoreDamaged
from brokerha.stores.files.environment import BRANCH, HEADER_BYTES, LEAF, NO_PAGE, NODE, PAGE, Damaged, heads, store_errors

_TABLE: Final = Struct("=I H H Q Q Q Q Q")
_FREE_AT: Final = 40
_TABLES_AT: Final = 88
"""Offsets of the two tables in a head."""
_OVERFLOW: Final = 0x04
_PAGE_COUNT: Final = Struct("=12x I")
_NUMBER: Final = Struct("=Q")
_IS_LONG, _IS_TABLE, _IS_DUPLICATE = 0x01, 0x02, 0x04
"""Flags of a node: its value has pages of its own, is a table, is one of several values of its key."""
_ORDER_OF_ITS_OWN: Final = 0x02 | 0x04 | 0x08
"""Flags of a table whose keys are not in byte order, or have several values."""
_DEPTH_LIMIT: Final = 32
_PAGES_AT_ONCE: Final = 64


class _Table(NamedTuple):
    """The head of a table."""

    unused: int
    flags: int
    depth: int
    branch_pages: int
    leaf_pages: int
    overflow_pages: int
    keys: int
    root: int


class _Place(NamedTuple):
    """A page to check."""

    number: int
    depth: int
    low: bytes
    """Inclusive lower bound of its keys."""
    high: bytes | None
    """Exclusive upper bound of its keys; None for no bound."""


def check_pages(path: Path) -> None:
    """Raise StoreDamaged when a page in use cannot be walked, and StoreError when the file cannot be read.

    No process writes meanwhile. A missing or empty file is fine.
    """
    with store_errors(f"cannot check {path}"):
        if path.exists() and path.stat().st_size > 0:
            HeldPages(path).check(lambda: None)


class HeldPages:
    """The pages of one state of a file: the newest, or that of a read transaction. Raises StoreDamaged."""

    def __init__(self, path: Path, transaction: int | None = None) -> None:
        """``transaction`` is the number of a read transaction that stays open; at most one commit has followed it."""
        self._path = path
        with path.open("rb", buffering=0) as file, self._damage():
            found = heads(file.fileno())
            self._head = max(found, key=lambda each: each.number)
            if transaction is not None:
                self._head = next((each for each in found if each.number == transaction), self._head)
                if self._head.number != transaction:
                    raise Damaged("the head of the present state is not there")
            place = (self._head.number & 1) * self._head.page_bytes
            self._raw = os.pread(file.fileno(), self._head.page_bytes, place)

    def check(self, may_go_on: Callable[[], None]) -> None:
        """Walk all of them; ``may_go_on`` is called regularly. Raises StoreDamaged, and the exceptions of ``may_go_on``."""
        with self._path.open("rb", buffering=0) as file, self._damage():
            held_pages = os.fstat(file.fileno()).st_size // self._head.page_bytes
            walk = _Walk(file.fileno(), self._head.page_bytes, held_pages, may_go_on)
            walk.table("free pages", _Table(*_TABLE.unpack_from(self._raw, _FREE_AT)), is_ordered=False)
            tables = walk.table("tables", _Table(*_TABLE.unpack_from(self._raw, _TABLES_AT)))
            for name, table in tables.items():
                walk.table(name.decode(errors="replace"), table, is_ordered=not table.flags & _ORDER_OF_ITS_OWN)

    @contextmanager
    def _damage(self) -> Iterator[None]:
        try:
            yield
        except (Damaged, error) as problem:
            raise StoreDamaged(f"{self._path.name} has a damaged page: {problem}; take the content from another worker") from None


class _Walk:
    """One walk through a file."""

    def __init__(self, descriptor: int, page_bytes: int, held_pages: int, may_go_on: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._page_bytes = page_bytes
        self._held_pages = held_pages
        self._may_go_on = may_go_on
        self._seen = bytearray(held_pages)
        self._looked = 0
        self._counts = [0, 0, 0, 0]
        """Branch pages, leaf pages, pages of long values, and keys of the present table."""
        self._tables: dict[bytes, _Table] = {}

    def table(self, name: str, table: _Table, *, is_ordered: bool = True) -> dict[bytes, _Table]:
        """Walk a table; return the tables in it. Raises Damaged."""
        self._counts, self._tables = [0, 0, 0, 0], {}
        if table.root != NO_PAGE:
            if not 0 < table.depth <= _DEPTH_LIMIT:
                raise Damaged(f"the table {name} has an impossible depth")
            waiting = [_Place(table.root, 1, b"", None)]
            while waiting:
                waiting += self._page(waiting.pop(), table.depth, is_ordered=is_ordered)
        promised = [table.branch_pages, table.leaf_pages, table.overflow_pages, table.keys]
        if self._counts != promised:
            raise Damaged(f"the table {name} has {self._counts} pages and keys, its head says {promised}")
        return self._tables

    def _page(self, place: _Place, depth: int, *, is_ordered: bool) -> list[_Place]:
        """Check a page; return the pages below it. Raises Damaged."""
        page = self._read(place.number, self._page_bytes)
        number, _, flags, lower, upper = PAGE.unpack_from(page)
        kind = LEAF if place.depth == depth else BRANCH
        if number != place.number or flags != kind:
            raise Damaged(f"page {place.number} says that it is page {number} of kind {flags}, not of kind {kind}")
        if not HEADER_BYTES < lower <= upper <= self._page_bytes or lower % 2:
            raise Damaged(f"page {place.number} is not as full as it says")
        offsets = Struct(f"={(lower - HEADER_BYTES) // 2}H").unpack_from(page, HEADER_BYTES)
        if min(offsets) < upper or max(offsets) + NODE.size > self._page_bytes:
            raise Damaged(f"page {place.number} has a node outside of it")
        if kind == LEAF:
            self._counts[1] += 1
            self._counts[3] += len(offsets)
            keys = self._leaf_keys(page, offsets)
        else:
            self._counts[0] += 1
            # LMDB never reads the first key of a branch: it stands for all keys below the second.
            keys = [place.low, *(self._key(page, offset) for offset in offsets[1:])]
        if is_ordered:
            _check_order(keys, place)
        if kind == LEAF:
            return []
        highs = [*keys[1:], place.high]
        return [
            _Place(_child(page, offset), place.depth + 1, low, high) for offset, low, high in zip(offsets, keys, highs, strict=True)
        ]

    def _key(self, page: bytes, offset: int) -> bytes:
        _, _, _, key_bytes = NODE.unpack_from(page, offset)
        end = offset + NODE.size + key_bytes
        if end > self._page_bytes:
            raise Damaged("a key goes over the end of its page")
        return page[offset + NODE.size : end]

    def _leaf_keys(self, page: bytes, offsets: tuple[int, ...]) -> list[bytes]:
        keys = []
        unpack, node_bytes, page_bytes = NODE.unpack_from, NODE.size, self._page_bytes
        for offset in offsets:
            low, high, flags, key_bytes = unpack(page, offset)
            end = offset + node_bytes + key_bytes
            value_bytes = low | high << 16
            if end + (_NUMBER.size if flags & _IS_LONG else value_bytes) > page_bytes:
                raise Damaged("a value goes over the end of its page")
            key = page[offset + node_bytes : end]
            keys.append(key)
            if flags & _IS_LONG:
                self._long_value(_NUMBER.unpack_from(page, end)[0], value_bytes)
            elif flags & (_IS_TABLE | _IS_DUPLICATE) == _IS_TABLE:
                self._tables[key] = _Table(*_TABLE.unpack_from(page, end))
        return keys

    def _long_value(self, first: int, value_bytes: int) -> None:
        raw = self._read(first, HEADER_BYTES)
        number, _, flags, _, _ = PAGE.unpack_from(raw)
        (count,) = _PAGE_COUNT.unpack_from(raw)
        is_right = number == first and flags == _OVERFLOW and first + count <= self._held_pages
        if not is_right or value_bytes > count * self._page_bytes - HEADER_BYTES:
            raise Damaged(f"page {first} should hold a value of {value_bytes} bytes, and is another one")
        self._counts[2] += count

    def _read(self, number: int, count_bytes: int) -> bytes:
        """Return the beginning of a page that was not read before."""
        if not 1 < number < self._held_pages or self._seen[number]:
            raise Damaged(f"page {number} is not in the file, or in use twice")
        self._seen[number] = 1
        self._looked += 1
        if self._looked % _PAGES_AT_ONCE == 0:
            self._may_go_on()
        return os.pread(self._descriptor, count_bytes, number * self._page_bytes)


def _child(page: bytes, offset: int) -> int:
    low, high, highest, _ = NODE.unpack_from(page, offset)
    return int(low | high << 16 | highest << 32)


def _check_order(keys: list[bytes], place: _Place) -> None:
    if any(map(operator.ge, keys, keys[1:])):
        raise Damaged(f"the keys of page {place.number} are not in their order")
    if keys[0] < place.low or (place.high is not None and keys[-1] >= place.high):
        raise Damaged(f"page {place.number} has keys that belong elsewhere")
