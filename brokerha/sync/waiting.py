"""The head of the queue, and the members that hold it up (rule R8)."""

from __future__ import annotations

from brokerha.model.ids import Lsn, NodeId
from brokerha.sync.epochs.suspicion import Head
from brokerha.sync.state import SyncState


def head_of(sync: SyncState) -> Head | None:
    """Return the next entry to add, for seeing whether it moves; None when none waits, or none can be added."""
    if sync.is_standing_still():
        return None
    if not sync.recovery.is_over:
        return sync.lsn, len(sync.recovery.left()), ""
    head = sync.incoming.head()
    return None if head is None else (sync.lsn, 0, head[1])


def culprits(sync: SyncState, mono_ms: int) -> list[NodeId]:
    """Return members that hold up the head of the queue: not heard, or without its confirmation or promise."""
    peers = sync.peers.peers
    silent = {node for node in peers if not sync.peers.is_heard(node, mono_ms)}
    head = sync.incoming.head()
    if not sync.recovery.is_over:
        done = sync.recovery.done
        silent.update(node for node, peer in peers.items() if peer.row is None or peer.row.recovered <= done)
    elif head is not None:
        silent.update(
            node for node, peer in peers.items() if peer.row is None or peer.promise < head[0] or peer.confirmed(head[2]) <= head[3]
        )
    return sorted(silent)


def beyond_the_log(sync: SyncState, mono_ms: int) -> list[NodeId]:
    """Return members without confirmation for `max_peer_lag` that lack trimmed entries: no post can bring these to them (R8).

    Where all members acknowledge there are none.
    """
    lag_ms, history = sync.config.lag_of(sync.mode), sync.history
    return [
        node
        for node, peer in sync.peers.peers.items()
        for origin, (confirmed, since_ms, _) in peer.stuck.items()
        if mono_ms - since_ms >= lag_ms and not history.stream(origin, confirmed, 1)
    ]


def reach_of(sync: SyncState) -> Lsn:
    """Return how far the queue can come by itself: with all held, recovered and requested entries."""
    recovered = len(sync.recovery.entries) - sync.recovery.done
    return max(sync.lsn + sync.incoming.count + recovered, sync.tail.target)
