"""Whether a master is who it says it is, and whether it belongs to the cluster (rule R15).

    founder   begins with the cluster; known once every other founder has said that it knows its journal
    joiner    begins with an empty journal beside a cluster that is there already; known by the epoch that adds it
    lost      others remember more of it than its own journal does: its disk was emptied or exchanged
    retired   it was taken out of the cluster, for good

A node that came back with an empty disk looks like a new one to a master that never heard of it. If it stamped or promised
anything there, what it promised elsewhere before would be broken. So who is not known does neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerha.model.epoch_messages import Notice, Row
from brokerha.model.epochs import FIRST, Epoch
from brokerha.model.ids import NodeId
from brokerha.model.records import PeerJournal

if TYPE_CHECKING:
    from brokerha.sync.core import SyncCore


def is_known(core: SyncCore) -> bool:
    """Whether everybody has known this journal as the one of this node once; what was stamped needs no other proof.

    Nothing can be added in the first epoch before everybody was heard anyway.
    """
    journal, peers = core.posting.journal, core.peers
    if core.is_joiner():
        return False
    if core.own.count or core.epoch.proposer or peers.journals.get(core.node) == journal:
        return True  # A later epoch names the journals of its members, and a majority has agreed.
    rows = [peers.last_row(node) for node in core.epoch.configuration.masters if node != core.node]
    if not all(row and row.known.get(core.node) == journal for row in rows):
        return False
    # Remembered, as others may be away when it matters again.
    peers.journals[core.node] = journal
    peers.new_journals.append(PeerJournal(core.node, journal))
    return True


def is_blank(core: SyncCore) -> bool:
    """Whether nothing was ever stamped, promised or agreed on with this journal: it may still become a joiner."""
    is_first = core.epoch.id == FIRST and core.epochs.promised == FIRST
    return core.is_joiner() or (is_first and not core.own.count and not is_known(core))


def why_lost(core: SyncCore, row: Row) -> str:
    """What somebody remembers of this node that the journal here does not hold; empty when all is well."""
    held = row.have.get(core.node, 0)
    known = row.known.get(core.node, core.posting.journal)
    if core.is_joiner():
        return ""
    if held > core.own.count:
        return f"master {row.node} knows {held} transactions of {core.node}, the journal here holds {core.own.count}"
    if known != core.posting.journal:
        return f"master {row.node} knows {core.node} with another journal: the one here is not its own"
    return ""


def on_epoch_without_me(core: SyncCore, epoch: Epoch) -> None:
    """A master says in which epoch it is, and that this node is no master of it: a blank one becomes a joiner."""
    if core.node not in epoch.configuration.masters and is_blank(core) and not core.is_joiner():
        core.join()


def on_notice(core: SyncCore, sender: NodeId, notice: Notice) -> None:
    """A master says that this one was taken out."""
    is_later = notice.epoch > core.epoch.id
    if core.peers.peer(sender) is not None and notice.journal == core.posting.journal and is_later:
        core.retired = f"{core.node} was taken out of the cluster by epoch {notice.epoch[0]}, as {sender} says"
