"""The state to restore, and the obstacles to it: all that a plan shows before any change.

    LSN      0 ........ copy ........ segment ........ segment
             |<-- only with all lines -->|<--- always -------->|      possible targets

A time selects the last line with a timestamp at or below it. `Placing` makes a directory of a node, a worker or a master, beside
its place, and puts it there complete:

    <dir>.restoring/claim      locked by the process that makes it
    <dir>.restoring/purpose    its purpose: a run with another one starts again, a run with the same one continues
    <dir>.restoring/inside/    the future <dir>
    <dir>.replaced             the old <dir>, between two renames; then deleted

A node opens only ``<dir>``, so that it never finds an incomplete directory. Must never touch ``<dir>`` while a process has it
open, forced or not.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from brokerha.model.errors import InvalidRequest, StoreError
from brokerha.model.fingerprints import EMPTY, from_text
from brokerha.model.ids import Lsn, NodeId, Timestamp, TxId
from brokerha.stores.backup.directory import BackupDirectory
from brokerha.stores.backup.manifest import Manifest
from brokerha.stores.copies.directory import POINTER, read_pointer
from brokerha.stores.files.durable import delete_tree, fsync_path, fsync_tree, no_crash, replace_file
from brokerha.stores.files.environment import store_errors

LOCKS = ("lock", "owner")
"""Files that a node locks while it has its directory open: of a worker, of a master."""
RESTORING: Final = ".restoring"
REPLACED: Final = ".replaced"
_CLAIM: Final = "claim"
_PURPOSE: Final = "purpose"


class Target(NamedTuple):
    """A state to restore."""

    lsn: Lsn
    txid: TxId
    timestamp: Timestamp
    fingerprint: bytes
    base_lsn: Lsn
    """LSN of the state that the lines are applied to: the copy, or 0 for an empty store."""

    @property
    def lines(self) -> int:
        """The number of lines to apply."""
        return self.lsn - self.base_lsn


class Obstacle(NamedTuple):
    """What blocks the place of a restore."""

    is_locked: bool
    """Locked by a running process: it must not be changed."""
    text: str
    """Text for people; empty when there is no obstacle."""


def choose_target(
    backup: BackupDirectory, manifest: Manifest, to_lsn: Lsn | None = None, to_time_us: Timestamp | None = None
) -> Target:
    """Return the state at an LSN, at a time, or at the end of a backup. Raises InvalidRequest when the backup lacks it."""
    if to_lsn is not None and to_time_us is not None:
        raise InvalidRequest("an LSN and a time are two ways to say up to where: give one of them")
    if to_time_us is not None:
        return _at_time(backup, manifest, to_time_us)
    lsn = manifest.last_lsn if to_lsn is None else to_lsn
    if not manifest.least_lsn <= lsn <= manifest.last_lsn:
        raise InvalidRequest(
            f"the backup {manifest.name} holds the states from LSN {manifest.least_lsn} to {manifest.last_lsn}, not {lsn}"
        )
    if (known := _known(manifest, lsn)) is not None:
        return known
    for _, (txid, timestamp, _, _, _, fingerprint) in backup.lines(manifest, lsn, lsn):
        return _target(manifest, lsn, txid, timestamp, fingerprint)
    raise InvalidRequest(f"the backup {manifest.name} has no line with LSN {lsn}")


def _at_time(backup: BackupDirectory, manifest: Manifest, to_time_us: Timestamp) -> Target:
    found: Target | None = None
    if manifest.least_lsn == 0 or manifest.timestamp <= to_time_us:
        found = _known(manifest, manifest.least_lsn)
    for lsn, (txid, timestamp, _, _, _, fingerprint) in backup.lines(manifest, 1, manifest.last_lsn):
        if timestamp <= to_time_us:
            found = _target(manifest, lsn, txid, timestamp, fingerprint)
    if found is None:
        raise InvalidRequest(
            f"the backup {manifest.name} begins with LSN {manifest.lsn}, which is later than that: take an earlier backup"
        )
    return found


def _known(manifest: Manifest, lsn: Lsn) -> Target | None:
    """Return a state that the manifest itself describes."""
    if lsn == manifest.lsn:
        fingerprint = from_text(manifest.fingerprint)
        return Target(lsn, manifest.txid, manifest.timestamp, fingerprint, manifest.lsn)
    if lsn == manifest.last_lsn:
        fingerprint = from_text(manifest.last_fingerprint)
        return _target(manifest, lsn, manifest.last_txid, manifest.last_timestamp, fingerprint)
    if lsn == 0:
        return Target(0, "", 0, EMPTY, 0)
    return None


def _target(manifest: Manifest, lsn: Lsn, txid: TxId, timestamp: Timestamp, fingerprint: bytes) -> Target:
    return Target(lsn, txid, timestamp, fingerprint, manifest.lsn if lsn >= manifest.lsn else 0)


def obstacle_in(directory: Path) -> Obstacle:
    """Return the obstacle in a directory. Raises InvalidRequest when it is not a directory."""
    if not directory.exists():
        return Obstacle(is_locked=False, text="")
    if not directory.is_dir():
        raise InvalidRequest(f"{directory} is no directory")
    for name in LOCKS:
        if (holder := _holder(directory / name)) is not None:
            return Obstacle(is_locked=True, text=f"process {holder} has {directory} open: stop that node first")
    held = sorted(path.name for path in directory.iterdir() if path.name not in LOCKS)
    if held:
        return Obstacle(is_locked=False, text=f"{directory} holds data: {', '.join(held[:5])}{' …' if held[5:] else ''}")
    return Obstacle(is_locked=False, text="")


def owner_of(directory: Path) -> tuple[str, NodeId] | None:
    """Return (cluster, node) of a worker's directory; None when it is not one, or missing. Raises StoreError."""
    with store_errors(f"cannot read {directory}"):
        if not (directory / POINTER).exists():
            return None
        try:
            pointer = read_pointer((directory / POINTER).read_bytes())
            return str(pointer["cluster"]), str(pointer["node"])
        except (ValueError, KeyError, TypeError):
            return None


