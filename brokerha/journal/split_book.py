"""The split book: what was given up when the synchronised queue went back (`Rewound`), kept for people.

    splits()                     [Split(number=412, epoch=3, lineage=5, keeps_content=False, lsn=100, total=2, stamped=…, held=2)]      oldest first
    given_up(412, 101, 1_000)    [GivenUp(101, "x", "m3", "applied"), GivenUp(102, "y", "m3", "rejected")]

Each `Rewound` is one split, named by the number of its record, also where nothing was given up. It has the old LSNs with their transactions
and what had become of them here, as far as that was known. The last `SPLITS_KEPT` splits stay, and of their entries
`ENTRIES_KEPT` in all: the oldest splits lose theirs first and keep their head line; of a split with more than that the first stay.
The book outlives trimming and forgotten ids, and is a part of each copy of the journal.

On the disk (table `splits`) the key is record number and first LSN of a page; LSN 0 is the head. In memory it is `SplitBook`.

Invariant: the same records give the same book, whatever a journal has trimmed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import lmdb
import msgpack

from brokerha.journal.database import Table
from brokerha.journal.rows import BadRow, added_key, keyed_row, read_added_key, read_keyed_row
from brokerha.model.given_up import GivenUp, Split
from brokerha.model.ids import Lsn

SPLITS_KEPT = 32
ENTRIES_KEPT = 1_000_000
PAGE_ENTRIES = 1_000
"""Entries in one row."""

Rows = Callable[[bytes, int], list[tuple[bytes, bytes]]]
"""Reads rows of the table `splits`: from a key on, so many."""


def losers(heads: Sequence[Split]) -> tuple[list[Split], list[Split]]:
    """Of splits, oldest first: those that go, and those that stay and lose their entries."""
    gone, kept = list(heads[:-SPLITS_KEPT]), heads[-SPLITS_KEPT:]
    entries, emptied = 0, list[Split]()
    for split in reversed(kept):
        entries += split.held
        if entries > ENTRIES_KEPT and split.held:
            emptied.append(split)
    return gone, emptied


@dataclass(slots=True)
class SplitBook:
    """The book of a journal without a disk."""

    splits: dict[int, Split] = field(default_factory=dict)
    entries: dict[int, list[GivenUp]] = field(default_factory=dict)

    def add(self, split: Split, entries: Sequence[GivenUp]) -> None:
        """Take in what a `Rewound` gave up, all of it."""
        held = list(entries[:ENTRIES_KEPT])
        self.splits[split.number], self.entries[split.number] = split._replace(held=len(held)), held
        gone, emptied = losers(list(self.splits.values()))
        for old in emptied:
            self.splits[old.number], self.entries[old.number] = old._replace(held=0), []
        for old in gone:
            del self.splits[old.number], self.entries[old.number]

    def given_up(self, number: int, first_lsn: Lsn, limit: int) -> list[GivenUp]:
        """Up to ``limit`` entries of a split, from an old LSN on."""
        return [entry for entry in self.entries.get(number, []) if entry.lsn >= first_lsn][:limit]

    def copy(self) -> SplitBook:
        """Return an independent copy."""
        return SplitBook(self.splits.copy(), self.entries.copy())

    def packed(self) -> list[Any]:
        """What `unpacked` takes, in plain lists."""
        return [[list(split), [list(entry) for entry in self.entries[n]]] for n, split in self.splits.items()]


def unpacked(data: Sequence[Any]) -> SplitBook:
    """Return the book that `SplitBook.packed` was called on."""
    book = SplitBook()
    for head, entries in data:
        split = Split(*head)
        book.splits[split.number] = split
        book.entries[split.number] = [GivenUp(*entry) for entry in entries]
    return book


# ---------------------------------------------------------------------------- on a disk


def write(txn: lmdb.Transaction, table: Table, split: Split, entries: Sequence[GivenUp]) -> None:
    """Take in what a `Rewound` gave up, all of it, and keep the book within its bounds."""
    held = entries[:ENTRIES_KEPT]
    _put_head(txn, table, split._replace(held=len(held)))
    for start in range(0, len(held), PAGE_ENTRIES):
        page = held[start : start + PAGE_ENTRIES]
        key = added_key(split.number, page[0].lsn)
        txn.put(key, keyed_row(key, msgpack.packb(page)), db=table)
    with txn.cursor(table) as cursor:
        heads = [_read_head(bytes(key), bytes(row)) for key, row in cursor if _is_head(key)]
    gone, emptied = losers(heads)
    for old in emptied:
        _delete(txn, table, old.number)
        _put_head(txn, table, old._replace(held=0))
    for old in gone:
        _delete(txn, table, old.number)


def _put_head(txn: lmdb.Transaction, table: Table, split: Split) -> None:
    key = added_key(split.number, 0)
    txn.put(key, keyed_row(key, msgpack.packb(split[1:])), db=table)


def _delete(txn: lmdb.Transaction, table: Table, number: int) -> None:
    with txn.cursor(table) as cursor:
        found = cursor.set_range(added_key(number, 0))
        keys = [bytes(key) for key, _ in cursor if read_added_key(key)[0] == number] if found else []
    for key in keys:
        txn.delete(key, db=table)


def _is_head(key: bytes | memoryview) -> bool:
    return read_added_key(key)[1] == 0


def _read_head(key: bytes, row: bytes) -> Split:
    try:
        return Split(read_added_key(key)[0], *msgpack.unpackb(read_keyed_row(key, row)))
    except (TypeError, ValueError, msgpack.UnpackException) as error:
        raise BadRow(str(error)) from None


def _read_page(key: bytes, row: bytes) -> list[GivenUp]:
    try:
        return [GivenUp(*entry) for entry in msgpack.unpackb(read_keyed_row(key, row))]
    except (TypeError, ValueError, msgpack.UnpackException) as error:
        raise BadRow(str(error)) from None


def read_splits(rows: Rows) -> list[Split]:
    """All head lines, oldest first. Raises BadRow."""
    found: list[Split] = []
    start = b""
    while page := rows(start, 1):
        ((key, row),) = page
        found.append(_read_head(key, row))
        start = added_key(found[-1].number + 1, 0)
    return found


def read_given_up(rows: Rows, number: int, first_lsn: Lsn, limit: int) -> list[GivenUp]:
    """Up to ``limit`` entries of a split, from an old LSN on. Raises BadRow."""
    found: list[GivenUp] = []
    start = added_key(number, max(1, first_lsn - PAGE_ENTRIES + 1))
    while len(found) < limit and (page := rows(start, 1)):
        ((key, row),) = page
        if read_added_key(key)[0] != number:
            break
        found += [entry for entry in _read_page(key, row) if entry.lsn >= first_lsn]
        start = key + b"\0"
    return found[:limit]


def check_row(key: bytes, row: bytes) -> None:
    """Raise BadRow unless a row of `splits` is what was written."""
    if _is_head(key):
        _read_head(key, row)
    else:
        _read_page(key, row)
