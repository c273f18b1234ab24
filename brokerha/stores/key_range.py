r"""Keys as row keys, and a range of them: what is the same for every kind of store.

A row key is table name, NUL, key; a table name has no NUL, so that tables never run into each other and a range of keys is
a range of row keys.

>>> KeyRange("stock", {"prefix": b"a"}).low, KeyRange("stock", {"prefix": b"a"}).high
(b'stock\x00a', b'stock\x00b')
"""

from __future__ import annotations

from collections.abc import Iterator

from brokerha.model import about
from brokerha.model.errors import InvalidRequest
from brokerha.model.operations import KEY_LIMIT_BYTES, TABLE_LIMIT_BYTES

PIECE_LIMIT_BYTES = 1024 * 1024
RANGE_LIMIT_DEFAULT = 1000
RANGE_LIMIT = 1_000_000


def row_key_of(table: str, key: bytes) -> bytes:
    """The row key of a key of a table."""
    return b"%b\0%b" % (table.encode(), key)


def wanted_row_key(table: str, arguments: dict[str, object]) -> bytes:
    """The row key that a read of kind ``get`` asks for; its argument is ``key``. Raises InvalidRequest."""
    return row_key_of(_checked_table(table), _bytes_argument(arguments, "key"))


class KeyRange:
    """Which keys a read of kind ``range`` asks for.

    Arguments, all optional: ``prefix``; ``from``, the first key; ``to``, the first key that is left out; ``limit``, 1000
    if not given; ``reverse``, highest first. Raises InvalidRequest.
    """

    __slots__ = ("high", "is_reverse", "limit", "low", "skip")

    def __init__(self, table: str, arguments: dict[str, object]) -> None:
        beginning = row_key_of(_checked_table(table), _bytes_argument(arguments, "prefix", b""))
        self.skip = len(row_key_of(table, b""))
        """Bytes of a row key before the key."""
        self.low = max(beginning, row_key_of(table, _bytes_argument(arguments, "from", b"")))
        self.high = _after_all_with(beginning)
        if arguments.get("to") is not None:
            self.high = min(self.high, row_key_of(table, _bytes_argument(arguments, "to")))
        limit = arguments.get("limit")
        if limit is None:
            limit = RANGE_LIMIT_DEFAULT
        if not isinstance(limit, int) or not 1 <= limit <= RANGE_LIMIT:
            raise InvalidRequest(f"limit is a number from 1 to {RANGE_LIMIT}, not {limit!r}")
        self.limit = limit
        self.is_reverse = bool(arguments.get("reverse"))


def in_pieces(data: bytes) -> Iterator[bytes]:
    """Cut bytes into pieces of at most 1 MiB; one empty piece for no bytes."""
    yield data[:PIECE_LIMIT_BYTES]
    for start in range(PIECE_LIMIT_BYTES, len(data), PIECE_LIMIT_BYTES):
        yield data[start : start + PIECE_LIMIT_BYTES]


def _after_all_with(beginning: bytes) -> bytes:
    """The lowest row key above all that begin so. There is one, because a row key holds a NUL."""
    kept = beginning.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1])


def _checked_table(table: str) -> str:
    """The name of a table that could exist. Raises InvalidRequest."""
    if not table or "\0" in table or len(table.encode()) > TABLE_LIMIT_BYTES:
        raise InvalidRequest(f"a table name has 1 to {TABLE_LIMIT_BYTES} bytes and no NUL")
    if table == about.TABLE:
        raise InvalidRequest(f"table {table} is brokerha's own: namespaces and settings are read at their repository")
    return table


def _bytes_argument(arguments: dict[str, object], name: str, default: bytes | None = None) -> bytes:
    value = arguments.get(name)
    if value is None:
        value = default
    if isinstance(value, str):
        value = value.encode()
    if not isinstance(value, bytes):
        raise InvalidRequest(f"this read needs the argument {name!r} as bytes")
    if len(value) > KEY_LIMIT_BYTES:
        raise InvalidRequest(f"{name!r} has {len(value)} bytes; a key has at most {KEY_LIMIT_BYTES}")
    return value
