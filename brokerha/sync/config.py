"""Settings of the sync core: every timeout and window."""

from __future__ import annotations

from dataclasses import dataclass, field

from brokerha.model.errors import ConfigurationError
from brokerha.model.ids import NodeId
from brokerha.sync.modes import NONE, QUORUM, SPLIT_RECOVERY

ACKNOWLEDGE = ("all", "present", "majority")

REPORTED_LIMIT = 50_000
"""Limit of entries of all masters that are stamped and not synchronised: 9 MB, with ids of the greatest length."""


@dataclass(frozen=True, slots=True)
class SyncConfig:
    """Settings of one master; all masters of a cluster should have the same values."""

    node: NodeId
    members: tuple[NodeId, ...]
    """All masters with which the cluster begins, this one included; later the epoch has the configuration."""
    acknowledge: str = "all"
    """Members that must hold an entry before it is added: ``all``, those ``present``, or a ``majority`` (rule R6)."""
    split_recovery: str = QUORUM
    """Strategy of split recovery, until an epoch names one (R19)."""
    round_timeout_ms: int = 500
    """A member that is silent for this long is late: rounds complete with its last known counter."""
    idle_round_ms: int = 1000
    """Time between posts while there is nothing to agree on."""
    max_peer_lag_ms: int = 10_000
    """After this long without news or progress of a member, a majority goes on without it (R8)."""
    suspect_after_ms: int = 2000
    """The same with ``quorum``, for a member whose confirmation or promise is missing: it posts every `retransmit_ms` then."""
    none_silent_ms: int = 150
    """With ``none``: the timeout for a member that holds up the queue, or twice its longest recent silence if that is longer."""
    none_patience_ms: int = 1000
    """With ``none``: the longest such timeout, unless the broker reports sooner that the inbox of that member is gone."""
    none_post_ms: int = 50
    """With ``none``: time between posts while there is something to agree on."""
    post_gap_ms: int = 0
    """Minimum time between two posts to one peer; turns already gather input that came in meanwhile."""
    confirm_delay_ms: int = 5
    """Delay of a confirmation to members that do not wait for it; members that wait for it get it at once."""
    retransmit_ms: int = 250
    """Unconfirmed entries are sent again after this long."""
    fetch_after_ms: int = 50
    """A body that the origin pushed and that did not come is requested after this long, then at growing intervals."""
    post_window: int = 4000
    """Limit of entries of one stream in one post, and of announced entries that wait for their bodies."""
    queue_window: int = 20_000
    """Own entries that can be stamped ahead of the added ones; further accepted transactions wait (R2)."""
    body_message_bytes: int = 1024 * 1024
    clock_reserve_us: int = 2_000_000
    """Timestamps are reserved this far ahead of use, so that few turns have to write a reservation."""
    heard_ms: int = field(init=False)
    """A member counts as heard for this long after its last post, because an idle heartbeat can be that far away."""

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
        """With ``quorum``: a member has ended if it is silent for this long and the broker says that its inbox is gone."""
        return 2 * self.round_timeout_ms

    @property
    def suspect_ms(self) -> int:
        """Timeout of a member that holds up the queue.

        Where only one link is cut, the others pass on rows of the member once they know that it is not heard: never shorter than
        that.
        """
        return max(self.suspect_after_ms, self.heard_ms + 2 * self.retransmit_ms)

    @property
    def look_ms(self) -> int:
        """Time between two checks whether an epoch change is due: a small part of every timeout that leads to one."""
        return self.round_timeout_ms // 20

    def stamp_window(self, masters: int) -> int:
        """Own entries that can be ahead of the added ones; those of all masters, on all sides, must fit into one `EpochInstall`."""
        return min(self.queue_window, REPORTED_LIMIT // max(1, masters))

    @property
    def _noticed_ms(self) -> int:
        """Time in which news of a running master surely arrives: it may come through another master, a heartbeat later."""
        return 2 * self.idle_round_ms + self.round_timeout_ms

    @property
    def lag_ms(self) -> int:
        """Timeout of a master."""
        return max(self.max_peer_lag_ms, self._noticed_ms)

    def gone_of(self, mode: str) -> int | None:
        """Silence until the broker is asked about a member that holds up the queue; None where a site must keep a copy first."""
        if mode == NONE:
            return self.none_silent_ms
        return self.gone_ms if mode == QUORUM else None

    def busy_post_ms(self, mode: str) -> int:
        """Time between posts while there is something to agree on."""
        return min(self.none_post_ms, self.retransmit_ms) if mode == NONE else self.retransmit_ms

    def lag_of(self, mode: str) -> int:
        """Timeout of a master with this strategy; ``none`` shortens it so that updates are delayed no longer than detection takes.

        It is twice as long as news can take: missing a master by mistake costs all masters an epoch, and its own site a going back.
        """
        return min(self.lag_ms, 2 * self._noticed_ms) if mode == NONE else self.lag_ms
