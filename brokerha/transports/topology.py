"""Every name and every argument that brokerha has in a broker; only this file spells them, except that a core also names queues of
transactions (model/wire/tx_queues.py).

A reader of the RabbitMQ dashboard should understand the cluster from these names alone:

    exchange            kind    key            queue                    messages in it
    brokerha.sync       direct  node id        brokerha.<node>.sync     small messages of the protocols
    brokerha.data       direct  node id        brokerha.<node>.data     bodies, effects, reads between nodes
    brokerha.writes     direct  any            brokerha.writes.any      writes of apps, taken by any master
                                master's id    brokerha.<master>.writes writes of apps for one master
    brokerha.reads      direct  any            brokerha.reads.any       reads and cluster questions of apps
                                master's id    brokerha.<master>.reads
    brokerha.rejected   fanout  -              brokerha.rejected        poison messages, with the reason as header
    brokerha.changes    topic   store.name.kind   (queues of apps)      committed effects, for followers outside
    brokerha.cluster    fanout  -              -                        none: its argument names the owner of the virtual host
    -                   -       -              brokerha.<node>.log      stream of committed effects, in LSN order
    (default)           -       name of queue  brokerha.tx.<master>.<transaction id>.<backup>
                                                                        events of one open transaction for one backup

Invariants: every queue is bounded. An inbox belongs to the connection that reads it and is removed with it (exclusive). So a node
that reconnects through another node of a cluster of brokers has its inbox at once, and a second process under its id is refused. A
full inbox drops its oldest messages, because the protocol repeats what matters. All else is durable. Full queues of writes and
reads refuse, so that the publisher notices. A queue of a transaction is never bound (bindings make short-lived queues slow), and is
removed with the backup that reads it (auto-delete). The broker deletes a queue that was never read after `TX_QUEUE_EXPIRES_MS`, so
that none stays after a crash. Arguments of an existing queue cannot be changed: RabbitMQ refuses a different declaration.

`topology_of` gives the declarations of a node, and can also give a definitions.json with the least rights of each node.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from brokerha.model.ids import NodeId, is_node_id

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
"""RabbitMQ's direct reply-to: a message to it goes to the asking app, without a queue."""

ANY_MASTER = "any"
"""Routing key of writes and reads for any master."""

MASTER_ROLE = "master"
"""Takes writes and reads of apps."""

REASON_HEADER = "brokerha-reason"
"""Why a message is in `rejected_queue`."""

MEBIBYTE = 1024 * 1024
SYNC_QUEUE_BYTES = 32 * MEBIBYTE
SYNC_MESSAGE_TTL_MS = 10_000
"""A post is repeated each round: older ones only cost a returning node time."""
DATA_QUEUE_BYTES = 256 * MEBIBYTE
DATA_MESSAGE_TTL_MS = 60_000
"""Missing bodies and effects are fetched again much earlier than this."""
WRITES_QUEUE_BYTES = 256 * MEBIBYTE
READS_QUEUE_BYTES = 64 * MEBIBYTE
REJECTED_QUEUE_BYTES = 64 * MEBIBYTE
CLASSIC = "classic"
QUORUM = "quorum"
"""Type of the queues of apps: on one node of the broker, or replicated on several by majority agreement."""
DELIVERY_LIMIT = 1_000_000_000
TX_QUEUE_BYTES = 32 * MEBIBYTE
"""Above the largest transaction, sent again once or twice for a slow backup."""
TX_QUEUE_EXPIRES_MS = 10_000
"""Time without a reader after which none is expected; a late reader declares the queue again."""
LOG_STREAM_BYTES = 20 * 1024 * MEBIBYTE
LOG_SEGMENT_BYTES = 100 * 1000 * 1000
"""A stream is trimmed by whole segments, so a segment must be much smaller than its limit."""


SYNC_KIND = "sync"
DATA_KIND = "data"
WRITES_KIND = "writes"
READS_KIND = "reads"
REJECTED_KIND = "rejected"
TX_KIND = "tx"
INBOX_KINDS = frozenset({SYNC_KIND, DATA_KIND})
"""Queues that hold only repeated messages."""


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
    """Purpose: one of the ``_KIND`` words."""
    exchange: str
    """Exchange that it is bound to; empty when it is reached only by its name."""
    key: str
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def is_exclusive(self) -> bool:
        """Whether it belongs to the connection that declared it: no other can read, delete or purge it."""
        return self.kind in INBOX_KINDS

    @property
    def is_of_apps(self) -> bool:
        """Whether apps publish to it."""
        return self.kind in {WRITES_KIND, READS_KIND}

    @property
    def is_shared_writes(self) -> bool:
        """Whether it holds writes for any master."""
        return self.kind == WRITES_KIND and self.key == ANY_MASTER


