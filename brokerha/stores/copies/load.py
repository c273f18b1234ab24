"""A snapshot of another worker, received chunk by chunk beside the present copy.

    load            name, generation and list of files of the snapshot, one small file with its checksum
    copy.<n>/       the files, in their final place

Chunks are written without fsync, in any order. After a restart `resume` reads all of them and keeps the numbers of the right
ones, so that a kill or a power failure costs a few chunks and never keeps a wrong one. Opening changes files: `resume` deletes
files that are not in the list, and cuts files that are too long.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final
from zlib import crc32

import msgpack

from brokerha.model.errors import StoreDamaged, StoreError
from brokerha.ports.copies import Snapshot
from brokerha.ports.store import Applied
from brokerha.stores.copies.snapshot_chunks import FOLDERS, Chunks, Place
from brokerha.stores.files.durable import fsync_path, fsync_tree, replace_file
from brokerha.stores.files.environment import store_errors

MANIFEST: Final = "load"


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
