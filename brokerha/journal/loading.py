"""A snapshot of another process's journal while it comes in, chunk by chunk, beside the present journal.

    <directory>/loading/manifest     name and list of chunks, with a checksum; written last when a load begins
    <directory>/loading/data.mdb     the file, in its full length from the beginning, holes where chunks are missing

Chunks are written in any order, and fsynced now and then. After a restart nothing of them is believed: each is read again and compared with
its SHA-256, so that a kill or a power cut costs a few chunks and never leaves a wrong one. A manifest without a file is a load
that was opened already.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgpack

from brokerha.journal.chunks import Chunks
from brokerha.journal.directory import DATA, sync_directory
from brokerha.journal.limits import AHEAD_BYTES
from brokerha.journal.rows import BadRow, checked, read_checked
from brokerha.model.errors import JournalError, JournalFull
from brokerha.ports.copies import Snapshot

FOLDER = "loading"
MANIFEST = "manifest"
SYNCED_EACH = 32
"""Chunks after which the file is fsynced: whoever opens it is not to wait for all of it."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Loading:
    """One load into ``folder``. One thread. Raises JournalError when the snapshot contradicts itself."""

    def __init__(self, folder: Path, name: str, snapshot: Snapshot) -> None:
        self.folder = folder
        self.name = name
        self.snapshot = snapshot
        self.data = folder / DATA
        self.kept: set[int] = set()
        """Numbers of the chunks that are there and right."""
        self._chunks = Chunks(snapshot, DATA)

    def begin(self) -> None:
        """Make room: an empty file of the right length, and the manifest. Raises JournalFull, JournalError."""
        self.check_space()
        with disk_errors(f"no snapshot can be loaded into {self.folder}"):
            remove(self.folder)
            self.folder.mkdir()
            with self.data.open("wb") as file:
                file.truncate(self._chunks.size_bytes)
            row = checked(msgpack.packb([self.name, list(self.snapshot)]))
            with (self.folder / MANIFEST).open("wb") as file:
                file.write(row)
                file.flush()
                os.fsync(file.fileno())
            sync_directory(self.folder)

    def resume(self) -> None:
        """Find out which chunks are there. Raises JournalError."""
        with disk_errors(f"what was loaded into {self.folder} cannot be read"), self.data.open("rb", 0) as file:
            for number in range(len(self._chunks)):
                offset, size_bytes = self._chunks.place(number)
                if self._chunks.is_right(number, os.pread(file.fileno(), size_bytes, offset)):
                    self.kept.add(number)

    def check_space(self) -> None:
        """Raise JournalFull when there is no space for the chunks that are missing."""
        there = sum(self._chunks.place(number)[1] for number in self.kept)
        needed = self._chunks.size_bytes - there + AHEAD_BYTES
        free = free_bytes(self.folder.parent)
        if free < needed:
            raise JournalFull(f"no space for a snapshot of the journal: it needs {needed:,} bytes, {free:,} are free")

    def keep(self, number: int, data: bytes) -> bool:
        """Write a chunk to its place; False when it is not what it must be. Raises JournalFull, JournalError."""
        if not self._chunks.is_right(number, data):
            return False
        if number not in self.kept:
            with disk_errors("a chunk of a snapshot cannot be kept"), self.data.open("r+b", 0) as file:
                file.seek(self._chunks.place(number)[0])
                file.write(data)
                if len(self.kept) % SYNCED_EACH == 0 or len(self.kept) + 1 == len(self._chunks):
                    os.fsync(file.fileno())
            self.kept.add(number)
        return True

    def finish(self) -> None:
        """Make everything durable. Raises JournalError when something is missing."""
        missing = len(self._chunks) - len(self.kept)
        if missing:
            raise JournalError(f"the snapshot cannot be opened: {missing} of {len(self._chunks)} chunks are missing")
        with disk_errors("a snapshot cannot be made durable"):
            with self.data.open("rb") as file:
                os.fsync(file.fileno())
            sync_directory(self.folder)


def found_loading(folder: Path) -> Loading | None:
    """The load that was begun before; None when there is none that can be gone on with. Raises JournalError."""
    with disk_errors(f"what was loaded into {folder} cannot be read"):
        try:
            name, fields = msgpack.unpackb(read_checked((folder / MANIFEST).read_bytes()), use_list=False)
            loading = Loading(folder, name, Snapshot(*fields))
        except (FileNotFoundError, BadRow, ValueError, TypeError, JournalError, msgpack.UnpackException):
            return None
        return loading if loading.data.exists() else None


def remove(folder: Path) -> None:
    """Delete a load and what belongs to it. Idempotent."""
    try:
        # First what makes it a load: a kill in between must not leave one with holes where chunks were.
        (folder / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(folder)
    except FileNotFoundError:
        return


def free_bytes(path: Path) -> int:
    """Space on the disk of a directory."""
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize


@contextmanager
def disk_errors(what: str) -> Iterator[None]:
    """Turn errors of the operating system into those of the journal."""
    try:
        yield
    except OSError as error:
        kind = JournalFull if error.errno in _FULL else JournalError
        raise kind(f"{what}: {error.strerror}") from error
