"""Key-value tables in one LMDB table, in key order.

    row key    table name, NUL, key         (key_range.py)
    row        digest, 16 bytes | value     the digest is the part of this key in the fingerprint

The digest is in the row for two reasons. Replacing a value needs no second hash of the old one. And LMDB has no checksums of its
own: with the digest, a read finds a value that the disk changed. A table exists from its first key to the deletion of its last.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgpack

from brokerha.model.errors import StoreDamaged, TimedOut
from brokerha.model.fingerprints import DIGEST_BYTES
from brokerha.stores.comparing.fingerprint import key_digest
from brokerha.stores.files.environment import WriteTransaction
from brokerha.stores.tables.key_range import PIECE_LIMIT_BYTES, KeyRange, in_pieces
from brokerha.stores.tables.snapshots import DIRECTORY, Snapshots

_ROWS_BETWEEN_QUESTIONS = 256
PACE_ITEMS = 1000
"""Items between two calls of `paced`."""


def checked_value(row_key: bytes, row: bytes) -> bytes:
    """Return the value in a row. Raises StoreDamaged when its digest does not match."""
    value = row[DIGEST_BYTES:]
    if key_digest(row_key, value) != row[:DIGEST_BYTES]:
        raise StoreDamaged(f"the value of key {row_key!r} is damaged; take the content from another worker")
    return value


def put_row(transaction: WriteTransaction, keys: Any, row_key: bytes, value: bytes) -> tuple[int, int] | None:
    """Put a value; return the change of (fingerprint, number of keys), or None when the value was there already."""
    digest = key_digest(row_key, value)
    old = transaction.get(row_key, db=keys)
    if old is None:
        transaction.put(row_key, digest + value, db=keys)
        return int.from_bytes(digest, "big"), 1
    row = digest + value
    if old == row:
        return None
    transaction.put(row_key, row, db=keys)
    return int.from_bytes(digest, "big") ^ int.from_bytes(old[:DIGEST_BYTES], "big"), 0


def delete_row(transaction: WriteTransaction, keys: Any, row_key: bytes) -> tuple[int, int] | None:
    """Delete a key; return the change of (fingerprint, number of keys), or None when there was no such key."""
    old = transaction.pop(row_key, db=keys)
    return None if old is None else (int.from_bytes(old[:DIGEST_BYTES], "big"), -1)


def stored_value(transaction: Any, keys: Any, row_key: bytes) -> bytes | None:
    """Return the value of a key; None when there is no such key. Raises StoreDamaged."""
    row = transaction.get(row_key, db=keys)
    return None if row is None else checked_value(row_key, row)


def recomputed(transaction: Any, keys: Any, paced: Callable[[int], None]) -> tuple[int, int]:
    """Compute (fingerprint, number of keys) from the values themselves. Raises StoreDamaged at the first damaged one.

    ``paced`` is called with the number of keys so far, at the first key and after each `PACE_ITEMS`.
    """
    fingerprint = count = 0
    with transaction.cursor(keys) as cursor:
        for row_key, row in cursor:
            if count % PACE_ITEMS == 0:
                paced(count)
            checked_value(row_key, row)
            fingerprint ^= int.from_bytes(row[:DIGEST_BYTES], "big")
            count += 1
    return fingerprint, count


def places_from(transaction: Any, table: Any, beginning: bytes) -> Iterator[Any]:
    """Yield one cursor at each row whose key has this beginning, in order; asking for the next row moves it."""
    with transaction.cursor(table) as cursor:
        is_there = cursor.set_range(beginning) if beginning else cursor.first()
        while is_there and cursor.key().startswith(beginning):
            yield cursor
            is_there = cursor.next()


def keys_from(transaction: Any, table: Any, beginning: bytes) -> list[bytes]:
    """Return all row keys with this beginning, in order, without reading their values."""
    return [cursor.key() for cursor in places_from(transaction, table, beginning)]


def rows_as_they_lie(transaction: Any, keys: Any, beginning: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Return row keys with this beginning, in order, with their values, without checking digests."""
    return ((cursor.key(), cursor.value()[DIGEST_BYTES:]) for cursor in places_from(transaction, keys, beginning))


