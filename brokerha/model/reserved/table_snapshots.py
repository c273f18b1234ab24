r"""Snapshots of key-value tables by name: the reserved table that holds them, and its limits.

    s<name>               msgpack (LSN, ((table, number), ...))    a snapshot: its tables at that LSN, its own transaction included
    c<number><key>        old value of a key, before its first change after the snapshot: 1 and the value; empty: no such key
    g<number>             the name of a table: its snapshot was dropped, and some of its copies are not yet cleared

A number has 8 bytes, big-endian; a higher one is younger. All rows are content like any other: the log, fingerprints, copies and
backups include them. Clients read them only by the name of a snapshot.

>>> snapshot_key("monday"), packed_copy(None), packed_copy(b"9.90"), value_in(b"\x019.90")
(b'smonday', b'', b'\x019.90', b'9.90')
>>> snapshot_in(packed_snapshot(7, {"stock": 1}))
(7, {'stock': 1})
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgpack

from brokerha.model.ids import Lsn

TABLE: Final = "urn:brokerha:snapshots"
A_TABLE_LIMIT: Final = 16
"""Limit of snapshots of one table, including those that are not yet cleared."""
COUNT_LIMIT: Final = 1000
"""Limit of snapshots of one cluster."""
TABLES_LIMIT: Final = 1000
"""Limit of tables of one snapshot."""
SNAPSHOT, COPY, GONE = b"s", b"c", b"g"
"""Prefixes of keys."""
_NUMBER_BYTES: Final = 8


def snapshot_key(name: str) -> bytes:
    """Return the key of a snapshot."""
    return SNAPSHOT + name.encode()


def copies_key(number: int) -> bytes:
    """Return the prefix of the keys of all copies of a number; the key itself follows."""
    return COPY + number.to_bytes(_NUMBER_BYTES, "big")


def gone_key(number: int) -> bytes:
    """Return the key of a number whose snapshot was dropped."""
    return GONE + number.to_bytes(_NUMBER_BYTES, "big")


def number_in(key: bytes) -> int:
    """Return the number in a key of `gone_key`."""
    return int.from_bytes(key[1:], "big")


def packed_snapshot(lsn: Lsn, numbers: Mapping[str, int]) -> bytes:
    """Return the row of a snapshot; ``numbers`` of its tables by name."""
    row: bytes = msgpack.packb((lsn, list(numbers.items())))
    return row


def snapshot_in(row: bytes) -> tuple[Lsn, dict[str, int]]:
    """Return LSN and numbers of a snapshot."""
    lsn, numbers = msgpack.unpackb(row, use_list=False)
    return lsn, dict(numbers)


def packed_copy(value: bytes | None) -> bytes:
    """Return a copy of a key's old value; None for no such key."""
    return b"" if value is None else b"\1" + value


def value_in(copy: bytes) -> bytes | None:
    """Return the old value in a copy; None for no such key."""
    return copy[1:] if copy else None
