"""What a master waits for: the head of its queue, and whose word is missing for it (rule R8)."""

from __future__ import annotations

from brokerha.model.ids import Lsn, NodeId
from brokerha.sync.epochs.suspicion import Head
from brokerha.sync.state import SyncState


def head_of(sync: SyncState) -> Head | None:
    """What has to be added next, to see whether it moves; None when nothing waits, or nothing may be added."""
    if sync.is_standing_still():
        return None
    if not sync.recovery.is_over:
        return sync.lsn, len(sync.recovery.left()), ""
    head = sync.incoming.head()
    return None if head is None else (sync.lsn, 0, head[1])


def culprits(sync: SyncState, mono_ms: int) -> list[NodeId]:
    """Members that hold the head of the queue up: not heard, or without its confirmation or promise."""
    peers = sync.peers.peers
    silent = {node for node in peers if not sync.peers.is_heard(node, mono_ms)}
    head = sync.incoming.head()
    if not sync.recovery.is_over:
        done = sync.recovery.done
        silent.update(node for node, peer in peers.items() if peer.row is None or peer.row.recovered <= done)
    elif head is not None:
        silent.update(
            node
            for node, peer in peers.items()
            if peer.row is None or peer.promise < head[0] or peer.confirmed(head[2]) <= head[3]
        )
    return sorted(silent)


def reach_of(sync: SyncState) -> Lsn:
    """How far the queue may come by itself: with all that is held, was recovered, or is read of others."""
    recovered = len(sync.recovery.entries) - sync.recovery.done
    return max(sync.lsn + sync.incoming.count + recovered, sync.tail.target)
