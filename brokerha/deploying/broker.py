"""Configuration of a cluster's broker: definitions.json, and one secret for each of its users.

    definitions_plan     definitions.json (one for each broker), and <secrets>/<name>.url
    rabbitmqctl import_definitions < definitions.json      or load_definitions in rabbitmq.conf

The definitions contain what the nodes declare themselves (transports/topology.py), so either can come first, and the rights of
transports/rights.py. RabbitMQ 3.10 and 4 accept all of it: no mirrored queues, no transient ones. Queues are classic by default,
because a quorum queue counts deliveries and drops messages. With several brokers each has its own file. The others are its
upstreams (docs/several-brokers.md), so the file contains a password and is a secret.

The salt of a password is derived from user and password, so that the same passwords give the same file.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets as randomness
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from brokerha.deploying.files import File, Plan, read_secret
from brokerha.deploying.machine import url_file
from brokerha.model.errors import ConfigurationError
from brokerha.model.ids import NodeId, is_node_id
from brokerha.nodes.config.cluster import ClusterConfig
from brokerha.transports.rabbitmq.addresses import Address, parse_addresses
from brokerha.transports.rights import (
    ADMIN,
    APP_ROLES,
    FOLLOW,
    MONITOR,
    NOTHING,
    WRITE,
    Rights,
    TopicRights,
    app_rights,
    app_topic_rights,
    link_rights,
    rights_of,
    topic_rights_of,
    user_of,
)
from brokerha.transports.topology import (
    CHANGES_EXCHANGE,
    DATA_EXCHANGE,
    DATA_MESSAGE_TTL_MS,
    DEFAULT_EXCHANGE,
    SYNC_EXCHANGE,
    SYNC_MESSAGE_TTL_MS,
    QueueRow,
    exchanges_of,
    log_stream_row,
    topology_of,
)

# ---- Users of a broker: one for each of its nodes, for each app, and for the broker of each other site.
#
#     cluster file ──> brokers_of ──> accounts ──> broker.py           rights, and a hash of the password
#                                         └──────> <secrets>/<name>.url    the whole URL, for that user alone
#
# A password comes from the environment (`BROKERHA_PASSWORD_<NAME>`, or `…_FILE`), else from the existing URL file, else it is drawn.
# So the same secrets give the same definitions; delete a URL file to change its password.

PASSWORD_VARIABLE: Final = "BROKERHA_PASSWORD_"  # noqa: S105  (the beginning of a name)
PASSWORD_BYTES: Final = 24
DEFAULT_APPS: Final[dict[str, tuple[str, ...]]] = {"app": (WRITE,), "follower": (FOLLOW,), "monitor": (MONITOR,), "admin": (ADMIN,)}
RESERVED: Final = frozenset({"sync", "data", "writes", "reads", "rejected", "changes", "tx"})
"""Words in the names of brokerha's own queues: an app must not own queues with such a prefix, whatever the cluster's name is."""
NODE_CONNECTIONS: Final = 50
"""A node has three or four; connections that a broken network leaves behind also count for a while."""
APP_CONNECTIONS: Final = 500
_TAGS = {MONITOR: "monitoring", ADMIN: "administrator"}


class Broker(NamedTuple):
    """One broker of the cluster, with its masters."""

    name: str
    """Its first master; part of file and user names when there are several brokers."""
    url: str
    address: Address
    masters: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class Account:
    """One user of one broker."""

    name: str
    """Name of its secret: node id or app."""
    user: str
    rights: Rights
    topic: TopicRights
    tags: tuple[str, ...] = ()
    connections: int = NODE_CONNECTIONS
    is_follower: bool = False
    password: str = field(default="", repr=False)


def brokers_of(config: ClusterConfig) -> list[Broker]:
    """Return all brokers of the cluster, in the order of their first masters."""
    found: dict[str, list[NodeId]] = {}
    for master in config.masters:
        found.setdefault(config.broker_of(master.id), []).append(master.id)
    return [Broker(masters[0], url, parse_addresses(url)[0], tuple(masters)) for url, masters in found.items()]


def parse_apps(texts: Sequence[str], config: ClusterConfig) -> dict[str, tuple[str, ...]]:
    """Parse apps such as ``web=write+follow``; the default is the usual four. Raises ConfigurationError."""
    if not texts:
        apps = dict(DEFAULT_APPS)
    else:
        apps = {}
        for text in texts:
            name, _, roles = text.partition("=")
            apps[name] = tuple(roles.split("+")) if roles else (WRITE,)
    for name, chosen in apps.items():
        wrong = [role for role in chosen if role not in APP_ROLES]
        if wrong:
            raise ConfigurationError(f"app {name}: there is no role {wrong[0]!r}: write {', '.join(APP_ROLES)}, joined by +")
        if not is_node_id(name) or name in RESERVED or name in config.roles or name.startswith("link-"):
            raise ConfigurationError(
                f"app {name!r}: write another name, of a-z, 0-9 and -, that no node and no queue of brokerha has"
            )
    return apps


def link_name(broker: Broker) -> str:
    """Return the name of the user with which a broker fetches from the others."""
    return f"link-{broker.name}"


def accounts_of(
    config: ClusterConfig, broker: Broker, others: Sequence[Broker], apps: Mapping[str, Sequence[str]]
) -> list[Account]:
    """Return the users of one broker, without passwords: nodes, apps, and the brokers of other sites."""
    found = []
    for node in config.nodes:
        master = config.master_of(node.id)
        if master in broker.masters:
            rights = rights_of(node.id, node.role, master)
            found.append(Account(node.id, user_of(config.name, node.id), rights, topic_rights_of(node.role)))
    for name, roles in apps.items():
        user = user_of(config.name, name)
        tags = tuple(_TAGS[role] for role in roles if role in _TAGS)
        rights, topic = app_rights(roles, user), app_topic_rights(roles)
        found.append(Account(name, user, rights, topic, tags, APP_CONNECTIONS, is_follower=FOLLOW in roles))
    for other in others:
        name = link_name(other)
        found.append(Account(name, user_of(config.name, name), link_rights(), TopicRights()))
    return found


def secret_names(accounts: Sequence[Account], brokers: int, broker: Broker) -> dict[str, str]:
    """Return the secret's name of each account. An app has a password at each broker, so several brokers give several names."""
    nodes = {account.name for account in accounts if account.connections == NODE_CONNECTIONS}
    return {
        account.name: account.name if brokers == 1 or account.name in nodes else f"{account.name}@{broker.name}"
        for account in accounts
    }


