"""Makes a backup from a snapshot of a worker's copy, or extends it with lines of the log.

    write_backup     make_snapshot ─> copy/ ─> log/, if the worker has it from LSN 1 on ─> manifest.json ─> read again ─> rename
    extend_backup    lines after the last LSN of the backup ─> log/<first>-<last>.lines ─> read again ─> manifest.json

The worker goes on meanwhile: a snapshot delays writers only briefly, and lines are read from its log in pages. Each chunk is
compared with its SHA-256 when it arrives, and again when it is read from the disk.

Invariants: a backup with a name is complete (directory.py says how). Lines are added only if they continue it: at the last LSN of
the backup, the worker's log has the same transaction and fingerprint.

Must never touch the data of the worker, nor leave a snapshot of it.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from brokerha.model.errors import StoreDamaged, StoreError
from brokerha.model.fingerprints import EMPTY, text_of
from brokerha.model.ids import Lsn, NodeId
from brokerha.model.operations import LoggedRow
from brokerha.ports.copies import Snapshot, WorkerCopy
from brokerha.ports.store import Store
from brokerha.stores.backup.directory import PARTIAL, BackupDirectory, BackupFolder, sync_file, write_manifest
from brokerha.stores.backup.lines import Lines, LinesMissing, pages, row_of, write_lines
from brokerha.stores.backup.manifest import COPY, LOG, CopyFile, Manifest, Segment
from brokerha.stores.files.durable import delete_tree, fsync_path, fsync_tree, no_crash

_DIGEST_BYTES = 32

Meter = Callable[[int, int], None]
"""Called with (bytes done, bytes in all); can raise to end the work."""


class About(NamedTuple):
    """Fields of a manifest beside those of the copy."""

    cluster: str
    node: NodeId
    masters: tuple[NodeId, ...] = ()
    control_suite: tuple[Any, ...] = ()


class Work:
    """One backup in the making: its request, its progress report, and its crash points for tests."""

    def __init__(
        self,
        about: About,
        now_us: int,
        request: str = "",
        meter: Meter = lambda _done, _total: None,
        crash_point: Callable[[str], None] = no_crash,
    ) -> None:
        self.about = about
        self.now_us = now_us
        self.request = request
        self.crash_point = crash_point
        self.total_bytes = 0
        self._meter = meter
        self._done_bytes = 0

    def note(self, size_bytes: int) -> None:
        """Add this number of bytes to the progress."""
        self._done_bytes += size_bytes
        self._meter(self._done_bytes, max(self.total_bytes, self._done_bytes))


def write_backup(folder: BackupFolder, name: str, copy: WorkerCopy, work: Work, *, replace: bool = False) -> Manifest:
    """Make a full backup; return its manifest. A backup that the same request has made is returned again.

    Raises InvalidRequest (name), StoreError (it exists, no space, in use), StoreDamaged (the disk returned other bytes).
    """
    backup = folder.backup(name)
    with folder.writing():
        if (known := _made_before(backup, work)) is not None:
            return known
        if backup.path.exists() and not replace:
            raise StoreError(f"there is a backup {name} already: choose another name, or replace it (--replace)")
        snapshot_name = f"backup-{name}"
        partial = folder.partial(name)
        try:
            snapshot = copy.make_snapshot(snapshot_name)
            manifest = _write_backup(partial, name, copy, snapshot_name, snapshot, work)
            finish_backup(folder, name, manifest, work)
        except BaseException:
            delete_tree(partial)
            raise
        finally:
            copy.drop_snapshot(snapshot_name)
    return manifest


def _made_before(backup: BackupDirectory, work: Work) -> Manifest | None:
    if not work.request or not backup.path.exists():
        return None
    try:
        manifest = backup.manifest()
    except StoreError:
        return None
    made_by = manifest.segments[-1].request if manifest.segments else manifest.request
    return manifest if made_by == work.request else None


def _write_backup(directory: Path, name: str, copy: WorkerCopy, snapshot_name: str, snapshot: Snapshot, work: Work) -> Manifest:
    size_bytes = sum(size for _, size, _ in snapshot.files)
    lineage = copy.lineage
    check_space(directory.parent, size_bytes)
    # The written files are read once more.
    work.total_bytes = 2 * size_bytes
    files = _write_files(directory / COPY, copy, snapshot_name, snapshot, work)
    segments = _write_history(directory, snapshot.lsn, copy, work)
    fsync_tree(directory)
    line = _line_at(copy, snapshot.lsn)
    return Manifest(
        name=name,
        cluster=work.about.cluster,
        node=work.about.node,
        lsn=snapshot.lsn,
        txid=line[0] if line else "",
        timestamp=line[1] if line else 0,
        fingerprint=snapshot.fingerprint,
        items=snapshot.items,
        masters=work.about.masters,
        control_suite=work.about.control_suite,
        files=files,
        segments=segments,
        chunk_bytes=snapshot.chunk_bytes,
        made_us=work.now_us,
        request=work.request,
        lineage=lineage,
    )


def finish_backup(folder: BackupFolder, name: str, manifest: Manifest, work: Work) -> None:
    """Write the manifest of a durable partial backup, read the backup again, and give it its name.

    Under `writing`. Raises StoreDamaged when the disk returned other bytes.
    """
    partial = folder.partial(name)
    write_manifest(partial, manifest)
    work.crash_point("written")
    for problem in BackupDirectory(partial).verify(work.note):
        raise StoreDamaged(f"the new backup is not what was written ({problem}): check this disk")
    folder.place(name, work.crash_point)


def _write_files(target: Path, copy: WorkerCopy, snapshot_name: str, snapshot: Snapshot, work: Work) -> tuple[CopyFile, ...]:
    """Write all files of a snapshot, each chunk checked."""
    files = []
    number = 0
    for path, file_bytes, digests in snapshot.files:
        place = target / path
        place.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        with place.open("wb") as file:
            for start in range(0, len(digests), _DIGEST_BYTES):
                chunk = _chunk(copy, snapshot_name, number, digests[start : start + _DIGEST_BYTES])
                file.write(chunk)
                digest.update(chunk)
                number += 1
                work.note(len(chunk))
            file.flush()
            sync_file(file.fileno())
        files.append(CopyFile(path, file_bytes, digest.hexdigest()))
        work.crash_point("file written")
    return tuple(files)


def _write_history(directory: Path, lsn: Lsn, copy: WorkerCopy, work: Work) -> tuple[Segment, ...]:
    """Write all lines up to the copy, if the worker still has them from LSN 1 on."""
    (directory / LOG).mkdir(parents=True)
    if not lsn or copy.logged_from() > 1:
        return ()
    try:
        segment = write_segment(directory, 1, lsn, pages(copy.logged, 1, lsn), work)
    except LinesMissing:
        # Trimmed meanwhile: a backup without old lines is valid too.
        return ()
    work.crash_point("history written")
    return (segment,)


def check_space(folder: Path, needed_bytes: int) -> None:
    """Raise StoreError when a folder lacks this much space."""
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes:
        raise StoreError(f"{folder} has {free_bytes:,} bytes free, and {needed_bytes:,} are needed: free some space")


def _chunk(copy: WorkerCopy, snapshot_name: str, number: int, digest: bytes) -> bytes:
    chunk = copy.read_chunk(snapshot_name, number)
    if chunk is None:
        raise StoreError("the snapshot is gone: the copy was replaced meanwhile; make the backup again")
    if hashlib.sha256(chunk).digest() != digest:
        raise StoreDamaged(f"chunk {number} of the snapshot is not what it was when it was made: check this disk")
    return chunk


def extend_backup(folder: BackupFolder, name: str, copy: Store, work: Work) -> Manifest:
    """Add all lines of the log after a backup; return its manifest, unchanged when there are none.

    Raises StoreError (no such backup, the log does not reach back, in use), StoreDamaged (another history, or the disk returned
    other bytes).
    """
    backup = folder.backup(name)
    with folder.writing():
        manifest, lineage = backup.manifest(), copy.lineage
        if work.request and _made_before(backup, work) is not None:
            return manifest
        last_lsn = copy.applied().lsn
        _check_chain(manifest, copy, last_lsn, work.about)
        if last_lsn == manifest.last_lsn:
            return manifest
        first_lsn = manifest.last_lsn + 1
        segment = write_segment(backup.path, first_lsn, last_lsn, pages(copy.logged, first_lsn, last_lsn), work)
        work.crash_point("segment placed")
        extended = manifest.with_segment(segment, lineage)
        write_manifest(backup.path, extended)
        work.crash_point("manifest placed")
    return extended


def _check_chain(manifest: Manifest, copy: Store, applied_lsn: Lsn, about: About) -> None:
    """Check that the worker's history continues the backup."""
    name, end = manifest.name, manifest.last_lsn
    if manifest.cluster != about.cluster:
        raise StoreError(f"the backup {name} is of cluster {manifest.cluster}, this is {about.cluster}: use another name")
    went_back = (
        f"the backup {name} reaches to LSN {end} of the log of lineage {manifest.lineage}, {about.node} follows lineage {copy.lineage}, and "
        "the log went back between them (a split): make a full backup (without --incremental, under a new name or with --replace)"
        if copy.lineage != manifest.lineage
        else ""
    )
    if went_back and applied_lsn < end:
        raise StoreError(went_back)
    if applied_lsn < end:
        raise StoreError(f"{about.node} is at LSN {applied_lsn}, the backup {name} reaches to {end}: try again later")
    if end and copy.logged_from() > end:
        raise StoreError(
            f"the log of {about.node} begins at LSN {copy.logged_from()}, the backup {name} ends at {end}: make a full backup "
            "(without --incremental, under a new name or with --replace)"
        )
    line = _line_at(copy, end)
    fingerprint = text_of(line[5]) if line else text_of(EMPTY)
    is_same_transaction = line is None or not manifest.last_txid or line[0] == manifest.last_txid
    if went_back and (fingerprint != manifest.last_fingerprint or not is_same_transaction):
        raise StoreError(went_back)
    if fingerprint != manifest.last_fingerprint or not is_same_transaction:
        raise StoreDamaged(
            f"the backup {name} and {about.node} differ at LSN {end} ({manifest.last_fingerprint} and {fingerprint}): they are not "
            "of one history; make a full backup under a new name, and compare the workers (brokerha verify)"
        )


def write_segment(directory: Path, first_lsn: Lsn, last_lsn: Lsn, lines: Lines, work: Work) -> Segment:
    """Write all lines of a range into the directory of a backup, and read them again. Raises LinesMissing, StoreDamaged."""
    partial = directory / LOG / f"{first_lsn}-{last_lsn}{PARTIAL}"
    try:
        with partial.open("wb") as file:
            written = write_lines(file, lines, work.note)
            file.flush()
            sync_file(file.fileno())
    except BaseException:
        partial.unlink()
        raise
    work.crash_point("segment written")
    txid, timestamp, _, _, _, fingerprint = written.last
    segment = Segment(
        first_lsn, last_lsn, txid, timestamp, text_of(fingerprint), written.size_bytes, written.sha256, work.about.node,
        work.now_us, work.request,
    )  # fmt: skip
    for problem in BackupDirectory(directory).verify_segment(partial, segment, work.note):
        raise StoreDamaged(f"the new lines are not what was written ({problem}): check this disk")
    partial.rename(directory / segment.path)
    fsync_path(directory / LOG)
    return segment


def _line_at(store: Store, lsn: Lsn) -> LoggedRow | None:
    found = store.logged(lsn, lsn) if lsn else []
    return row_of(found[0]) if found else None
