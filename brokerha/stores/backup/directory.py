"""The folder of backups on a disk: one writer, backups placed complete, verification (BACKUP.md).

    <backups>/.lock                  locked by the process that writes into this folder
    <backups>/<name>/                a backup: manifest.json, copy/, log/
    <backups>/.<name>.partial        a backup in the making
    <backups>/.<name>.old            a backup that is being replaced; put back if its successor did not come

A name without a leading dot is a backup. One rename of a durable directory that was read again creates it, so a kill at any
moment leaves no backup of that name, or a complete one. `_clean` removes leftovers and runs only under the lock. Reading takes no
lock: each read is checked against the manifest.

Must never wait for another process, and never delete a foreign file.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from brokerha.model.errors import StoreDamaged, StoreError
from brokerha.model.fingerprints import text_of
from brokerha.model.ids import Lsn
from brokerha.model.operations import LoggedRow
from brokerha.stores.backup.lines import read_lines
from brokerha.stores.backup.manifest import (
    COPY,
    LOG,
    MANIFEST,
    Manifest,
    Segment,
    check_name,
    is_name,
    pack_manifest,
    read_manifest,
)
from brokerha.stores.files.durable import delete_tree, fsync_path, replace_file
from brokerha.stores.files.environment import store_errors

PARTIAL = ".partial"
_OF_SEGMENT = re.compile(r"\d+-\d+\.(lines|partial)\Z", re.ASCII)
OLD = ".old"
READ_BYTES = 1024 * 1024

Progress = Callable[[int], None]
"""Called with the number of bytes done since the last call; can raise to end the work."""


def no_progress(_size_bytes: int) -> None:
    """Report nothing."""


class BackupDirectory:
    """One backup: reading and verification."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def manifest_path(self) -> Path:
        """The path of the manifest."""
        return self.path / MANIFEST

    def manifest(self) -> Manifest:
        """Return its manifest. Raises StoreError when there is no backup here, StoreDamaged when it is damaged."""
        with store_errors(f"cannot read the backup {self.path.name}"):
            if not self.path.is_dir():
                raise StoreError(f"there is no backup {self.path.name} in {self.path.parent}")
            if not self.manifest_path.exists():
                raise StoreDamaged(f"{self.path} is no backup: it has no {MANIFEST}")
            return read_manifest(self.manifest_path.read_bytes(), str(self.manifest_path))

    def copy_file(self, path: str) -> Path:
        """Return the path of a file of the copy."""
        return self.path / COPY / path

    def lines(self, manifest: Manifest, first_lsn: Lsn, last_lsn: Lsn) -> Iterator[tuple[Lsn, LoggedRow]]:
        """Yield lines of the log from its segments, within the range. Raises StoreDamaged."""
        for segment in manifest.segments:
            if segment.first_lsn > last_lsn or segment.last_lsn < first_lsn:
                continue
            path = self.path / segment.path
            for lsn, row in read_lines(path, segment.first_lsn, segment.last_lsn, from_lsn=first_lsn):
                if lsn > last_lsn:
                    return
                if lsn >= first_lsn:
                    yield lsn, row

    def verify(self, note: Progress = no_progress) -> Iterator[str]:
        """Read all files; yield one sentence for each problem. Nothing is changed."""
        try:
            manifest = self.manifest()
        except StoreError as error:
            yield str(error)
            return
        for file in manifest.files:
            yield from _differences(self.copy_file(file.path), file.size_bytes, file.sha256, note)
        for segment in manifest.segments:
            yield from self.verify_segment(self.path / segment.path, segment, note)

    def verify_segment(self, path: Path, segment: Segment, note: Progress = no_progress) -> Iterator[str]:
        """Read one segment; yield its problems."""
        digest = hashlib.sha256()
        size_bytes = 0
        row: LoggedRow | None = None

        def seen(data: bytes) -> None:
            nonlocal size_bytes
            digest.update(data)
            size_bytes += len(data)
            note(len(data))

        try:
            for _lsn, row in read_lines(path, segment.first_lsn, segment.last_lsn, seen):  # noqa: B007  (the last one)
                pass
        except (StoreDamaged, OSError) as error:
            yield f"{path}: {error}"
            return
        if (size_bytes, digest.hexdigest()) != (segment.size_bytes, segment.sha256):
            yield f"{path}: its SHA-256 is not that of the manifest"
        if row is None or (row[0], row[1], text_of(row[5])) != (segment.txid, segment.timestamp, segment.fingerprint):
            yield f"{path}: its last line is not that of the manifest"


