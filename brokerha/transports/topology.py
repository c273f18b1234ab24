"""Every name and every argument that brokerha has in a broker, and the only file that spells them, but for queues of
transactions, which a core names too (model/wire/tx_queues.py).

Somebody who reads the RabbitMQ dashboard should understand the cluster from these names alone:

    exchange            kind    key            queue                    what travels through it
    brokerha.sync       direct  node id        brokerha.<node>.sync     small messages of the protocols
    brokerha.data       direct  node id        brokerha.<node>.data     bodies, effects, reads between nodes
    brokerha.writes     direct  any            brokerha.writes.any      writes of apps, taken by any master
                                master's id    brokerha.<master>.writes writes of apps for one master
    brokerha.reads      direct  any            brokerha.reads.any       reads and cluster questions of apps
                                master's id    brokerha.<master>.reads
    brokerha.rejected   fanout  -              brokerha.rejected        poison messages, with the reason as header
    brokerha.changes    topic   store.name.kind   (queues of apps)      committed effects, for followers outside
    brokerha.cluster    fanout  -              -                        nothing: its argument says whose the virtual host is
    -                   -       -              brokerha.<node>.log      stream of committed effects, in LSN order
    (default)           -       name of queue  brokerha.tx.<master>.<transaction id>.<backup>
                                                                        events of one open transaction for one backup

Invariants: every queue is bounded. An inbox belongs to the connection that reads it and goes with it (exclusive): so a node that comes
back through another node of a cluster of brokers has its inbox there at once, and a second process under its id is refused. It drops
its oldest messages, because the protocol repeats what matters and what is old is of no use. All else is durable; queues of writes and
reads refuse when they are full, so that the publisher learns of it.
A queue of a transaction is never bound (bindings make queues that come and go slow), and goes with the backup that reads it (auto-delete);
one that was never read is deleted by the broker after `TX_QUEUE_EXPIRES_MS`: whatever dies, none stays behind.
Arguments of a queue that exists cannot be changed: RabbitMQ refuses another declaration.

What a node declares is made from `topology_of`, and so can be a definitions.json with least rights per node.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from brokerha.model.ids import NodeId

SYNC_EXCHANGE = "brokerha.sync"
DATA_EXCHANGE = "brokerha.data"
WRITES_EXCHANGE = "brokerha.writes"
READS_EXCHANGE = "brokerha.reads"
REJECTED_EXCHANGE = "brokerha.rejected"
CHANGES_EXCHANGE = "brokerha.changes"
CLUSTER_EXCHANGE = "brokerha.cluster"
DEFAULT_EXCHANGE = ""
"""Routes by the name of the queue; answers to apps go this way."""
REPLY_ADDRESS = "amq.rabbitmq.reply-to"
"""RabbitMQ's direct reply-to: what comes there goes to who asked, without a queue."""

ANY_MASTER = "any"
"""Routing key of writes and reads that any master may take."""

MASTER_ROLE = "master"
"""Takes writes and reads of apps."""

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
CLASSIC = "classic"
QUORUM = "quorum"
"""Type of the queues of apps: on one node of the broker, or replicated on several by agreement of most of them."""
DELIVERY_LIMIT = 1_000_000_000
TX_QUEUE_BYTES = 32 * MEBIBYTE
"""Above the largest transaction, sent again once or twice because its backup was slow."""
TX_QUEUE_EXPIRES_MS = 10_000
"""After so long without a reader none is expected any more; one that comes nevertheless makes it anew."""
LOG_STREAM_BYTES = 20 * 1024 * MEBIBYTE
LOG_SEGMENT_BYTES = 100 * 1000 * 1000
"""A stream is trimmed by whole segments, so its segments must be small against its limit."""


SYNC_KIND = "sync"
DATA_KIND = "data"
WRITES_KIND = "writes"
READS_KIND = "reads"
REJECTED_KIND = "rejected"
TX_KIND = "tx"
INBOX_KINDS = frozenset({SYNC_KIND, DATA_KIND})
"""Queues that hold nothing that is not repeated."""


@dataclass(frozen=True, slots=True)
class ExchangeRow:
    """One exchange, as it is declared."""

    name: str
    kind: str
    """``direct``, ``fanout`` or ``topic``."""
    arguments: dict[str, Any] = field(default_factory=dict)


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
    def is_exclusive(self) -> bool:
        """Whether it belongs to the connection that declared it: nobody else reads, deletes or purges it."""
        return self.kind in INBOX_KINDS

    @property
    def is_of_apps(self) -> bool:
        """Whether apps publish to it."""
        return self.kind in {WRITES_KIND, READS_KIND}

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
        """The queues that the node itself reads, those of apps as long as it serves them."""
        return tuple(row for row in self.queues if row.kind != REJECTED_KIND)

    def inboxes(self) -> tuple[QueueRow, ...]:
        """The queues for messages of other nodes, which are always read."""
        return tuple(row for row in self.queues if row.kind in INBOX_KINDS)

    def queues_of_apps(self) -> tuple[QueueRow, ...]:
        """The queues of writes and reads."""
        return tuple(row for row in self.queues if row.is_of_apps)

    def to_hear(self) -> Topology:
        """What must be there before the node hears others."""
        return Topology(self.exchanges, self.inboxes())

    def to_serve(self) -> Topology:
        """What must be there before the node takes messages of apps, beside the exchanges."""
        return Topology((), self.queues_of_apps())

    def to_publish(self) -> Topology:
        """What must be there before the node publishes: the rest is declared by its reader."""
        return Topology(self.exchanges, tuple(row for row in self.queues if row.kind == REJECTED_KIND))


