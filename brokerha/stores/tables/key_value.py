"""Key-value tables in one LMDB table, in key order.

    row key    table name, NUL, key         (key_range.py)
    row        digest, 16 bytes | value     the digest is this key's part of the fingerprint

The digest stands in the row for two reasons: replacing a value needs no second hash of the old one, and a value that the disk
changed is an error when it is read, because LMDB has no checksums of its own. Tables come into being with their first
key and are gone with their last.
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
    """The value in a row. Raises StoreDamaged when it is not what was written."""
    value = row[DIGEST_BYTES:]
    if key_digest(row_key, value) != row[:DIGEST_BYTES]:
        raise StoreDamaged(f"the value of key {row_key!r} is damaged; take the content from another worker")
    return value


def put_row(transaction: WriteTransaction, keys: Any, row_key: bytes, value: bytes) -> tuple[int, int] | None:
    """Put a value; return what that does to (fingerprint, number of keys), or None when the value was there already."""
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
    """Delete a key; return what that does to (fingerprint, number of keys), or None when there was none."""
    old = transaction.pop(row_key, db=keys)
    return None if old is None else (int.from_bytes(old[:DIGEST_BYTES], "big"), -1)


def stored_value(transaction: Any, keys: Any, row_key: bytes) -> bytes | None:
    """The value of a key; None when there is no such key. Raises StoreDamaged."""
    row = transaction.get(row_key, db=keys)
    return None if row is None else checked_value(row_key, row)


def recomputed(transaction: Any, keys: Any, paced: Callable[[int], None]) -> tuple[int, int]:
    """(fingerprint, number of keys) from the values themselves. Raises StoreDamaged at the first that is not what was written.

    ``paced`` is called with the number of keys so far, before the first and after each `PACE_ITEMS`.
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
    """A cursor at each row whose key begins so, in order: it is moved on when the next one is asked for."""
    with transaction.cursor(table) as cursor:
        is_there = cursor.set_range(beginning) if beginning else cursor.first()
        while is_there and cursor.key().startswith(beginning):
            yield cursor
            is_there = cursor.next()


def keys_from(transaction: Any, table: Any, beginning: bytes) -> list[bytes]:
    """All row keys that begin so, in order; their values are not looked at."""
    return [cursor.key() for cursor in places_from(transaction, table, beginning)]


def rows_as_they_lie(transaction: Any, keys: Any, beginning: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Row keys that begin so, in order, with their values, without a look at their digests."""
    return ((cursor.key(), cursor.value()[DIGEST_BYTES:]) for cursor in places_from(transaction, keys, beginning))


def checked_rows(transaction: Any, keys: Any, beginning: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Row keys that begin so, in order, with their values. Raises StoreDamaged."""
    for cursor in places_from(transaction, keys, beginning):
        row_key = cursor.key()
        yield row_key, checked_value(row_key, cursor.value())


def snapshots_in(transaction: Any, keys: Any) -> Snapshots:
    """All snapshots of tables. Raises StoreDamaged."""
    return Snapshots(row for beginning in DIRECTORY for row in checked_rows(transaction, keys, beginning))


def range_digests(transaction: Any, keys: Any, low: bytes, high: bytes) -> Iterator[bytes]:
    """Digests of the rows from ``low`` to below ``high``. Raises StoreDamaged."""
    with transaction.cursor(keys) as cursor:
        is_there = cursor.set_range(low)
        while is_there and (row_key := cursor.key()) < high:
            row = cursor.value()
            checked_value(row_key, row)
            yield row[:DIGEST_BYTES]
            is_there = cursor.next()


def table_names(transaction: Any, keys: Any) -> Iterator[str]:
    """Names of tables that have a key, in byte order: one look for each table, however many keys it has. Raises StoreDamaged."""
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
    """A range as a msgpack list of (key, value), in pieces, all of one snapshot. Raises TimedOut, StoreDamaged."""
    packer = msgpack.Packer()
    with transaction.cursor(keys) as cursor:
        # A msgpack list begins with its length, so that the keys are counted before the values are read.
        count = sum(1 for _ in _rows(cursor, wanted, may_go_on, values=False))
        buffer = bytearray(packer.pack_array_header(count))
        for row_key, row in _rows(cursor, wanted, may_go_on, values=True):
            buffer += packer.pack((row_key[wanted.skip :], checked_value(row_key, row)))
            if len(buffer) >= PIECE_LIMIT_BYTES:
                yield from in_pieces(bytes(buffer))
                buffer.clear()
        yield bytes(buffer)


def range_rows(transaction: Any, keys: Any, wanted: KeyRange, may_go_on: Callable[[], bool]) -> Iterator[tuple[bytes, bytes]]:
    """Row keys and values of a range in its order, without its limit. Raises TimedOut, StoreDamaged."""
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
    # After the highest wanted key, then one back; there may be nothing after it.
    return bool(cursor.prev() if cursor.set_range(wanted.high) else cursor.last())
