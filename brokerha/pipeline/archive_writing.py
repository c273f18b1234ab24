"""The one process that may change an archive: its lock, and how files in staging become part of it, all or none (ARCHIVE.md).

    <archive>/.lock                          locked by whoever writes
    <archive>/manifest.json                  what the archive holds: the only record of progress
    <archive>/log/<first>-<last>.parquet     files of the archive, and those that no manifest names yet or any more
    <archive>/staging/<run>/…                what tasks are writing
    <archive>/observations/<day>.jsonl       what nodes said of themselves (observations)

    staged and durable ──check: adjacent, chain──> rename into log/ ──> fsync log/ ──> manifest: write, fsync, rename, fsync

Whoever opens it to write first ends what a killed one left: staging goes, and so do files in log/ that the manifest names neither as
files nor as replaced ones. So an entry is in the archive from the rename of a manifest on, once, however often the work before it
was begun. The first manifest is written before the first file: a folder with files and without a manifest is one that lost it,
and is refused. Must never wait for another process, and never delete what it did not make.
"""

from __future__ import annotations

import dataclasses
import fcntl
import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from brokerha.model.errors import InvalidRequest, StoreDamaged, StoreError
from brokerha.model.ids import Lsn
from brokerha.pipeline.archive import Archive
from brokerha.pipeline.archive_files import StagedFile, writing_errors
from brokerha.pipeline.archive_manifest import (
    FIRST_CHAIN,
    LOG,
    MANIFEST,
    ArchiveFile,
    ArchiveState,
    ReplacedFile,
    chained,
    pack_manifest,
    path_of,
    problems_of,
)
from brokerha.stores.durable_files import delete_tree, fsync_path, replace_file

STAGING = "staging"
LOCK = ".lock"
OBSERVATIONS = "observations"
_OURS = frozenset({STAGING, LOCK, OBSERVATIONS, LOG, MANIFEST, f"{MANIFEST}.new"})
_FILE = re.compile(r"[0-9]+-[0-9]+\.parquet\Z")

CrashPoint = Callable[[str], None]


def no_crash(_name: str) -> None:
    """What production does between two steps: nothing."""


class ArchiveWriter:
    """An archive under its lock; made by `writing`."""

    def __init__(
        self, directory: Path, state: ArchiveState, now_us: Callable[[], int], crash_point: CrashPoint
    ) -> None:
        self.archive = Archive(directory)
        self.state = state
        self._directory = directory
        self._now_us = now_us
        self._crash_point = crash_point

    def begin(self, cluster: str, first_lsn: Lsn, lineage: int = 0) -> None:
        """Say what it is of, and with which lineage of the log it goes on: at its beginning, and each time after it. Raises InvalidRequest when it is of something else."""
        state = self.state
        if state.cluster and cluster and state.cluster != cluster:
            raise InvalidRequest(
                f"the archive in {self._directory} is of cluster {state.cluster}, the source is of {cluster}: choose another folder"
            )
        if state.files and first_lsn != state.first_lsn:
            raise InvalidRequest(
                f"the archive in {self._directory} begins at LSN {state.first_lsn} already: leave out --from-lsn"
            )
        wanted = dataclasses.replace(state, cluster=state.cluster or cluster, first_lsn=first_lsn, lineage=lineage)
        if wanted != state or state.generation == 0:
            self._publish(wanted)

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """A new folder for what tasks write; gone with the block. Raises StoreError."""
        folder = self._directory / STAGING / secrets.token_hex(6)
        with writing_errors(folder):
            folder.mkdir(parents=True)
        try:
            yield folder
        except Exception:
            delete_tree(folder)
            raise
        delete_tree(folder)

    def append(self, staged: Sequence[StagedFile]) -> ArchiveState:
        """Make files that go on where the archive ends a part of it: all of them or none. Raises StoreDamaged at a gap."""
        added = [_archived(each) for each in sorted(staged, key=lambda file: file.first_lsn)]
        return self._take([*self.state.files, *added], staged, self.state.replaced)

    def replace(self, merged: Sequence[StagedFile]) -> ArchiveState:
        """Put each of these files in the place of those whose entries it holds. The old ones stay on the disk."""
        files = list(self.state.files)
        replaced = list(self.state.replaced)
        now_us = self._now_us()
        for each in merged:
            inside = [file for file in files if each.first_lsn <= file.first_lsn and file.last_lsn <= each.last_lsn]
            if not inside or sum(file.rows for file in inside) != each.rows:
                raise StoreDamaged(f"LSN {each.first_lsn} to {each.last_lsn} are not whole files of this archive")
            place = files.index(inside[0])
            files[place : place + len(inside)] = [_archived(each)]
            replaced += [ReplacedFile(file.path, file.size_bytes, now_us) for file in inside]
        return self._take(files, merged, tuple(replaced))

    def vacuum(self, keep_us: int) -> tuple[int, int]:
        """Delete files that were replaced longer ago than this; their number and bytes.

        The manifest forgets them first, so that a kill leaves files that nobody names, for the next `writing` to delete.
        """
        before_us = self._now_us() - keep_us
        old = [each for each in self.state.replaced if each.replaced_us <= before_us]
        if old:
            kept = tuple(each for each in self.state.replaced if each.replaced_us > before_us)
            self._publish(dataclasses.replace(self.state, replaced=kept))
            self._crash_point("forgotten")
            clean(self._directory, self.state)
        return len(old), sum(each.size_bytes for each in old)

    def _take(
        self, files: list[ArchiveFile], staged: Sequence[StagedFile], replaced: tuple[ReplacedFile, ...]
    ) -> ArchiveState:
        state = dataclasses.replace(self.state, files=chained(files), replaced=replaced)
        problem = next(problems_of(state), None)
        if problem is not None:
            raise StoreDamaged(f"{problem}; nothing of the archive was changed")
        self._crash_point("staged")
        log = self._directory / LOG
        with writing_errors(log):
            log.mkdir(exist_ok=True)
            for each in staged:
                Path(each.path).rename(self._directory / path_of(each.first_lsn, each.last_lsn))
                self._crash_point("renamed")
            fsync_path(log)
        self._crash_point("durable")
        self._publish(state)
        self._crash_point("published")
        return self.state

    def _publish(self, state: ArchiveState) -> None:
        state = dataclasses.replace(state, generation=state.generation + 1, made_us=self._now_us())
        path = self._directory / MANIFEST
        with writing_errors(path):
            replace_file(path, pack_manifest(state))
        self.state = state


