"""Bytes of the journal's rows: how a record and its index rows lie on the disk (FORMAT.md, sections 2 and 3).

Everything here is a pure function of its arguments; format version 3 is pinned by golden files in the tests.

    log     number                    -> checksum, version, live, record
    added   first LSN, number         -> places of the bodies, dropped duplicates
    ids     partition, txid           -> LSN, checksum

A **place** says where a body lies: the number of its record in the upper 44 bits, its position among the record's
items in the lower 20. 0 means that the body is not held; record numbers begin at 1.

Invariants: keys of one table sort in the order in which they are read (numbers are big-endian); a record's checksum
covers the journal's name and the record's number, so that a record at the wrong place is as bad as a wrong byte.
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from zlib import crc32

import msgpack

from brokerha.model.ids import Lsn, NodeId, TxId

FORMAT = 3
"""Version of the layout as a whole; kept in `meta`."""
UPGRADED_FORMAT = 2
"""What is made format 3 when it is opened."""
RECORD_VERSION = 2
"""Version of a row of `log`, which format 3 left as it was; kept in every record."""
ITEM_BITS = 20
ITEMS_LIMIT = 1 << ITEM_BITS
"""Most items of one record; a turn is far smaller."""
PARTITION_BITS = 9
PARTITIONS = 1 << PARTITION_BITS
"""Key ranges of the table `ids`, chosen by checksum, so that each is written rarely and densely."""

PARKED = b"P"
HELD = b"H"

_NUMBER = struct.Struct(">Q")
_HEAD = struct.Struct(">IBI")
_NAMED = struct.Struct(">QBI")
_PAIR = struct.Struct(">QQ")
_COUNTED = struct.Struct(">QI")
ID_PREFIXES = [struct.pack(">H", partition) for partition in range(PARTITIONS)]
PARTITION_SHIFT = 32 - PARTITION_BITS

number_key = _NUMBER.pack
"""Key of a record in `log`, and of a place in `waiting`."""
HEAD_BYTES = _HEAD.size


class BadRow(ValueError):
    """Bytes that are not what was written; the text says what differs. The caller names the row and the file."""


class AddedRow(NamedTuple):
    """What the table `added` knows of one `Added` record."""

    places: tuple[int, ...]
    """Where the body of each entry lies."""
    used: dict[NodeId, int]
    """As in the record."""
    dropped: tuple[tuple[NodeId, TxId, int], ...]
    """Duplicates that were used up without being added: (origin, transaction id, place of the body)."""

    def pack(self) -> bytes:
        """Return its bytes; those of `used` and `dropped` are few."""
        count = len(self.places)
        rest: bytes = msgpack.packb((self.used, self.dropped))
        return struct.pack(f">I{count}Q", count, *self.places) + rest


def seal(seed: int, number: int, live: int, payload: bytes) -> bytes:
    """Return the row of a record: its encoding behind a head with the checksum.

    ``seed`` is the checksum of the journal's name; ``live`` is the number of items that the record brings.
    """
    return _HEAD.pack(_checksum(seed, number, RECORD_VERSION, live, payload), RECORD_VERSION, live) + payload


def unseal(seed: int, number: int, row: bytes | memoryview) -> bytes:
    """Return the encoding inside a row of `log`. Raises BadRow."""
    if len(row) < HEAD_BYTES:
        message = f"only {len(row)} bytes"
        raise BadRow(message)
    checksum, version, live = _HEAD.unpack_from(row)
    payload = bytes(row[HEAD_BYTES:])
    if checksum != _checksum(seed, number, version, live, payload):
        message = "the checksum differs"
        raise BadRow(message)
    if version != RECORD_VERSION:
        message = f"version {version} of a record, this program reads {RECORD_VERSION}"
        raise BadRow(message)
    return payload


def _checksum(seed: int, number: int, version: int, live: int, payload: bytes) -> int:
    return crc32(payload, crc32(_NAMED.pack(number, version, live), seed))


def live_items(row: bytes | memoryview) -> int:
    """Return how many items a row of `log` brings, without reading the rest of it. Raises BadRow."""
    try:
        live: int = _HEAD.unpack_from(row)[2]
    except struct.error as error:
        raise BadRow(str(error)) from None
    return live


def number_of(key: bytes | memoryview) -> int:
    """Return the number in a key of `log` or `waiting`. Raises BadRow."""
    try:
        number: int = _NUMBER.unpack(key)[0]
    except struct.error as error:
        raise BadRow(str(error)) from None
    return number


def added_key(first_lsn: Lsn, number: int) -> bytes:
    """Key of an `Added` record; two of them have the same first LSN when the first brings duplicates only."""
    return _PAIR.pack(first_lsn, number)


def read_added_key(key: bytes | memoryview) -> tuple[Lsn, int]:
    """Return (first LSN, record number). Raises BadRow."""
    try:
        first_lsn, number = _PAIR.unpack(key)
    except struct.error as error:
        raise BadRow(str(error)) from None
    return first_lsn, number


def read_added_row(row: bytes | memoryview) -> AddedRow:
    """Return what `AddedRow.pack` was called on. Raises BadRow."""
    try:
        (count,) = struct.unpack_from(">I", row)
        places = struct.unpack_from(f">{count}Q", row, 4)
        used, dropped = msgpack.unpackb(row[4 + 8 * count :], use_list=False)
    except (struct.error, ValueError, TypeError, msgpack.UnpackException) as error:
        message = f"no list of places: {error}"
        raise BadRow(message) from None
    return AddedRow(places, used, dropped)


def count_in_added_row(row: bytes | memoryview) -> int:
    """Return how many LSNs a row of `added` has, without reading the rest of it. Raises BadRow."""
    try:
        count: int = struct.unpack_from(">I", row)[0]
    except struct.error as error:
        raise BadRow(str(error)) from None
    return count


def counted_row(number: int, count: int) -> bytes:
    """Row of `outcomes` and `stream`: the record's number and how many items it brings."""
    return _COUNTED.pack(number, count)