@dataclass(frozen=True, slots=True)
class Topology:
    """Declarations of one node, in this order: exchanges, then queues with their bindings."""

    exchanges: tuple[ExchangeRow, ...]
    queues: tuple[QueueRow, ...]

    def queues_to_consume(self) -> tuple[QueueRow, ...]:
        """Return the queues that the node itself reads; those of apps only while it serves them."""
        return tuple(row for row in self.queues if row.kind != REJECTED_KIND)

    def inboxes(self) -> tuple[QueueRow, ...]:
        """Return the queues for messages of other nodes, which are always read."""
        return tuple(row for row in self.queues if row.kind in INBOX_KINDS)

    def queues_of_apps(self) -> tuple[QueueRow, ...]:
        """Return the queues of writes and reads."""
        return tuple(row for row in self.queues if row.is_of_apps)

    def to_hear(self) -> Topology:
        """Return the declarations needed before the node hears others."""
        return Topology(self.exchanges, self.inboxes())

    def to_serve(self) -> Topology:
        """Return the declarations, besides exchanges, needed before the node takes messages of apps."""
        return Topology((), self.queues_of_apps())

    def to_publish(self) -> Topology:
        """Return the declarations needed before the node publishes: readers declare the rest."""
        return Topology(self.exchanges, tuple(row for row in self.queues if row.kind == REJECTED_KIND))


EXCHANGES = (
    ExchangeRow(SYNC_EXCHANGE, "direct"),
    ExchangeRow(DATA_EXCHANGE, "direct"),
    ExchangeRow(WRITES_EXCHANGE, "direct"),
    ExchangeRow(READS_EXCHANGE, "direct"),
    ExchangeRow(REJECTED_EXCHANGE, "fanout"),
    ExchangeRow(CHANGES_EXCHANGE, "topic"),
)
"""All exchanges for messages; every node declares all of them, whichever it uses."""


def exchanges_of(cluster: str) -> tuple[ExchangeRow, ...]:
    """Return the exchanges that every node of a cluster declares; the first is refused at another cluster's virtual host.

    RabbitMQ compares only this argument of an exchange. Nothing is published here, and no exchange has the alternate name.
    """
    return ExchangeRow(CLUSTER_EXCHANGE, "fanout", {"alternate-exchange": f"{CLUSTER_EXCHANGE}.{cluster}"}), *EXCHANGES


def foreign_problem(refusal: str, place: str) -> str:
    """Return the problem when the broker refused a declaration because another cluster has the virtual host; else an empty string.

    >>> foreign_problem("received 'brokerha.cluster.shop' but current is 'brokerha.cluster.orders'", "the virtual host 'a'")
    "the virtual host 'a' belongs to the cluster orders, and this is shop"
    """
    names = re.findall(rf"'{re.escape(CLUSTER_EXCHANGE)}\.([^']*)'", refusal)
    return f"{place} belongs to the cluster {names[1]}, and this is {names[0]}" if len(names) == 2 else ""


def sync_queue(node: NodeId) -> str:
    """Return the name of a node's inbox for the small messages of the protocol."""
    return f"brokerha.{node}.sync"


def data_queue(node: NodeId) -> str:
    """Return the name of a node's inbox for bodies, effects and reads."""
    return f"brokerha.{node}.data"


def writes_queue(node: NodeId) -> str:
    """Return the name of the queue of writes for this master."""
    return f"brokerha.{node}.writes"


def reads_queue(node: NodeId) -> str:
    """Return the name of the queue of reads for this master."""
    return f"brokerha.{node}.reads"


def any_writes_queue() -> str:
    """Return the name of the queue of writes for any master."""
    return "brokerha.writes.any"


def any_reads_queue() -> str:
    """Return the name of the queue of reads for any master."""
    return "brokerha.reads.any"


