"""What an isolated transaction has read, as expectations (stores/reads/observing.py), and what of it has to hold when it commits.

    serializable    all of it
    snapshot        what it also writes: a key that it puts or deletes, a range with such a key, a graph or table that it changes

All reads hold together at the LSN of the last one, because each read judges what was found before. So under ``snapshot`` two
transactions may each read what the other writes (write skew), but none overwrites what it has not seen.
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
"""Findings of one transaction."""


class ReadSet:
    """Findings, each once: the first of two about the same thing, which the later one was judged by."""

    __slots__ = ("_found", "level", "lsn", "size")

    def __init__(self, level: str) -> None:
        self.level = level
        self.lsn: Lsn = 0
        """Of the last read: the next one is of this LSN or a later one, whichever node answers it."""
        self.size = 0
        """Of all findings, packed, in bytes."""
        self._found: dict[Operation, bytes] = {}

    def __len__(self) -> int:
        return len(self._found)

    def add(self, found: Sequence[Operation], lsn: Lsn = 0) -> None:
        """One read found this at an LSN. Raises InvalidRequest for what is no expectation, TooLarge beyond `READS_LIMIT`."""
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
        """All findings, packed."""
        return list(self._found.values())

    def demands(self, operations: Iterable[bytes]) -> list[bytes]:
        """What has to hold when these packed operations take place."""
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