class BackupFolder:
    """All backups in one place."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> list[str]:
        """Return the names of all backups here, sorted, including unreadable ones; not those of folders that can be none (``lost+found``)."""
        if not self.path.is_dir():
            return []
        with store_errors(f"cannot read {self.path}"):
            return sorted(each.name for each in self.path.iterdir() if is_name(each.name) and each.is_dir())

    def backup(self, name: str) -> BackupDirectory:
        """Return the backup of this name, which need not exist. Raises InvalidRequest for an invalid name."""
        return BackupDirectory(self.path / check_name(name))

    def partial(self, name: str) -> Path:
        """Return the path where a backup is made."""
        return self.path / f".{name}{PARTIAL}"

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the turn of one writer, after removing the leftovers of others. Raises StoreError: in use."""
        with store_errors(f"cannot write into {self.path}"):
            self.path.mkdir(parents=True, exist_ok=True)
            with (self.path / ".lock").open("a+", encoding="ascii") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise StoreError(f"another backup is being written into {self.path}: wait for its end") from None
                self._clean()
                yield

    def place(self, name: str, crash_point: Callable[[str], None]) -> None:
        """Give a finished backup its name; then delete its predecessor. Under `writing`."""
        new, target, old = self.partial(name), self.path / name, self.path / f".{name}{OLD}"
        if target.exists():
            target.rename(old)
            crash_point("old one aside")
        new.rename(target)
        fsync_path(self.path)
        crash_point("placed")
        if old.exists():
            delete_tree(old)

    def _clean(self) -> None:
        for left in self.path.glob(f".*{PARTIAL}"):
            delete_tree(left)
        for left in self.path.glob(f".*{OLD}"):
            name = left.name.removeprefix(".").removesuffix(OLD)
            if (self.path / name).exists():
                delete_tree(left)
            else:
                left.rename(self.path / name)
        for name in self.names():
            self._clean_segments(BackupDirectory(self.path / name))

    def _clean_segments(self, backup: BackupDirectory) -> None:
        """Delete files that the manifest does not name: leftovers of an incremental backup that was killed."""
        log = backup.path / LOG
        if not log.is_dir():
            return
        try:
            known = {segment.path for segment in backup.manifest().segments}
        except StoreError:
            # A person must see a damaged backup as it is.
            return
        for file in log.iterdir():
            if f"{LOG}/{file.name}" not in known and _OF_SEGMENT.match(file.name):
                file.unlink()


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write or replace a manifest, complete and durable. Raises OSError."""
    replace_file(directory / MANIFEST, pack_manifest(manifest))


def sync_file(descriptor: int) -> None:
    """Make a file durable, and drop it from the page cache so that the next reader reads the disk."""
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def _differences(path: Path, size_bytes: int, sha256: str, note: Progress) -> Iterator[str]:
    digest = hashlib.sha256()
    found_bytes = 0
    try:
        with path.open("rb") as file:
            while piece := file.read(READ_BYTES):
                digest.update(piece)
                found_bytes += len(piece)
                note(len(piece))
    except OSError as error:
        yield f"{path}: {error.strerror}"
        return
    if found_bytes != size_bytes:
        yield f"{path}: it has {found_bytes} bytes instead of {size_bytes}"
    elif digest.hexdigest() != sha256:
        yield f"{path}: its SHA-256 is not that of the manifest"
