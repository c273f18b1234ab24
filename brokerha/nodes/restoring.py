"""Directories of nodes, made from a backup: a worker gets the copy and its lines, a master a journal that begins there.

The other processes of a master get an empty directory and load the journal: with an old one they would bring the old data back.

    plan      the state, the directories, the obstacles                nothing is changed
    prepare   everything is read; each directory is made beside its place (stores/backup/restore_target.py)
    place     each directory gets its name; the next run completes a run that was killed in between

All nodes of one cluster begin with the same values: LSN, last transaction, fingerprint, and the known transactions (as far as the
backup has their lines). So a client that submits one of these again is told its LSN. The cluster can have another name and other
nodes than the original. Must never place the first directory before the last one is made.
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
from brokerha.nodes.config.cluster import ClusterConfig, NodeEntry
from brokerha.ports.copies import Snapshot
from brokerha.stores.backup.directory import BackupDirectory, Progress, no_progress
from brokerha.stores.backup.manifest import Manifest
from brokerha.stores.backup.restore_target import Obstacle, Placing, Target, obstacle_in
from brokerha.stores.backup.restoring import Restore, purpose_of
from brokerha.stores.files.durable import delete_tree

IDS_LIMIT: Final = 500_000
"""Number of transactions, the newest, that a new journal knows by their ids."""


class Place(NamedTuple):
    """One directory to be made."""

    node: NodeId
    role: str
    """``worker``, ``master``, or ``backup`` (with an empty directory)."""
    directory: Path


def places_of(config: ClusterConfig) -> list[Place]:
    """Return all directories of a cluster file; masters come last, so that they find their workers ready and no backup ahead."""
    nodes: list[NodeEntry] = [*config.workers, *config.backups, *config.masters]
    return [Place(node.id, node.role, config.data_directory(node.id)) for node in nodes]


class Restoring:
    """One state of one backup, and all directories made from it."""

    def __init__(
        self,
        backup: BackupDirectory,
        manifest: Manifest,
        target: Target,
        cluster: str,
        places: Sequence[Place],
        origin: NodeId = "",
    ) -> None:
        """``cluster``: the new name of the data. ``origin``: the origin that the last transaction gets in every journal.

        Masters need it, and it must be the same for all masters of a cluster.
        """
        self.backup = backup
        self.manifest = manifest
        self.target = target
        self.cluster = cluster
        self.places = tuple(places)
        self._origin = origin
        self.items = manifest.items if target.lsn == manifest.lsn else 0
        """Quads and keys of the state; 0 while unknown."""
        self._restores = {
            place.node: Restore(backup, manifest, target, place.directory, cluster=cluster, node=place.node)
            for place in places
            if place.role == "worker"
        }
        self._journals = {
            place.node: Placing(place.directory, purpose_of(manifest, target, cluster, place.node))
            for place in places
            if place.role != "worker"
        }

    def obstacles(self) -> list[Obstacle]:
        """Return the obstacle at each place; an empty one where an earlier run has placed the directory."""
        return [
            Obstacle(is_locked=False, text="") if self._placing_at(place).is_placed else obstacle_in(place.directory)
            for place in self.places
        ]

    def run(
        self, snapshot: Snapshot, *, is_forced: bool = False, note_bytes: Progress = no_progress, note_lines: Progress = no_progress
    ) -> None:
        """Make all directories, then place them. Raises StoreError, JournalError: nothing changed, or the next run goes on."""
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
        """Return the beginning of the journals; None for empty journals."""
        target = self.target
        if not target.lsn:
            return None
        ids: deque[tuple[str, Lsn]] = deque(maxlen=IDS_LIMIT)
        rejections: deque[tuple[Lsn, str]] = deque(maxlen=IDS_LIMIT)
        for lsn, (txid, _, outcome, reason, _, _) in self.backup.lines(self.manifest, 1, target.lsn):
            ids.append((txid, lsn))
            if outcome == REJECTED:
                rejections.append((lsn, reason))
        # A snapshot that a worker took by itself can lack the transaction at its LSN; that one is not younger than the backup.
        timestamp = target.timestamp or self.manifest.made_us
        txid = target.txid or f"restored-{target.lsn}"
        last = (timestamp, txid, self._origin)
        return Beginning(target.lsn, last, target.fingerprint, self.items, tuple(ids), tuple(rejections))

    def _placing_at(self, place: Place) -> Placing:
        return self._restores[place.node].placing if place.role == "worker" else self._journals[place.node]
