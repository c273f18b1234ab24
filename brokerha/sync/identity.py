"""Whether a master is who it says it is, and whether it belongs to the cluster (rule R15).

    founder   begins with the cluster; known once every other founder has said that it knows its journal
    joiner    begins with an empty journal beside a cluster that is there already; known by the epoch that adds it
    lost      others remember more of it than its own journal does: its disk was emptied or exchanged
    retired   it was taken out of the cluster, for good

A node that came back with an empty disk looks like a new one to a master that never heard of it. If it stamped or promised
anything there, what it promised elsewhere before would be broken. So who is not known does neither.
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
    """Masters of the first epoch: those of the cluster file, until this one is known to all of them; from then on these, whatever a file says."""
    known = state.peer_journals
    return sorted(known if config.node in known else config.members)


def is_known(sync: SyncState) -> bool:
    """Whether everybody has known this journal as the one of this node once; what was stamped needs no other proof.

    Nothing can be added in the first epoch before everybody was heard anyway.
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
    """Whether nothing was ever stamped or agreed on with this journal: it may still become a joiner."""
    # Who is not known promises as a joiner only: such a promise does not make it a founder.
    return sync.is_joiner() or (sync.epoch.id == FIRST and not sync.own.count and not is_known(sync))


def check_own_state(sync: SyncState, row: Row) -> None:
    """Notice that the own disk was emptied: somebody remembers more of this node than the journal here."""
    sync.lost = _why_lost(sync, row) or sync.lost


def _why_lost(sync: SyncState, row: Row) -> str:
    """What somebody remembers of this node that the journal here does not hold; empty when all is well."""
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
    """Whether what somebody remembers of this node is no proof: it may be of the one that had this id before."""
    if sync.epoch.configuration.journals.get(sync.node) == sync.journal:
        return row.epoch < sync.epoch.id
    # A joiner that promised, and died: it was added since, or not; what others hold of its id is not from this journal.
    is_former_joiner = sync.promised > FIRST and sync.peers.journals.get(sync.node) != sync.journal
    return sync.named or (is_former_joiner and sync.epoch.id == FIRST and not sync.own.count)


def is_in_doubt(row: Row) -> bool:
    """Whether a master does not know yet that it is known: it has to be told who the masters are."""
    return row.epoch <= FIRST and not row.have.get(row.node) and row.node not in row.known


def on_epoch(sync: SyncState, epoch: Epoch) -> None:
    """A master says in which epoch it is: with this node and its journal among the masters, or without, so that a blank one joins."""
    if epoch.configuration.journals.get(sync.node) == sync.journal:
        sync.named = True  # It may have been added, and have died before it could install that.
    elif sync.node not in epoch.configuration.masters and is_blank(sync) and not sync.is_joiner():
        join(sync)


def _remember(sync: SyncState) -> None:
    """Be known from now on: others may be away when it matters again."""
    sync.peers.journals[sync.node] = sync.journal
    sync.peers.new_journals.append(PeerJournal(sync.node, sync.journal))


def on_notice(sync: SyncState, sender: NodeId, notice: Notice) -> None:
    """A master says that this one was taken out."""
    # Who went on alone may be in an epoch of a higher number; with this journal it never comes back.
    is_later = notice.epoch > sync.epoch.id or sync.keeps_sides
    if sync.peers.peer(sender) is not None and notice.journal == sync.journal and is_later:
        sync.retired = f"{sync.node} was taken out of the cluster by epoch {notice.epoch[0]}, as {sender} says"
