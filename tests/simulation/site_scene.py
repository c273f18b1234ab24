"""Words of the scenarios of workers: what masters think of them, and how copies are lost and damaged."""

from __future__ import annotations

from typing import Any

from brokerha.following.loading import LoadConfig
from brokerha.model.ids import NodeId
from brokerha.model.operations import Put
from brokerha.replication.site.config import WorkerFeed
from brokerha.simulator.nodes import SimWorker
from tests.simulation.scene import Scene

QUICK: dict[str, Any] = {"worker": {"load": LoadConfig(window=4, ask_ms=200, chunk_wait_ms=200, patience_ms=1_000)}}
NO_SCRUB: dict[str, Any] = {**QUICK, "scrub_us": 0}


def site(scene: Scene, node: NodeId) -> WorkerFeed:
    """What its master thinks of a worker."""
    return scene.master(scene.worker(node).config.master).runner.core.site.workers[node]


def loaded(scene: Scene) -> int:
    """Snapshots that were opened so far."""
    return scene.world.faults_seen["snapshot loaded"]


def fill(scene: Scene, count: int) -> None:
    """Some content that all workers have."""
    scene.write_many("m1", "before", count)
    scene.agree()
    scene.write("m1", "last")
    scene.agree()


def lose(scene: Scene, node: NodeId) -> None:
    """A worker comes back with an empty directory, when the log does not reach back to the beginning any more."""
    master = scene.master(scene.worker(node).config.master)
    assert master.journal.trim(scene.truth.lsn) > 0
    scene.kill(node)
    scene.worker(node).empty()
    scene.start(node)


def damage(worker: SimWorker, key: bytes) -> None:
    """Change a value that clients wrote, behind the back of the fingerprint."""
    worker.copy.damage(Put("put", "table", key, b"flipped"))
    worker.is_damaged = True


def probe_of(scene: Scene, node: NodeId) -> NodeId:
    """Who executes at a master."""
    probe = scene.master(node).runner.core.feed.probe
    assert probe is not None
    return probe
