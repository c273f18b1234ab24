"""Snapshots: made for other workers, read chunk by chunk, dropped; received from another one, beside the present copy.

    snapshots/0/data/data.mdb                the tables, with the last lines of the effects log (frozen.py)
    snapshots/0/repositories/main.0/...      the engine's own backup: hard links to its files

A snapshot belongs to the process that made it: a start deletes all of them. Names come from other nodes and are never part of a
path. At most `SNAPSHOTS_LIMIT` are kept. A new one replaces the oldest; a program that still reads that one starts again. One is
made at a time; a drop or a close ends it within a chunk.

Chunks are numbered over all files in their order; a file of 2.5 chunks takes three numbers, an empty file takes none:

    data/data.mdb           2.5 chunks    0 1 2
    repositories/main.0/A   empty
    repositories/main.0/B   1 chunk       3

The list comes from another process, so it is checked here before use: paths stay inside ``data/`` and ``repositories/``, no path
occurs twice or goes through a file, and sizes agree with the checksums.

    load            name, generation and list of files of the snapshot, one small file with its checksum
    copy.<n>/       the files, in their final place

Chunks are written without fsync, in any order. After a restart `resume` reads all of them and keeps the numbers of the right
ones, so that a kill or a power failure costs a few chunks and never keeps a wrong one. Opening changes files: `resume` deletes
files that are not in the list, and cuts files that are too long.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

import msgpack

from brokerha.model.errors import StoreDamaged, StoreError
from brokerha.model.fingerprints import packed, text_of
from brokerha.ports.copies import Kept, Snapshot
from brokerha.ports.store import Applied
from brokerha.stores.copies.frozen import write_tables
from brokerha.stores.execution.state import StoreState
from brokerha.stores.execution.worker_store import WorkerStore
from brokerha.stores.files.durable import delete_tree, fsync_path, fsync_tree, replace_file
from brokerha.stores.files.environment import store_errors

FOLDERS = ("data", "repositories")
FILES_LIMIT = 1_000_000
CHUNK_LIMIT_BYTES = 64 * 1024 * 1024
SUM_BYTES = 32
_PATH_LIMIT_BYTES = 1000
SNAPSHOTS_LIMIT = 3
MANIFEST: Final = "load"


class Place(NamedTuple):
    """Place and checksum of a chunk."""

    path: str
    offset: int
    size_bytes: int
    sha256: bytes

    def is_right(self, data: bytes) -> bool:
        """Tell whether these are the bytes of the chunk."""
        return len(data) == self.size_bytes and sha256(data).digest() == self.sha256


class Chunks:
    """The chunks of one snapshot. Raises StoreError when the snapshot contradicts itself or leads out of its directory."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._files = snapshot.files
        self._chunk_bytes = snapshot.chunk_bytes
        if not 0 < snapshot.chunk_bytes <= CHUNK_LIMIT_BYTES or len(self._files) > FILES_LIMIT:
            raise StoreError(f"the snapshot has chunks of {snapshot.chunk_bytes} bytes and {len(self._files)} files")
        _check_paths([path for path, _, _ in self._files])
        counts = []
        for path, size_bytes, sums in self._files:
            count = -(-size_bytes // snapshot.chunk_bytes)
            if size_bytes < 0 or len(sums) != count * SUM_BYTES:
                raise StoreError(f"the snapshot gives {len(sums)} bytes of sums for {path!r} of {size_bytes} bytes")
            counts.append(count)
        self._starts = [0, *accumulate(counts)]
        self.size_bytes = sum(size_bytes for _, size_bytes, _ in self._files)

    def __len__(self) -> int:
        return self._starts[-1]

    def place(self, number: int) -> Place | None:
        """Return the place of a chunk; None for an unknown number."""
        if not 0 <= number < len(self):
            return None
        # The last file that begins at or below the number holds it: an empty file begins where the next file does.
        path, size_bytes, sums = self._files[index := bisect_right(self._starts, number) - 1]
        nth = number - self._starts[index]
        offset = nth * self._chunk_bytes
        length = min(self._chunk_bytes, size_bytes - offset)
        return Place(path, offset, length, sums[nth * SUM_BYTES : (nth + 1) * SUM_BYTES])

    def places(self) -> Iterator[tuple[int, Place]]:
        """Yield all chunks in order, file by file."""
        for number in range(len(self)):
            place = self.place(number)
            if place is not None:
                yield number, place


def sums_of(pieces: Iterator[bytes]) -> bytes:
    """Return the SHA-256 of each chunk, concatenated."""
    return b"".join(sha256(piece).digest() for piece in pieces)


def _check_paths(paths: list[str]) -> None:
    files = set(paths)
    if len(files) != len(paths):
        raise StoreError("the snapshot names a file twice")
    for path in paths:
        parts = path.split("/")
        is_plain = all(part not in {"", ".", ".."} and "\0" not in part for part in parts)
        if not is_plain or parts[0] not in FOLDERS or len(parts) < 2 or len(path.encode()) > _PATH_LIMIT_BYTES:
            raise StoreError(f"the snapshot has a file {path[:200]!r}, which does not belong into a copy")
        if any("/".join(parts[:depth]) in files for depth in range(1, len(parts))):
            raise StoreError(f"the snapshot has {path!r} inside of another file")


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


class Load:
    """One load. One thread."""

    def __init__(self, name: str, generation: int, snapshot: Snapshot) -> None:
        """Raise StoreError for a snapshot that contradicts itself or leads out of its directory."""
        self.name = name
        self.generation = generation
        self.snapshot = snapshot._replace(files=tuple((path, size_bytes, sums) for path, size_bytes, sums in snapshot.files))
        self.chunks = Chunks(self.snapshot)
        self.kept: set[int] = set()
        """Numbers of the verified chunks."""

    def resume(self, directory: Path) -> None:
        """Find the right chunks in the directory; delete foreign files. Raises StoreError."""
        with store_errors("cannot look through what was loaded before"):
            sizes = {path: size_bytes for path, size_bytes, _ in self.snapshot.files}
            for path in sorted(directory.rglob("*")):
                if path.is_symlink() or path.is_file():
                    size_bytes = sizes.get(path.relative_to(directory).as_posix())
                    if size_bytes is None or path.is_symlink():
                        path.unlink()
                    elif path.stat().st_size > size_bytes:
                        with path.open("r+b") as file:
                            file.truncate(size_bytes)
            self.kept = {number for number, place in self.chunks.places() if self._is_there(directory, place)}

    def make_room(self, directory: Path) -> None:
        """Make the directories, and empty files. Raises StoreError."""
        with store_errors("cannot make room for a snapshot"):
            for folder in FOLDERS:
                (directory / folder).mkdir(parents=True, exist_ok=True)
            for path, _, _ in self.snapshot.files:
                (directory / path).parent.mkdir(parents=True, exist_ok=True)
                (directory / path).touch()

    def missing_bytes(self) -> int:
        """Return the number of missing bytes."""
        there = sum(place.size_bytes for number, place in self.chunks.places() if number in self.kept)
        return self.chunks.size_bytes - there

    def keep(self, directory: Path, number: int, data: bytes) -> bool:
        """Write a chunk to its place; return False when it is wrong. Raises StoreError."""
        place = self.chunks.place(number)
        if place is None or not place.is_right(data):
            return False
        if number not in self.kept:
            with store_errors("cannot keep a chunk of a snapshot"), (directory / place.path).open("r+b") as file:
                file.seek(place.offset)
                file.write(data)
            self.kept.add(number)
        return True

    def finish(self, directory: Path) -> None:
        """Make all files durable. Raises StoreError when chunks are missing."""
        missing = len(self.chunks) - len(self.kept)
        if missing:
            raise StoreError(f"the snapshot cannot be opened: {missing} of {len(self.chunks)} chunks are missing")
        with store_errors("cannot make a snapshot durable"):
            for path, size_bytes, _ in self.snapshot.files:
                found_bytes = (directory / path).stat().st_size
                if found_bytes != size_bytes:
                    raise StoreError(f"{path} of the snapshot has {found_bytes} bytes instead of {size_bytes}")
            fsync_tree(directory)
            fsync_path(directory.parent)

    def write(self, home: Path) -> None:
        """Make the manifest durable. Raises StoreError."""
        body = msgpack.packb([self.name, self.generation, list(self.snapshot)])
        with store_errors("cannot begin to load a snapshot"):
            replace_file(home / MANIFEST, crc32(body).to_bytes(4, "big") + body)

    def _is_there(self, directory: Path, place: Place) -> bool:
        return any(place.is_right(data) for data in _read(directory / place.path, place))


def compare(found: Applied, promised: Applied) -> None:
    """Raise StoreDamaged when a copy differs from the promise of its snapshot."""
    if found != promised:
        raise StoreDamaged(f"the copy that was loaded is {_said(found)}, and its snapshot says {_said(promised)}")


def _said(applied: Applied) -> str:
    return f"at LSN {applied.lsn} with {applied.items} items and fingerprint {applied.fingerprint}"


def found_load(home: Path) -> Load | None:
    """Return the load begun before; None when there is none, or its record cannot be read."""
    with store_errors("cannot read of a load that was begun"):
        try:
            row = (home / MANIFEST).read_bytes()
        except FileNotFoundError:
            return None
    if len(row) < 4 or crc32(row[4:]) != int.from_bytes(row[:4], "big"):
        return None
    try:
        name, generation, fields = msgpack.unpackb(row[4:])
        return Load(name, generation, Snapshot(*fields))
    except (StoreError, ValueError, TypeError):
        # Another version of this program wrote the record: the load starts again.
        return None


def _read(path: Path, place: Place) -> Iterator[bytes]:
    """Yield the bytes at a place, unless there is no such file."""
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(place.offset)
            yield file.read(place.size_bytes)
    except FileNotFoundError:
        return
