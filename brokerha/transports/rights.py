r"""The least rights of each user of a broker, as RabbitMQ's patterns, and the names of these users.

    Rights.configure     names that the user declares and deletes: its own queues, exchanges, queues of its transactions
    Rights.write         names that it publishes to, and queues that it binds
    Rights.read          names that it consumes, and exchanges that it binds queues to

Patterns match whole names. Every process of a master can take over, so each has the rights of the master. Queues of transactions
are the master's: each begins with its name. The rights by routing key (`TopicRights`) are for the only exchange of kind topic.
Every user must have them: without any, RabbitMQ allows everything.

| user | allowed |
|---|---|
| process of a master | declare and read its inboxes, the queues of apps, its stream and its queues of transactions; publish everywhere |
| worker | declare and read its own inboxes; publish to nodes |
| app, role ``write`` | publish writes and reads; answers come to it without any right |
| app, role ``follow`` | declare queues that begin with its name, bind them to the changes, read the logs |
| app, roles ``monitor`` and ``admin`` | look at the dashboard; do everything |
| link | fetch messages from nodes here to nodes at another broker |

>>> rights_of("w1", "worker").read.replace(chr(92), "")
'^(brokerha.(sync|data|rejected)|brokerha.w1.(sync|data)|brokerha.cluster)$'
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from brokerha.model.ids import NodeId
from brokerha.model.wire.tx_queues import TX_QUEUE_PREFIX

WORKER_ROLE: Final = "worker"
WRITE, FOLLOW, MONITOR, ADMIN = "write", "follow", "monitor", "admin"
APP_ROLES: Final = (WRITE, FOLLOW, MONITOR, ADMIN)
"""Roles of an app or of a person."""
_DECLARED = r"brokerha\.(cluster|sync|data|writes|reads|rejected|changes)"
_EXCHANGES = r"brokerha\.(sync|data|writes|reads|rejected|changes)"
_BOUND = r"brokerha\.(sync|data|writes|reads|rejected)"
_CLUSTER, _OF_CLUSTER = r"brokerha\.cluster", r"brokerha\.cluster\..*"
"""Making the exchange that names the owner needs the rights to read it and to write to its alternate exchange."""
_DEFAULT_EXCHANGE = r"amq\.default"
_CHANGES = r"^(graph|table|queue|repository|control|other|log)\."
_LINK = r"federation: brokerha\.(sync|data) -> .*"
EVERYTHING: Final = ".*"
NOTHING: Final = "^$"


class Rights(NamedTuple):
    """Three patterns, as in ``rabbitmqctl set_permissions`` and in a definitions file."""

    configure: str
    write: str
    read: str


class TopicRights(NamedTuple):
    """Two patterns of routing keys of the exchange of changes."""

    write: str = NOTHING
    read: str = NOTHING


def user_of(cluster: str, name: str) -> str:
    """Return the name of a user in the broker, with the cluster's name in front, because all clusters of a broker share its users.

    >>> user_of("orders", "m1")
    'orders.m1'
    """
    return f"{cluster}.{name}"


def rights_of(process: NodeId, role: str, master: NodeId = "") -> Rights:
    """Return the rights of a worker, of a master, or of one process of a master (``master``; by default the process itself)."""
    own = rf"brokerha\.{re.escape(process)}\.(sync|data)"
    rejected = r"brokerha\.rejected"
    if role == WORKER_ROLE:
        to_nodes = r"brokerha\.(sync|data|rejected)"
        return Rights(_whole(_DECLARED, own, rejected), _whole(to_nodes, own, _OF_CLUSTER), _whole(to_nodes, own, _CLUSTER))
    name = re.escape(master or process)
    of_apps = rf"brokerha\.{name}\.(writes|reads)|brokerha\.(writes|reads)\.any"
    stream = rf"brokerha\.{name}\.log"
    of_transactions = rf"{re.escape(TX_QUEUE_PREFIX)}{name}\..*"
    return Rights(
        _whole(_DECLARED, own, rejected, of_apps, stream, of_transactions),
        _whole(_EXCHANGES, _DEFAULT_EXCHANGE, own, of_apps, stream, _OF_CLUSTER),
        _whole(_BOUND, own, of_apps, stream, of_transactions, _CLUSTER),
    )


def topic_rights_of(role: str) -> TopicRights:
    """Return the keys of changes that a node publishes; only processes of masters do so."""
    return TopicRights() if role == WORKER_ROLE else TopicRights(write=_CHANGES)


def app_rights(roles: Iterable[str] = (WRITE,), user: str = "") -> Rights:
    """Return the rights of an app with these roles; ``user`` is the name prefix of the queues of role ``follow``."""
    roles = set(roles)
    if ADMIN in roles:
        return Rights(EVERYTHING, EVERYTHING, EVERYTHING)
    own = [rf"{re.escape(user)}\..*"] if FOLLOW in roles else []
    followed = [r"brokerha\.changes", r"brokerha\.[a-z0-9-]+\.log"] if FOLLOW in roles else []
    written = [r"brokerha\.(writes|reads)"] if WRITE in roles else []
    return Rights(_whole(*own), _whole(*written, *own), _whole(*own, *followed))


def app_topic_rights(roles: Iterable[str]) -> TopicRights:
    """Return the changes that an app can publish (none) and bind to."""
    roles = set(roles)
    if ADMIN in roles:
        return TopicRights(EVERYTHING, EVERYTHING)
    return TopicRights(read=EVERYTHING) if FOLLOW in roles else TopicRights()


def link_rights() -> Rights:
    """Return the rights of another site's broker here: its plugin has its own queue and exchange here."""
    return Rights(_whole(_LINK), _whole(_LINK), _whole(_LINK, r"brokerha\.(sync|data)"))


def _whole(*patterns: str) -> str:
    return f"^({'|'.join(patterns)})$" if patterns else NOTHING