def is_queue_of_apps(name: str) -> bool:
    """Tell whether apps publish to this queue.

    >>> is_queue_of_apps("brokerha.m1.writes"), is_queue_of_apps("brokerha.m1.sync")
    (True, False)
    """
    node = name.removeprefix("brokerha.").rpartition(".")[0]
    named = {writes_queue(node), reads_queue(node)} if is_node_id(node) else set()
    return name in {any_writes_queue(), any_reads_queue(), *named}


def rejected_queue() -> str:
    """Return the name of the queue of messages that no node could use; people look into it, no program does."""
    return "brokerha.rejected"


def log_stream(node: NodeId) -> str:
    """Return the name of the stream of the effects that a master committed."""
    return f"brokerha.{node}.log"


def connection_name(node: NodeId, role: str, direction: str) -> str:
    """Return the name of a connection in the dashboard; ``direction`` is ``in``, ``out`` or ``log``."""
    return f"{node} {role} {direction}"


def consumer_tag(node: NodeId, queue: str) -> str:
    """Return the tag of a consumer in the dashboard."""
    return f"{node} reads {queue}"


def consumer_arguments(row: QueueRow, now_s: float) -> dict[str, Any]:
    """Return the arguments of a consumer that begins at this time, in seconds since 1970.

    At a queue of one master the newest reader has priority. Only the acting process reads there, and possibly a former one that is
    frozen or cut off and does not know its successor.
    """
    if not row.is_of_apps or row.key == ANY_MASTER:
        return {}
    return {"x-priority": int(now_s * 1000)}


def topology_of(node: NodeId, role: str, master: NodeId = "", queue_type: str = CLASSIC, cluster: str = "") -> Topology:
    """Return the declarations of a node with this role; ``master`` is that of a backup, ``queue_type`` the type of all but inboxes.

    Without ``cluster`` they do not name the owner of the virtual host.
    """
    queues = [
        _inbox(sync_queue(node), SYNC_KIND, SYNC_EXCHANGE, node, SYNC_QUEUE_BYTES, SYNC_MESSAGE_TTL_MS),
        _inbox(data_queue(node), DATA_KIND, DATA_EXCHANGE, node, DATA_QUEUE_BYTES, DATA_MESSAGE_TTL_MS),
        QueueRow(rejected_queue(), REJECTED_KIND, REJECTED_EXCHANGE, "", _bounded(queue_type, REJECTED_QUEUE_BYTES, "drop-head")),
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
    """Return the queue of a transaction, which the primary declares when the transaction opens."""
    arguments = {
        # The default of the virtual host can be quorum queues, which are slow to make and remove.
        "x-queue-type": "classic",
        "x-max-length-bytes": TX_QUEUE_BYTES,
        "x-overflow": "reject-publish",
        "x-expires": expires_ms,
    }
    return QueueRow(name, TX_KIND, DEFAULT_EXCHANGE, name, arguments)


def log_stream_row(node: NodeId) -> QueueRow:
    """Return the stream of a master; only the master declares it, when its log_stream connects."""
    arguments = {
        "x-queue-type": "stream",
        "x-max-length-bytes": LOG_STREAM_BYTES,
        "x-stream-max-segment-size-bytes": LOG_SEGMENT_BYTES,
    }
    return QueueRow(log_stream(node), "log", DEFAULT_EXCHANGE, log_stream(node), arguments)


def _inbox(name: str, kind: str, exchange: str, key: str, limit_bytes: int, ttl_ms: int) -> QueueRow:
    arguments = {
        # The default of the virtual host can be quorum queues, which cannot be exclusive.
        "x-queue-type": "classic",
        "x-max-length-bytes": limit_bytes,
        "x-overflow": "drop-head",
        "x-message-ttl": ttl_ms,
    }
    return QueueRow(name, kind, exchange, key, arguments)


def _bounded(queue_type: str, limit_bytes: int, overflow: str) -> dict[str, Any]:
    arguments: dict[str, Any] = {"x-max-length-bytes": limit_bytes, "x-overflow": overflow}
    if queue_type == QUORUM:
        # A restarting master must not turn a write into a poison message: RabbitMQ 4 gives up after 20 deliveries.
        arguments |= {"x-queue-type": QUORUM, "x-delivery-limit": DELIVERY_LIMIT}
    return arguments
