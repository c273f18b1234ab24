"""Where a copy is built: as a backup for `brokerha restore`, or as the directory of one worker that starts from it.

    build_backup    <backups>/.<name>.partial/copy/    built ─> sums ─> lines, if given ─> manifest ─> read again ─> rename
    build_worker    <dir>.restoring/inside/copy.0/     built ─> pointer ─> fsync ─> rename to <dir>

Both need two proofs before the rename: the content has the fingerprint of the log (`building`), and the disk holds the written
bytes. A kill at any moment leaves the old state; the next run starts again and clears leftovers.

Must never replace a backup or a directory that is in use. Must replace others only on request.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from brokerha.model.errors import StoreError
from brokerha.model.fingerprints import text_of
from brokerha.model.ids import Lsn, NodeId, Timestamp, TxId
from brokerha.ports.store import Applied
from brokerha.stores.backup.building import CopyBuilder
from brokerha.stores.backup.directory import READ_BYTES, BackupFolder
from brokerha.stores.backup.lines import Lines
from brokerha.stores.backup.manifest import COPY, LOG, CopyFile, Manifest, Segment
from brokerha.stores.backup.restore_target import Obstacle, Placing, obstacle_in
from brokerha.stores.backup.writing import Work, finish_backup, write_segment
from brokerha.stores.copies.directory import CopyDirectory
from brokerha.stores.copies.snapshots import FOLDERS
from brokerha.stores.files.durable import delete_tree, fsync_tree, no_crash
from brokerha.stores.files.environment import MAP_SIZE_BYTES, store_errors

_ONLY_OF_A_PROCESS: Final = ("lock", "data/lock.mdb")
"""Files of an open copy that are not part of its content."""


class Plan(NamedTuple):
    """The state to build, and how its content is given."""

    cluster: str
    lsn: Lsn
    txid: TxId
    """Of the transaction at that LSN, as is the timestamp; empty and 0 for LSN 0."""
    timestamp: Timestamp
    fingerprint: bytes
    fill: Callable[[CopyBuilder], None]
    """Give all content to a builder. Called once in a run, and again after a kill."""
    paced: Callable[[int], None] = lambda _items: None
    """Called regularly with the number of items read again; can raise to end the work."""
    map_size_bytes: int = MAP_SIZE_BYTES


def build_backup(
    folder: BackupFolder, name: str, plan: Plan, work: Work, *, history: Lines | None = None, replace: bool = False
) -> Manifest:
    """Make a backup with the state of a plan; return its manifest.

    ``history`` are all lines from LSN 1 to that of the plan. With them a restored cluster knows its transactions by their ids,
    and any earlier state can be restored too. Raises InvalidRequest (name), StoreError (it exists, no space, in use),
    StoreDiffers (the content differs from the log), StoreDamaged.
    """
    backup = folder.backup(name)
    with folder.writing():
        if backup.path.exists() and not replace:
            raise StoreError(f"there is a backup {name} already: choose another name, or replace it (--replace)")
        partial = folder.partial(name)
        try:
            applied = _built(partial / COPY, plan, work.about.node)
            work.crash_point("built")
            files = _files_of(partial / COPY, work)
            (partial / LOG).mkdir()
            segments: tuple[Segment, ...] = ()
            if history is not None and plan.lsn:
                segments = (write_segment(partial, 1, plan.lsn, history, work),)
            fsync_tree(partial)
            manifest = Manifest(
                name=name,
                cluster=plan.cluster,
                node=work.about.node,
                lsn=plan.lsn,
                txid=plan.txid,
                timestamp=plan.timestamp,
                fingerprint=text_of(plan.fingerprint),
                items=applied.items,
                masters=work.about.masters,
                files=files,
                segments=segments,
                made_us=work.now_us,
                request=work.request,
            )
            finish_backup(folder, name, manifest, work)
        except BaseException:
            delete_tree(partial)
            raise
    return manifest


def build_worker(
    directory: Path,
    plan: Plan,
    *,
    cluster: str,
    node: NodeId,
    is_forced: bool = False,
    crash_point: Callable[[str], None] = no_crash,
) -> Applied:
    """Make the directory of one worker, which starts at the LSN of the plan; return its LSN, fingerprint and count.

    ``cluster`` and ``node`` are its owner. Raises StoreError for an obstacle (``is_forced`` replaces a directory that no process
    has open), and as `build_backup` does; then nothing is changed.
    """
    refuse(obstacle_in(directory), is_forced=is_forced)
    placing = Placing(directory, f"build {cluster} {node}".encode(), crash_point)
    with placing.claimed():
        # Another run cannot use half of a copy.
        delete_tree(placing.inside)
        try:
            applied = _built_in(placing.inside, plan, cluster, node, crash_point)
        except BaseException:
            placing.finish()
            raise
        placing.make_durable()
    placing.place(is_forced=is_forced)
    placing.finish()
    return applied


def _built_in(inside: Path, plan: Plan, cluster: str, node: NodeId, crash_point: Callable[[str], None]) -> Applied:
    """Make a worker's directory that holds only its copy."""
    home = CopyDirectory(inside, cluster, node, crash_point)
    try:
        home.find()
        applied = _built(home.path(home.present), plan._replace(cluster=cluster), node)
        crash_point("built")
        home.point_to(home.present)
    finally:
        home.close()
    return applied


def refuse(obstacle: Obstacle, *, is_forced: bool) -> None:
    """Raise StoreError for an obstacle, unless it can be replaced."""
    if obstacle.text and (obstacle.is_locked or not is_forced):
        raise StoreError(f"{obstacle.text}; nothing was changed")


def _built(directory: Path, plan: Plan, node: NodeId) -> Applied:
    with store_errors(f"cannot make {directory}"):
        directory.mkdir(parents=True, exist_ok=True)
    builder = CopyBuilder(directory, cluster=plan.cluster, node=node, lsn=plan.lsn, map_size_bytes=plan.map_size_bytes)
    try:
        plan.fill(builder)
        applied = builder.finish(plan.fingerprint, plan.paced)
    finally:
        builder.close()
    for name in _ONLY_OF_A_PROCESS:
        (directory / name).unlink(missing_ok=True)
    return applied


def _files_of(copy: Path, work: Work) -> tuple[CopyFile, ...]:
    """Return all files of a built copy, each with its SHA-256."""
    files = []
    with store_errors("cannot read the copy that was built"):
        paths = sorted(path for folder in FOLDERS for path in (copy / folder).rglob("*") if path.is_file())
        # The files are read twice: for the checksums, and once more from the disk.
        work.total_bytes = 2 * sum(path.stat().st_size for path in paths)
        for path in paths:
            digest = hashlib.sha256()
            with path.open("rb") as file:
                while piece := file.read(READ_BYTES):
                    digest.update(piece)
                    work.note(len(piece))
            files.append(CopyFile(path.relative_to(copy).as_posix(), path.stat().st_size, digest.hexdigest()))
    return tuple(files)
