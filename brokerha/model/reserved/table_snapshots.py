r"""Snapshots of key-value tables by name: the reserved table that holds them, and its limits.

    s<name>               msgpack (LSN, ((table, number), ...))    a snapshot: what its tables held at that LSN, its own transaction included
    c<number><key>        what a key of the table of that number held before it was changed first: 1 and the value; empty: it was not there
    g<number>             the name of a table: its snapshot was dropped, and some of its copies are not cleared away yet

A number has 8 bytes, big end first; a higher one is younger. All of it is content like any other: the log, fingerprints, copies and backups
hold it. Clients only read it by the name of a snapshot.

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
"""Snapshots of one table, with those that are not cleared away yet."""
COUNT_LIMIT: Final = 1000
"""Snapshots of one cluster."""
TABLES_LIMIT: Final = 1000
"""Tables of one snapshot."""
SNAPSHOT, COPY, GONE = b"s", b"c", b"g"
"""What keys begin with."""
_NUMBER_BYTES: Final = 8


def snapshot_key(name: str) -> bytes:
    """The key of a snapshot."""
    return SNAPSHOT + name.encode()


def copies_key(number: int) -> bytes:
    """What the keys of all copies of a number begin with; the key itself follows."""
    return COPY + number.to_bytes(_NUMBER_BYTES, "big")


def gone_key(number: int) -> bytes:
    """The key of a number whose snapshot was dropped."""
    return GONE + number.to_bytes(_NUMBER_BYTES, "big")


def number_in(key: bytes) -> int:
    """The number in a key of `gone_key`."""
    return int.from_bytes(key[1:], "big")


def packed_snapshot(lsn: Lsn, numbers: Mapping[str, int]) -> bytes:
    """The row of a snapshot; ``numbers`` of its tables by name."""
    row: bytes = msgpack.packb((lsn, list(numbers.items())))
    return row


def snapshot_in(row: bytes) -> tuple[Lsn, dict[str, int]]:
    """LSN and numbers of a snapshot."""
    lsn, numbers = msgpack.unpackb(row, use_list=False)
    return lsn, dict(numbers)


def packed_copy(value: bytes | None) -> bytes:
    """A copy of what a key held; None: it was not there."""
    return b"" if value is None else b"\1" + value


def value_in(copy: bytes) -> bytes | None:
    """What the key held; None: it was not there."""
    return copy[1:] if copy else None