def _holder(lock: Path) -> str | None:
    """Return the process id in a lock file that a process holds."""
    if not lock.is_file():
        return None
    with lock.open("r+", encoding="ascii", errors="replace") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read(20).strip() or "unknown"
    return None


class Placing:
    """One directory: `claimed` while it is made, `place`, `finish`. Several are all made before the first is placed."""

    def __init__(self, directory: Path, purpose: bytes, crash_point: Callable[[str], None] = no_crash) -> None:
        self.directory = directory
        self._purpose = purpose
        self._crash_point = crash_point
        self._making = directory.with_name(f"{directory.name}{RESTORING}")
        self._replaced = directory.with_name(f"{directory.name}{REPLACED}")

    @property
    def inside(self) -> Path:
        """The path where it is made."""
        return self._making / "inside"

    @property
    def is_placed(self) -> bool:
        """Tell whether an unfinished run with the same purpose has placed it."""
        return self._is_same_purpose() and not self.inside.exists() and bool(obstacle_in(self.directory).text)

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the turn of one process; clear work for another purpose. Raises StoreError."""
        with store_errors(f"cannot make {self._making}"):
            self._making.mkdir(parents=True, exist_ok=True)
            with (self._making / _CLAIM).open("a+", encoding="ascii") as claim:
                try:
                    fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise StoreError(f"another process restores into {self.directory}: wait for its end") from None
                if not self._is_same_purpose():
                    delete_tree(self.inside)
                    replace_file(self._making / _PURPOSE, self._purpose)
                yield

    def make_durable(self) -> None:
        """Make the finished work durable. Raises StoreError."""
        with store_errors(f"cannot make {self._making} durable"):
            fsync_tree(self._making)

    def place(self, *, is_forced: bool = False) -> None:
        """Put the finished directory into its place. Raises StoreError for an obstacle, and then changes nothing."""
        with self.claimed(), store_errors(f"cannot put what was restored into {self.directory}"):
            if self.directory.exists():
                # A leftover of a finished run; without ``directory`` it would be the only data.
                delete_tree(self._replaced)
            obstacle = obstacle_in(self.directory)
            if obstacle.is_locked or (obstacle.text and not is_forced):
                raise StoreError(f"{obstacle.text}; nothing was changed there")
            if obstacle.text:
                self.directory.rename(self._replaced)
                self._crash_point("old one aside")
            elif self.directory.exists():
                for name in LOCKS:
                    (self.directory / name).unlink(missing_ok=True)
            self.inside.rename(self.directory)
            fsync_path(self.directory.parent)
            self._crash_point("placed")
            delete_tree(self._replaced)

    def finish(self) -> None:
        """Forget the purpose: a later run is another restore."""
        delete_tree(self._making)

    def _is_same_purpose(self) -> bool:
        known = self._making / _PURPOSE
        return known.exists() and known.read_bytes() == self._purpose
