"""Whether a master belongs to the cluster, for writers and for the status.

    retired                it was taken out, for good: takes no writes; its content can still be read, and tells its age
    leaving                it is about to be taken out, and has reported its entries
    joining                it takes over the entries of the others, and then becomes a master
    waiting-to-be-added    the others go on without it, and none of them was told to add it

Must never: change anything. It is asked each turn.
"""

from __future__ import annotations

from brokerha.model import states
from brokerha.model.ids import TxId
from brokerha.sync.core import SyncCore

State = tuple[str, str]
"""(word, reason)"""


def belonging_state(sync: SyncCore, mono_ms: int) -> State | None:
    """Return state word and reason of a node that is not, or not yet, a master; None for a master."""
    if sync.retired:
        return states.RETIRED, sync.retired
    if not sync.is_joiner():
        return None
    heard = sync.peers.heard_of([*sync.peers.peers, *sync.peers.outside], mono_ms)
    if not heard:
        return states.WAITING_TO_BE_ADDED, f"the other masters go on without {sync.node}, and nobody has asked for it"
    left = max((sync.peers.lsn_of(node) for node in heard), default=0) - sync.lsn
    named = ", ".join(sorted(heard))
    if left > 0:
        return states.JOINING, f"{left:,} transactions to take over from {named}"
    return states.JOINING, f"it has what {named} has; an epoch is to be decided"


def is_outside(sync: SyncCore) -> bool:
    """Tell whether this node is not, or not yet, a master of the cluster: no client should be sent here."""
    return bool(sync.retired) or sync.is_joiner()


def refusal(sync: SyncCore) -> str:
    """Return why this node takes no write although another master may; empty when it does."""
    if sync.retired:
        return f"{sync.retired}: write to another master"
    if sync.epochs.membership.is_leaving:
        return f"{sync.node} is being taken out of the cluster: write to another master"
    if sync.is_joiner():
        return f"{sync.node} is not a master of the cluster yet: write to another master"
    return ""


def no_command(sync: SyncCore) -> str:
    """Return why this master cannot be asked to change the masters; empty when it can."""
    if sync.lost or sync.retired:
        return f"{sync.lost or sync.retired}: ask another master"
    if sync.is_joiner():
        return f"{sync.node} is not a master of the cluster yet: ask another master"
    return ""


def unknown(sync: SyncCore, txid: TxId) -> str:
    """Return the answer about a transaction that was accepted here and of which this master will hear nothing more."""
    return f"{sync.retired}; transaction {txid} was taken in before: ask another master, or write it there under the same key"
