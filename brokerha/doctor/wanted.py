"""What a node wants of its broker: queues, exchanges that it publishes to, and rights. Made from the cluster file. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from brokerha.model.ids import NodeId
from brokerha.nodes.config.cluster import ClusterConfig
from brokerha.transports.rights import WORKER_ROLE, Rights, TopicRights, rights_of, topic_rights_of, user_of
from brokerha.transports.topology import (
    CHANGES_EXCHANGE,
    DATA_EXCHANGE,
    EXCHANGES,
    REJECTED_EXCHANGE,
    SYNC_EXCHANGE,
    QueueRow,
    log_stream_row,
    topology_of,
)

HARMFUL: Final = frozenset({"expires", "message-ttl", "max-length", "max-age", "delivery-limit"})
"""What a policy must not set for brokerha's queues."""
_OF_WORKERS = (SYNC_EXCHANGE, DATA_EXCHANGE, REJECTED_EXCHANGE)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted for one user."""

    queues: tuple[QueueRow, ...] = ()
    writes: tuple[str, ...] = ()
    topic_exchange: str = CHANGES_EXCHANGE
    rights: Rights | None = None
    """None for a user that several nodes share: no definitions say what it may do."""
    topic: TopicRights | None = None
    harmful: frozenset[str] = HARMFUL


def wanted_of(config: ClusterConfig, nodes: tuple[NodeId, ...], user: str) -> Wanted:
    """What these nodes, which come to their broker as this user, want of it."""
    rows: dict[str, QueueRow] = {}
    writes: dict[str, None] = {}
    for node in nodes:
        role, master = config.roles[node], config.master_of(node)
        is_worker = role == WORKER_ROLE
        queue_type = config.queue_type_at(config.broker_of(node))
        topology = topology_of(node, role, master if role == "backup" else "", queue_type)
        # Inboxes come and go with their nodes' connections, and nobody else may look into them.
        rows |= {row.name: row for row in topology.queues if not row.is_exclusive}
        if config.log_stream and not is_worker:
            rows |= {(row := log_stream_row(master)).name: row}
        writes |= dict.fromkeys(_OF_WORKERS if is_worker else [exchange.name for exchange in EXCHANGES])
    rights, topic = None, None
    if len(nodes) == 1 and user == user_of(config.name, nodes[0]):
        node = nodes[0]
        rights = rights_of(node, config.roles[node], config.master_of(node))
        topic = topic_rights_of(config.roles[node])
    return Wanted(tuple(rows.values()), tuple(writes), CHANGES_EXCHANGE, rights, topic)