EXCHANGES = (
    ExchangeRow(SYNC_EXCHANGE, "direct"),
    ExchangeRow(DATA_EXCHANGE, "direct"),
    ExchangeRow(WRITES_EXCHANGE, "direct"),
    ExchangeRow(READS_EXCHANGE, "direct"),
    ExchangeRow(REJECTED_EXCHANGE, "fanout"),
    ExchangeRow(CHANGES_EXCHANGE, "topic"),
)
"""All exchanges that messages go through; every node declares all of them, whatever it publishes to."""


def exchanges_of(cluster: str) -> tuple[ExchangeRow, ...]:
    """What every node of a cluster declares; the first is refused where another cluster has the virtual host, before anything is changed.

    The alternate exchange is the one argument of an exchange that RabbitMQ compares. Nothing is published here, and there is none of this name.
    """
    return ExchangeRow(CLUSTER_EXCHANGE, "fanout", {"alternate-exchange": f"{CLUSTER_EXCHANGE}.{cluster}"}), *EXCHANGES


def foreign_problem(refusal: str, place: str) -> str:
    """What is wrong where the broker refused to declare something because the virtual host is another cluster's; empty where it was for something else.

    >>> foreign_problem("received 'brokerha.cluster.shop' but current is 'brokerha.cluster.orders'", "the virtual host 'a'")
    "the virtual host 'a' belongs to the cluster orders, and this is shop"
    """
    names = re.findall(rf"'{re.escape(CLUSTER_EXCHANGE)}\.([^']*)'", refusal)
    return f"{place} belongs to the cluster {names[1]}, and this is {names[0]}" if len(names) == 2 else ""


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


def consumer_arguments(row: QueueRow, now_s: float) -> dict[str, Any]:
    """Arguments of a consumer that begins at this time, in seconds since 1970.

    The reader that began last comes first where a queue belongs to one master: only the process that acts for it reads there,
    and one that is frozen, or cut off, and has not noticed that another acts in its stead.
    """
    if not row.is_of_apps or row.key == ANY_MASTER:
        return {}
    return {"x-priority": int(now_s * 1000)}


def topology_of(node: NodeId, role: str, master: NodeId = "", queue_type: str = CLASSIC, cluster: str = "") -> Topology:
    """What a node of this role declares; ``master`` is the one that a backup belongs to, ``queue_type`` that of what is not an inbox.

    Without ``cluster`` it does not say whose the virtual host is.
    """
    queues = [
        _inbox(sync_queue(node), SYNC_KIND, SYNC_EXCHANGE, node, SYNC_QUEUE_BYTES, SYNC_MESSAGE_TTL_MS),
        _inbox(data_queue(node), DATA_KIND, DATA_EXCHANGE, node, DATA_QUEUE_BYTES, DATA_MESSAGE_TTL_MS),
        QueueRow(
            rejected_queue(),
            REJECTED_KIND,
            REJECTED_EXCHANGE,
            "",
            _bounded(queue_type, REJECTED_QUEUE_BYTES, "drop-head"),
        ),
    ]
    served = node if role == MASTER_ROLE else master
    if served:
        queues += [
            QueueRow(name, kind, exchange, key, _bounded(queue_type, limit_bytes, "reject-publish"))
            for name, kind, exchange, key, limit_bytes in (
                (any_writes_queue(), WRITES_KIND, WRITES_EXCHANGE, ANY_MASTER, WRITES_QUEUE_BYTES),
                (writes_queue(served), WRITES_KIND, WRITES_EXCHANGE, served, WRITES_QUEUE_BYTES),
                (any_reads_queue(), READS_KIND, READS_EXCHANGE, ANY_MASTER, READS_QUEUE_BYTES),
                (reads_queue(served), READS_KIND, READS_EXCHANGE, served, READS_QUEUE_BYTES),
            )
        ]
    return Topology(exchanges_of(cluster) if cluster else EXCHANGES, tuple(queues))


def tx_queue_row(name: str, expires_ms: int = TX_QUEUE_EXPIRES_MS) -> QueueRow:
    """The queue of a transaction, declared by the primary when the transaction opens."""
    arguments = {
        # A virtual host may make quorum queues by default: they are not made for coming and going.
        "x-queue-type": "classic",
        "x-max-length-bytes": TX_QUEUE_BYTES,
        "x-overflow": "reject-publish",
        "x-expires": expires_ms,
    }
    return QueueRow(name, TX_KIND, DEFAULT_EXCHANGE, name, arguments)


def log_stream_row(node: NodeId) -> QueueRow:
    """The stream of a master, declared by it alone, when its log_stream connects."""
    arguments = {
        "x-queue-type": "stream",
        "x-max-length-bytes": LOG_STREAM_BYTES,
        "x-stream-max-segment-size-bytes": LOG_SEGMENT_BYTES,
    }
    return QueueRow(log_stream(node), "log", DEFAULT_EXCHANGE, log_stream(node), arguments)


def _inbox(name: str, kind: str, exchange: str, key: str, limit_bytes: int, ttl_ms: int) -> QueueRow:
    arguments = {
        # A virtual host may make quorum queues by default, which cannot be exclusive.
        "x-queue-type": "classic",
        "x-max-length-bytes": limit_bytes,
        "x-overflow": "drop-head",
        "x-message-ttl": ttl_ms,
    }
    return QueueRow(name, kind, exchange, key, arguments)


def _bounded(queue_type: str, limit_bytes: int, overflow: str) -> dict[str, Any]:
    arguments: dict[str, Any] = {"x-max-length-bytes": limit_bytes, "x-overflow": overflow}
    if queue_type == QUORUM:
        # A master that restarts often must not make the broker take a write for poison: RabbitMQ 4 gives up after 20 deliveries.
        arguments |= {"x-queue-type": QUORUM, "x-delivery-limit": DELIVERY_LIMIT}
    return arguments
