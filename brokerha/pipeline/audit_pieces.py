"""The engine of an audit: one piece after the other, or many at once, by whoever runs tasks.

    Tasks       TasksHere: this process, one after the other        spark/audit.py: the executors of Spark
      map         function over things
      exchange    function over things ──(group, block) ──> blocks of each group ──> another function

What the functions do is in audit_columns.py, and the same for both. Only results come back here: buckets, items, ids.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Protocol

import pyarrow as pa

from brokerha.model.fingerprints import packed
from brokerha.model.ids import Lsn, TxId
from brokerha.pipeline.archive import Archive, ArchiveFile, ArchiveState
from brokerha.pipeline.audit_columns import (
    Block,
    Piece,
    added,
    block_of,
    buckets_and_repositories,
    buckets_in,
    counts_in,
    grouped,
    items_in,
    living,
    main_block,
    merged,
    transactions_in,
)
from brokerha.pipeline.audit_engine import Found, ItemRow, Summary
from brokerha.pipeline.audit_files import Problem, check_file
from brokerha.pipeline.entries import LogEntry
from brokerha.pipeline.rows import table_of
from brokerha.pipeline.state import Place
from brokerha.stores.fingerprint import counts_digest
from brokerha.stores.queue_change import Counts

GROUP_ROWS: Final = 2_000_000
"""Of all pieces together, that one task merges; 60 bytes each."""
_CHECKED_AT_ONCE: Final = 8
"""Files for each task that runs at a time; after each such round progress is told."""

Grouped = Iterable[tuple[int, Block]]
Started = tuple[Piece, dict[str, Counts]]
"""A piece with the counters where it begins."""


class Tasks(Protocol):
    """Runs functions somewhere; they and what they get and give travel between processes."""

    name: str

    @property
    def parallel(self) -> int:
        """How many run at a time."""

    def map(self, function: Callable[[Any], Any], things: Sequence[Any]) -> list[Any]:
        """The function of each thing, in their order."""

    def exchange(
        self, cut: Callable[[Any], Grouped], things: Sequence[Any], merge: Callable[[list[Block]], Any], groups: int
    ) -> list[Any]:
        """Cut each thing into groups, then merge what belongs to the same one; groups in no order."""


class TasksHere:
    """In this process, one after the other."""

    name = "here"
    parallel = 1

    def map(self, function: Callable[[Any], Any], things: Sequence[Any]) -> list[Any]:
        """One after the other."""
        return [function(thing) for thing in things]

    def exchange(
        self, cut: Callable[[Any], Grouped], things: Sequence[Any], merge: Callable[[list[Block]], Any], groups: int
    ) -> list[Any]:
        """All blocks are in memory together."""
        found: dict[int, list[Block]] = {}
        for thing in things:
            for group, block in cut(thing):
                found.setdefault(group, []).append(block)
        return [merge(found.pop(group)) for group in range(groups) if group in found]


class EngineOfPieces:
    """Fulfils `audit_engine.Engine`."""

    def __init__(self, archive: Archive, state: ArchiveState, tasks: Tasks) -> None:
        self.archive = archive
        self.state = state
        self.name = tasks.name
        self._tasks = tasks

    def check(self, *, is_deep: bool) -> Iterator[list[Problem]]:
        """A task for each file."""
        check = partial(check_file, self.archive.directory, is_deep=is_deep)
        at_once = _CHECKED_AT_ONCE * self._tasks.parallel
        for start in range(0, len(self.state.files), at_once):
            yield from self._tasks.map(check, self.state.files[start : start + at_once])

    def summary(self, lsn: Lsn, bits: int, tail: Sequence[LogEntry]) -> Summary:
        """Two looks at each piece: at queues, then at the last row of each item."""
        pieces, counters = self._started(lsn, tail)
        rows = sum(file.rows for file in self.state.files_of(1, lsn)) + len(tail)
        least = 2 * self._tasks.parallel if self._tasks.parallel > 1 else 1
        group_bits = (max(least, -(-rows // GROUP_ROWS)) - 1).bit_length()
        cut = partial(_cut, self.archive, lsn, group_bits)
        found = self._tasks.exchange(cut, [None, *pieces], partial(_merged_buckets, bits), 1 << group_bits)
        buckets, repositories, total = buckets_and_repositories(row for group in found for row in group)
        for queue, counts in counters.items():
            total ^= counts_digest(queue, counts)
        return Summary(lsn, packed(total), buckets, counters, repositories)

    def items(
        self, lsn: Lsn, bits: int, places: Collection[Place], limit: int, tail: Sequence[LogEntry]
    ) -> list[ItemRow]:
        """One more look at each piece."""
        pieces, _ = self._started(lsn, tail)
        found = self._tasks.map(partial(_items, self.archive, lsn, bits, tuple(places)), pieces)
        return living(item for piece in found for item in piece)[: limit + 1]

    def transactions(self, wanted: Collection[TxId], tail: Sequence[LogEntry]) -> list[Found]:
        """One look at each piece."""
        pieces: list[Piece] = [*self.state.files, *_table(tail)]
        look = partial(transactions_in, self.archive, wanted=pa.array(sorted(wanted), pa.string()))
        return [each for found in self._tasks.map(look, pieces) for each in found]

    def _started(self, lsn: Lsn, tail: Sequence[LogEntry]) -> tuple[list[Started], dict[str, Counts]]:
        """Pieces up to an LSN, each with the counters where it begins, and the counters at their end."""
        files: list[ArchiveFile] = list(self.state.files_of(1, lsn))
        pieces: list[Piece] = [*files, *_table([entry for entry in tail if entry.lsn <= lsn])]
        started = []
        counters: dict[str, Counts] = {}
        counted = self._tasks.map(partial(_counts, self.archive, lsn), pieces)
        for piece, counts in zip(pieces, counted, strict=True):
            started.append((piece, counters))
            counters = added([counters, counts])
        return started, counters


def _table(tail: Sequence[LogEntry]) -> list[pa.Table]:
    return [table_of(tail)] if tail else []


# ---- what tasks do: functions of this module, so that they travel by name


def _counts(archive: Archive, lsn: Lsn, piece: Piece) -> dict[str, Counts]:
    return counts_in(archive, piece, lsn)


def _cut(archive: Archive, lsn: Lsn, group_bits: int, started: Started | None) -> list[tuple[int, Block]]:
    block = main_block() if started is None else block_of(archive, started[0], lsn, started[1])
    return grouped(block, group_bits)


def _merged_buckets(bits: int, blocks: list[Block]) -> list[tuple[str, str, int, int, int]]:
    return buckets_in(merged(blocks), bits)


def _items(
    archive: Archive, lsn: Lsn, bits: int, places: tuple[Place, ...], started: Started
) -> list[tuple[int, bool, ItemRow]]:
    return items_in(archive, started[0], lsn, started[1], bits, places)