@contextmanager
def writing(directory: Path, now_us: Callable[[], int], crash_point: CrashPoint = no_crash) -> Iterator[ArchiveWriter]:
    """The turn of one writer, with everything ended that a killed one left behind.

    Raises StoreError: in use, not writable, no archive; StoreDamaged: its manifest cannot be trusted.
    """
    with writing_errors(directory):
        # Refused before anything is made in it.
        state_or_new(directory)
        with _locked(directory):
            # Read again: what was true before the lock may be what another one changed.
            state = state_or_new(directory)
            clean(directory, state)
            yield ArchiveWriter(directory, state, now_us, crash_point)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """The lock of an archive. When no archive was begun in the block, folders and lock that were made for it go again."""
    made = [each for each in (directory, *directory.parents) if not each.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / LOCK
    is_new = not path.exists()
    with path.open("a+", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # One that was opened just before its owner deleted it keeps nobody out.
            is_held = path.exists() and os.path.samestat(path.stat(), os.fstat(lock.fileno()))
        except BlockingIOError:
            is_held = False
        if not is_held:
            raise StoreError(f"another job is writing into the archive {directory}: wait for its end")
        try:
            yield
        finally:
            if is_new and not (directory / MANIFEST).exists():
                with suppress(OSError):
                    path.unlink()
                    for each in made:
                        each.rmdir()


def state_or_new(directory: Path) -> ArchiveState:
    """What an archive holds; that of a new one for a folder that is empty or does not exist. Raises StoreError."""
    archive = Archive(directory)
    if archive.exists():
        return archive.state()
    foreign = sorted({each.name for each in directory.iterdir()} - _OURS) if directory.is_dir() else []
    if foreign:
        raise StoreError(f"{directory} is no archive and not empty (it has {foreign[0]}): choose another folder")
    if next((directory / LOG).glob("*.parquet"), None) is not None:
        raise StoreDamaged(f"the archive in {directory} has lost its {MANIFEST}: use a copy of this archive")
    return ArchiveState(id=secrets.token_hex(8))


def clean(directory: Path, state: ArchiveState) -> None:
    """Delete staging, and files of the log that the manifest does not name. Under the lock."""
    for left in (directory / STAGING).glob("*"):
        delete_tree(left)
    known = {file.path for file in state.files} | {file.path for file in state.replaced}
    for path in (directory / LOG).glob("*.parquet"):
        if _FILE.match(path.name) and f"{LOG}/{path.name}" not in known:
            path.unlink(missing_ok=True)


def _archived(staged: StagedFile) -> ArchiveFile:
    return ArchiveFile(
        path=path_of(staged.first_lsn, staged.last_lsn),
        first_lsn=staged.first_lsn,
        last_lsn=staged.last_lsn,
        rows=staged.rows,
        size_bytes=staged.size_bytes,
        sha256=staged.sha256,
        entries_sha256=staged.entries_sha256,
        chain=FIRST_CHAIN,
        first_timestamp=staged.first_timestamp,
        last_timestamp=staged.last_timestamp,
        last_txid=staged.last_txid,
        last_fingerprint=staged.last_fingerprint,
    )
