"""What a master waits for: the head of its queue, and whose word is missing for it (rule R8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerha.model.ids import Lsn, NodeId
from brokerha.sync.epochs.suspicion import Head

if TYPE_CHECKING:
    from brokerha.sync.core import SyncCore


def head_of(core: SyncCore) -> Head | None:
    """What has to be added next, to see whether it moves; None when nothing waits, or nothing may be added."""
    if core.epochs.is_standing_still(core.epoch):
        return None
    if not core.recovery.is_over:
        return core.lsn, len(core.recovery.left()), ""
    head = core.incoming.head()
    return None if head is None else (core.lsn, 0, head[1])


def culprits(core: SyncCore, mono_ms: int) -> list[NodeId]:
    """Members that hold the head of the queue up: not heard, or without its confirmation or promise."""
    peers = core.peers.peers
    silent = {node for node in peers if not core.peers.is_heard(node, mono_ms)}
    head = core.incoming.head()
    if not core.recovery.is_over:
        done = core.recovery.done
        silent.update(node for node, peer in peers.items() if peer.row is None or peer.row.recovered <= done)
    elif head is not None:
        silent.update(
            node
            for node, peer in peers.items()
            if peer.row is None or peer.promise < head[0] or peer.confirmed(head[2]) <= head[3]
        )
    return sorted(silent)


def reach_of(core: SyncCore) -> Lsn:
    """How far the queue may come by itself: with all that is held, was recovered, or is read of others."""
    recovered = len(core.recovery.entries) - core.recovery.done
    return max(core.lsn + core.incoming.count + recovered, core.epochs.tail.target)
