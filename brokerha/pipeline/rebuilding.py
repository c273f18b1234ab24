"""The job that rebuilds the state at any LSN or time from an archive: as a backup, or as the directory of one worker.

    archive ─> which LSN? is anything in the way? ─> content (folded here, or by Spark into a staging folder) ─> built and proved ─> its name

The fingerprint of the LSN stands in the archive, written by the cluster when it was there. What was built is read again as a whole and must
come to just that fingerprint, whatever computed the content. A backup is restored with ``brokerha restore``; a worker that starts from a
directory says its LSN and follows the log from the next one on, as long as its master still has it.

The staging folder lies in the archive, which all executors see, under a lock of this process, and is deleted at the end; what a killed run left
there is deleted by the next one. Must never write anywhere else, nor change what the archive holds.
"""

from __future__ import annotations

import dataclasses
import fcntl
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from brokerha.model.errors import (
    ConfigurationError,
    InvalidRequest,
    ProtocolError,
    StoreDamaged,
    StoreDiffers,
    StoreError,
)
from brokerha.model.fingerprints import EMPTY, from_text, text_of
from brokerha.model.ids import Lsn, NodeId, Timestamp, TxId, is_node_id
from brokerha.pipeline.archive import Archive, ArchiveState
from brokerha.pipeline.rebuilding_content import Content, Small, entries, folded, give, last_lines, line_of, staged
from brokerha.stores.backup_directory import BackupFolder
from brokerha.stores.backup_lines import Lines
from brokerha.stores.backup_writing import About, Work
from brokerha.stores.building import CopyBuilder
from brokerha.stores.building_places import Plan, build_backup, build_worker
from brokerha.stores.durable_files import delete_tree
from brokerha.stores.environment import store_errors
from brokerha.stores.restore_target import obstacle_in

STAGING: Final = "rebuilding"
HERE_ROWS: Final = 2_000_000
"""Up to so many rows, this process is done before Spark has started."""
FOLD_ROWS: Final = 20_000
"""Up to so many, it folds entry by entry, and so says which entry does not fit."""
NODE: Final[NodeId] = "archive"
"""Who stands in the manifest of a backup as the worker whose copy it is."""

Tell = Callable[[int, int], None]
"""Is told (items done, items in all); may raise to end the work."""
Compute = Callable[[Archive, ArchiveState, Lsn, Path], Small]
"""Writes the content at an LSN into a staging folder, and returns what of it is small."""


@dataclass(frozen=True, slots=True)
class RebuildOptions:
    """Which state, from where, and what becomes of it: one of ``backup`` and ``into``."""

    archive: Path
    backup: str = ""
    """Name of the backup that is made."""
    backups: Path | None = None
    """Folder that it is made in."""
    into: Path | None = None
    """Directory of the worker that is made."""
    node: NodeId = ""
    """With ``into``: whose directory it is; the name of the directory without it."""
    cluster: str = ""
    """Cluster that it is for; the one of the archive without it."""
    to_lsn: Lsn | None = None
    to_time_us: Timestamp | None = None
    """Microseconds since 1970: the last transaction at or before it. Neither: the last one of the archive."""
    is_replaced: bool = False
    """Whether what has that name, or lies in that directory, may be replaced."""
    has_lines: bool = False
    """Whether the backup gets all lines of the log up to its LSN too."""
    is_dry_run: bool = False
    here_rows: int = HERE_ROWS


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """What was rebuilt."""

    archive: str
    cluster: str
    lsn: Lsn
    txid: TxId
    timestamp: Timestamp
    """Microseconds since 1970; 0 for LSN 0."""
    fingerprint: str
    """Of the cluster at that LSN; what was built has it, or there is no report."""
    target: str
    """The backup or the directory."""
    node: NodeId = ""
    rows: int = 0
    """Of the archive, that the state comes from."""
    items: int = 0
    """Quads, keys and messages; 0 in a dry run."""
    repositories: int = 0
    is_on_spark: bool = False
    compute_s: float = 0.0
    build_s: float = 0.0
    is_dry_run: bool = False
    in_the_way: str = ""
    """What keeps it from being made, in a dry run; empty when nothing does."""


