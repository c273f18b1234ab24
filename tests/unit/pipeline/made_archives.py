"""Archives made directly from entries, without Spark; logs that can be archived without any node; and copies that can be asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import msgpack
import pyarrow as pa
import pyarrow.parquet as pq

from brokerha.model.fingerprints import EMPTY, text_of
from brokerha.model.operations import unpack_effect
from brokerha.pipeline.entries import LogEntry
from brokerha.pipeline.rows import SCHEMA, entries_in, table_of
from brokerha.pipeline.sources import SourceSpec
from brokerha.pipeline.table import Head, LogFile, LogTable, Written, write_log
from brokerha.stores.backup.directory import write_manifest
from brokerha.stores.backup.lines import write_lines
from brokerha.stores.backup.manifest import LOG, Manifest, Segment
from tests.support.memory_store.store import MemoryStore


def archive_of(directory: Path, entries: Sequence[LogEntry], entries_each: int = 100, cluster: str = "orders") -> LogTable:
    """An archive of these entries, which begin anywhere and have no gap, in files of so many."""
    table = LogTable(str(directory))
    first_lsn = entries[0].lsn if entries else 1
    state = table.begin(Head(cluster, first_lsn, first_lsn - 1))
    if entries:
        table.append(
            state, [file_of(table, entries[start : start + entries_each]) for start in range(0, len(entries), entries_each)]
        )
    return table


def file_of(table: LogTable, entries: Sequence[LogEntry]) -> Written:
    """One file that is not committed yet."""
    written = write_log(table.where, table_of(entries).to_batches(max_chunksize=50))
    assert written is not None
    return written


def held(table: LogTable) -> list[LogEntry]:
    """All that an archive holds, decoded from its rows."""
    state = table.state()
    return list(entries_in(table.batches(state, state.head.first_lsn, state.head.last_lsn, SCHEMA.names)))


def rewritten(table: LogTable, lsn: int, change: dict[str, Any], kind: str = "") -> tuple[str, dict[str, Any]]:
    """Change cells of the first row of an LSN (of a kind) in its file; returns the file and the row as it was."""
    file = table.state().files_of(lsn, lsn)[0]
    rows = table.read(file).to_pylist()
    row = next(row for row in rows if row["lsn"] == lsn and (not kind or row["kind"] == kind))
    before = dict(row)
    row.update(change)
    overwrite(table, file, pa.Table.from_pylist(rows, SCHEMA))
    return file.path, before


def overwrite(table: LogTable, file: LogFile, rows: pa.Table) -> None:
    """Put other rows in the place of those of a file."""
    pq.write_table(rows, table.path(file))


def lsn_with(entries: Sequence[LogEntry], kind: str, behind: int = 150) -> int:
    """The first LSN behind one with a change of a kind."""
    return next(
        entry.lsn for entry in entries if entry.lsn > behind and any(change[0] == kind for change in unpack_effect(entry.effect))
    )


class Log:
    """Lines that grow in the directory of a backup, as a source that tasks can open."""

    def __init__(self, path: Path, entries: Sequence[LogEntry] = (), cluster: str = "orders") -> None:
        self.path = path
        self.spec = SourceSpec(backup=str(path))
        before = entries[0].lsn - 1 if entries else 0
        (path / LOG).mkdir(parents=True)
        self.manifest = Manifest(path.name, cluster, "w1", before, fingerprint=text_of(EMPTY))
        self.entries: list[LogEntry] = []
        self.add(entries)

    def add(self, entries: Sequence[LogEntry]) -> None:
        """More of it."""
        if entries:
            first, last = entries[0], entries[-1]
            part = self.path / "part"
            with part.open("wb") as file:
                written = write_lines(file, ((each.lsn, (each.txid, each.timestamp, *each[5:])) for each in entries))
            segment = Segment(
                first.lsn, last.lsn, last.txid, last.timestamp, text_of(last.fingerprint), written.size_bytes, written.sha256, "w1", 1
            )  # fmt: skip
            part.rename(self.path / segment.path)
            self.manifest = self.manifest.with_segment(segment)
            # A backup does not know origins and epochs.
            self.entries += [each._replace(origin="", epoch=0) for each in entries]
        write_manifest(self.path, self.manifest)


class Copy:
    """A worker's copy, as a client of its node asks it."""

    def __init__(self, store: MemoryStore, between: Sequence[LogEntry] = ()) -> None:
        """``between`` is applied after the first answer."""
        self.store = store.restarted()
        self.image = self.store._image
        """The data behind its back."""
        self.between = list(between)
        self.asked: list[Sequence[tuple[str, str, int]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def digests(self, bits: int, *, timeout: float | None) -> dict[str, Any]:
        assert timeout
        told = self._read("digests", {"bits": bits})
        for entry in self.between:
            line = (entry.txid, entry.timestamp, entry.outcome, entry.reason, entry.effect, entry.fingerprint)
            self.store.apply(entry.lsn, [line])
        return told

    def bucket_items(
        self, buckets: Sequence[tuple[str, str, int]], bits: int, *, limit: int, timeout: float | None
    ) -> dict[str, Any]:
        assert timeout
        self.asked.append(buckets)
        return self._read("items", {"bits": bits, "buckets": [msgpack.packb(each) for each in buckets], "limit": limit})

    def _read(self, kind: str, arguments: dict[str, object]) -> dict[str, Any]:
        answer: dict[str, Any] = msgpack.unpackb(b"".join(self.store.read(kind, "", arguments).pieces), use_list=False)
        return answer