def password_of(
    secret: str, environ: Mapping[str, str], folder: Path, draw: Callable[[int], str] = randomness.token_urlsafe
) -> str:
    """Return the password of a secret; see the head of the module. Raises ConfigurationError."""
    variable = PASSWORD_VARIABLE + re.sub(r"[^A-Z0-9]", "_", secret.upper())
    given = environ.get(variable) or (read_secret(Path(environ[f"{variable}_FILE"])) if f"{variable}_FILE" in environ else "")
    if given:
        return given
    there = read_secret(url_file(folder, secret))
    return unquote(urlsplit(there.split(";")[0]).password or "") or draw(PASSWORD_BYTES)


def url_for(url: str, user: str, password: str) -> str:
    """Return the URL of a broker, or of several separated by ``;``, for another user.

    >>> url_for("amqp://guest:guest@h:5672/orders", "orders.m1", "a/b")
    'amqp://orders.m1:a%2Fb@h:5672/orders'
    """
    return ";".join(_with_user(each.strip(), user, password) for each in url.split(";") if each.strip())


def url_file_of(broker: Broker, user: str, password: str, secret: str, folder: Path) -> File:
    """Return the secret of one user: its URL of the broker."""
    return File(url_file(folder, secret), url_for(broker.url, user, password) + "\n", is_secret=True)


