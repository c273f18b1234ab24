"""What a broker of a cluster is given: definitions, one secret for each of its users, and rabbitmq.conf for containers.

definitions_plan     definitions.json (one for each broker), and <secrets>/<name>.url
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from brokerha.deploying.accounts import (
    Account,
    Broker,
    accounts_of,
    brokers_of,
    link_name,
    password_of,
    secret_names,
    url_files,
    url_for,
)
from brokerha.deploying.definitions import definitions_text
from brokerha.deploying.files import File, Plan
from brokerha.deploying.machine import url_file
from brokerha.model.errors import ConfigurationError
from brokerha.nodes.config.cluster import ClusterConfig
from brokerha.transports.rights import user_of

CONFIGURATION: Final = """\
# Made by `brokerha init`; change the cluster file, then make it again.
# Users, rights, queues and policies; there is no user guest. Changed definitions count from the next start.
load_definitions = /etc/rabbitmq/definitions.json

listeners.tcp.default = 5672
management.tcp.port = 15672
# The dashboard needs no rate of each queue and each connection.
collect_statistics_interval = 10000

# Above these marks a broker takes no message from anybody, so that they are for emergencies: give it memory and disk.
vm_memory_high_watermark.relative = 0.6
disk_free_limit.absolute = 2GB

# The largest message of brokerha is below it, whatever the version of the broker has by default.
max_message_size = 16777216
log.console = true
log.console.level = warning
log.file = false
"""


def definitions_files(config: ClusterConfig) -> dict[str, Path]:
    """Name of the definitions of each broker."""
    brokers = brokers_of(config)
    if len(brokers) == 1:
        return {brokers[0].name: Path("definitions.json")}
    return {broker.name: Path(f"definitions.{broker.name}.json") for broker in brokers}


def definitions_plan(
    config: ClusterConfig, apps: Mapping[str, Sequence[str]], environ: Mapping[str, str], folder: Path, secrets: Path
) -> Plan:
    """Definitions of all brokers, in ``folder``, and the URLs of all their users, in ``secrets``. Draws passwords where there are none.

    Raises ConfigurationError.
    """
    if config.is_embedded:
        raise ConfigurationError(
            f"{config.path}: embedded:// is one process, which has no broker: name a RabbitMQ in broker"
        )
    brokers = brokers_of(config)
    passwords = {
        link_name(each): password_of(link_name(each), environ, secrets) for each in brokers if len(brokers) > 1
    }
    files: list[File] = []
    names = definitions_files(config)
    for broker in brokers:
        others = [each for each in brokers if each is not broker]
        accounts = accounts_of(config, broker, others, apps)
        secret_of = secret_names(accounts, len(brokers), broker)
        known = [
            replace(each, password=passwords.get(each.name) or password_of(secret_of[each.name], environ, secrets))
            for each in accounts
        ]
        own = link_name(broker)
        upstreams = {
            other.name: (without_query(other.url.split(";")[0]), user_of(config.name, own), passwords[own])
            for other in others
        }
        files.append(File(names[broker.name], definitions_text(config, broker, known, upstreams), is_secret=True))
        files += url_files(broker.url, _without_links(known, passwords), secret_of, secrets)
    files += _links(config, brokers, passwords, secrets)
    return Plan(tuple(files), next_steps=_next_steps(config, folder, secrets))


def without_query(url: str) -> str:
    """A URL without what only clients of brokerha understand in it."""
    return urlunsplit(urlsplit(url)._replace(query=""))


def _without_links(accounts: Sequence[Account], links: Mapping[str, str]) -> list[Account]:
    return [account for account in accounts if account.name not in links]


def _links(config: ClusterConfig, brokers: Sequence[Broker], passwords: Mapping[str, str], folder: Path) -> list[File]:
    """Links have one password at all brokers: their secret is kept for the next time."""
    return [
        File(url_file(folder, name), url_for(broker.url, user_of(config.name, name), password) + "\n", is_secret=True)
        for broker in brokers
        if (name := link_name(broker)) in passwords and (password := passwords[name])
    ]


def _next_steps(config: ClusterConfig, folder: Path, secrets: Path) -> tuple[str, ...]:
    names = definitions_files(config)
    here = "" if len(names) == 1 else ", at its broker each"
    plugin = (
        []
        if len(names) == 1
        else ["at each broker: rabbitmq-plugins enable rabbitmq_federation rabbitmq_federation_management"]
    )
    return (
        *plugin,
        *(f"rabbitmqctl import_definitions {folder / name}{here}" for name in names.values()),
        "rabbitmqctl delete_user guest",
        f"give each node its own user: brokerha init supervisord --secrets {secrets} (or systemd, compose)",
        f"give each app the URL in {secrets}, such as {secrets / 'app.url'}",
    )
