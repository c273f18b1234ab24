"""Writing the Parquet files of an archive: what a task does, with nobody else's help, in memory that does not grow with its range.

    source ──read(first, last)──> entries ──groups──> rows ──> staging/<run>/<first>-<random>.parquet ──fsync──> StagedFile
    files  ──row groups────────────────────────────> rows ──> …                                           (compaction)

A task writes into staging only, under a name that no other attempt has, so it may be killed, run twice, or outlive the job that
started it. What it wrote it describes in a `StagedFile`, which travels back to the one process that may change the archive.
A file is closed with the entry that makes it large, so a range may become several files. Must never leave a gap unseen: each
entry is compared with the one before it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from brokerha.model.errors import StoreDamaged, StoreError
from brokerha.model.fingerprints import text_of
from brokerha.model.ids import Lsn, Timestamp, TxId
from brokerha.pipeline.archive import Archive, ArchiveFile, reading
from brokerha.pipeline.entries import EntrySource, LogEntry

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_ENTRIES = 50_000
GROUP_BYTES = 16 * 1024 * 1024
"""Entries, and bytes of their effects, of one row group: what a task holds in memory at a time."""
MERGED_GROUP_BYTES = 64 * 1024 * 1024
"""Of rows in memory; small row groups are put together up to it."""
FILE_BYTES = 256 * 1024 * 1024
"""Of effects; the entry that reaches it is the last one of its file."""
_DICTIONARY = ["origin", "outcome", "reason", "store", "name", "kind", "predicate", "graph", "content_type"]
"""Columns with few values each; in the others a dictionary would be built and thrown away again."""
_STATISTICS = ["lsn", "timestamp", "store", "name", "kind"]


@dataclass(frozen=True, slots=True)
class Range:
    """Entries of one task; both ends included."""

    first_lsn: Lsn
    last_lsn: Lsn

    @property
    def entries(self) -> int:
        """How many."""
        return self.last_lsn - self.first_lsn + 1


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file in staging, durable; fields as in `ArchiveFile`."""

    path: str
    """Absolute."""
    first_lsn: Lsn
    last_lsn: Lsn
    rows: int
    size_bytes: int
    sha256: str
    entries_sha256: str
    first_timestamp: Timestamp
    last_timestamp: Timestamp
    last_txid: TxId
    last_fingerprint: str


def write_range(source: EntrySource, wanted: Range, staging: Path, file_bytes: int = FILE_BYTES) -> list[StagedFile]:
    """Write the entries of a range into one file or more. Raises LinesMissing, StoreError, what the source raises."""
    from brokerha.pipeline.rows import collector_at_rest

    # Entries have no cycles either, and a group of them is many objects to look through again and again.
    with collector_at_rest():
        return _write_range(source, wanted, staging, file_bytes)


def _write_range(source: EntrySource, wanted: Range, staging: Path, file_bytes: int) -> list[StagedFile]:
    from brokerha.pipeline.rows import table_of

    staged: list[StagedFile] = []
    following = wanted.first_lsn
    groups = _groups(source.read(wanted.first_lsn, wanted.last_lsn))
    group = next(groups, None)
    while group is not None:
        with _Writing(staging, following) as writing:
            while group is not None and writing.taken_bytes < file_bytes:
                following = _check_order(group, following)
                table = table_of(group)
                writing.add(table, sum(len(entry.effect) for entry in group))
                group = next(groups, None)
        staged.append(writing.staged())
    if following != wanted.last_lsn + 1:
        raise StoreDamaged(f"the source ended before LSN {following}, and said that it reaches {wanted.last_lsn}")
    return staged


def merge_files(archive: Archive, files: Sequence[ArchiveFile], staging: Path) -> StagedFile:
    """Write the rows of adjacent files into one, each compared with what the manifest says of it. Raises StoreDamaged."""
    import pyarrow.parquet

    with _Writing(staging, files[0].first_lsn) as writing:
        for file in files:
            path = archive.path(file)
            with reading(path), path.open("rb") as opened:
                if hashlib.file_digest(opened, "sha256").hexdigest() != file.sha256:
                    raise StoreDamaged(f"{path} is not what was written: see brokerha pipeline audit --archive")
            with reading(path), pyarrow.parquet.ParquetFile(path) as parquet:
                for number in range(parquet.num_row_groups):
                    writing.keep(parquet.read_row_group(number))
    merged = writing.staged()
    expected = (files[0].first_lsn, files[-1].last_lsn, sum(file.rows for file in files), files[-1].last_fingerprint)
    if (merged.first_lsn, merged.last_lsn, merged.rows, merged.last_fingerprint) != expected:
        raise StoreDamaged(f"{archive.path(files[0])} to {files[-1].path} do not hold what the manifest says")
    return merged


