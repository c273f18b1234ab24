"""Healing: whether a worker replays the log or takes a snapshot, and from which source (replication, section 5)."""

from __future__ import annotations

from collections.abc import Iterable

from brokerha.model.ids import Lsn, NodeId
from brokerha.replication.site.config import FeedConfig, Standing, WorkerFeed

REPLAY_PER_S = 5000.0
"""Transactions per second of a replay, until one is measured."""
ITEM_BYTES = 150
"""Guess of the size of one quad or key in a snapshot."""


def should_copy(config: FeedConfig, behind: int, replay_per_s: float, items: int) -> bool:
    """Tell whether a snapshot of so many ``items`` pays off: the replay would take long, and much longer.

    >>> should_copy(FeedConfig(), 1_000_000, 5000.0, 1000), should_copy(FeedConfig(), 10_000_000, 5000.0, 1000)
    (False, True)
    """
    replay_s = behind / (replay_per_s or REPLAY_PER_S)
    copy_s = items * ITEM_BYTES / config.net_bytes_per_s
    return replay_s > config.replay_s and replay_s > config.replay_factor * copy_s


def sources_for(node: NodeId, workers: Iterable[WorkerFeed]) -> tuple[NodeId, ...]:
    """Return in-sync workers that can give their copy, the least busy first."""
    good = [worker for worker in workers if worker.is_on and worker.node != node]
    return tuple(worker.node for worker in sorted(good, key=_load))


def _load(worker: WorkerFeed) -> tuple[bool, bool, int, NodeId]:
    # All writers wait for the probe, so it gives its copy only when no other worker can.
    return worker.is_giving, worker.is_probe, worker.said.running_reads, worker.node


def behind(executed: Lsn, applied: Lsn) -> int:
    """Return how many lines of the log a copy lacks."""
    return max(0, executed - applied)


def progress_of(worker: WorkerFeed, executed: Lsn, mono_ms: int) -> str:
    """Return the progress of a load or a replay, with rate and time left; empty when there is none."""
    report = worker.progress
    if report is None or worker.standing not in (Standing.LOADING, Standing.OUT_OF_SYNC):
        return ""
    if report.total_bytes:
        passed_s = (mono_ms - worker.load_begun_ms) / 1000
        per_s = report.done_bytes / passed_s if passed_s > 0 else 0.0
        rest = f", {(report.total_bytes - report.done_bytes) / per_s:.0f} s left" if per_s else ""
        done = f"{report.done_bytes / 1e6:.1f} of {report.total_bytes / 1e6:.1f} MB"
        return f"{done} at {per_s / 1e6:.1f} MB/s{rest}"
    lag = behind(executed, worker.applied)
    if worker.is_following and lag:
        rest = f", {lag / worker.replay_per_s:.0f} s left" if worker.replay_per_s > 0 else ""
        return f"{lag} transactions to go at {worker.replay_per_s:.0f}/s{rest}"
    return ""
