"""The pipeline's work as a simple loop in one process, to compare the Spark jobs with.

The loop is as fast as possible: without garbage collection, with living items in dictionaries, which are hashed once, at the end.
It does less than the jobs: files are not compared with their sums, no chain is checked, nothing is durable.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from brokerha.model import fingerprints
from brokerha.model.control import Check
from brokerha.model.errors import StoreDiffers
from brokerha.model.ids import Lsn
from brokerha.model.operations import (
    Accept,
    Change,
    Cleared,
    ControlAdd,
    ControlRemove,
    CreateRepository,
    Delete,
    Published,
    Put,
    QuadsChanged,
    RemoveRepository,
    unpack_effect,
)
from brokerha.pipeline.entries import LogEntry
from brokerha.pipeline.sources import SourceSpec, open_source
from brokerha.stores.comparing.fingerprint import (
    control_digest,
    counts_digest,
    key_digest,
    message_digest,
    quads_digest,
    repository_digest,
)
from brokerha.stores.tables.key_range import row_key_of
from brokerha.stores.tables.queue_change import Counts, Message

GROUP_ENTRIES = 50_000
"""Entries of one row group of the file."""


@dataclass(slots=True)
class Content:
    """Living items after some entries."""

    keys: dict[tuple[str, bytes], bytes] = field(default_factory=dict)
    quads: dict[str, set[str]] = field(default_factory=lambda: {"main": set()})
    messages: dict[tuple[str, str], tuple[int, str, bytes]] = field(default_factory=dict)
    """Place, content type and body, by queue and message id."""
    published: dict[str, int] = field(default_factory=dict)
    accepted: dict[str, int] = field(default_factory=dict)
    checks: dict[str, Check] = field(default_factory=dict)


def fold(entries: Iterable[LogEntry]) -> Content:
    """Return the content after all entries."""
    content = Content()
    for entry in entries:
        for change in unpack_effect(entry.effect):
            if isinstance(change, (Published, Accept)):
                _fold_message(content, change)
            else:
                _fold(content, change)
    return content


def _fold(content: Content, change: Change) -> None:
    match change:
        case Put():
            content.keys[change.table, change.key] = change.value
        case Delete():
            del content.keys[change.table, change.key]
        case QuadsChanged():
            content.quads[change.repository].difference_update(change.removed)
            content.quads[change.repository].update(change.added)
        case CreateRepository() | Cleared():
            content.quads[change.repository] = set()
        case RemoveRepository():
            del content.quads[change.repository]
        case ControlAdd():
            content.checks[change.name] = Check(*change[1:])
        case ControlRemove():
            del content.checks[change.name]


def _fold_message(content: Content, change: Published | Accept) -> None:
    queue, place_in = change.queue, (change.queue, change.message_id)
    if isinstance(change, Published):
        content.published[queue] = content.published.get(queue, 0) + 1
        content.messages[place_in] = content.published[queue], change.content_type, change.body
    else:
        content.accepted[queue] = content.accepted.get(queue, 0) + 1
        del content.messages[place_in]


def fingerprint_of(content: Content) -> bytes:
    """Return the fingerprint of all living items."""
    total = 0
    for (table, key), value in content.keys.items():
        total ^= int.from_bytes(key_digest(row_key_of(table, key), value), "big")
    for repository, lines in content.quads.items():
        total ^= repository_digest(repository) ^ quads_digest(repository, lines)
    for (queue, message_id), (place, content_type, body) in content.messages.items():
        total ^= message_digest(queue, place, Message(message_id, content_type, body))
    for queue, published in content.published.items():
        total ^= counts_digest(queue, Counts(published, content.accepted.get(queue, 0)))
    for check in content.checks.values():
        total ^= control_digest(check)
    return fingerprints.packed(total)


def read(spec: SourceSpec, last_lsn: Lsn) -> int:
    """Read all entries and decode them into rows; return the number of rows."""
    from brokerha.pipeline.rows import batches_of

    with open_source(spec) as source:
        return sum(batch.num_rows for batch in batches_of(source.read(1, last_lsn)))


def archive(spec: SourceSpec, last_lsn: Lsn, path: Path) -> int:
    """Write all rows into one Parquet file; return their number."""
    import pyarrow as pa
    import pyarrow.parquet

    from brokerha.pipeline.rows import SCHEMA, batches_of

    rows = 0
    with open_source(spec) as source, pyarrow.parquet.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
        for batch in batches_of(source.read(1, last_lsn), GROUP_ENTRIES):
            writer.write_table(pa.Table.from_batches([batch]))
            rows += batch.num_rows
    return rows


def audit(spec: SourceSpec, last_lsn: Lsn) -> Content:
    """Return the content after all entries. Raises StoreDiffers when its fingerprint is not that of the last entry."""
    last = fingerprints.EMPTY

    def entries() -> Iterable[LogEntry]:
        nonlocal last
        for entry in source.read(1, last_lsn):
            yield entry
            last = entry.fingerprint

    with open_source(spec) as source:
        content = fold(entries())
    if (found := fingerprint_of(content)) != last:
        raise StoreDiffers(f"the content has fingerprint {found.hex()}, the log says {last.hex()}")
    return content


def rebuild(spec: SourceSpec, last_lsn: Lsn) -> int:
    """Audit, and sort keys and messages in the order of a worker's copy; return the number of items."""
    content = audit(spec, last_lsn)
    keys = sorted((row_key_of(table, key), value) for (table, key), value in content.keys.items())
    messages = sorted((queue.encode(), place) for (queue, _), (place, _, _) in content.messages.items())
    return len(keys) + len(messages) + sum(map(len, content.quads.values()))
