"""Snapshots of a journal that are given away: a compact copy of its file at one moment each, cut into chunks.

    <directory>/snapshots/<n>.mdb      removed when it is dropped, and all of them when the journal is opened again

Making one costs reading and writing what the journal holds, in any thread; appending goes on. Nobody relies on them: a follower
whose source lost a snapshot asks for another one. At most `SNAPSHOTS_LIMIT` are kept, the oldest goes first.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Lock

import lmdb

from brokerha.journal.chunks import sums_of
from brokerha.journal.database import translated
from brokerha.journal.directory import DATA
from brokerha.journal.lmdb_journal import LmdbJournal
from brokerha.journal.recovery import next_number_in
from brokerha.model.errors import JournalError
from brokerha.ports.copies import Snapshot

FOLDER = "snapshots"
SNAPSHOTS_LIMIT = 3


class SnapshotFiles:
    """The snapshots of the journal in ``home``; those that a process before left are removed. Raises JournalError."""

    def __init__(self, home: Path, chunk_bytes: int) -> None:
        self._folder = home / FOLDER
        self._chunk_bytes = chunk_bytes
        self._made = 0
        self._kept: dict[str, tuple[Snapshot, Path]] = {}
        self._lock = Lock()
        self.clear()

    def make(self, name: str, journal: LmdbJournal) -> Snapshot:
        """Make a snapshot, or answer the one that has the name already. Raises JournalFull, JournalError."""
        with self._lock:
            if name in self._kept:
                return self._kept[name][0]
            while len(self._kept) >= SNAPSHOTS_LIMIT:
                self._drop(next(iter(self._kept)))
            self._made += 1
            path = self._folder / f"{self._made}.mdb"
            try:
                self._folder.mkdir(exist_ok=True)
                journal.write_snapshot(path)
                snapshot = self._snapshot_in(path)
            except OSError as error:
                path.unlink(missing_ok=True)
                raise JournalError(f"the snapshot {path} cannot be made: {error.strerror}") from error
            except BaseException:
                path.unlink(missing_ok=True)
                raise
            self._kept[name] = snapshot, path
            return snapshot

    def _snapshot_in(self, path: Path) -> Snapshot:
        with translated(path), lmdb.open(str(path), subdir=False, readonly=True, lock=False, max_dbs=1) as environment:
            number = next_number_in(environment, path) - 1
        files = ((DATA, path.stat().st_size, sums_of(_pieces(path, self._chunk_bytes))),)
        return Snapshot(number, "", 0, self._chunk_bytes, files)

    def read_chunk(self, name: str, number: int) -> bytes | None:
        """One chunk; None when there is no such snapshot or number. Raises JournalError."""
        with self._lock:
            snapshot, path = self._kept.get(name, (None, self._folder))
            if snapshot is None or number < 0:
                return None
            try:
                with path.open("rb", buffering=0) as file:
                    return os.pread(file.fileno(), self._chunk_bytes, number * self._chunk_bytes) or None
            except OSError as error:
                raise JournalError(f"the snapshot {path} cannot be read: {error.strerror}") from error

    def drop(self, name: str) -> None:
        """Delete a snapshot. Idempotent."""
        with self._lock:
            self._drop(name)

    def _drop(self, name: str) -> None:
        if name in self._kept:
            self._kept.pop(name)[1].unlink(missing_ok=True)

    def clear(self) -> None:
        """Delete all. Raises JournalError."""
        with self._lock:
            self._kept.clear()
            try:
                shutil.rmtree(self._folder)
            except FileNotFoundError:
                return
            except OSError as error:
                raise JournalError(f"old snapshots in {self._folder} cannot be removed: {error.strerror}") from error


def _pieces(path: Path, chunk_bytes: int) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while piece := file.read(chunk_bytes):
            yield piece
