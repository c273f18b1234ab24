"""The state word and the reason of a master, from its core; whether it is apart from the others.

The first condition that is true counts: first what stops this master alone, then its epoch, then its site. The caller knows broker
and disk, which come before all of them (nodes/observing/master_view.py).

    lost-state         its disk is not the one that it had
    retired, waiting-to-be-added, joining      it is no master any more, or not yet (belonging.py)
    left-behind        it lacks a part of the synchronised queue that no other master holds, and none has given its state yet
    no-majority        it hears too few masters to agree
    catching-up        it takes over transactions that others have synchronised, before its next epoch begins
    excluded           the others are in a later epoch, and take it back
    waiting-for-peers  a member is not heard; or an epoch is being agreed on

A master is **apart** while its own condition or its epoch keeps it from agreeing with the others now: it takes writes in and adds
none to the order, and its reads may lag. Members with news through others do not keep it from agreeing. It is alone where the
others may go on without it; while it only waits for a member all of them wait.

Must never: change or remember anything. It is asked each turn.
"""

from __future__ import annotations

from brokerha.master.belonging import State, belonging_state
from brokerha.model import states
from brokerha.model.epochs import FIRST
from brokerha.model.ids import Instant, NodeId
from brokerha.replication.site.feed import Feed
from brokerha.replication.site.judging import SiteComparison
from brokerha.sync.core import SyncCore
from brokerha.sync.modes import JOINT, QUORUM
from brokerha.sync.splits.choosing import differing

SMALLEST = 2
"""So few masters cannot leave one out."""
_NOT_HEARD = (states.WAITING_FOR_PEERS, states.NO_MAJORITY)
"""Words for masters that are not heard directly; news through others may be enough."""


def state_of(sync: SyncCore, feed: Feed, sites: SiteComparison, now: Instant) -> State:
    """Return the state of a master, without the runner's knowledge of broker and disk."""
    site = feed.site
    if sync.lost:
        return states.LOST_STATE, sync.lost
    found = epoch_state(sync, now.mono_ms)
    if found is not None:
        return found
    if others := differing(sync):
        named = ", ".join(f"{mode} at {node}" for node, mode in others.items())
        return (
            states.WAITING_FOR_PEERS,
            f"split-recovery differs: {named}, {sync.mode} here; choose one: brokerha split-recovery MODE",
        )
    if site.workers and not feed.alive(now.mono_ms):
        return states.NO_WORKER, f"none of {', '.join(site.workers)} is heard"
    attention = site.attention(now.mono_ms)
    if attention:
        return states.NEEDS_ATTENTION, attention
    if sites.differing:
        return states.DIFFERS, sites.reason()
    read_only = site.read_only_reason(now.mono_ms)
    if read_only:
        return states.READ_ONLY, read_only
    behind = sync.lsn - feed.applied_by(1)
    if site.workers and behind > site.config.window:
        return states.CATCHING_UP, f"{behind} transactions to apply"
    return states.OK, ""


def epoch_state(sync: SyncCore, mono_ms: int) -> State | None:
    """Return what keeps this master from agreeing with the others now; None when nothing does."""
    if (found := belonging_state(sync, mono_ms)) is not None:
        return found
    peers = sync.peers
    if peers.unlike:
        there = "one of the others there" if sync.mode == QUORUM else "quorum there"
        named = ", ".join(sorted(peers.unlike))
        return (
            states.WAITING_FOR_PEERS,
            f"{named}: split-recovery = {there}, {sync.mode} here; write the same word into the files of all masters",
        )
    if sync.needs_majority and len(sync.epoch.configuration.masters) > SMALLEST:
        found = _without_others(sync, mono_ms) or _coming_back(sync, mono_ms)
        if found is not None:
            return found
    if sync.keeps_sides:
        found = _parted(sync, mono_ms)
        if found is not None:
            return found
    if new := _never_heard(sync):
        return (
            states.WAITING_FOR_PEERS,
            f"not heard yet: {', '.join(new)}; a new cluster begins once each of its masters has been heard",
        )
    silent = [node for node in peers.peers if not peers.is_heard(node, mono_ms)]
    if silent:
        return states.WAITING_FOR_PEERS, f"not heard: {', '.join(_named(sync, node, mono_ms) for node in silent)}"
    if sync.is_frozen():
        number, proposer = sync.promised
        return states.WAITING_FOR_PEERS, f"epoch {number} is being agreed on; {_self_or(sync, proposer)} leads"
    return None


def _never_heard(sync: SyncCore) -> list[NodeId]:
    """Return founders that are needed to agree and were never heard to know this master (R15)."""
    if sync.epoch.id != FIRST:
        return []
    return sorted(node for node in sync.epoch.configuration.masters if node != sync.node and node not in sync.peers.journals)


