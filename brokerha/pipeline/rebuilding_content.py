"""The content at an LSN on its way into a builder: from a fold in this process, or from files that Spark's tasks have written.

    fold     pipeline/state.py ─────────────────────────────> sorted here ──> CopyBuilder      small archives
    staged   <staging>/graph/name=main/*.parquet   line                ─┐
             <staging>/keys/*.parquet              row_key, value       ├──> merged ──> CopyBuilder
             <staging>/messages/*.parquet          queue, place, …     ─┘
             counters, checks, last changes, names of repositories           small, in memory

Files of keys and of messages are each sorted in themselves and merged here, so that memory holds a batch of each file and nothing grows with the
state. What becomes of it is proved by whoever builds (stores/building.py): nothing in here is believed.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgpack

from brokerha.model.control import Check
from brokerha.model.ids import Lsn
from brokerha.model.operations import LoggedRow
from brokerha.pipeline.archive import Archive, ArchiveState, reading
from brokerha.pipeline.entries import LogEntry
from brokerha.pipeline.state import State, state_at
from brokerha.stores.building import CopyBuilder
from brokerha.stores.frozen import TAIL_LSNS
from brokerha.stores.items import CONTROL, GRAPH, QUEUE, TABLE
from brokerha.stores.key_range import row_key_of
from brokerha.stores.queue_change import Counts, Message

GRAPH_FOLDER: Final = "graph"
KEYS_FOLDER: Final = "keys"
MESSAGES_FOLDER: Final = "messages"
LINE, ROW_KEY, VALUE, QUEUE_NAME, PLACE, MESSAGE_ID, CONTENT_TYPE, BODY = (
    "line", "row_key", "value", "queue", "place", "message_id", "content_type", "body",
)  # fmt: skip
"""Columns of the staged files."""
BATCH_ROWS: Final = 10_000
_NOTE_ROWS: Final = 10_000

Note = Callable[[int], None]
"""Is told how many items more were given; may raise to end the work."""


@dataclass(frozen=True, slots=True)
class Content:
    """All content at one LSN, and where its large parts come from."""

    repositories: tuple[str, ...]
    quads: Callable[[str], Iterable[str]]
    """Canonical lines of a repository."""
    keys: Callable[[], Iterable[tuple[bytes, bytes]]]
    """(table, NUL, key; value), ascending."""
    messages: Callable[[], Iterable[tuple[str, int, Message]]]
    """Ascending by queue, as bytes, and place."""
    counts: Mapping[str, Counts]
    checks: tuple[Check, ...]
    changes: Mapping[tuple[str | None, str], Lsn]
    """Last change of each store that ever was."""
    items: int
    """Quads, keys and messages."""
    is_staged: bool = False
    """Whether Spark computed it."""


@dataclass(frozen=True, slots=True)
class Small:
    """What of a staged state is small enough to be in memory."""

    repositories: tuple[str, ...] = ()
    counts: Mapping[str, Counts] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()
    changes: Mapping[tuple[str | None, str], Lsn] = field(default_factory=dict)


def give(content: Content, lines: list[LoggedRow], builder: CopyBuilder, note: Note) -> None:
    """Give everything to a builder, and the last lines of the log. Raises what the builder and the files raise."""
    for name in content.repositories:
        builder.repository(name, _noted(content.quads(name), note))
    builder.keys(_noted(content.keys(), note))
    builder.messages(_noted(content.messages(), note))
    builder.counts(content.counts)
    builder.checks(content.checks)
    builder.last_changes(content.changes)
    builder.lines(lines)


def folded(archive: Archive, state: ArchiveState, lsn: Lsn) -> Content:
    """The content at an LSN, from all entries up to it, in the memory of this process.

    Raises StoreDiffers at the first entry that leads to another content than it says, LinesMissing, StoreDamaged.
    """
    return content_of(state_at(entries(archive, state, 1, lsn), lsn))


def content_of(state: State) -> Content:
    """The content of a fold."""
    quads: dict[str, list[str]] = defaultdict(list)
    keys: list[tuple[bytes, bytes]] = []
    messages: list[tuple[str, int, Message]] = []
    checks: list[Check] = []
    for held in state.items.values():
        if held.store == GRAPH and held.key:
            quads[held.name].append(held.key.decode())
        elif held.store == TABLE:
            keys.append((row_key_of(held.name, held.key), held.value))
        elif held.store == QUEUE:
            messages.append((held.name, held.place, Message(held.key.decode(), held.content_type, held.value)))
        elif held.store == CONTROL:
            checks.append(check_of(held.name, held.value))
    keys.sort()
    messages.sort(key=lambda each: (each[0].encode(), each[1]))
    return Content(
        repositories=tuple(state.repositories()),
        quads=lambda name: quads[name],
        keys=lambda: keys,
        messages=lambda: messages,
        counts=state.counts,
        checks=tuple(checks),
        changes={(kind, name): lsn for (kind, name), lsn in state.changed.items()},
        items=sum(map(len, quads.values())) + len(keys) + len(messages),
    )


def check_of(name: str, value: bytes) -> Check:
    """A check from its name and the value of its row."""
    return Check(name, *msgpack.unpackb(value))


def staged(staging: Path, small: Small) -> Content:
    """The content whose large parts lie in files. Raises StoreDamaged when one of them cannot be read."""
    keys, messages = _files(staging / KEYS_FOLDER), _files(staging / MESSAGES_FOLDER)
    graphs = {name: _files(staging / GRAPH_FOLDER / f"name={name}") for name in small.repositories}
    rows = sum(map(_rows_of, [*keys, *messages, *(file for files in graphs.values() for file in files)]))

    def lines(name: str) -> Iterator[str]:
        for file in graphs[name]:
            for (line,) in _tuples(file, (LINE,)):
                yield line

    def all_messages() -> Iterator[tuple[str, int, Message]]:
        columns = (QUEUE_NAME, PLACE, MESSAGE_ID, CONTENT_TYPE, BODY)
        for queue, place, message_id, content_type, body in heapq.merge(*(_tuples(each, columns) for each in messages)):
            yield queue.decode(), place, Message(message_id.decode(), content_type, body)

    return Content(
        repositories=small.repositories,
        quads=lines,
        keys=lambda: heapq.merge(*(_tuples(each, (ROW_KEY, VALUE)) for each in keys)),
        messages=all_messages,
        counts=small.counts,
        checks=small.checks,
        changes=small.changes,
        items=rows,
        is_staged=True,
    )


def entries(archive: Archive, state: ArchiveState, first_lsn: Lsn, last_lsn: Lsn) -> Iterator[LogEntry]:
    """Entries of a range, in order; memory holds a row group. Raises StoreDamaged, ProtocolError."""
    from brokerha.pipeline.rows import entries_of

    for file in state.files_of(first_lsn, last_lsn):
        with reading(archive.path(file)), _opened(archive.path(file)) as parquet:
            for number in range(parquet.num_row_groups):
                # Groups are of whole entries, and say which they have.
                if not _overlaps(parquet, number, first_lsn, last_lsn):
                    continue
                for entry in entries_of(parquet.read_row_group(number)):
                    if first_lsn <= entry.lsn <= last_lsn:
                        yield entry


def last_lines(archive: Archive, state: ArchiveState, lsn: Lsn) -> list[LoggedRow]:
    """The last lines of the log up to an LSN: those of its row group, at least one, unless it is 0. Raises as `entries`."""
    from brokerha.pipeline.rows import entries_of

    for file in state.files_of(lsn, lsn) if lsn else ():
        with reading(archive.path(file)), _opened(archive.path(file)) as parquet:
            for number in range(parquet.num_row_groups):
                if _overlaps(parquet, number, lsn, lsn):
                    found = [each for each in entries_of(parquet.read_row_group(number)) if each.lsn <= lsn]
                    return [line_of(entry) for entry in found[-TAIL_LSNS:]]
    return []


def line_of(entry: LogEntry) -> LoggedRow:
    """The line of the log that workers keep of an entry."""
    return entry.txid, entry.timestamp, entry.outcome, entry.reason, entry.effect, entry.fingerprint


def _overlaps(parquet: Any, number: int, first_lsn: Lsn, last_lsn: Lsn) -> bool:
    """Whether a row group may hold LSNs of a range; the first column is the LSN."""
    numbers = parquet.metadata.row_group(number).column(0).statistics
    return numbers is None or (numbers.max >= first_lsn and numbers.min <= last_lsn)


def _opened(path: Path) -> Any:
    from pyarrow.parquet import ParquetFile

    return ParquetFile(path)


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.parquet"))


def _rows_of(file: Path) -> int:
    with reading(file), _opened(file) as parquet:
        return int(parquet.metadata.num_rows)


def _tuples(file: Path, columns: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    with reading(file), _opened(file) as parquet:
        for batch in parquet.iter_batches(BATCH_ROWS, columns=list(columns)):
            yield from zip(*(batch[name].to_pylist() for name in columns), strict=True)


def _noted(items: Iterable[Any], note: Note) -> Iterator[Any]:
    number = 0
    for item in items:
        yield item
        number += 1
        if number % _NOTE_ROWS == 0:
            note(_NOTE_ROWS)
    note(number % _NOTE_ROWS)
