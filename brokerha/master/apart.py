"""Whether a master is apart: whether anything keeps it from agreeing with the others now.

    apart      lost-state, left-behind, no-majority, excluded, catching-up before its next epoch, waiting-for-peers; or no master, any
               more or yet (belonging.py)
    not apart  all members are heard, or heard of through others, and none of them is in a later epoch

A master that is apart takes writes in and adds nothing to the order; what it reads may be behind. It is alone where the others may well
go on without it; while it only waits for a member all of them wait.

Must never: change anything, or remember anything. It is asked each turn.
"""

from __future__ import annotations

from brokerha.master.belonging import State
from brokerha.master.state_words import epoch_state
from brokerha.model import states
from brokerha.sync.core import SyncCore

_NOT_HEARD = (states.WAITING_FOR_PEERS, states.NO_MAJORITY)
"""Words for masters that are not heard directly; what others pass on may do."""


def apart_state(sync: SyncCore, mono_ms: int) -> State | None:
    """State word and reason of what keeps this master from agreeing; None when nothing does."""
    if sync.lost:
        return states.LOST_STATE, sync.lost
    found = epoch_state(sync, mono_ms)
    if found is None or found[0] not in _NOT_HEARD or sync.is_frozen():
        return found
    return found if news_ms(sync, mono_ms) is None else None


def news_ms(sync: SyncCore, mono_ms: int) -> int | None:
    """When all other members had been heard of last, directly or through others; None when one of them is not any more."""
    config, least_ms = sync.config, mono_ms
    # What others pass on is as much as one heartbeat older. Nobody passes anything on where none is heard.
    passed_on_ms = config.heard_ms + config.idle_round_ms if sync.peers.heard(mono_ms) else 0
    for node, peer in sync.peers.peers.items():
        if sync.peers.is_heard(node, mono_ms):
            least_ms = min(least_ms, peer.heard_ms)
        elif peer.row is not None and peer.known_ms is not None and mono_ms - peer.known_ms <= passed_on_ms:
            least_ms = min(least_ms, peer.known_ms)
        else:
            return None
    return least_ms


def is_alone(found: State | None) -> bool:
    """Whether others may go on without a master in this state: what any of them may take is left to them."""
    return found is not None and found[0] != states.WAITING_FOR_PEERS


def apart_reason(sync: SyncCore, mono_ms: int) -> str:
    """Why a write is refused that does not want to wait until this master agrees with the others; empty while it does."""
    found = apart_state(sync, mono_ms)
    if found is None:
        return ""
    word, reason = found
    return f"{sync.node} cannot agree with the other masters now ({word}: {reason}): ask another one, or again later"