def _without_others(sync: SyncCore, mono_ms: int) -> State | None:
    """Return the state of a master that hears too few others, or needs entries that none of them has."""
    tail, peers, configuration = sync.tail, sync.peers, sync.epoch.configuration
    if tail.kept_from and _tail_length(sync):
        if sync.epochs.transfer.ids:
            return states.CATCHING_UP, _transfer(sync)
        kept = f"the other masters hold nothing before LSN {tail.kept_from:,} any more"
        return states.LEFT_BEHIND, f"LSN {sync.lsn + 1:,} is what comes next here; {kept}"
    others = [node for node in configuration.masters if node != sync.node]
    silent = [node for node in others if not peers.is_heard(node, mono_ms)]
    if 1 + len(others) - len(silent) < configuration.majority:
        named = ", ".join(_named(sync, node, mono_ms, is_left_out=False) for node in sorted(silent))
        return (
            states.NO_MAJORITY,
            f"{configuration.majority} of {len(configuration.masters)} masters are needed, not heard: {named}",
        )
    return None


def _parted(sync: SyncCore, mono_ms: int) -> State | None:
    """Return the state of a master on one side of a split, where both sides go on."""
    epoch = sync.epoch
    missing = sorted({*epoch.configuration.masters}.difference(epoch.members))
    if not missing:
        return None
    named = ", ".join(_named(sync, node, mono_ms, is_left_out=False) for node in missing)
    if sync.mode in JOINT:
        step = f"{sync.mode} is in force until all masters are there; one that is gone for good: brokerha peer remove"
        return states.SPLIT, f"goes on in epoch {epoch.number} without {named}; {step}"
    return states.SPLIT, f"goes on in epoch {epoch.number} without {named}; what is synchronised meanwhile may get another place"


def _coming_back(sync: SyncCore, mono_ms: int) -> State | None:
    """Return the state of a master that lags and joins the others."""
    peers, count = sync.peers, _tail_length(sync)
    tail = f"{count:,} transactions to take over from {', '.join(sorted(sync.tail.sources))}"
    if count and sync.is_frozen():
        return states.CATCHING_UP, f"{tail} before its next epoch begins"
    later = {node: row.epoch for node, row in sync.later.items() if row.epoch > sync.epoch.id and peers.is_heard(node, mono_ms)}
    if not later or sync.decided is not None:
        return None
    number, _ = max(later.values())
    verb = "is" if len(later) == 1 else "are"
    reason = f"{', '.join(sorted(later))} {verb} in epoch {number}, this master in epoch {sync.epoch.number}"
    return states.EXCLUDED, f"{reason}; {tail}" if count else reason


def _transfer(sync: SyncCore) -> str:
    """Return how far the state of another master is taken over."""
    transfer = sync.epochs.transfer
    what = f"the state of {transfer.source} at LSN {transfer.lsn:,} is taken over, as nobody holds LSN {sync.lsn + 1:,} any more"
    return f"{what}: {transfer.ids:,} transactions are known"


def _tail_length(sync: SyncCore) -> int:
    """Return how many synchronised transactions are to be taken over from others; 0 while none is requested."""
    return max(0, sync.tail.target - sync.lsn) if sync.is_standing_still() else 0


def _named(sync: SyncCore, node: NodeId, mono_ms: int, *, is_left_out: bool = True) -> str:
    """Return a master that is not heard, with remarks on what is known of it."""
    remarks = []
    if node in sync.peers.impostors:
        remarks.append("its data directory is not the one it had")
    peer = sync.peers.peers.get(node)
    if node in sync.epochs.suspicion.gone:
        remarks.append("its process has ended, or has lost the broker")
    elif peer is not None and sync.epochs.suspicion.has_left(peer):
        remarks.append("it was stopped")
    elif (
        is_left_out
        and (not sync.needs_majority or len(sync.epoch.configuration.masters) > SMALLEST)
        and peer is not None
        and peer.known_ms is not None
    ):
        silent_ms = mono_ms - peer.known_ms
        missed_ms = sync.epochs.suspicion.missed_at_ms(peer) or mono_ms
        left_s = -(-(missed_ms - mono_ms) // 1000)
        if silent_ms <= sync.config.heard_ms:
            remarks.append("heard of through others")
        else:
            remarks.append(f"left out in {left_s} s" if left_s > 0 else "being left out")
    return f"{node} ({'; '.join(remarks)})" if remarks else node


def _self_or(sync: SyncCore, node: NodeId) -> str:
    return "this master" if node == sync.node else node


# ---- apart


def apart_state(sync: SyncCore, mono_ms: int) -> State | None:
    """Return state word and reason of the condition that keeps this master from agreeing; None when none does."""
    if sync.lost:
        return states.LOST_STATE, sync.lost
    found = epoch_state(sync, mono_ms)
    if found is None or found[0] not in _NOT_HEARD or sync.is_frozen():
        return found
    return found if news_ms(sync, mono_ms) is None else None


def news_ms(sync: SyncCore, mono_ms: int) -> int | None:
    """Return the time up to which all other members have been heard, directly or through others; None when one is not any more."""
    config, least_ms = sync.config, mono_ms
    # News through others is up to one heartbeat older. There is none when no member is heard.
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
    """Tell whether others may go on without a master in this state: then it leaves shared work to them."""
    return found is not None and found[0] != states.WAITING_FOR_PEERS


def apart_reason(sync: SyncCore, mono_ms: int) -> str:
    """Return why a write is refused that does not wait until this master agrees with the others; empty while it does."""
    found = apart_state(sync, mono_ms)
    if found is None:
        return ""
    word, reason = found
    return f"{sync.node} cannot agree with the other masters now ({word}: {reason}): ask another one, or again later"