def _groups(entries: Iterator[LogEntry]) -> Iterator[list[LogEntry]]:
    group: list[LogEntry] = []
    size_bytes = 0
    for entry in entries:
        group.append(entry)
        size_bytes += len(entry.effect)
        if size_bytes >= GROUP_BYTES or len(group) >= GROUP_ENTRIES:
            yield group
            group, size_bytes = [], 0
    if group:
        yield group


def _check_order(group: list[LogEntry], following: Lsn) -> Lsn:
    """The LSN after a group. Raises StoreDamaged at a gap or a second entry of the same LSN."""
    for expected, entry in enumerate(group, start=following):
        if entry.lsn != expected:
            raise StoreDamaged(f"the source gave LSN {entry.lsn} where {expected} follows: nothing was archived of it")
    return following + len(group)


class _Writing:
    """One Parquet file that grows by row groups; complete and durable when its block ends."""

    def __init__(self, staging: Path, first_lsn: Lsn) -> None:
        self.taken_bytes = 0
        self._path = staging / f"{first_lsn}-{secrets.token_hex(6)}.parquet"
        self._entries = hashlib.sha256()
        self._rows = 0
        self._first: tuple[Lsn, Timestamp] | None = None
        self._last: tuple[Lsn, Timestamp, TxId, bytes] = (first_lsn - 1, 0, "", b"")
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0
        self._size_bytes, self._sha256 = 0, ""

    def __enter__(self) -> Self:
        import pyarrow.parquet

        from brokerha.pipeline.rows import SCHEMA

        with writing_errors(self._path):
            self._writer = pyarrow.parquet.ParquetWriter(
                self._path, SCHEMA, compression="zstd", compression_level=1, use_dictionary=_DICTIONARY,
                write_statistics=_STATISTICS, sorting_columns=[pyarrow.parquet.SortingColumn(place) for place in range(3)],
            )  # fmt: skip
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            # Half a file: the next run deletes what lies in staging.
            return
        with writing_errors(self._path):
            self._flush()
            self._writer.close()
            with self._path.open("rb") as file:
                self._sha256 = hashlib.file_digest(file, "sha256").hexdigest()
                os.fsync(file.fileno())
                self._size_bytes = os.fstat(file.fileno()).st_size

    def keep(self, table: pa.Table) -> None:
        """Rows of whole entries, which may wait for the next ones: so many small files become few row groups."""
        self._waiting.append(table)
        self._waiting_bytes += table.nbytes
        if self._waiting_bytes >= MERGED_GROUP_BYTES:
            with writing_errors(self._path):
                self._flush()

    def add(self, table: pa.Table, effect_bytes: int) -> None:
        """Rows of whole entries, as a row group of their own."""
        self.taken_bytes += effect_bytes
        self._waiting.append(table)
        with writing_errors(self._path):
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if not self._waiting:
            return
        table = pa.concat_tables(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        self._note(table)
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._rows += table.num_rows

    def _note(self, table: pa.Table) -> None:
        """Order of the entries, their hashes, and the ends."""
        import numpy as np
        import pyarrow as pa

        lsns = table["lsn"].to_numpy()
        steps = np.diff(lsns, prepend=self._last[0])
        if lsns.size == 0 or steps[0] != 1 or steps.min() < 0 or steps.max() > 1:
            raise StoreDamaged(f"rows behind LSN {self._last[0]} are not in the order of their LSNs")
        hashes = table["entry_hash"].filter(pa.array(steps == 1)) if steps.min() == 0 else table["entry_hash"]
        self._entries.update(b"".join(hashes.to_pylist()))
        stamped = table["timestamp"].cast(pa.int64())
        if self._first is None:
            self._first = int(lsns[0]), stamped[0].as_py()
        ends: list[Any] = [table[name][-1].as_py() for name in ("txid", "fingerprint")]
        self._last = int(lsns[-1]), stamped[-1].as_py(), ends[0], ends[1]

    def staged(self) -> StagedFile:
        """What was written."""
        lsn, timestamp, txid, fingerprint = self._last
        first_lsn, first_timestamp = self._first or (lsn + 1, timestamp)
        return StagedFile(
            str(self._path), first_lsn, lsn, self._rows, self._size_bytes, self._sha256, self._entries.hexdigest(),
            first_timestamp, timestamp, txid, text_of(fingerprint),
        )  # fmt: skip


@contextmanager
def writing_errors(path: Path) -> Iterator[None]:
    """Turns what the operating system says about a path into one line: a disk that is full, a folder that may not be written."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror or error}; nothing of the archive was changed"
        ) from None
