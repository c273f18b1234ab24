"""Pins: who still needs which part of the log of a master, asked for in the moment in which it matters (retention.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerha.model.ids import Instant, Lsn

if TYPE_CHECKING:
    from brokerha.master.core import MasterCore


def pins_of(core: MasterCore, now: Instant) -> tuple[dict[str, Lsn], dict[str, Lsn]]:
    """Lowest LSN that each live worker still needs, and each peer."""
    pins = {}
    for worker in core.site.workers.values():
        progress = worker.progress
        if progress is None or not worker.is_switched_on or not core.site.is_alive(worker, now.mono_ms):
            continue
        if progress.load_lsn:
            pins[worker.node] = progress.load_lsn + 1
        elif worker.load_from_lsn is not None:
            pins[worker.node] = worker.load_from_lsn + 1
        elif worker.is_following and not worker.condemned:
            pins[worker.node] = worker.applied + 1
    peers = {node: (peer.row.lsn if peer.row else 0) + 1 for node, peer in core.sync.peers.peers.items()}
    return pins, peers
