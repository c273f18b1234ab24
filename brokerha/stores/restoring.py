"""A worker's directory made from a backup: the copy is loaded, lines are applied, everything is compared, then it gets its name.

    check_backup                       everything is read and compared with the manifest; nothing is changed
    <dir>.restoring/copy/              a worker's directory in the making (worker_copy.py), never one that a node opens
      load  ─>  lines of the log, each with its fingerprint  ─>  fingerprint computed from the data itself
    rename to <dir>                    from here on a node may open it

A kill at any moment leaves the old state of ``<dir>``; the next run with the same purpose goes on with what is there, one with
another purpose begins anew. Chunks and lines that are there already are not written again.

Must never: change ``<dir>`` before the new one is complete, nor touch it while a process has it open, forced or not.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from brokerha.model.errors import StoreDamaged, StoreError
from brokerha.model.fingerprints import text_of
from brokerha.model.ids import NodeId
from brokerha.ports.copies import Snapshot
from brokerha.ports.store import Applied
from brokerha.stores.backup_directory import BackupDirectory, Progress, no_progress
from brokerha.stores.backup_manifest import CopyFile, Manifest
from brokerha.stores.backup_writing import check_space
from brokerha.stores.durable_files import delete_tree, fsync_path, fsync_tree, replace_file
from brokerha.stores.environment import store_errors
from brokerha.stores.replaying import check_end, replay
from brokerha.stores.restore_target import LOCKS, Target, obstacle_in
from brokerha.stores.worker_copy import WorkerCopy

RESTORING: Final = ".restoring"
REPLACED: Final = ".replaced"
_CLAIM: Final = "claim"
_PURPOSE: Final = "purpose"


def _no_crash(_place: str) -> None:
    """Do nothing; tests give something here that raises or kills."""


def check_backup(backup: BackupDirectory, manifest: Manifest, note: Progress = no_progress) -> Snapshot:
    """Read a whole backup and compare it with its manifest; returns its copy as a snapshot. Raises StoreDamaged."""
    with store_errors(f"cannot read the backup {manifest.name}"):
        files = tuple(
            (file.path, file.size_bytes, _checked_sums(backup, file, manifest.chunk_bytes, note))
            for file in manifest.files
        )
        for segment in manifest.segments:
            for problem in backup.verify_segment(backup.path / segment.path, segment, note):
                raise StoreDamaged(f"the backup {manifest.name} is damaged: {problem}; use another one")
    return Snapshot(manifest.lsn, manifest.fingerprint, manifest.items, manifest.chunk_bytes, files)


def _checked_sums(backup: BackupDirectory, file: CopyFile, chunk_bytes: int, note: Progress) -> bytes:
    digest, sums, size_bytes = hashlib.sha256(), [], 0
    for chunk in _chunks(backup, file, chunk_bytes):
        digest.update(chunk)
        sums.append(hashlib.sha256(chunk).digest())
        size_bytes += len(chunk)
        note(len(chunk))
    if (size_bytes, digest.hexdigest()) != (file.size_bytes, file.sha256):
        raise StoreDamaged(
            f"{file.path} of the backup is damaged: its SHA-256 is not that of the manifest; use another backup"
        )
    return b"".join(sums)


def _chunks(backup: BackupDirectory, file: CopyFile, chunk_bytes: int) -> Iterator[bytes]:
    with backup.copy_file(file.path).open("rb") as source:
        while chunk := source.read(chunk_bytes):
            yield chunk


class Restore:
    """One directory that is restored: `prepare`, `place`, `finish`; several are all prepared before the first is placed."""

    def __init__(
        self,
        backup: BackupDirectory,
        manifest: Manifest,
        target: Target,
        directory: Path,
        *,
        cluster: str,
        node: NodeId,
        crash_point: Callable[[str], None] = _no_crash,
    ) -> None:
        self.target = target
        self.directory = directory
        self._backup = backup
        self._manifest = manifest
        self._cluster = cluster
        self._node = node
        self._crash_point = crash_point
        self._making = directory.with_name(f"{directory.name}{RESTORING}")
        state = (manifest.checksum, target.lsn, text_of(target.fingerprint))
        self._purpose = json.dumps([*state, cluster, node]).encode()

    def prepare(
        self, snapshot: Snapshot, note_bytes: Progress = no_progress, note_lines: Progress = no_progress
    ) -> Applied:
        """Make everything, beside its place; returns where it stands. What was made before by a run that was killed is kept.

        Raises StoreError (no space, another run makes the same), StoreDiffers (a line led to another content), StoreDamaged.
        """
        with self._claimed():
            copy = self._opened()
            try:
                if copy.applied().lsn < self.target.base_lsn:
                    self._load(copy, snapshot, note_bytes)
                    self._crash_point("loaded")
                self._apply(copy, note_lines)
                self._crash_point("lines applied")
                found, wanted = copy.recompute(), copy.applied()
            finally:
                copy.close()
            if found != wanted:
                raise StoreDamaged(
                    f"the restored data has fingerprint {found.fingerprint} and {found.items} items, and should have "
                    f"{wanted.fingerprint} and {wanted.items}: the copy was damaged when it was backed up; use another backup"
                )
            with store_errors("cannot make the restored data durable"):
                fsync_tree(self._making)
        return found

    def place(self, *, is_forced: bool = False) -> None:
        """Put what was prepared into its place. Raises StoreError when something is in the way."""
        replaced = self.directory.with_name(f"{self.directory.name}{REPLACED}")
        with self._claimed(), store_errors(f"cannot put the restored data into {self.directory}"):
            if self.directory.exists():
                # Left over from a run that came to its end; without the directory it is the only one there is.
                delete_tree(replaced)
            obstacle = obstacle_in(self.directory)
            if obstacle.is_locked or (obstacle.text and not is_forced):
                raise StoreError(f"{obstacle.text}; nothing was changed there")
            if obstacle.text:
                self.directory.rename(replaced)
                self._crash_point("old one aside")
            elif self.directory.exists():
                for name in LOCKS:
                    (self.directory / name).unlink(missing_ok=True)
            (self._making / "copy").rename(self.directory)
            fsync_path(self.directory.parent)
            self._crash_point("placed")
            delete_tree(replaced)

    @property
    def is_placed(self) -> bool:
        """Whether a run with the same purpose that was killed put it into its place already."""
        is_empty = self._making.exists() and not (self._making / "copy").exists()
        return is_empty and self._is_same_purpose() and bool(obstacle_in(self.directory).text)

    def finish(self) -> None:
        """Forget the purpose: what is done later is another restore."""
        delete_tree(self._making)

    def _is_same_purpose(self) -> bool:
        known = self._making / _PURPOSE
        return known.exists() and known.read_bytes() == self._purpose

    def _opened(self) -> WorkerCopy:
        """The copy in the making; a new one when what is there is of no use."""
        home = self._making / "copy"
        copy = self._copy_in(home)
        if not copy.trouble and copy.applied().lsn <= self.target.lsn:
            return copy
        copy.close()
        delete_tree(home)
        return self._copy_in(home)

    def _copy_in(self, home: Path) -> WorkerCopy:
        return WorkerCopy(home, cluster=self._cluster, node=self._node, from_cluster=self._manifest.cluster)

    def _load(self, copy: WorkerCopy, snapshot: Snapshot, note: Progress) -> None:
        there = copy.begin_load(self._manifest.checksum, snapshot)
        number = 0
        for file in self._manifest.files:
            with store_errors(f"cannot read the backup {self._manifest.name}"):
                for chunk in _chunks(self._backup, file, self._manifest.chunk_bytes):
                    if number not in there and not copy.keep_chunk(number, chunk):
                        raise StoreDamaged(
                            f"{file.path} of the backup has changed since it was checked: use another backup"
                        )
                    self._crash_point("chunk kept")
                    number += 1
                    note(len(chunk))
        copy.open_load()

    def _apply(self, copy: WorkerCopy, note: Progress) -> None:
        first_lsn = copy.applied().lsn + 1
        lines = self._backup.lines(self._manifest, first_lsn, self.target.lsn)
        if first_lsn <= self.target.lsn:
            replay(copy, lines, first_lsn, self.target.lsn, self._noting(note))
        check_end(copy, self.target.lsn, self.target.fingerprint)

    def _noting(self, note: Progress) -> Progress:
        def noted(lines: int) -> None:
            self._crash_point("batch applied")
            note(lines)

        return noted

    @contextmanager
    def _claimed(self) -> Iterator[None]:
        """The turn of one process, with everything cleared that was made for another purpose."""
        with store_errors(f"cannot make {self._making}"):
            self._making.mkdir(parents=True, exist_ok=True)
            with (self._making / _CLAIM).open("a+", encoding="ascii") as claim:
                try:
                    fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise StoreError(f"another process restores into {self.directory}: wait for its end") from None
                if not self._is_same_purpose():
                    delete_tree(self._making / "copy")
                    check_space(self._making, self._manifest.size_bytes)
                    replace_file(self._making / _PURPOSE, self._purpose)
                yield