def checked_rows(transaction: Any, keys: Any, beginning: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield row keys with this beginning, in order, with their values. Raises StoreDamaged."""
    for cursor in places_from(transaction, keys, beginning):
        row_key = cursor.key()
        yield row_key, checked_value(row_key, cursor.value())


def snapshots_in(transaction: Any, keys: Any) -> Snapshots:
    """Return all snapshots of tables. Raises StoreDamaged."""
    return Snapshots(row for beginning in DIRECTORY for row in checked_rows(transaction, keys, beginning))


def range_digests(transaction: Any, keys: Any, low: bytes, high: bytes) -> Iterator[bytes]:
    """Yield the digests of the rows from ``low`` to below ``high``. Raises StoreDamaged."""
    with transaction.cursor(keys) as cursor:
        is_there = cursor.set_range(low)
        while is_there and (row_key := cursor.key()) < high:
            row = cursor.value()
            checked_value(row_key, row)
            yield row[:DIGEST_BYTES]
            is_there = cursor.next()


def table_names(transaction: Any, keys: Any) -> Iterator[str]:
    """Yield names of tables that have a key, in byte order, with one seek for each table. Raises StoreDamaged."""
    with transaction.cursor(keys) as cursor:
        is_there = cursor.first()
        while is_there:
            table, _, _ = cursor.key().partition(b"\0")
            try:
                name = table.decode()
            except UnicodeDecodeError:
                raise StoreDamaged(f"the name of table {table!r} is damaged; take the content from another worker") from None
            yield name
            is_there = cursor.set_range(table + b"\1")


def range_pieces(transaction: Any, keys: Any, wanted: KeyRange, may_go_on: Callable[[], bool]) -> Iterator[bytes]:
    """Yield a range as a msgpack list of (key, value), in pieces, all of one LMDB snapshot. Raises TimedOut, StoreDamaged."""
    packer = msgpack.Packer()
    with transaction.cursor(keys) as cursor:
        # A msgpack list begins with its length, so the keys are counted before the values are read.
        count = sum(1 for _ in _rows(cursor, wanted, may_go_on, values=False))
        buffer = bytearray(packer.pack_array_header(count))
        for row_key, row in _rows(cursor, wanted, may_go_on, values=True):
            buffer += packer.pack((row_key[wanted.skip :], checked_value(row_key, row)))
            if len(buffer) >= PIECE_LIMIT_BYTES:
                yield from in_pieces(bytes(buffer))
                buffer.clear()
        yield bytes(buffer)


def range_rows(transaction: Any, keys: Any, wanted: KeyRange, may_go_on: Callable[[], bool]) -> Iterator[tuple[bytes, bytes]]:
    """Yield row keys and values of a range in its order, without its limit. Raises TimedOut, StoreDamaged."""
    with transaction.cursor(keys) as cursor:
        for row_key, row in _rows(cursor, wanted, may_go_on, values=True, limit=sys.maxsize):
            yield row_key, checked_value(row_key, row)


def _rows(
    cursor: Any, wanted: KeyRange, may_go_on: Callable[[], bool], *, values: bool, limit: int | None = None
) -> Iterator[tuple[bytes, bytes]]:
    if not _seek(cursor, wanted):
        return
    step = cursor.prev if wanted.is_reverse else cursor.next
    for number in range(limit or wanted.limit):
        if number % _ROWS_BETWEEN_QUESTIONS == 0 and not may_go_on():
            raise TimedOut("the range was not read in its time")
        row_key = cursor.key()
        if not wanted.low <= row_key < wanted.high:
            return
        yield row_key, cursor.value() if values else b""
        if not step():
            return


def _seek(cursor: Any, wanted: KeyRange) -> bool:
    if not wanted.is_reverse:
        return bool(cursor.set_range(wanted.low))
    # Seek past the highest wanted key, then one back; there may be nothing after it.
    return bool(cursor.prev() if cursor.set_range(wanted.high) else cursor.last())
