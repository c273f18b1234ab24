"""definitions.json for RabbitMQ: virtual host, users with the least rights, exchanges, queues, policies and limits.

    rabbitmqctl import_definitions definitions.json        or load_definitions in rabbitmq.conf

What stands in it is what the nodes declare themselves (transports/topology.py), so that it does not matter who comes first, and
the rights of transports/rights.py. Nothing in it is refused by RabbitMQ 3.10 or 4: no mirrored queues, no transient ones; the
queues are classic by default, because a quorum queue would count deliveries and drop messages. With several brokers there is a file
for each; the others are its upstreams (docs/several-brokers.md), so that it holds a password and is a secret.

The salt of a password is made from user and password, so that the same passwords give the same file.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from brokerha.deploying.accounts import Account, Broker, url_for
from brokerha.nodes.config.cluster import ClusterConfig
from brokerha.transports.rights import NOTHING
from brokerha.transports.topology import (
    CHANGES_EXCHANGE,
    DATA_EXCHANGE,
    DATA_MESSAGE_TTL_MS,
    DEFAULT_EXCHANGE,
    EXCHANGES,
    SYNC_EXCHANGE,
    SYNC_MESSAGE_TTL_MS,
    QueueRow,
    log_stream_row,
    topology_of,
)

HASHING: Final = "rabbit_password_hashing_sha256"
FOLLOWER_QUEUE_BYTES: Final = 256 * 1024 * 1024
"""What waits for a follower that is away; older messages go, and the log has them."""
_MORE_QUEUES: Final = 1000
"""Queues of apps."""
_MORE_CONNECTIONS: Final = 2000
_FEDERATED = {SYNC_EXCHANGE: SYNC_MESSAGE_TTL_MS, DATA_EXCHANGE: DATA_MESSAGE_TTL_MS}
_LINK_HEARTBEAT_S = 5


def definitions(
    config: ClusterConfig, broker: Broker, accounts: Sequence[Account], upstreams: Mapping[str, tuple[str, str, str]]
) -> dict[str, Any]:
    """All of one broker; ``upstreams`` maps the names of other brokers to (URL, user, password) there."""
    vhost = broker.address.vhost
    queues = _queues(config, broker)
    lasting = [row for row in queues if not row.is_exclusive]
    return {
        "users": [_user(account) for account in accounts],
        "vhosts": [_vhost(config, vhost)],
        "permissions": [_permission(vhost, account) for account in accounts if not _is_without_rights(account)],
        "topic_permissions": [
            {"user": account.user, "vhost": vhost, "exchange": CHANGES_EXCHANGE, **account.topic._asdict()}
            for account in accounts
            if not _is_without_rights(account)
        ],
        "parameters": [_limits(config, vhost, len(queues), len(accounts)), *_upstreams(vhost, upstreams)],
        "policies": [*_policies_of_followers(vhost, accounts), *(_policies_of_links(vhost) if upstreams else ())],
        "exchanges": [
            {
                "name": row.name,
                "vhost": vhost,
                "type": row.kind,
                "durable": True,
                "auto_delete": False,
                "internal": False,
                "arguments": {},
            }
            for row in EXCHANGES
        ],
        "queues": [
            {"name": row.name, "vhost": vhost, "durable": True, "auto_delete": False, "arguments": row.arguments}
            for row in lasting
        ],
        "bindings": [
            {
                "source": row.exchange,
                "vhost": vhost,
                "destination": row.name,
                "destination_type": "queue",
                "routing_key": row.key,
                "arguments": {},
            }
            for row in lasting
            if row.exchange != DEFAULT_EXCHANGE
        ],
    }


def definitions_text(*values: Any) -> str:
    """The file; takes what `definitions` takes."""
    return json.dumps(definitions(*values), indent=1, ensure_ascii=False) + "\n"


def password_hash(user: str, password: str) -> str:
    """RabbitMQ's salted SHA-256 of a password.

    >>> password_hash("orders.m1", "secret") == password_hash("orders.m1", "secret")
    True
    """
    salt = hashlib.sha256(f"brokerha salt\0{user}\0{password}".encode()).digest()[:4]
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


def _vhost(config: ClusterConfig, name: str) -> dict[str, Any]:
    """What is no queue of brokerha's follows this default too."""
    description = f"brokerha: the cluster {config.name}"
    return {
        "name": name,
        "description": description,
        "tags": [],
        "metadata": {"description": description, "tags": [], "default_queue_type": "classic"},
    }


def _user(account: Account) -> dict[str, Any]:
    return {
        "name": account.user,
        "password_hash": password_hash(account.user, account.password),
        "hashing_algorithm": HASHING,
        "tags": list(account.tags),
        "limits": {"max-connections": account.connections},
    }


def _is_without_rights(account: Account) -> bool:
    """Who has none in the virtual host needs no row; the tag of a monitor shows it all in the dashboard."""
    return set(account.rights) == {NOTHING} and not account.tags


def _permission(vhost: str, account: Account) -> dict[str, str]:
    return {"user": account.user, "vhost": vhost, **account.rights._asdict()}


def _queues(config: ClusterConfig, broker: Broker) -> list[QueueRow]:
    rows: dict[str, QueueRow] = {}
    for node in config.nodes:
        master = config.master_of(node.id)
        if master in broker.masters:
            queue_type = config.queue_type_at(config.broker_of(node.id))
            topology = topology_of(node.id, node.role, master if node.role == "backup" else "", queue_type)
            rows |= {row.name: row for row in topology.queues}
    if config.log_stream:
        rows |= {(row := log_stream_row(master)).name: row for master in broker.masters}
    return list(rows.values())


def _limits(config: ClusterConfig, vhost: str, queues: int, users: int) -> dict[str, Any]:
    of_transactions = config.tx_open_limit * len(config.backups)
    value = {"max-queues": queues + of_transactions + _MORE_QUEUES, "max-connections": 8 * users + _MORE_CONNECTIONS}
    return {"component": "vhost-limits", "name": "limits", "vhost": vhost, "value": value}


def _policies_of_followers(vhost: str, accounts: Sequence[Account]) -> list[dict[str, Any]]:
    return [
        {
            "name": f"{account.user}: bounded",
            "vhost": vhost,
            "pattern": rf"^{re.escape(account.user)}\.",
            "apply-to": "queues",
            "priority": 1,
            "definition": {"max-length-bytes": FOLLOWER_QUEUE_BYTES},
        }
        for account in accounts
        if account.is_follower
    ]


def _policies_of_links(vhost: str) -> list[dict[str, Any]]:
    return [
        {
            "name": exchange,
            "vhost": vhost,
            "pattern": f"^{re.escape(exchange)}$",
            "apply-to": "exchanges",
            "priority": 1,
            "definition": {"federation-upstream-pattern": f" {re.escape(exchange)}$"},
        }
        for exchange in _FEDERATED
    ]


def _upstreams(vhost: str, upstreams: Mapping[str, tuple[str, str, str]]) -> list[dict[str, Any]]:
    return [
        {
            "component": "federation-upstream",
            "name": f"{name} {exchange}",
            "vhost": vhost,
            "value": {
                "uri": f"{url_for(url, user, password)}?heartbeat={_LINK_HEARTBEAT_S}",
                "max-hops": 1,
                "ack-mode": "on-publish",
                "message-ttl": ttl_ms,
                "reconnect-delay": 1,
                # Who published a message is checked where it arrives (transports/senders.py).
                "trust-user-id": True,
            },
        }
        for name, (url, user, password) in upstreams.items()
        for exchange, ttl_ms in _FEDERATED.items()
    ]
