"""Whether a master is who it says it is, and whether it belongs to the cluster (rule R15).

    founder   begins with the cluster; known once every other founder has said that it knows its journal
    joiner    begins with an empty journal beside an existing cluster; known by the epoch that adds it
    lost      others remember more of it than its own journal does: its disk was emptied or exchanged
    retired   it was taken out of the cluster, for good

A node that came back with an empty disk looks new to a master that never heard of it. If it stamped or promised there, it could
break its own earlier promises elsewhere. So a master that is not known does neither.
"""

from __future__ import annotations

from brokerha.model.epochs import FIRST, Epoch
from brokerha.model.ids import NodeId
from brokerha.model.records import MasterState, PeerJournal
from brokerha.model.wire.epoch_messages import Notice, Row
from brokerha.sync.config import SyncConfig
from brokerha.sync.epochs.beginning import join
from brokerha.sync.state import SyncState


def founders(config: SyncConfig, state: MasterState) -> list[NodeId]:
    """Return the masters of the first epoch: those of the cluster file, until all of them have known this one."""
    known = state.peer_journals
    return sorted(known if config.node in known else config.members)


def is_known(sync: SyncState) -> bool:
    """Tell whether all masters have once known this journal as that of this node; an own stamp needs no other proof.

    In the first epoch no entry can be added before all masters were heard anyway.
    """
    journal, peers = sync.journal, sync.peers
    if sync.named or peers.journals.get(sync.node) == journal:
        return True
    if sync.is_joiner():
        return False
    if sync.own.count or sync.epoch.proposer:
        return True  # A later epoch names the journals of its members, and a majority has agreed.
    rows = [peers.last_row(node) for node in sync.epoch.configuration.masters if node != sync.node]
    if not all(row and row.known.get(sync.node) == journal for row in rows):
        return False
    _remember(sync)
    return True


def is_blank(sync: SyncState) -> bool:
    """Tell whether nothing was ever stamped or agreed on with this journal, so that it can still become a joiner."""
    # A master that is not known promises as a joiner only: such a promise does not make it a founder.
    return sync.is_joiner() or (sync.epoch.id == FIRST and not is_known(sync))


def check_own_state(sync: SyncState, row: Row) -> None:
    """Notice that the own disk was emptied: another master remembers more of this node than the journal here."""
    sync.lost = _why_lost(sync, row) or sync.lost


def _why_lost(sync: SyncState, row: Row) -> str:
    """Return what another master remembers of this node and the journal here lacks; empty when all is well."""
    held = row.have.get(sync.node, 0)
    known = row.known.get(sync.node, sync.journal)
    if sync.is_joiner() or _knows_better(sync, row):
        return ""
    if held > sync.own.count:
        return f"master {row.node} knows {held} transactions of {sync.node}, the journal here holds {sync.own.count}"
    if known != sync.journal:
        return f"master {row.node} knows {sync.node} with another journal: the one here is not its own"
    return ""


def _knows_better(sync: SyncState, row: Row) -> bool:
    """Tell whether another master's memory of this node is no proof: it may be of an earlier node with this id."""
    if sync.epoch.configuration.journals.get(sync.node) == sync.journal:
        return row.epoch < sync.epoch.id
    # A joiner that promised and then died may have been added or not: what others hold of its id is not from this journal.
    is_former_joiner = sync.promised > FIRST and sync.peers.journals.get(sync.node) != sync.journal
    return sync.named or (is_former_joiner and sync.epoch.id == FIRST and not sync.own.count)


def is_in_doubt(row: Row) -> bool:
    """Tell whether a master does not know yet that it is known: others have to tell it who the masters are."""
    return row.epoch <= FIRST and not row.have.get(row.node) and row.node not in row.known


def on_epoch(sync: SyncState, epoch: Epoch) -> None:
    """Learn from an epoch of another master that this node is named in it, or that this blank node has to join."""
    if epoch.configuration.journals.get(sync.node) == sync.journal:
        sync.named = True  # It may have been added, and have died before it could install that epoch.
    elif sync.node not in epoch.configuration.masters and is_blank(sync) and not sync.is_joiner():
        join(sync)


def _remember(sync: SyncState) -> None:
    """Be known from now on: others may be away when it matters again."""
    sync.peers.journals[sync.node] = sync.journal
    sync.peers.new_journals.append(PeerJournal(sync.node, sync.journal))


def on_notice(sync: SyncState, sender: NodeId, notice: Notice) -> None:
    """Take in the notice of another master that this one was taken out."""
    # A master that went on alone may be in an epoch of a higher number; with this journal it never comes back.
    is_later = notice.epoch > sync.epoch.id or sync.keeps_sides
    if sync.peers.peer(sender) is not None and notice.journal == sync.journal and is_later:
        sync.retired = f"{sync.node} was taken out of the cluster by epoch {notice.epoch[0]}, as {sender} says"
