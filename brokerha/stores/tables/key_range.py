r"""Keys as row keys, and ranges of them, for every kind of store.

A row key is table name, NUL, key. A table name has no NUL, so tables never overlap, and a range of keys is a range of row keys.

>>> KeyRange("stock", {"prefix": b"a"}).low, KeyRange("stock", {"prefix": b"a"}).high
(b'stock\x00a', b'stock\x00b')
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from typing import Any, Self, TypeVar

from brokerha.model.errors import InvalidRequest
from brokerha.model.operation_checks import TABLE, name_problem
from brokerha.model.requests import RANGE_ROWS
from brokerha.model.reserved import about, branches, claims, settings, staging, table_snapshots

OWN_TABLES = frozenset({about.TABLE, branches.TABLE, claims.TABLE, settings.TABLE, staging.TABLE, table_snapshots.TABLE})
"""brokerha's own tables; other kinds of reads show their content."""
_READ_ELSEWHERE = {
    about.TABLE: "namespaces and settings are read at their repository",
    branches.TABLE: "what is prepared is read as the list of transactions",
    table_snapshots.TABLE: "a snapshot is read by its name",
    settings.TABLE: "settings are read by brokerha settings, and GET /cluster/settings",
    claims.TABLE: "it says which messages each master gives to its consumers",
}
PIECE_LIMIT_BYTES = 1024 * 1024
RANGE_LIMIT = 1_000_000
Item = TypeVar("Item")


def row_key_of(table: str, key: bytes) -> bytes:
    """Return the row key of a key of a table."""
    return b"%b\0%b" % (table.encode(), key)


def wanted_row_key(table: str, arguments: Mapping[str, Any]) -> bytes:
    """Return the row key that a read of kind ``get`` asks for; its argument is ``key``. Raises InvalidRequest."""
    return row_key_of(_checked_table(table), _bytes_argument(arguments, "key"))


def rows_between(table: str, first: bytes, end: bytes) -> tuple[bytes, bytes]:
    """Return the row keys that bound the keys from ``first`` to below ``end``; an empty ``end`` is the end of the table."""
    return row_key_of(table, first), row_key_of(table, end) if end else _after_all_with(row_key_of(table, b""))


class KeyRange:
    """The range of keys that a read of kind ``range`` asks for.

    Arguments, all optional: ``prefix``; ``from``, the first key; ``to``, the end, exclusive; ``limit``, 1000 by default;
    ``reverse``, highest first; ``snapshot``, the name of the snapshot to read. reads/kinds.py has checked their shapes. Raises
    InvalidRequest.
    """

    __slots__ = ("high", "is_reverse", "limit", "low", "skip", "snapshot", "table")

    def __init__(self, table: str, arguments: Mapping[str, Any]) -> None:
        beginning = row_key_of(_checked_table(table), _bytes_argument(arguments, "prefix"))
        self.table = table
        self.skip = len(row_key_of(table, b""))
        """Number of bytes in a row key before the key."""
        self.low = max(beginning, row_key_of(table, _bytes_argument(arguments, "from")))
        self.high = _after_all_with(beginning)
        if arguments.get("to") is not None:
            self.high = min(self.high, row_key_of(table, _bytes_argument(arguments, "to")))
        self.limit: int = arguments.get("limit") or RANGE_ROWS
        self.is_reverse = bool(arguments.get("reverse"))
        self.snapshot: str | None = arguments.get("snapshot")

    def within(self, table: str, beginning: bytes) -> Self:
        """Return the same range in another table, with ``beginning`` before each key."""
        moved = copy(self)
        moved.table, moved.snapshot = table, None
        rows = row_key_of(table, beginning)
        moved.skip = len(rows)
        moved.low = rows + self.low[self.skip :]
        is_inside = self.high.startswith(self.low[: self.skip])
        moved.high = rows + self.high[self.skip :] if is_inside else _after_all_with(rows)
        return moved


def in_batches(items: Iterable[Item], size_of: Callable[[Item], int], most: int, most_bytes: int) -> Iterator[list[Item]]:
    """Yield items in lists, each of which ends with the item that reaches one of the limits."""
    batch: list[Item] = []
    size_bytes = 0
    for item in items:
        batch.append(item)
        size_bytes += size_of(item)
        if len(batch) >= most or size_bytes >= most_bytes:
            yield batch
            batch, size_bytes = [], 0
    if batch:
        yield batch


def in_pieces(data: bytes) -> Iterator[bytes]:
    """Cut bytes into pieces of at most 1 MiB; one empty piece for no bytes."""
    yield data[:PIECE_LIMIT_BYTES]
    for start in range(PIECE_LIMIT_BYTES, len(data), PIECE_LIMIT_BYTES):
        yield data[start : start + PIECE_LIMIT_BYTES]


def _after_all_with(beginning: bytes) -> bytes:
    """Return the lowest row key above all with this beginning. It exists, because a row key contains a NUL."""
    kept = beginning.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1])


def _checked_table(table: str) -> str:
    """Return the name of a table that a read can name. Raises InvalidRequest."""
    if problem := name_problem(TABLE, table):
        raise InvalidRequest(problem)
    if table in _READ_ELSEWHERE:
        raise InvalidRequest(f"table {table} is brokerha's own: {_READ_ELSEWHERE[table]}")
    return table


def _bytes_argument(arguments: Mapping[str, Any], name: str) -> bytes:
    """Return an argument that is bytes or text; empty by default."""
    value: str | bytes = arguments.get(name) or b""
    return value.encode() if isinstance(value, str) else value
