"""Limits and times of a node's transport: one frozen struct, each field with its unit and its reason.

All such numbers are here, except names (topology.py) and sizes of queues in the broker (topology.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from brokerha.model.errors import ConfigurationError
from brokerha.transports.topology import CLASSIC, TX_QUEUE_EXPIRES_MS

MEBIBYTE = 1024 * 1024


ELSEWHERE_WITHIN_S = 2.5
"""Half of the shortest stall of a channel after the death of another node of the broker; more than a busy broker needs."""


@dataclass(frozen=True, slots=True)
class LaneLimit:
    """Most messages and bytes that can wait in one lane of an inbox or outbox; the first limit that is reached counts."""

    messages: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class TransportConfig:
    """See each field; `check` has the rules between them."""

    heartbeat_s: int = 5
    """A silent peer is given up after twice this time. RabbitMQ advises against less than 5. With more, a node whose connection was
    cut silently is refused its own inbox for that long."""
    connect_timeout_s: float = 5.0
    """For the TCP connection, and for each answer while it is opened; `ELSEWHERE_WITHIN_S` when the broker has other nodes: a
    stopping node still accepts connections, but does not answer."""
    tcp_user_timeout_ms: int = 10_000
    """Time for unacknowledged TCP data; py-amqp's default of one second would cut slow links. At least two heartbeats, so that the
    broker drops a connection before its node returns for the inbox. No more, because TCP retries at doubling intervals, so a link
    can be healthy long before the next retry."""
    retry_first_ms: int = 50
    """First pause after a lost connection; it doubles up to ``retry_most_ms``, with jitter."""
    retry_most_ms: int = 2_000
    """Longest pause: the time until a node notices that the broker is back."""
    confirm_timeout_s: float = 30.0
    """A message that is unconfirmed for this long, while nothing is blocked, causes a reconnect."""
    answer_within_s: float = 30.0
    """The same for a channel that asked whether the broker serves it; `ELSEWHERE_WITHIN_S` when the broker has other nodes."""
    redeclare_quiet_ms: int = 1_500
    """A sync inbox that is silent for this long has possibly lost its binding: exchanges and queues are declared again."""
    redeclare_every_ms: int = 5_000
    """They are declared again after this time in any case, for queues that are normally silent."""
    look_after_s: float = 3.0
    """Age of a connection before a missing inbox means that its master has ended: a restarted broker does not have all nodes at
    once. Above ``retry_most_ms``."""
    stale_after_ms: int = 1_000
    """Messages to nodes that waited longer for a lost broker are dropped: the protocol has newer ones by then."""

    prefetch_sync: int = 1_000
    prefetch_data: int = 256
    prefetch_clients: int = 128
    """Unsettled messages of apps per queue: the number redelivered after a crash, and held in memory."""
    prefetch_tx: int = 16
    """Per queue of a transaction."""
    followed_tx_queues: int = 2_000
    """Most queues of transactions that a backup reads at once; further ones are not followed, as if they did not exist."""
    queue_type: str = CLASSIC
    """Type of the queues of apps and of rejected messages; equal at all nodes of a broker, see `tx_queue_expires_ms`."""
    tx_queue_expires_ms: int = TX_QUEUE_EXPIRES_MS
    """Equal at all processes of a cluster: the broker refuses two different declarations of a queue."""

    inbox_sync: LaneLimit = LaneLimit(10_000, 32 * MEBIBYTE)
    inbox_data: LaneLimit = LaneLimit(10_000, 64 * MEBIBYTE)
    """Above it messages stay unacknowledged, so that the prefetch limit stops the broker."""
    inbox_tx: LaneLimit = LaneLimit(10_000, 64 * MEBIBYTE)

    outbox_sync: LaneLimit = LaneLimit(10_000, 32 * MEBIBYTE)
    outbox_data: LaneLimit = LaneLimit(10_000, 128 * MEBIBYTE)
    outbox_bulk: LaneLimit = LaneLimit(1_000, 128 * MEBIBYTE)
    """Above twice the number that followers of all snapshots of a node can ask for at once."""
    outbox_tx: LaneLimit = LaneLimit(10_000, 64 * MEBIBYTE)
    outbox_replies: LaneLimit = LaneLimit(20_000, 128 * MEBIBYTE)
    outbox_firm: LaneLimit = LaneLimit(10_000, 64 * MEBIBYTE)
    """Rejected messages: repeated until confirmed."""

    window_messages: int = 1_000
    window_bytes: int = 8 * MEBIBYTE
    """Limit of published, unconfirmed messages. More hides a slow broker; less leaves the connection idle."""
    window_bulk_bytes: int = 2 * MEBIBYTE
    """The share of bulk, so that a write after it waits only a few milliseconds."""
    window_tx_messages: int = 256
    """Queues opened or dropped, and events published, without an answer yet."""
    tx_channels: int = 4
    """A channel makes one queue after another, in milliseconds each; the broker works on several channels in parallel."""

    def for_nodes(self, count: int) -> TransportConfig:
        """Return these times for a broker with so many nodes."""
        if count < 2:
            return self
        return replace(self, connect_timeout_s=ELSEWHERE_WITHIN_S, answer_within_s=ELSEWHERE_WITHIN_S)

    def check(self) -> None:
        """Raise ConfigurationError when two values contradict each other."""
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