def _with_user(url: str, user: str, password: str) -> str:
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{quote(user, safe='')}:{quote(password, safe='')}@{place}"))


HASHING: Final = "rabbit_password_hashing_sha256"
FOLLOWER_QUEUE_BYTES: Final = 256 * 1024 * 1024
"""Limit of a queue for an absent follower; older messages are dropped, and the log still has them."""
_MORE_QUEUES: Final = 1000
"""Allowance for queues of apps."""
_MORE_CONNECTIONS: Final = 2000
_FEDERATED = {SYNC_EXCHANGE: SYNC_MESSAGE_TTL_MS, DATA_EXCHANGE: DATA_MESSAGE_TTL_MS}
_LINK_HEARTBEAT_S = 5

Upstream = tuple[str, str, str]
"""URL, user and password of a link."""


# ---- the plan


def definitions_files(brokers: Sequence[Broker]) -> dict[str, Path]:
    """Return the file name of the definitions of each broker."""
    if len(brokers) == 1:
        return {brokers[0].name: Path("definitions.json")}
    return {broker.name: Path(f"definitions.{broker.name}.json") for broker in brokers}


def definitions_plan(
    config: ClusterConfig, apps: Mapping[str, Sequence[str]], environ: Mapping[str, str], folder: Path, secrets: Path
) -> Plan:
    """Plan the definitions of all brokers, in ``folder``, and the URLs of all their users, in ``secrets``. Draws missing passwords.

    Raises ConfigurationError.
    """
    if config.is_embedded:
        raise ConfigurationError(f"{config.path}: embedded:// is one process, which has no broker: name a RabbitMQ in broker")
    brokers = brokers_of(config)
    # A link has the same password at all brokers, so its secret is stored for the next time.
    links = {link_name(each): password_of(link_name(each), environ, secrets) for each in brokers if len(brokers) > 1}
    files: list[File] = []
    names = definitions_files(brokers)
    for broker in brokers:
        others = [each for each in brokers if each is not broker]
        accounts = accounts_of(config, broker, others, apps)
        secret_of = secret_names(accounts, len(brokers), broker)
        known = [
            replace(each, password=links.get(each.name) or password_of(secret_of[each.name], environ, secrets)) for each in accounts
        ]
        own = link_name(broker)
        upstreams = {
            # Without parameters that only brokerha's clients understand.
            other.name: (urlunsplit(urlsplit(other.url.split(";")[0])._replace(query="")), user_of(config.name, own), links[own])
            for other in others
        }
        text = json.dumps(definitions(config, broker, known, upstreams), indent=1, ensure_ascii=False) + "\n"
        files.append(File(names[broker.name], text, is_secret=True))
        files += [
            url_file_of(broker, each.user, each.password, secret_of[each.name], secrets) for each in known if each.name not in links
        ]
    for broker in brokers:
        if password := links.get(name := link_name(broker)):
            files.append(url_file_of(broker, user_of(config.name, name), password, name, secrets))
    return Plan(tuple(files), next_steps=_next_steps(list(names.values()), folder, secrets))


def _next_steps(names: Sequence[Path], folder: Path, secrets: Path) -> tuple[str, ...]:
    plugins = "at each broker: rabbitmq-plugins enable rabbitmq_federation rabbitmq_federation_management"
    is_alone = len(names) == 1
    return (
        *(() if is_alone else (plugins,)),
        *(
            f"rabbitmqctl import_definitions < {folder / each}{'' if is_alone else ', at the broker that its name says'}"
            for each in names
        ),
        "  if that never ends (RabbitMQ 4.0.5): give it a file that the user rabbitmq can open, as docs/deploying.md says",
        "rabbitmqctl delete_user guest",
        f"give each node its own user: brokerha init supervisord --secrets {secrets} (or systemd, compose)",
        f"give each app its URL: {secrets / ('NAME.url' if is_alone else 'NAME@MASTER.url')}",
    )


# ---- the definitions of one broker


