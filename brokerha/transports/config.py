"""Limits and times of a node's transport: one frozen struct, each field with its unit and its reason.

A number that is not here is not a choice: names are in topology.py, sizes of queues in the broker too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from brokerha.model.errors import ConfigurationError
from brokerha.transports.topology import CLASSIC, TX_QUEUE_EXPIRES_MS

MEBIBYTE = 1024 * 1024


ELSEWHERE_WITHIN_S = 2.5
"""Half of what a channel stands still at least when it does because another node of the broker died, and longer than one of a busy broker takes."""


@dataclass(frozen=True, slots=True)
class LaneLimit:
    """How much may wait in one lane of an inbox or outbox: whichever is reached first."""

    messages: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class TransportConfig:
    """See each field; `check` says what must hold between them."""

    heartbeat_s: int = 5
    """A peer that says nothing is given up after twice this time. RabbitMQ advises against less than 5; with more, a node that was cut
    off silently is refused its own inbox for so long after the cut."""
    connect_timeout_s: float = 5.0
    """For the TCP connection, and for each answer while it is opened; `ELSEWHERE_WITHIN_S` where the broker has other nodes: one that is being
    stopped still takes connections, and says nothing."""
    tcp_user_timeout_ms: int = 10_000
    """Sent bytes that the other kernel does not take: py-amqp's own second would cut links that are only slow. No less than two
    heartbeats, so that the broker gives a connection up before its node comes back for the inbox; no more, because TCP sends again at intervals that double,
    and a link may be well long before it does."""
    retry_first_ms: int = 50
    """First pause after a lost connection; doubles up to ``retry_most_ms``, each with jitter."""
    retry_most_ms: int = 2_000
    """Longest pause: how long a node may take to notice that the broker is back."""
    confirm_timeout_s: float = 30.0
    """A message that is not confirmed so long, while nothing is blocked, is a reason to connect anew."""
    answer_within_s: float = 30.0
    """The same for a channel that was asked whether the broker serves it; `ELSEWHERE_WITHIN_S` where the broker has other nodes."""
    redeclare_quiet_ms: int = 1_500
    """A sync inbox that is silent so long may have lost its binding: exchanges and queues are declared again."""
    redeclare_every_ms: int = 5_000
    """They are declared again after this time in any case, for the queues that are silent by nature."""
    look_after_s: float = 3.0
    """How old a connection must be before an inbox that is gone says that its master has ended: a broker that comes back has not all nodes
    at once. Above ``retry_most_ms``."""
    stale_after_ms: int = 1_000
    """Messages to nodes that waited longer for a lost broker are dropped: the protocol has newer ones by then."""

    prefetch_sync: int = 1_000
    prefetch_data: int = 256
    prefetch_clients: int = 128
    """Unsettled messages of apps, for each of their queues: what comes again after a crash, and what lies in memory."""
    prefetch_tx: int = 16
    """For each queue of a transaction."""
    followed_tx_queues: int = 2_000
    """Queues of transactions that a backup reads at once; one more is not followed, as if it were not there."""
    queue_type: str = CLASSIC
    """Of the queues of apps and of what is rejected. All nodes of a broker must have the same: see `tx_queue_expires_ms`."""
    tx_queue_expires_ms: int = TX_QUEUE_EXPIRES_MS
    """All processes of a cluster must have the same: the broker refuses to declare a queue in two ways."""

    inbox_sync: LaneLimit = LaneLimit(10_000, 32 * MEBIBYTE)
    inbox_data: LaneLimit = LaneLimit(10_000, 64 * MEBIBYTE)
    """Above it messages stay unacknowledged, so that prefetch stops the broker."""
    inbox_tx: LaneLimit = LaneLimit(10_000, 64 * MEBIBYTE)

    outbox_sync: LaneLimit = LaneLimit(10_000, 32 * MEBIBYTE)
    outbox_data: LaneLimit = LaneLimit(10_000, 128 * MEBIBYTE)
    outbox_bulk: LaneLimit = LaneLimit(1_000, 128 * MEBIBYTE)
    """Above twice what followers of all snapshots of a node may ask for at once."""
    outbox_tx: LaneLimit = LaneLimit(10_000, 64 * MEBIBYTE)
    outbox_replies: LaneLimit = LaneLimit(20_000, 128 * MEBIBYTE)
    outbox_firm: LaneLimit = LaneLimit(10_000, 64 * MEBIBYTE)
    """Rejected messages: repeated until they are confirmed."""

    window_messages: int = 1_000
    window_bytes: int = 8 * MEBIBYTE
    """Published and not confirmed yet. More hides a slow broker; less leaves the wire idle."""
    window_bulk_bytes: int = 2 * MEBIBYTE
    """The part of it that bulk may take, so that a write behind it waits for a few milliseconds only."""
    window_tx_messages: int = 256
    """Queues opened or dropped, and events published, without an answer yet."""
    tx_channels: int = 4
    """A channel makes one queue after the other, in milliseconds each; the broker makes several side by side."""

    def for_nodes(self, count: int) -> TransportConfig:
        """These times for a broker with so many nodes."""
        if count < 2:
            return self
        return replace(self, connect_timeout_s=ELSEWHERE_WITHIN_S, answer_within_s=ELSEWHERE_WITHIN_S)

    def check(self) -> None:
        """Raise ConfigurationError when two values cannot both be meant."""
        if self.heartbeat_s < 2:
            raise ConfigurationError("heartbeat_s must be at least 2")
        if not 0 < self.retry_first_ms <= self.retry_most_ms:
            raise ConfigurationError("retry_first_ms must be above 0 and not above retry_most_ms")
        if min(self.prefetch_sync, self.prefetch_data, self.prefetch_clients, self.prefetch_tx) < 1:
            raise ConfigurationError("a prefetch of 0 would mean no limit")
        if min(self.window_messages, self.window_bytes, self.window_bulk_bytes) < 1:
            raise ConfigurationError("the window must let one message through")
        if min(self.window_tx_messages, self.tx_channels, self.followed_tx_queues) < 1:
            raise ConfigurationError("one queue of a transaction at least must be possible")
        if self.tx_queue_expires_ms < 1:
            raise ConfigurationError("tx_queue_expires_ms must be above 0")
