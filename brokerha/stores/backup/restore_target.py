"""The state to restore, and the obstacles to it: all that a plan shows before any change.

    LSN      0 ........ copy ........ segment ........ segment
             |<-- only with all lines -->|<--- always -------->|      possible targets

A time selects the last line with a timestamp at or below it. Reads only.
"""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import NamedTuple

from brokerha.model.errors import InvalidRequest
from brokerha.model.fingerprints import EMPTY, from_text
from brokerha.model.ids import Lsn, NodeId, Timestamp, TxId
from brokerha.stores.backup.directory import BackupDirectory
from brokerha.stores.backup.manifest import Manifest
from brokerha.stores.copies.directory import POINTER, read_pointer
from brokerha.stores.files.environment import store_errors

LOCKS = ("lock", "owner")
"""Files that a node locks while it has its directory open: of a worker, of a master."""


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
