"""Archives made directly from entries, without a source: files of so many entries, and the manifest."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq

from brokerha.model.fingerprints import text_of
from brokerha.pipeline.archive import Archive
from brokerha.pipeline.archive_manifest import (
    MANIFEST,
    ArchiveFile,
    ArchiveState,
    chained,
    pack_manifest,
    path_of,
)
from brokerha.pipeline.entries import LogEntry, entry_hash
from brokerha.pipeline.rows import table_of


def archive_of(
    directory: Path, entries: Sequence[LogEntry], entries_each: int = 100, cluster: str = "orders"
) -> Archive:
    """An archive of these entries, which begin anywhere and have no gap."""
    (directory / "log").mkdir(parents=True)
    files = [
        file_of(directory, entries[start : start + entries_each]) for start in range(0, len(entries), entries_each)
    ]
    write_manifest(directory, files, cluster)
    return Archive(directory)


def write_manifest(directory: Path, files: Sequence[ArchiveFile], cluster: str = "orders") -> None:
    state = ArchiveState(
        id="a", cluster=cluster, first_lsn=files[0].first_lsn, generation=1, made_us=1, files=chained(files)
    )
    (directory / MANIFEST).write_bytes(pack_manifest(state))


def file_of(directory: Path, entries: Sequence[LogEntry]) -> ArchiveFile:
    first, last = entries[0], entries[-1]
    table = table_of(entries)
    path = path_of(first.lsn, last.lsn)
    pq.write_table(table, directory / path, compression="zstd")
    data = (directory / path).read_bytes()
    return ArchiveFile(
        path=path,
        first_lsn=first.lsn,
        last_lsn=last.lsn,
        rows=table.num_rows,
        size_bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        entries_sha256=hashlib.sha256(b"".join(map(entry_hash, entries))).hexdigest(),
        chain="",
        first_timestamp=first.timestamp,
        last_timestamp=last.timestamp,
        last_txid=last.txid,
        last_fingerprint=text_of(last.fingerprint),
    )
