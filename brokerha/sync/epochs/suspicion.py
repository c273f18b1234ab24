"""When a master begins an epoch change (rule R8): which members are missing, which masters want to come back.

    silent     there is no news of a member, directly or through another one, for `max_peer_lag`; while it holds up the queue, for
               `suspect_ms` (quorum) or `none_silent_ms` (none), and longer if it was silent recently and came back
    gone       the same for two round timeouts (quorum) or `none_silent_ms` (none), and the broker says that its inbox is gone; not
               with smart and simple, which keep a copy first
    left       its process was stopped in order, and its last message said so (Leave)
    stuck      the head of the queue has not moved for that long: its culprits count as silent
    beyond     it lacks trimmed entries, and has got nothing else for `max_peer_lag`: it takes over a state when it is outside (R16)
    lost       the head has not moved for `LOST_LAGS` times as long, and only a master that was taken out had the entry's body
    joining    a master outside says that it hears this one (Join): it is taken back after a short while, together with others
    on its way a member from another side first reads the entries that it lacks: the others wait while it makes progress, at most
               `HELD_LAGS`
    orphaned   the own promise to an epoch has led to nothing: its proposer is gone, or cannot decide

Silence proves nothing while this process did not listen: when it was stopped or had no time, it heard nobody. So time counts only
while turns come as they should; a longer gap moves every mark along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from brokerha.model.ids import Lsn, NodeId
from brokerha.sync.config import SyncConfig
from brokerha.sync.modes import NONE, QUORUM
from brokerha.sync.peers import Peer, PeerTable

Head = tuple[int, int, str]
"""The next entry to add: (LSN, entries of the recovered list left, transaction id)."""

LOST_LAGS = 4
"""Lags for which the others search for a body of a master that was taken out; then the next epoch goes on without it (R10)."""
HELD_LAGS = 2
"""Most lags for which no entry is added while a member still reads up to this epoch; then the others go on without it."""
MOST_LAGS = 4
"""Lags after which a master that does not keep up is taken back at the latest."""


KEPT_LAGS = 60
"""Lags for which a master that was silent and came back is given more time."""
MOST_PATIENCE = 2
"""Greatest factor of that extra time. A longer silence was missed rightly, and nothing is learned from it."""


class Suspicion:
    """Notes of one master about the others. Times are milliseconds of the monotonic clock."""

    def __init__(self, config: SyncConfig) -> None:
        self._config = config
        self.choose(config.split_recovery)
        self._looked_ms: int | None = None
        self._head: Head | None = None
        self._head_ms = 0
        self._holding: frozenset[NodeId] = frozenset()
        """With none: members whose confirmation or promise the head lacks. Others are idle, and post seldom."""
        self._joining: dict[NodeId, int] = {}
        """Time of the last Join of each master outside."""
        self._joined_ms: int | None = None
        """Time of the first Join."""
        self._left_out: dict[NodeId, tuple[int, int]] = {}
        """(number of times, last time) that each master was recently left out."""
        self._began_ms: int | None = None
        """Time when this epoch began; None for the epoch in which the process began."""
        self._reached: dict[NodeId, tuple[Lsn, int]] = {}
        """(LSN, time) that each master on its way into this epoch last reached."""
        self._pauses: dict[NodeId, tuple[int, int]] = {}
        """(length, end) of the silence of each master that came back soon."""
        self._parted_ms: dict[NodeId, int] = {}
        """With none: for each missed member that was not heard since, the time from which the head had waited."""
        self._asked_ms: dict[NodeId, int] = {}
        """Time when the broker was last asked about the inbox of a silent member."""
        self.gone: frozenset[NodeId] = frozenset()
        """Members whose inbox is gone, and that were not heard since the broker said so."""
        self._left: dict[NodeId, int] = {}
        """Incarnations of members whose processes were stopped in order."""
        self.stopped: frozenset[NodeId] = frozenset()
        """Masters whose processes were stopped in order before this epoch began without them."""
        self.missing_ms: int | None = None
        """Time from which members are missing; None when none is."""

    def choose(self, mode: str) -> None:
        """Use the timeouts of this strategy."""
        self.lag_ms = self._config.lag_of(mode)
        """Timeout of a member."""
        self._gone_ms = self._config.gone_of(mode)
        self._is_quick, self._is_hasty = mode in (NONE, QUORUM), mode == NONE
        """Whether a member that holds up the queue is missed before others; whether a silent member must not delay any update."""
        suspect_ms = self._config.suspect_ms
        self._patience_ms = (
            (self._config.none_silent_ms, self._config.none_patience_ms)
            if self._is_hasty
            else (suspect_ms, MOST_PATIENCE * suspect_ms)
        )
        """The shortest and the longest timeout of a member that holds up the queue."""
        self.telling_ms = self._config.none_silent_ms // 2 if self._is_hasty else self._config.idle_round_ms
        """A member's silence longer than this is a pause to learn from when it ends."""

    def look(self, peers: PeerTable, head: Head | None, mono_ms: int, culprits: Callable[[], Iterable[NodeId]]) -> None:
        """Take note of a turn, with the head of the queue after it; ``culprits`` returns the members that hold it up."""
        gap = mono_ms - self._looked_ms if self._looked_ms is not None else 0
        self._looked_ms = mono_ms
        # While an entry waits, a turn comes with every post.
        least_ms, _ = self._patience_ms
        longest_ms = self._config.heard_ms if self._head is None else least_ms // 2
        lost = gap if gap > longest_ms else 0
        for peer in peers.peers.values():
            peer.known_ms = mono_ms if peer.known_ms is None else peer.known_ms + lost
        if self.gone:
            self.gone = self.gone.intersection(self.silent(peers, mono_ms))
        self._holding = frozenset(culprits()) if self._is_hasty and head is not None else frozenset()
        if head != self._head:
            self._head, self._head_ms = head, mono_ms
        else:
            self._head_ms += lost
        self._joining = {n: at for n, at in self._joining.items() if mono_ms - at <= self._config.heard_ms}
        if not self._joining:
            self._joined_ms = None

    def begin(self, before: Iterable[NodeId], members: Iterable[NodeId], mono_ms: int) -> None:
        """Note that another epoch has begun, with these members instead of those."""
        # A master that asked to be taken back and then fell silent counts as left out, too; one that was stopped in order does not.
        left_out = {*before, *self._joining}.difference(members, self._left)
        self.stopped = frozenset(self._left).difference(members)
        self._head, self._joining, self._joined_ms, self.missing_ms = None, {}, None, None
        self._began_ms, self._reached, self._asked_ms, self.gone, self._left = mono_ms, {}, {}, frozenset(), {}
        for node in sorted(left_out):
            times, last_ms = self._left_out.get(node, (0, mono_ms))
            is_again = mono_ms - last_ms <= 4 * MOST_LAGS * self._config.lag_ms
            self._left_out[node] = (times + 1 if is_again else 1, mono_ms)

    def on_join(self, node: NodeId, mono_ms: int) -> None:
        """Note a Join of a master outside; one that was left out repeatedly has to wait a while."""
        times, last_ms = self._left_out.get(node, (0, mono_ms))
        if times > 1 and mono_ms - last_ms < min(times - 1, MOST_LAGS) * self._config.lag_ms:
            return
        self._joining[node] = mono_ms
        if self._joined_ms is None:
            self._joined_ms = mono_ms

    def on_its_way(self, peer: Peer, lsn: Lsn, mono_ms: int) -> None:
        """Note how far a member has read on its way into this epoch."""
        is_held = self._began_ms is not None and mono_ms - self._began_ms < HELD_LAGS * self.lag_ms
        if self.gets_on(peer.node, lsn, mono_ms) and self._reached[peer.node][1] == mono_ms and is_held:
            peer.known_ms = self._head_ms = mono_ms

    def gets_on(self, node: NodeId, lsn: Lsn, mono_ms: int) -> bool:
        """Tell whether a master that reports how far it has read made progress recently."""
        reached, since_ms = self._reached.get(node, (-1, mono_ms))
        if lsn > reached:
            self._reached[node] = lsn, mono_ms
            return True
        return mono_ms - since_ms < self.lag_ms

    def looks(self, peers: PeerTable, mono_ms: int) -> list[NodeId]:
        """Return silent members, not missed yet, for which the broker is to be asked now whether a process reads their inbox."""
        missed = self.silent(peers, mono_ms)
        due = [
            node
            for node, peer in peers.peers.items()
            if node not in missed and (at_ms := self._look_at_ms(peer)) is not None and at_ms <= mono_ms
        ]
        self._asked_ms.update(dict.fromkeys(due, mono_ms))
        return due

    def on_absence(self, peer: Peer, mono_ms: int) -> bool:
        """Note that no process reads a member's inbox; return whether the member counts as silent, because it was not heard."""
        if self._gone_ms is None or peer.known_ms is None or mono_ms - peer.known_ms < self._gone_ms:
            return False
        peer.known_ms = min(peer.known_ms, mono_ms - self.lag_ms)
        peer.heard_ms = min(peer.heard_ms, mono_ms - self._config.heard_ms - 1)
        self.gone |= {peer.node}
        return True

    def on_leave(self, peer: Peer, incarnation: int, mono_ms: int) -> bool:
        """Note that a member's process ends; return whether it is the process that is known of it."""
        if peer.row is None or peer.row.incarnation != incarnation:
            return False
        self._left[peer.node] = incarnation
        peer.heard_ms = min(peer.heard_ms, mono_ms - self._config.heard_ms - 1)
        return True

    def has_left(self, peer: Peer) -> bool:
        """Tell whether the known process of a member was stopped, and no other one was heard since."""
        return peer.row is not None and self._left.get(peer.node) == peer.row.incarnation

    def on_silence_over(self, peer: Peer, mono_ms: int) -> None:
        """Note the pause of a master that speaks again after more than `telling_ms`, not restarted: it may pause as long again."""
        silent_ms = mono_ms - peer.heard_ms
        if self._is_hasty:
            # Before that, no entry waited for it.
            asked_ms = self._head_ms if peer.node in self._holding else mono_ms
            silent_ms = min(silent_ms, mono_ms - self._parted_ms.pop(peer.node, asked_ms))
        was_listening = self._looked_ms is not None and mono_ms - self._looked_ms <= self._config.heard_ms
        if was_listening and self.telling_ms < silent_ms < self._patience_ms[1]:
            pause_ms, at_ms = self._pauses.get(peer.node, (0, 0))
            is_kept = pause_ms > silent_ms and mono_ms - at_ms < KEPT_LAGS * self.lag_ms
            self._pauses[peer.node] = (pause_ms if is_kept else silent_ms, mono_ms)

    def missed_at_ms(self, peer: Peer) -> int | None:
        """Return when a member is missed if no news of it comes and the queue does not move; None before the first look."""
        if peer.known_ms is None:
            return None
        if self.has_left(peer):
            return peer.known_ms
        latest_ms = peer.known_ms + self.lag_ms
        if self._head is None or not self._is_quick:
            return latest_ms
        if self._is_hasty and (peer.row is None or peer.node not in self._holding):
            # A member on its way into this epoch posts its place only as it makes progress.
            return latest_ms
        pause_ms, at_ms = self._pauses.get(peer.node, (0, 0))
        if peer.known_ms - at_ms > KEPT_LAGS * self.lag_ms:
            pause_ms = 0
        least_ms, most_ms = self._patience_ms
        patience_ms = min(max(least_ms, 2 * pause_ms), most_ms)
        # An idle member posts seldom: with none its time counts from when the head began to wait.
        asked_ms = self._head_ms + (patience_ms if self._is_hasty else self._config.round_timeout_ms)
        return min(latest_ms, max(peer.known_ms + patience_ms, asked_ms))

    def _look_at_ms(self, peer: Peer) -> int | None:
        """Return when to ask next whether a process reads a member's inbox: sooner while an entry waits."""
        if self._gone_ms is None or peer.known_ms is None:
            return None
        patience_ms = self._config.heard_ms if self._head is None else self._gone_ms
        return max(peer.known_ms + patience_ms, self._asked_ms.get(peer.node, 0) + self._config.retransmit_ms)

    def silent(self, peers: PeerTable, mono_ms: int) -> list[NodeId]:
        """Return members without news for too long."""
        missed = {node: self.missed_at_ms(peer) for node, peer in peers.peers.items()}
        return [node for node, at_ms in missed.items() if at_ms is not None and mono_ms >= at_ms]

    def missing(self, peers: PeerTable, culprits: list[NodeId], beyond: Iterable[NodeId], mono_ms: int) -> list[NodeId]:
        """Return members to go on without: silent ones, ``culprits`` if the queue has not moved, and those ``beyond`` the log."""
        missing = self.silent(peers, mono_ms)
        for node in self._holding.intersection(missing):
            self._parted_ms.setdefault(node, self._head_ms)
        if self._head is not None and mono_ms - self._head_ms >= self.lag_ms:
            missing += [node for node in culprits if node not in missing]
        missing += [node for node in beyond if node not in missing]
        if not missing:
            self.missing_ms = None
        elif self.missing_ms is None:
            self.missing_ms = mono_ms
        return missing

    def is_stuck(self, mono_ms: int) -> bool:
        """Tell whether the head of the queue has not moved for so long that no master will bring it."""
        return self._head is not None and mono_ms - self._head_ms >= LOST_LAGS * self.lag_ms

    def joining(self, mono_ms: int) -> list[NodeId]:
        """Return masters to take back now: all that ask, once the first has waited for a round timeout."""
        if self._joined_ms is None or mono_ms - self._joined_ms < self._config.round_timeout_ms:
            return []
        return sorted(self._joining)

    def is_joining(self, node: NodeId) -> bool:
        """Tell whether this master asks to be taken in."""
        return node in self._joining

    def deadline_ms(self, peers: PeerTable) -> int | None:
        """Return when a change may be due."""
        due = [at for peer in peers.peers.values() if (at := self.missed_at_ms(peer)) is not None]
        due += [at for peer in peers.peers.values() if (at := self._look_at_ms(peer)) is not None]
        if self._head is not None:
            due += [self._head_ms + self.lag_ms, self._head_ms + LOST_LAGS * self.lag_ms]
        if self._joined_ms is not None:
            due.append(self._joined_ms + self._config.round_timeout_ms)
        return min(due, default=None)
