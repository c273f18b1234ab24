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

Whether a message between nodes comes from the node that it names: checked by the user of its publisher.

RabbitMQ lets a publisher set the property ``user_id`` only to its own user, so the broker vouches for it. Each node sets it. A node
whose user is named after it, ``<cluster>.<node>`` as ``brokerha init definitions`` makes them, expects the same of all others, and
sets aside messages with another user or with none. When all nodes share one user, nothing can be checked.

Messages that are set aside are logged, once for each node and again after a while (`Foreigners`), because a node does not notice
that it was started with the address of another one, or runs another version.

A message for a master names its process. The processes of the masters in the cluster file are known; no others are accepted.

A broker of another site keeps the property on its way only if the link says so (``trust-user-id``); `init definitions` does.

>>> senders = Senders("orders", "m1", "orders.m1")
>>> senders.problem("m2", "orders.m2"), senders.problem("m2", "orders.app")[0], senders.problem("m2", "")[0]
(None, 'foreign_user', 'no_user')
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

import structlog

from brokerha.model.ids import NodeId
from brokerha.model.wire.tx_queues import TX_QUEUE_PREFIX
from brokerha.ports.transport import Problem

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
FOREIGN_USER: Final = "foreign_user"
NO_USER: Final = "no_user"
TOLD_AGAIN_S: Final = 600.0
TOLD_LIMIT: Final = 100
"""Limit of remembered nodes: a message can name any."""
log = structlog.get_logger(__name__)


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


class Senders:
    """The expectations of one node; see the head of the module."""

    def __init__(self, cluster: str, node: NodeId, user: str, processes: Mapping[NodeId, Collection[NodeId]] | None = None) -> None:
        """``processes``: those of each known master, and each worker as its own."""
        self._cluster = cluster
        self._processes = dict(processes or {})
        self._owner = {process: owner for owner, group in self._processes.items() for process in group}
        self.is_checked = user == user_of(cluster, node)
        """Whether each node has its own user."""

    def problem(self, sender: NodeId, user_id: str, process: NodeId = "") -> tuple[str, str] | None:
        """Return (word, reason) when a message did not come from the sender that it names; None when it did, or cannot be checked.

        ``process`` speaks for a master; empty when it has no other name.
        """
        if not self.is_checked:
            return None
        # The processes of a master added at run time are unknown, but none of them is a known one.
        is_known = sender in self._processes or process in self._owner
        if process and is_known and self._owner.get(process) != sender:
            return FOREIGN_USER, f"it says that {process} speaks for {sender}, which is none of its processes"
        publisher = process or sender
        if user_id == (expected := user_of(self._cluster, publisher)):
            return None
        if not user_id:
            why = "published without user_id, or passed on by a link without trust-user-id"
            return NO_USER, f"it says that it is of {publisher}, and was {why}: the user of that node is {expected}"
        return FOREIGN_USER, f"it says that it is of {publisher}, and user {user_id} published it, not {expected}"


def of_another_user(sender: NodeId, reason: str) -> Problem:
    """Return the problem with messages of another broker user that name this node."""
    return Problem(
        reason,
        f"start {sender} with its own user of the broker, as brokerha init definitions makes it, and with the cluster file "
        "of this node; if it runs so, somebody else publishes in its name: see brokerha quarantine list",
    )


def of_another_version(reason: str) -> Problem:
    """Return the problem with messages of a node of another version."""
    return Problem(reason, "start all nodes with the same version of brokerha")


class Foreigners:
    """Nodes whose messages were set aside; used by one thread, except `reasons`."""

    def __init__(self, node: NodeId) -> None:
        self._node = node
        self._told_s: dict[NodeId, float] = {}
        self._reasons: dict[NodeId, Problem] = {}

    def note(self, sender: NodeId, problem: Problem, now_s: float) -> None:
        """Note and log that a message which names this node was set aside."""
        told_s = self._told_s.get(sender)
        if told_s is None and len(self._told_s) >= TOLD_LIMIT:
            self._told_s = {node: at for node, at in self._told_s.items() if now_s - at < TOLD_AGAIN_S}
            self._reasons = {node: why for node, why in self._reasons.items() if node in self._told_s}
            if len(self._told_s) >= TOLD_LIMIT:
                return
        self._reasons[sender] = problem
        if told_s is None or now_s - told_s >= TOLD_AGAIN_S:
            self._told_s[sender] = now_s
            log.warning("messages set aside", node=self._node, sender=sender, reason=problem.reason, action=problem.remedy)

    def hear(self, sender: NodeId) -> None:
        """Note a message for which the broker confirms this sender."""
        if self._reasons:
            self._reasons.pop(sender, None)

    def reasons(self) -> dict[NodeId, Problem]:
        """Return why a node's last message was set aside, except for nodes that sent a valid one since. Any thread can call it."""
        return self._reasons.copy()