def definitions(
    config: ClusterConfig, broker: Broker, accounts: Sequence[Account], upstreams: Mapping[str, Upstream]
) -> dict[str, Any]:
    """Return the definitions of one broker; ``upstreams`` are the links to others, by name."""
    vhost = broker.address.vhost
    queues = _queues(config, broker)
    lasting = [row for row in queues if not row.is_exclusive]
    lasts = {"durable": True, "auto_delete": False}
    # A user without rights in the virtual host needs no row; a monitor's tag shows everything in the dashboard.
    entitled = [account for account in accounts if set(account.rights) != {NOTHING} or account.tags]
    return {
        "users": [_user(account) for account in accounts],
        "vhosts": [_vhost(config, vhost)],
        "permissions": [{"user": each.user, "vhost": vhost, **each.rights._asdict()} for each in entitled],
        "topic_permissions": [
            {"user": each.user, "vhost": vhost, "exchange": CHANGES_EXCHANGE, **each.topic._asdict()}
            for each in entitled
        ],
        "parameters": [_limits(config, vhost, len(queues), len(accounts)), *_upstreams(vhost, upstreams)],
        "policies": [*_policies_of_followers(vhost, accounts), *(_policies_of_links(vhost) if upstreams else ())],
        "exchanges": [
            {"name": row.name, "vhost": vhost, "type": row.kind, **lasts, "internal": False, "arguments": row.arguments}
            for row in exchanges_of(config.name)
        ],
        "queues": [{"name": row.name, "vhost": vhost, **lasts, "arguments": row.arguments} for row in lasting],
        "bindings": [
            {"source": row.exchange, "vhost": vhost, "destination": row.name, "destination_type": "queue",
             "routing_key": row.key, "arguments": {}}
            for row in lasting
            if row.exchange != DEFAULT_EXCHANGE
        ],
    }  # fmt: skip


def password_hash(user: str, password: str) -> str:
    """Return RabbitMQ's salted SHA-256 of a password.

    >>> password_hash("orders.m1", "secret") == password_hash("orders.m1", "secret")
    True
    """
    salt = hashlib.sha256(f"brokerha salt\0{user}\0{password}".encode()).digest()[:4]
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


def _vhost(config: ClusterConfig, name: str) -> dict[str, Any]:
    """Describe the virtual host; its default queue type applies to other queues, too."""
    description = f"brokerha: the cluster {config.name}"
    metadata = {"description": description, "tags": [], "default_queue_type": "classic"}
    return {"name": name, "description": description, "tags": [], "metadata": metadata}


def _user(account: Account) -> dict[str, Any]:
    return {
        "name": account.user,
        "password_hash": password_hash(account.user, account.password),
        "hashing_algorithm": HASHING,
        "tags": list(account.tags),
        "limits": {"max-connections": account.connections},
    }


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


def _policy(vhost: str, name: str, pattern: str, kind: str, definition: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "vhost": vhost, "pattern": pattern, "apply-to": kind, "priority": 1, "definition": definition}


def _policies_of_followers(vhost: str, accounts: Sequence[Account]) -> list[dict[str, Any]]:
    bounded = {"max-length-bytes": FOLLOWER_QUEUE_BYTES}
    return [
        _policy(vhost, f"{each.user}: bounded", rf"^{re.escape(each.user)}\.", "queues", bounded)
        for each in accounts
        if each.is_follower
    ]


def _policies_of_links(vhost: str) -> list[dict[str, Any]]:
    names = {exchange: re.escape(exchange) for exchange in _FEDERATED}
    return [
        _policy(vhost, exchange, f"^{name}$", "exchanges", {"federation-upstream-pattern": f" {name}$"})
        for exchange, name in names.items()
    ]


def _upstreams(vhost: str, upstreams: Mapping[str, Upstream]) -> list[dict[str, Any]]:
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
                # The receiver checks the publisher of a message (transports/rights.py).
                "trust-user-id": True,
            },
        }
        for name, (url, user, password) in upstreams.items()
        for exchange, ttl_ms in _FEDERATED.items()
    ]
