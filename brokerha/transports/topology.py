"""Every name and every argument that brokerha has in a broker, and the only file that spells them.

Somebody who reads the RabbitMQ dashboard should understand the cluster from these names alone:

    exchange            kind    key            queue                    what travels through it
    brokerha.sync       direct  node id        brokerha.<node>.sync     small messages of the sync protocol
    brokerha.data       direct  node id        brokerha.<node>.data     bodies, effects, reads between nodes
    brokerha.writes     direct  any            brokerha.writes.any      writes of apps, taken by any master
                                node id        brokerha.<node>.writes   writes of apps for one master
    brokerha.reads      direct  any            brokerha.reads.any       reads and cluster questions of apps
                                node id        brokerha.<node>.reads
    brokerha.rejected   fanout  -              brokerha.rejected        poison messages, with the reason as header
    brokerha.changes    topic   store.name.kind   (queues of apps)      committed effects, for followers outside
    -                   -       -              brokerha.<node>.log      stream of committed effects, in LSN order

Invariants: all of it is durable, so that RabbitMQ 4 accepts it (transient queues that are not exclusive are gone
there); every queue is bounded. Inboxes of nodes drop their oldest messages, because the protocol repeats what matters
and what is old is of no use; queues of writes and reads refuse instead, so that the publisher learns of it.
Arguments of a queue that exists cannot be changed: RabbitMQ refuses another declaration. `INBOX_KINDS` may be deleted
and declared anew at any time; a queue of writes never.

What a node declares is made from `topology_of`, and so can be a definitions.json with least rights per node.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from brokerha.model.ids import NodeId

SYNC_EXCHANGE = "brokerha.sync"
DATA_EXCHANGE = "brokerha.data"
WRITES_EXCHANGE = "brokerha.writes"
READS_EXCHANGE = "brokerha.reads"
REJECTED_EXCHANGE = "brokerha.rejected"
CHANGES_EXCHANGE = "brokerha.changes"
DEFAULT_EXCHANGE = ""
"""Routes by the name of the queue; answers to apps go this way."""

ANY_MASTER = "any"
"""Routing key of writes and reads that any master may take."""

MASTER_ROLE = "master"
"""Only masters take writes and reads of apps; workers and backups have inboxes only."""

REASON_HEADER = "brokerha-reason"
"""Why a message is in `rejected_queue`."""

MEBIBYTE = 1024 * 1024
SYNC_QUEUE_BYTES = 32 * MEBIBYTE
SYNC_MESSAGE_TTL_MS = 10_000
"""A post is repeated each round: an older one is only work for the node that comes back."""
DATA_QUEUE_BYTES = 256 * MEBIBYTE
DATA_MESSAGE_TTL_MS = 60_000
"""Bodies and effects are fetched again where they are missing, after much less than this."""
WRITES_QUEUE_BYTES = 256 * MEBIBYTE
READS_QUEUE_BYTES = 64 * MEBIBYTE
REJECTED_QUEUE_BYTES = 64 * MEBIBYTE
LOG_STREAM_BYTES = 20 * 1024 * MEBIBYTE
LOG_SEGMENT_BYTES = 100 * 1000 * 1000
"""A stream is trimmed by whole segments, so its segments must be small against its limit."""

SYNC_KIND = "sync"
DATA_KIND = "data"
WRITES_KIND = "writes"
READS_KIND = "reads"
REJECTED_KIND = "rejected"
INBOX_KINDS = frozenset({SYNC_KIND, DATA_KIND})
"""Queues that hold nothing that is not repeated."""


@dataclass(frozen=True, slots=True)
class ExchangeRow:
    """One exchange, as it is declared."""

    name: str
    kind: str
    """``direct``, ``fanout`` or ``topic``."""


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One queue, as it is declared, with its binding."""

    name: str
    kind: str
    """What it is for: one of the ``_KIND`` words."""
    exchange: str
    """Exchange that it is bound to; empty when it is reached by its name only."""
    key: str
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def is_shared_writes(self) -> bool:
        """Whether it holds writes that any master may take."""
        return self.kind == WRITES_KIND and self.key == ANY_MASTER


@dataclass(frozen=True, slots=True)
class Topology:
    """What one node declares, in this order: exchanges, then queues with their bindings."""

    exchanges: tuple[ExchangeRow, ...]
    queues: tuple[QueueRow, ...]

    def queues_to_consume(self) -> tuple[QueueRow, ...]:
        """The queues that the node itself reads."""
        return tuple(row for row in self.queues if row.kind != REJECTED_KIND)

    def to_publish(self) -> Topology:
        """What must be there before the node publishes: the rest is declared by whoever reads it."""
        return Topology(self.exchanges, tuple(row for row in self.queues if row.kind == REJECTED_KIND))


