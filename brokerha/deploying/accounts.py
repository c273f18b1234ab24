"""Users of a broker: one for each of its nodes, for each app, and for the broker of each other site.

    cluster file ──> brokers_of ──> accounts ──> broker.py           rights, and a hash of the password
                                        └──────> <secrets>/<name>.url    the whole URL, for that user alone

A password comes from the environment (`BROKERHA_PASSWORD_<NAME>`, or `…_FILE`), else from the existing URL file, else it is drawn.
So the same secrets give the same definitions; delete a URL file to change its password.
"""

from __future__ import annotations

import re
import secrets as randomness
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from brokerha.deploying.files import File, read_secret
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

PASSWORD_VARIABLE: Final = "BROKERHA_PASSWORD_"  # noqa: S105  (the beginning of a name)
PASSWORD_BYTES: Final = 24
DEFAULT_APPS: Final[dict[str, tuple[str, ...]]] = {
    "app": (WRITE,),
    "follower": (FOLLOW,),
    "monitor": (MONITOR,),
    "admin": (ADMIN,),
}
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