def read_counted_row(row: bytes | memoryview) -> tuple[int, int]:
    """Return (record number, count). Raises BadRow."""
    try:
        number, count = _COUNTED.unpack(row)
    except struct.error as error:
        raise BadRow(str(error)) from None
    return number, count


def stream_key(origin: NodeId, start: int) -> bytes:
    """Key of an `Appended` record: a node id has no NUL, so one origin's keys lie together, in order."""
    return origin.encode() + b"\0" + _NUMBER.pack(start)


def read_stream_key(key: bytes | memoryview) -> tuple[NodeId, int]:
    """Return (origin, start). Raises BadRow."""
    data = bytes(key)
    return _text(data[:-9]), number_of(data[-8:])


def body_key(origin: NodeId, txid: TxId) -> bytes:
    """Key of a dropped duplicate."""
    return f"{txid}\0{origin}".encode()


def waiting_row(mark: bytes, origin: NodeId, txid: TxId) -> bytes:
    """Row of `waiting`: a body that no LSN has yet; ``mark`` is `PARKED` or `HELD`."""
    return mark + f"{origin}\0{txid}".encode()


def read_waiting_row(row: bytes | memoryview) -> tuple[bytes, NodeId, TxId]:
    """Return (mark, origin, transaction id). Raises BadRow."""
    data = bytes(row)
    origin, _, txid = _text(data[1:]).partition("\0")
    return data[:1], origin, txid


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadRow(str(error)) from None


def id_partition(txid: bytes) -> int:
    """Partition of an id: the upper bits of its checksum."""
    return crc32(txid) >> PARTITION_SHIFT


def id_rows(partition: int, lsns: dict[bytes, Lsn]) -> list[tuple[bytes, bytes]]:
    """Return keys and rows of ids of one partition, in order.

    A row has a checksum over id and LSN, as a wrong LSN would be told to a client.
    """
    prefix, pack, pack_lsn = ID_PREFIXES[partition], _COUNTED.pack, _NUMBER.pack
    return [(prefix + txid, pack(lsn, crc32(txid + pack_lsn(lsn)))) for txid, lsn in sorted(lsns.items())]


def read_id_row(txid: bytes, row: bytes | memoryview) -> Lsn:
    """Return the LSN in a row of `ids`. Raises BadRow."""
    lsn, checksum = read_counted_row(row)
    if checksum != crc32(txid + row[:8]):
        message = "the checksum of a transaction id differs"
        raise BadRow(message)
    return lsn


def keyed_row(key: bytes, data: bytes) -> bytes:
    """Return ``data`` behind a checksum over key and data: rows of `rejected`, `marks`, `prepared` and `decided`."""
    return crc32(data, crc32(key)).to_bytes(4, "big") + data


def read_keyed_row(key: bytes, row: bytes | memoryview) -> bytes:
    """Return what `keyed_row` was given. Raises BadRow."""
    data = bytes(row[4:])
    if len(row) < 4 or crc32(data, crc32(key)) != int.from_bytes(bytes(row[:4]), "big"):
        message = "the checksum differs"
        raise BadRow(message)
    return data


def checked(data: bytes) -> bytes:
    """Return ``data`` behind its checksum: rows of `meta`."""
    return crc32(data).to_bytes(4, "big") + data


def read_checked(row: bytes | memoryview) -> bytes:
    """Return what `checked` was given. Raises BadRow."""
    data = bytes(row[4:])
    if len(row) < 4 or crc32(data) != int.from_bytes(bytes(row[:4]), "big"):
        message = "the checksum differs"
        raise BadRow(message)
    return data