def run(options: RebuildOptions, compute: Compute, tell: Tell, now_us: Callable[[], int] = lambda: 0) -> RebuildReport:
    """Rebuild. ``compute`` is called for large archives only.

    Raises InvalidRequest (no such LSN or time, a wrong name), StoreError (something is in the way, no space), StoreDiffers (what the archive
    holds is not what was logged), StoreDamaged.
    """
    with _archive_named(options.archive):
        return _run(options, compute, tell, now_us)


def _run(options: RebuildOptions, compute: Compute, tell: Tell, now_us: Callable[[], int]) -> RebuildReport:
    archive = Archive(options.archive)
    state = archive.state()
    report = planned(options, archive, state)
    if options.is_dry_run:
        return report
    if report.in_the_way:
        raise StoreError(report.in_the_way)
    begun = time.monotonic()
    with _content(options, archive, state, report, compute) as content:
        computed = time.monotonic()
        plan = _plan(archive, state, report, content, tell)
        if options.into is not None:
            build_worker(options.into, plan, cluster=report.cluster, node=report.node, is_forced=options.is_replaced)
        else:
            _back_up(options, archive, state, report, plan, now_us())
    is_on_spark = report.rows > options.here_rows
    return _ended(report, content, computed - begun, time.monotonic() - computed, is_on_spark=is_on_spark)


def planned(options: RebuildOptions, archive: Archive, state: ArchiveState) -> RebuildReport:
    """What would be rebuilt, and what is in its way; nothing is changed. Raises as `run` does."""
    lsn = lsn_of(options, archive, state)
    node, cluster = _names(options, state)
    if options.into is not None:
        target, in_the_way = options.into, _obstacle(options.into, cluster, is_forced=options.is_replaced)
    else:
        backup = _folder(options).backup(options.backup)
        target = backup.path
        is_there = target.exists() and not options.is_replaced
        in_the_way = (
            f"there is a backup {options.backup} already: choose another name, or --replace" if is_there else ""
        )
    lines = last_lines(archive, state, lsn)
    txid, timestamp, fingerprint = (lines[-1][0], lines[-1][1], lines[-1][5]) if lines else ("", 0, EMPTY)
    return RebuildReport(
        archive=str(options.archive),
        cluster=cluster,
        lsn=lsn,
        txid=txid,
        timestamp=timestamp,
        fingerprint=text_of(fingerprint),
        target=str(target),
        node=node,
        rows=sum(file.rows for file in state.files_of(1, lsn)),
        is_dry_run=options.is_dry_run,
        in_the_way=in_the_way,
    )


def lsn_of(options: RebuildOptions, archive: Archive, state: ArchiveState) -> Lsn:
    """The LSN that is meant. Raises InvalidRequest, StoreError when no state can be computed from the archive."""
    if not state.holds_every_state:
        raise StoreError(
            f"the archive in {archive.directory} begins with LSN {state.first_lsn}: no state can be rebuilt from it, because what was "
            "written before is not in it; rebuild from an archive that begins with LSN 1, or restore a backup"
        )
    if options.to_lsn is not None and options.to_time_us is not None:
        raise InvalidRequest("an LSN and a time are two ways to say up to where: give one of them")
    if options.to_time_us is not None:
        return archive.lsn_at(options.to_time_us)
    lsn = state.last_lsn if options.to_lsn is None else options.to_lsn
    if not 0 <= lsn <= state.last_lsn:
        raise InvalidRequest(
            f"the archive in {archive.directory} holds the states up to LSN {state.last_lsn}, not {lsn}: bring it up to date "
            "(brokerha pipeline archive), or name an earlier one"
        )
    return lsn


def _names(options: RebuildOptions, state: ArchiveState) -> tuple[NodeId, str]:
    """Node and cluster that it is for. Raises InvalidRequest, ConfigurationError."""
    if bool(options.backup) == (options.into is not None):
        raise InvalidRequest("what is to be made? name a backup, or give the directory of a worker")
    cluster = options.cluster or state.cluster
    if not cluster:
        raise ConfigurationError(f"the archive in {options.archive} does not say which cluster it is of: give its name")
    node = NODE
    if options.into is not None:
        node = options.node or options.into.resolve().name
    for name, what in ((cluster, "cluster"), (node, "node")):
        if not is_node_id(name):
            raise InvalidRequest(f"{name!r} is no name of a {what}: it has 1 to 32 of a-z, 0-9 and -")
    return node, cluster


