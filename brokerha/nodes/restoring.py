"""Directories of nodes made from a backup: a worker gets the copy and its lines, a master a journal that begins there, and the other processes
of that master nothing: they load the journal. With one of its own from before such a process would take over, and bring back what was.

    plan      which state, which directories, what is in the way      nothing is changed
    prepare   everything is read; each directory is made beside its place (stores/backup/placing.py)
    place     each gets its name; a run that was killed in between is ended by the next one

All nodes of one cluster begin with the same values: LSN, last transaction, fingerprint, and which transactions there were (as far
as the backup has their lines), so that a client who hands one in again is told its LSN. The cluster may have another name and other
nodes than the one that was backed up. Must never place the first directory before the last is made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from brokerha.log.current import Beginning
from brokerha.log.disks import FileDisk
from brokerha.log.log import Log
from brokerha.model.errors import StoreError
from brokerha.model.ids import Lsn, NodeId
from brokerha.model.operations import REJECTED
from brokerha.nodes.config.cluster import ClusterConfig
from brokerha.nodes.config.nodes import NodeEntry
from brokerha.ports.copies import Snapshot
from brokerha.stores.backup.directory import BackupDirectory, Progress, no_progress
from brokerha.stores.backup.manifest import Manifest
from brokerha.stores.backup.placing import Placing
from brokerha.stores.backup.restore_target import Obstacle, Target, obstacle_in
from brokerha.stores.backup.restoring import Restore, purpose_of
from brokerha.stores.files.durable import delete_tree

IDS_LIMIT: Final = 500_000
"""Transactions, the newest ones, that a new journal knows by their ids."""


class Place(NamedTuple):
    """One directory that is to be made."""

    node: NodeId
    role: str
    """``worker``, ``master``, or ``backup``, whose directory is empty then."""
    directory: Path


def places_of(config: ClusterConfig) -> list[Place]:
    """All directories of a cluster file: a master finds its workers ready, and no backup that knows more than it."""
    nodes: list[NodeEntry] = [*config.workers, *config.backups, *config.masters]
    return [Place(node.id, node.role, config.data_directory(node.id)) for node in nodes]


class Restoring:
    """One state of one backup, and all directories that are made from it."""

    def __init__(
        self,
        backup: BackupDirectory,
        manifest: Manifest,
        target: Target,
        cluster: str,
        places: Sequence[Place],
        origin: NodeId = "",
    ) -> None:
        """``cluster`` is the name that the data gets; ``origin`` counts as that of the last transaction, whichever it was before.

        Masters need it, and all of one cluster need the same one.
        """
        self.backup = backup
        self.manifest = manifest
        self.target = target
        self.cluster = cluster
        self.places = tuple(places)
        self._origin = origin
        self.items = manifest.items if target.lsn == manifest.lsn else 0
        """Quads and keys of the state; 0 while that is not known."""
        self._restores = {
            place.node: Restore(backup, manifest, target, place.directory, cluster=cluster, node=place.node)
            for place in places
            if place.role == "worker"
        }
        self._journals = {place.node: self._placing(place) for place in places if place.role != "worker"}

    def obstacles(self) -> list[Obstacle]:
        """What is in the way, place by place; nothing for one that a run before has put there."""
        return [
            Obstacle(is_locked=False, text="") if self._placing_at(place).is_placed else obstacle_in(place.directory)
            for place in self.places
        ]

    def run(
        self,
        snapshot: Snapshot,
        *,
        is_forced: bool = False,
        note_bytes: Progress = no_progress,
        note_lines: Progress = no_progress,
    ) -> None:
        """Make everything, then place it. Raises StoreError, JournalError; then no directory was changed, or all still are."""
        for obstacle in self.obstacles():
            if obstacle.text and (obstacle.is_locked or not is_forced):
                raise StoreError(f"{obstacle.text}; nothing was changed")
        left = [place for place in self.places if not self._placing_at(place).is_placed]
        for place in left:
            if place.role == "worker":
                applied = self._restores[place.node].prepare(snapshot, note_bytes, note_lines)
                self.items = applied.items
        for place in left:
            if place.role != "worker":
                self._make_journal(place)
        for place in left:
            self._placing_at(place).place(is_forced=is_forced)
        for place in self.places:
            self._placing_at(place).finish()

    def _make_journal(self, place: Place) -> None:
        placing = self._journals[place.node]
        with placing.claimed():
            delete_tree(placing.inside)
            if place.role == "master":
                Log(FileDisk(placing.inside), self.cluster, place.node, begin_at=self.beginning()).close()
            else:
                placing.inside.mkdir()
            placing.make_durable()

    def beginning(self) -> Beginning | None:
        """Where journals begin; None for an empty one."""
        target = self.target
        if not target.lsn:
            return None
        ids: deque[tuple[str, Lsn]] = deque(maxlen=IDS_LIMIT)
        rejections: deque[tuple[Lsn, str]] = deque(maxlen=IDS_LIMIT)
        for lsn, (txid, _, outcome, reason, _, _) in self.backup.lines(self.manifest, 1, target.lsn):
            ids.append((txid, lsn))
            if outcome == REJECTED:
                rejections.append((lsn, reason))
        # A worker that took a snapshot itself may not have known the transaction at its LSN; it is not younger than the backup.
        timestamp = target.timestamp or self.manifest.made_us
        txid = target.txid or f"restored-{target.lsn}"
        last = (timestamp, txid, self._origin)
        return Beginning(target.lsn, last, target.fingerprint, self.items, tuple(ids), tuple(rejections))

    def _placing(self, place: Place) -> Placing:
        return Placing(place.directory, purpose_of(self.manifest, self.target, self.cluster, place.node))

    def _placing_at(self, place: Place) -> Placing:
        return self._restores[place.node].placing if place.role == "worker" else self._journals[place.node]
