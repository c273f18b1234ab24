"""Which LSN each transaction id has: the newest ids in memory, all others in the table `ids`, written by key range.

Ids come in any order (a client's idempotency key may be random), so that writing each row at once would touch one page
of the table per id: measured with 500,000 ids, 23 us per transaction instead of 5. Here new ids wait in memory, sorted
into 512 partitions by checksum, and a turn writes the one or two partitions that waited longest: many rows to a page.

    new ids --> buffer of partition p --(when too many wait)--> rows of partition p in `ids`
                                                                partition p+1 is the next

Nothing is lost by waiting: the `Added` records are durable, and a restart reads those from `first_waiting` on again.

Ids that come with the state of another master (`IdsTaken`) have no `Added` record: the turn that brings them writes all buffers. So
does the one that ends it (`StateTaken`), because the `Added` records go with it.

Invariants: each id with an LSN at or above `first_waiting` is in a buffer or in the table, each below is in the table;
`trim` never drops an `Added` record at or above it. A row is written again at most with the same LSN.
Going back (`Rewound`) deletes ids in both places, and lowers `first_waiting` to the LSNs that are given anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from zlib import crc32

import lmdb

from brokerha.journal.database import Table
from brokerha.journal.rows import ID_PREFIXES, PARTITION_SHIFT, PARTITIONS, id_rows, read_id_row
from brokerha.model.ids import Lsn, Ordered, TxId

Get = Callable[[bytes], bytes | None]
"""Reads one row of the table `ids`."""
ReadRows = Callable[[bytes, int], list[tuple[bytes, bytes]]]
"""Reads rows of the table `ids`: from a key on, so many."""

KEY_BYTES = 512
"""No key is longer."""


class KnownIds:
    """The buffers in front of the table `ids`, at most about ``limit`` ids long."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffers: list[dict[bytes, Lsn]] = [{} for _ in range(PARTITIONS)]
        self._first_waiting: list[Lsn] = [1] * PARTITIONS
        """Of each partition: every id with a lower LSN is in the table."""
        self._next = 0
        """The partition that was written longest ago."""
        self._waiting = 0
        self._is_due = False
        """Whether all buffers are to be written with the next turn."""

    def start(self, first_waiting: Lsn) -> None:
        """Begin with empty buffers: every id with a lower LSN is in the table."""
        self._first_waiting = [first_waiting] * PARTITIONS

    def add(self, first_lsn: Lsn, entries: tuple[Ordered, ...]) -> None:
        """Take over the ids of an `Added` record."""
        buffers = self._buffers
        for lsn, (_, txid, _) in enumerate(entries, first_lsn):
            key = txid.encode()
            buffers[crc32(key) >> PARTITION_SHIFT][key] = lsn
        self._waiting += len(entries)

    def take(self, ids: Iterable[tuple[TxId, Lsn]]) -> None:
        """Take over ids that no `Added` record has."""
        for txid, lsn in ids:
            key = txid.encode()
            buffer = self._buffers[crc32(key) >> PARTITION_SHIFT]
            self._waiting += key not in buffer
            buffer[key] = lsn
        self.write_all_next()

    def write_all_next(self) -> None:
        """Have all buffers written with the next turn, because nothing else will say what is in them."""
        self._is_due = True

    def page(self, after: bytes, limit: int, read: ReadRows) -> list[tuple[bytes, Lsn]]:
        """Up to ``limit`` ids behind a key of the table, in its order, by their keys; fewer at the end. Raises BadRow."""
        rows = read(after + b"\0" if after else b"", limit)
        end = rows[-1][0] if len(rows) == limit else b"\xff" * KEY_BYTES
        waiting: dict[bytes, Lsn] = {}
        first = int.from_bytes(after[:2].ljust(2, b"\0"), "big")
        for partition in range(min(first, PARTITIONS), PARTITIONS):
            prefix = ID_PREFIXES[partition]
            if prefix > end or len(waiting) >= limit:
                break
            for key, lsn in self._buffers[partition].items():
                if after < prefix + key <= end:
                    waiting[prefix + key] = lsn
        found = {**{key: read_id_row(key[2:], row) for key, row in rows}, **waiting}
        return sorted(found.items())[:limit]

    def go_back(self, first_lsn: Lsn, txids: Iterable[str], txn: lmdb.Transaction, table: Table) -> None:
        """Forget ids whose LSNs, from ``first_lsn`` on, are given up, here and in the table; the LSNs are given anew."""
        keys = [(crc32(key) >> PARTITION_SHIFT, key) for key in (txid.encode() for txid in txids)]
        for partition, key in sorted(keys):
            if self._buffers[partition].pop(key, None) is not None:
                self._waiting -= 1
            txn.delete(ID_PREFIXES[partition] + key, db=table)
        self._first_waiting = [min(first_lsn, first) for first in self._first_waiting]

    def find(self, txid: str, get: Get) -> Lsn | None:
        """Return the LSN of an id, or None. Raises BadRow."""
        key = txid.encode()
        partition = crc32(key) >> PARTITION_SHIFT
        lsn = self._buffers[partition].get(key)
        if lsn is not None:
            return lsn
        row = get(ID_PREFIXES[partition] + key)
        return None if row is None else read_id_row(key, row)

    @property
    def first_waiting(self) -> Lsn:
        """Lowest LSN whose id may be missing in the table."""
        return self._first_waiting[self._next]

    @property
    def progress(self) -> tuple[int, int]:
        """Changes with everything that is written, also while `first_waiting` stays where it is."""
        return self._next, self._waiting

    def write(self, txn: lmdb.Transaction, table: Table, next_lsn: Lsn, most: int) -> None:
        """Write partitions until no more than the limit wait, but no more than about ``most`` rows."""
        if self._is_due:
            for _ in range(PARTITIONS):
                self._write_one(txn, table, next_lsn)
            self._is_due = False
        while self._waiting > self._limit and most > 0:
            most -= self._write_one(txn, table, next_lsn)

    def write_below(self, lsn: Lsn, txn: lmdb.Transaction, table: Table, next_lsn: Lsn, most: int) -> None:
        """Write partitions until all ids below an LSN are in the table, but no more than about ``most`` rows."""
        while self.first_waiting < lsn and most > 0:
            most -= self._write_one(txn, table, next_lsn)

    def _write_one(self, txn: lmdb.Transaction, table: Table, next_lsn: Lsn) -> int:
        partition, buffer = self._next, self._buffers[self._next]
        count = len(buffer)
        if count:
            with txn.cursor(table) as cursor:
                cursor.putmulti(id_rows(partition, buffer))
            self._buffers[partition] = {}
            self._waiting -= count
        self._first_waiting[partition] = next_lsn
        self._next = (partition + 1) % PARTITIONS
        return count