def _folder(options: RebuildOptions) -> BackupFolder:
    if options.backups is None:
        raise ConfigurationError("no folder of backups is named")
    return BackupFolder(options.backups)


def _obstacle(directory: Path, cluster: str, *, is_forced: bool) -> str:
    obstacle = obstacle_in(directory)
    if not obstacle.text or (is_forced and not obstacle.is_locked):
        return ""
    if obstacle.is_locked:
        return obstacle.text
    return f"{obstacle.text}; take another directory, or replace it with --force {cluster}"


@contextmanager
def _archive_named(directory: Path) -> Iterator[None]:
    """Say of content that is not what was logged which archive it is of, and what to do."""
    what_to_do = (
        f"the archive in {directory} is not what was archived: use a copy of it; "
        f"brokerha pipeline audit --archive {directory} says which row it is"
    )
    try:
        yield
    except StoreDiffers as error:
        raise StoreDiffers(f"{error}: {what_to_do}", error.lsn, error.fingerprint) from error
    except ProtocolError as error:
        raise StoreDamaged(f"{error}: {what_to_do}") from error


@contextmanager
def _content(
    options: RebuildOptions, archive: Archive, state: ArchiveState, report: RebuildReport, compute: Compute
) -> Iterator[Content]:
    if report.rows <= options.here_rows:
        if report.rows <= FOLD_ROWS:
            yield folded(archive, state, report.lsn)
            return
        compute = _stage_here
    with staging_folder(options.archive) as staging:
        yield staged(staging, compute(archive, state, report.lsn, staging))


def _stage_here(archive: Archive, state: ArchiveState, lsn: Lsn, staging: Path) -> Small:
    # pyarrow is imported only where it is used.
    from brokerha.pipeline.rebuilding_columns import stage_here

    return stage_here(archive, state, lsn, staging)


@contextmanager
def staging_folder(archive: Path) -> Iterator[Path]:
    """A folder in an archive for one run, deleted with the block; those that killed runs left behind go first. Raises StoreError."""
    home = archive / STAGING
    with store_errors(f"cannot write into {home}"):
        home.mkdir(exist_ok=True)
        for left in home.iterdir():
            _delete_abandoned(left)
        folder = home / secrets.token_hex(8)
        folder.mkdir()
    try:
        with (folder / "lock").open("w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield folder
    finally:
        delete_tree(folder)


def _delete_abandoned(folder: Path) -> None:
    """Delete what no process has locked, unless it is being made at this moment."""
    try:
        with (folder / "lock").open("r+", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            delete_tree(folder)
    except (BlockingIOError, FileNotFoundError):
        return


def _plan(archive: Archive, state: ArchiveState, report: RebuildReport, content: Content, tell: Tell) -> Plan:
    # Each item is given once, and read once more to prove it.
    total = 2 * content.items
    given = 0

    def note(items: int) -> None:
        nonlocal given
        given += items
        tell(min(given, total), total)

    def fill(builder: CopyBuilder) -> None:
        give(content, last_lines(archive, state, report.lsn), builder, note)

    def paced(items: int) -> None:
        tell(min(content.items + items, total), total)

    return Plan(
        cluster=report.cluster,
        lsn=report.lsn,
        txid=report.txid,
        timestamp=report.timestamp,
        fingerprint=from_text(report.fingerprint),
        fill=fill,
        paced=paced,
    )


def _back_up(
    options: RebuildOptions, archive: Archive, state: ArchiveState, report: RebuildReport, plan: Plan, now_us: int
) -> None:
    history: Lines | None = None
    if options.has_lines:
        history = ((entry.lsn, line_of(entry)) for entry in entries(archive, state, 1, report.lsn))
    work = Work(About(report.cluster, NODE), now_us)
    build_backup(_folder(options), options.backup, plan, work, history=history, replace=options.is_replaced)


def _ended(
    report: RebuildReport, content: Content, compute_s: float, build_s: float, *, is_on_spark: bool
) -> RebuildReport:
    return dataclasses.replace(
        report,
        items=content.items,
        repositories=len(content.repositories),
        is_on_spark=is_on_spark,
        compute_s=round(compute_s, 3),
        build_s=round(build_s, 3),
    )