EXCHANGES = (
    ExchangeRow(SYNC_EXCHANGE, "direct"),
    ExchangeRow(DATA_EXCHANGE, "direct"),
    ExchangeRow(WRITES_EXCHANGE, "direct"),
    ExchangeRow(READS_EXCHANGE, "direct"),
    ExchangeRow(REJECTED_EXCHANGE, "fanout"),
    ExchangeRow(CHANGES_EXCHANGE, "topic"),
)
"""All exchanges of a cluster; every node declares all of them, whatever it publishes to."""


def sync_queue(node: NodeId) -> str:
    """Inbox of a node for the small messages of the protocol."""
    return f"brokerha.{node}.sync"


def data_queue(node: NodeId) -> str:
    """Inbox of a node for bodies, effects and reads."""
    return f"brokerha.{node}.data"


def writes_queue(node: NodeId) -> str:
    """Writes of apps that asked for this master."""
    return f"brokerha.{node}.writes"


def reads_queue(node: NodeId) -> str:
    """Reads of apps that asked for this master."""
    return f"brokerha.{node}.reads"


def any_writes_queue() -> str:
    """Writes of apps for whichever master is free first."""
    return "brokerha.writes.any"


def any_reads_queue() -> str:
    """Reads of apps for whichever master is free first."""
    return "brokerha.reads.any"


def rejected_queue() -> str:
    """Messages that no node could make sense of; people look into it, no program does."""
    return "brokerha.rejected"


def log_stream(node: NodeId) -> str:
    """Stream of the effects that a master committed."""
    return f"brokerha.{node}.log"


def connection_name(node: NodeId, role: str, direction: str) -> str:
    """Name of a connection in the dashboard; ``direction`` is ``in``, ``out`` or ``log``."""
    return f"{node} {role} {direction}"


def consumer_tag(node: NodeId, queue: str) -> str:
    """Tag of a consumer in the dashboard."""
    return f"{node} reads {queue}"


def topology_of(node: NodeId, role: str) -> Topology:
    """What a node of this role declares."""
    queues = [
        _inbox(sync_queue(node), SYNC_KIND, SYNC_EXCHANGE, node, SYNC_QUEUE_BYTES, SYNC_MESSAGE_TTL_MS),
        _inbox(data_queue(node), DATA_KIND, DATA_EXCHANGE, node, DATA_QUEUE_BYTES, DATA_MESSAGE_TTL_MS),
        QueueRow(
            rejected_queue(),
            REJECTED_KIND,
            REJECTED_EXCHANGE,
            "",
            {"x-max-length-bytes": REJECTED_QUEUE_BYTES, "x-overflow": "drop-head"},
        ),
    ]
    if role == MASTER_ROLE:
        queues += [
            _of_apps(any_writes_queue(), WRITES_KIND, WRITES_EXCHANGE, ANY_MASTER, WRITES_QUEUE_BYTES),
            _of_apps(writes_queue(node), WRITES_KIND, WRITES_EXCHANGE, node, WRITES_QUEUE_BYTES),
            _of_apps(any_reads_queue(), READS_KIND, READS_EXCHANGE, ANY_MASTER, READS_QUEUE_BYTES),
            _of_apps(reads_queue(node), READS_KIND, READS_EXCHANGE, node, READS_QUEUE_BYTES),
        ]
    return Topology(EXCHANGES, tuple(queues))


def log_stream_row(node: NodeId) -> QueueRow:
    """The stream of a master, declared by it alone, when its log_stream connects."""
    arguments = {
        "x-queue-type": "stream",
        "x-max-length-bytes": LOG_STREAM_BYTES,
        "x-stream-max-segment-size-bytes": LOG_SEGMENT_BYTES,
    }
    return QueueRow(log_stream(node), "log", DEFAULT_EXCHANGE, log_stream(node), arguments)


def _inbox(name: str, kind: str, exchange: str, key: str, limit_bytes: int, ttl_ms: int) -> QueueRow:
    arguments = {"x-max-length-bytes": limit_bytes, "x-overflow": "drop-head", "x-message-ttl": ttl_ms}
    return QueueRow(name, kind, exchange, key, arguments)


def _of_apps(name: str, kind: str, exchange: str, key: str, limit_bytes: int) -> QueueRow:
    return QueueRow(name, kind, exchange, key, {"x-max-length-bytes": limit_bytes, "x-overflow": "reject-publish"})
