"""The findings of an isolated transaction's reads, as expectations (stores/reads/observing.py), and which of them its commit needs.

    serializable    all of them
    snapshot        those about written data: a key that it puts or deletes, a range with such a key, a changed graph or table

All reads hold together at the LSN of the last one, because each read judges the earlier findings. So under ``snapshot`` each of two
transactions may read what the other writes (write skew), but none overwrites data that it has not seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgpack

from brokerha.model.errors import InvalidRequest, TooLarge
from brokerha.model.ids import Lsn
from brokerha.model.operation_checks import GRAPH, TABLE
from brokerha.model.operations import (
    EXPECTATIONS,
    Add,
    Clear,
    CreateRepository,
    Delete,
    Operation,
    Put,
    Remove,
    RemoveRepository,
    Update,
    check_operations,
    typed_operations,
)
from brokerha.model.outside.isolation import SERIALIZABLE

READS_LIMIT: Final = 10_000
"""Limit of findings of one transaction."""


class ReadSet:
    """Findings, each once: of two about the same thing the first stays, because the later one was judged by it."""

    __slots__ = ("_found", "level", "lsn", "size")

    def __init__(self, level: str) -> None:
        self.level = level
        self.lsn: Lsn = 0
        """LSN of the last read: the next one is at this LSN or a later one, whichever node answers it."""
        self.size = 0
        """Size of all findings, packed, in bytes."""
        self._found: dict[Operation, bytes] = {}

    def __len__(self) -> int:
        return len(self._found)

    def add(self, found: Sequence[Operation], lsn: Lsn = 0) -> None:
        """Add the findings of a read at an LSN. Raises InvalidRequest if one is no expectation, TooLarge beyond `READS_LIMIT`."""
        if found:
            check_operations(list(found))
        for demand in typed_operations(found):
            if not isinstance(demand, EXPECTATIONS):
                raise InvalidRequest(f"a read demands nothing of the kind {demand.kind!r}")
            about = tuple(demand[:-1])
            if about in self._found:
                continue
            if len(self._found) == READS_LIMIT:
                raise TooLarge(f"the transaction has read {READS_LIMIT} things; read ranges, or split it")
            self._found[about] = packed = msgpack.packb(demand)
            self.size += len(packed)
        self.lsn = max(self.lsn, lsn)

    def pieces(self) -> list[bytes]:
        """Return all findings, packed."""
        return list(self._found.values())

    def demands(self, operations: Iterable[bytes]) -> list[bytes]:
        """Return the findings that must hold when these packed operations are executed."""
        if self.level == SERIALIZABLE:
            return self.pieces()
        keys: dict[str, set[bytes]] = {}
        repositories: set[str] = set()
        for operation in typed_operations(msgpack.unpackb(piece, use_list=False) for piece in operations):
            match operation:
                case Put() | Delete():
                    keys.setdefault(operation.table, set()).add(operation.key)
                case Update() | Add() | Remove() | Clear() | CreateRepository() | RemoveRepository():
                    repositories.add(operation.repository)
        return [piece for about, piece in self._found.items() if _is_written(about, keys, repositories)]


def _is_written(about: Operation, keys: dict[str, set[bytes]], repositories: set[str]) -> bool:
    kind, *rest = about
    if kind == "expect-key":
        return rest[1] in keys.get(rest[0], ())
    if kind == "expect-range":
        table, first, end = rest
        return any(first <= key and (not end or key < end) for key in keys.get(table, ()))
    if kind == "expect-since":
        return rest[1] in (repositories if rest[0] == GRAPH else keys if rest[0] == TABLE else ())
    return False
