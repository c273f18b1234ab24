"""Settings of the sync core; every wait and every window has a bound here."""

from __future__ import annotations

from dataclasses import dataclass, field

from brokerha.model.errors import ConfigurationError
from brokerha.model.ids import NodeId
from brokerha.sync.modes import NONE, QUORUM, SPLIT_RECOVERY

ACKNOWLEDGE = ("all", "present", "majority")

REPORTED_LIMIT = 50_000
"""Entries of all masters that may be stamped and not synchronised: what the next epoch may have to recover. With ids of the
greatest length they take 8 MB."""


@dataclass(frozen=True, slots=True)
class SyncConfig:
    """How one master takes part; the same values are meant for all masters of a cluster."""

    node: NodeId
    members: tuple[NodeId, ...]
    """All masters with which the cluster begins, this one included; from then on the configuration is the epoch's."""
    acknowledge: str = "all"
    """Who must hold an entry before it is added: ``all`` members, those ``present``, or a ``majority`` (rule R6)."""
    split_recovery: str = QUORUM
    """What becomes of a split, until an epoch says something else (R19)."""
    round_timeout_ms: int = 500
    """A member that was not heard for this long is late: rounds complete with its last known counter."""
    idle_round_ms: int = 1000
    """Time between posts while there is nothing to agree on."""
    max_peer_lag_ms: int = 10_000
    """After this long without hearing of a member, or without progress, a majority goes on without who is missing (R8)."""
    suspect_after_ms: int = 2000
    """The same for a member that something waits for, with ``quorum``: it posts every `retransmit_ms` then."""
    none_silent_ms: int = 150
    """With ``none``: a member that something waits for is missed after this long, or after twice as long as it stood still of late."""
    none_patience_ms: int = 1000
    """With ``none``: the longest of these, unless the broker says before that the inbox of that member is gone."""
    none_post_ms: int = 50
    """With ``none``: time between posts while there is something to agree on."""
    post_gap_ms: int = 0
    """Least time between two posts to one peer; turns already gather what came in meanwhile."""
    confirm_delay_ms: int = 5
    """What is held of others' entries is confirmed at once to those who wait for it, and to the others after this long, or with the next post."""
    retransmit_ms: int = 250
    """Entries that a peer has not confirmed are sent again after this long."""
    fetch_after_ms: int = 50
    """Bodies that the origin pushed but that did not come are asked for after this long, then ever less often."""
    post_window: int = 4000
    """Entries of one stream in one post, and announced entries that may wait for their bodies."""
    queue_window: int = 20_000
    """Own entries that may be stamped ahead of what is added; accepted transactions beyond it wait (R2)."""
    body_message_bytes: int = 1024 * 1024
    clock_reserve_us: int = 2_000_000
    """Timestamps are reserved this far ahead of use, so that few turns have to write the reservation."""
    heard_ms: int = field(init=False)
    """How long after its last post a member still counts as heard: an idle heartbeat may be that far away."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "heard_ms", self.idle_round_ms + self.round_timeout_ms)
        if self.node not in self.members:
            message = f"master {self.node} is not among the masters {', '.join(self.members)}"
            raise ConfigurationError(message)
        if len(set(self.members)) != len(self.members):
            message = "two masters have the same id"
            raise ConfigurationError(message)
        if self.acknowledge not in ACKNOWLEDGE:
            message = f"acknowledge = {self.acknowledge!r}: write one of {', '.join(ACKNOWLEDGE)}"
            raise ConfigurationError(message)
        if self.split_recovery not in SPLIT_RECOVERY:
            message = f"split-recovery = {self.split_recovery!r}: write one of {', '.join(SPLIT_RECOVERY)}"
            raise ConfigurationError(message)
        if self.split_recovery != QUORUM and self.acknowledge != "all":
            message = f"split-recovery = {self.split_recovery!r} needs acknowledge = 'all', not {self.acknowledge!r}"
            raise ConfigurationError(message)
        if min(self.post_window, self.queue_window, self.body_message_bytes, self.retransmit_ms) < 1:
            message = "windows and times must be at least 1"
            raise ConfigurationError(message)

    @property
    def gone_ms(self) -> int:
        """With ``quorum``: a member that is silent for this long, and of which the broker says that its inbox is gone, has ended."""
        return 2 * self.round_timeout_ms

    @property
    def suspect_ms(self) -> int:
        """When a member is missed that something waits for.

        Where only one link is cut, others pass on its rows once they are told that it is not heard: never sooner than that.
        """
        return max(self.suspect_after_ms, self.heard_ms + 2 * self.retransmit_ms)

    @property
    def look_ms(self) -> int:
        """Time between two looks whether an epoch change is due, while nothing is heard of one: a small part of every wait that leads to one."""
        return self.round_timeout_ms // 20

    def stamp_window(self, members: int) -> int:
        """Own entries that may be ahead of what is added. All members' together have to fit into one message (`EpochReport`)."""
        return min(self.queue_window, REPORTED_LIMIT // max(1, members))

    @property
    def _noticed_ms(self) -> int:
        """When news of a master that is there has come for sure: it may come through another one, a heartbeat later."""
        return 2 * self.idle_round_ms + self.round_timeout_ms

    @property
    def lag_ms(self) -> int:
        """When a master is missed."""
        return max(self.max_peer_lag_ms, self._noticed_ms)

    def gone_of(self, mode: str) -> int | None:
        """When the broker is asked for a silent member that something waits for; None where a copy is to be kept first."""
        if mode == NONE:
            return self.none_silent_ms
        return self.gone_ms if mode == QUORUM else None

    def busy_post_ms(self, mode: str) -> int:
        """Time between posts while there is something to agree on."""
        return min(self.none_post_ms, self.retransmit_ms) if mode == NONE else self.retransmit_ms

    def lag_of(self, mode: str) -> int:
        """The same where this strategy is chosen: with ``none`` updates are not delayed any longer than it takes to notice.

        Twice as long as news may take: who is missed by mistake costs everybody an epoch and its own site a going back.
        """
        return min(self.lag_ms, 2 * self._noticed_ms) if mode == NONE else self.lag_ms
