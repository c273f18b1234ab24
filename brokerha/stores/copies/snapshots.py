"""Snapshots that a worker gives to others: made, read chunk by chunk, dropped.

    snapshots/0/data/data.mdb                the tables, with the last lines of the effects log (frozen.py)
    snapshots/0/repositories/main.0/...      the engine's own backup: hard links to its files

A snapshot belongs to the process that made it: a start deletes all of them. Names come from other nodes and are never part of a
path. At most `SNAPSHOTS_LIMIT` are kept. A new one replaces the oldest; a program that still reads that one starts again. One is
made at a time; a drop or a close ends it within a chunk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from brokerha.model.errors import StoreError
from brokerha.model.fingerprints import packed, text_of
from brokerha.ports.copies import Kept, Snapshot
from brokerha.stores.copies.frozen import write_tables
from brokerha.stores.copies.snapshot_chunks import Chunks, sums_of
from brokerha.stores.execution.state import StoreState
from brokerha.stores.execution.worker_store import WorkerStore
from brokerha.stores.files.durable import delete_tree
from brokerha.stores.files.environment import store_errors

SNAPSHOTS_LIMIT = 3


class _Kept(NamedTuple):
    directory: Path
    snapshot: Snapshot
    chunks: Chunks


class Snapshots:
    """The snapshots of one worker, in their own directory. Any thread."""

    def __init__(self, home: Path, chunk_bytes: int, crash_point: Callable[[str], None], tail_lsns: int) -> None:
        self._home = home
        self._chunk_bytes = chunk_bytes
        self._crash_point = crash_point
        self._tail_lsns = tail_lsns
        self._kept: dict[str, _Kept] = {}
        self._next_number = 0
        self._one_at_a_time = threading.Lock()
        self._making = ""
        self._is_wanted = True
        self._is_closed = False
        delete_tree(home)

    def make(self, name: str, store: WorkerStore) -> Snapshot:
        """Make a snapshot of this store, or return the one with this name. Raises StoreError."""
        with self._one_at_a_time:
            kept = self._kept.get(name)
            if kept is not None:
                return kept.snapshot
            self._making, self._is_wanted = name, True
            directory = self._home / str(self._next_number)
            self._next_number += 1
            try:
                with store_errors("cannot make a snapshot"):
                    snapshot = self._made(store, directory)
                self._check_wanted()
                while len(self._kept) >= SNAPSHOTS_LIMIT:
                    self._delete(next(iter(self._kept)))
                self._kept[name] = _Kept(directory, snapshot, Chunks(snapshot))
            except BaseException:
                delete_tree(directory)
                raise
            finally:
                self._making = ""
            return snapshot

    def write(self, store: WorkerStore, directory: Path, begun: Callable[[], None]) -> Kept:
        """Write the content of a store to a new directory; ``begun`` is called when the content is fixed. Raises StoreError."""
        with self._one_at_a_time, store_errors("cannot keep a copy"):
            self._making, self._is_wanted = "", True
            state, lineage = self._written(store, directory, "keep", begun)
            return Kept(0, state.lsn, lineage, text_of(packed(state.fingerprint)), state.items)

    def read(self, name: str, number: int) -> bytes | None:
        """Return one chunk; None when there is no such snapshot or number. Raises StoreError."""
        kept = self._kept.get(name)
        place = kept.chunks.place(number) if kept is not None else None
        if kept is None or place is None:
            return None
        with store_errors("cannot read a snapshot"):
            try:
                with (kept.directory / place.path).open("rb", buffering=0) as file:
                    file.seek(place.offset)
                    return file.read(place.size_bytes)
            except FileNotFoundError:
                # The snapshot was dropped after the look-up, unless a person deletes files of a worker.
                return None

    def drop(self, name: str) -> None:
        """Delete a snapshot, or stop making it. Idempotent."""
        if name and name == self._making:
            self._is_wanted = False
        self._delete(name)

    def close(self) -> None:
        """Stop making a snapshot, delete all of them."""
        self._is_closed = True
        with self._one_at_a_time:
            self._kept.clear()
            delete_tree(self._home)

    def _delete(self, name: str) -> None:
        kept = self._kept.pop(name, None)
        if kept is not None:
            delete_tree(kept.directory)

    def _check_wanted(self) -> None:
        if self._is_closed or not self._is_wanted:
            raise StoreError("the snapshot is not wanted any more")

    def _made(self, store: WorkerStore, directory: Path) -> Snapshot:
        state, _ = self._written(store, directory, "snapshot", lambda: None)
        paths = sorted(path for path in directory.rglob("*") if path.is_file())
        files = []
        for path in paths:
            sums = sums_of(self._pieces(path))
            files.append((path.relative_to(directory).as_posix(), path.stat().st_size, sums))
        return Snapshot(state.lsn, text_of(packed(state.fingerprint)), state.items, self._chunk_bytes, tuple(files))

    def _written(self, store: WorkerStore, directory: Path, doing: str, begun: Callable[[], None]) -> tuple[StoreState, int]:
        with store.frozen(directory / "repositories") as frozen:
            begun()
            self._crash_point(f"{doing}: engines backed up")
            write_tables(frozen, directory / "data", self._check_wanted, self._tail_lsns)
            self._crash_point(f"{doing}: tables written")
            return frozen.state, frozen.lineage

    def _pieces(self, path: Path) -> Iterator[bytes]:
        with path.open("rb", buffering=0) as file:
            while piece := file.read(self._chunk_bytes):
                self._check_wanted()
                yield piece
