"""compose.yaml: a container for each node, and one for each broker of the cluster file.

    host name in a broker's URL  ──>  service with RabbitMQ, its definitions and its configuration
    node                         ──>  service of the image brokerha, its data in a volume, its broker URL as a secret

Containers of different brokers share only the network of the brokers, like sites. Doors for HTTP are open inside the network of
their site, and at the loopback address of the host. Everything runs as the owner of the secrets (`BROKERHA_UID`, `BROKERHA_GID`),
without rights, on a file system that is read-only except for its data.

The folder of the users file is mounted, because `brokerha user` replaces the file, which a mounted file would never show.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from brokerha.deploying.broker import Broker, brokers_of, definitions_files
from brokerha.deploying.files import File, Plan, filled
from brokerha.deploying.machine import KILL_AFTER_S, broker_variables, url_file
from brokerha.model import VERSION
from brokerha.model.errors import ConfigurationError
from brokerha.nodes.config.cluster import ClusterConfig
from brokerha.nodes.config.file import variable

BROKER_IMAGE: Final = "rabbitmq:4.2.2-management"
COMPOSE: Final = Path("compose.yaml")
CLUSTER_FILE: Final = "/etc/brokerha/cluster.toml"
DATA: Final = "/var/lib/brokerha"
BACKUPS: Final = "/var/lib/brokerha-backups"
"""Mount point of the backup folder of the cluster file; without one, backups are in the volume of their worker."""
AMQP_PORT: Final = 5672
DASHBOARD_PORT: Final = 15672
PLUGINS: Final = ("rabbitmq_management", "rabbitmq_prometheus")
LINK_PLUGINS: Final = ("rabbitmq_federation", "rabbitmq_federation_management")
_IS_ALIVE = (
    "import os, ssl, urllib.request; urllib.request.urlopen(os.environ['BROKERHA_URL'] + '/livez', timeout=5, "
    "context=ssl._create_unverified_context())"
)
"""A node asks itself, at an address that no certificate names."""
_ANY_HOST = "0.0.0.0"  # noqa: S104  (of a container: its network decides who reaches it)
_LOOPBACK = "127.0.0.1"
_BACKBONE = "brokers"

_HEAD = "# Made by `brokerha init compose`; change the cluster file, then make it again.\n"
_COMMON: Final[dict[str, Any]] = {
    "user": "${BROKERHA_UID:-1000}:${BROKERHA_GID:-1000}",
    "restart": "unless-stopped",
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
    "logging": {"driver": "json-file", "options": {"max-size": "20m", "max-file": "5"}},
}


def compose_plan(config: ClusterConfig, folder: Path, secrets: Path) -> Plan:
    """Plan compose.yaml, rabbitmq.conf and the list of plugins, in ``folder``. Raises ConfigurationError."""
    brokers = brokers_of(config)
    hosts = [broker.address.host for broker in brokers]
    if len(set(hosts)) < len(hosts):
        raise ConfigurationError(
            f"{config.path}: two brokers have one host name: in containers each is a service, with a name of its own"
        )
    for broker, host in zip(brokers, hosts, strict=True):
        if host in config.roles or host == "localhost" or host.replace(".", "").isdigit():
            raise ConfigurationError(
                f"{config.path}: the broker's host {host!r} becomes a service: write another name, such as amqp://rabbitmq/{config.name}"
            )
        # The container of a broker is one node at this port, without TLS.
        if ";" in broker.url or broker.address.is_tls or broker.address.port != AMQP_PORT:
            raise ConfigurationError(
                f"{config.path}: containers have one broker node each, at port {AMQP_PORT} without TLS: "
                f"write one address of the form amqp://{host}/{config.name}"
            )
    _check_ports(config)
    plugins = PLUGINS if len(brokers) == 1 else (*PLUGINS, *LINK_PLUGINS)
    files = (
        File(COMPOSE, _HEAD + yaml(compose(config, folder, secrets))),
        File(Path("rabbitmq.conf"), filled("rabbitmq.conf")),
        File(Path("enabled_plugins"), f"[{','.join(plugins)}].\n"),
    )
    made = f"mkdir -p -m 0700 {shlex.quote(str(config.backups_directory.absolute()))}   # of backups; docker would make it for root"
    steps = (
        *([made] if config.backup_folder.parts else []),
        "export BROKERHA_UID=$(id -u) BROKERHA_GID=$(id -g)   # who may read the secrets",
        f"docker build -t {image()} -f docker/Dockerfile .   # in a clone of the project",
        f"docker compose -f {folder / COMPOSE} up -d",
        f"brokerha status -c {config.path}",
    )
    return Plan(files, next_steps=steps)


def _check_ports(config: ClusterConfig) -> None:
    """Check that ports differ: all doors share one loopback address, also those of different machines in the cluster file."""
    known: dict[str, str] = {}
    for node in config.nodes:
        port = node.http.rpartition(":")[2]
        if port and (other := known.setdefault(port, node.id)) != node.id:
            raise ConfigurationError(
                f"{config.path}: the doors of {other} and {node.id} have the port {port}, "
                f"and containers publish them at one address, {_LOOPBACK}: write another one"
            )


def compose(config: ClusterConfig, folder: Path, secrets: Path) -> dict[str, Any]:
    """Return the content of the file as data."""
    brokers = brokers_of(config)
    names = definitions_files(brokers)
    services: dict[str, Any] = {}
    for number, broker in enumerate(brokers):
        services[broker.address.host] = _broker(broker, names[broker.name], number, len(brokers))
    for node in config.nodes:
        services[node.id] = _node(config, node.id, brokers, folder)
    networks: dict[str, Any] = {_network(each, len(brokers)): {} for each in brokers} | (
        {_BACKBONE: {}} if len(brokers) > 1 else {}
    )
    volumes: dict[str, Any] = {f"{name}-data": {} for name in services}
    files = {f"{node.id}-url": {"file": _relative(url_file(secrets, node.id), folder)} for node in config.nodes}
    return {"name": config.name, "services": services, "networks": networks, "volumes": volumes, "secrets": files}


def image() -> str:
    """Return the image name of this version."""
    return f"brokerha:{VERSION}"


def _broker(broker: Broker, definitions: Path, number: int, count: int) -> dict[str, Any]:
    host = broker.address.host
    return {
        **_COMMON,
        "image": BROKER_IMAGE,
        # The data folder is named after it.
        "hostname": host,
        "stop_grace_period": "60s",
        "volumes": [
            f"{host}-data:/var/lib/rabbitmq",
            "./rabbitmq.conf:/etc/rabbitmq/rabbitmq.conf:ro",
            "./enabled_plugins:/etc/rabbitmq/enabled_plugins:ro",
            f"./{definitions}:/etc/rabbitmq/definitions.json:ro",
        ],
        "ports": [f"{_LOOPBACK}:{AMQP_PORT + number}:{AMQP_PORT}", f"{_LOOPBACK}:{DASHBOARD_PORT + number}:{DASHBOARD_PORT}"],
        "networks": [_network(broker, count), *([_BACKBONE] if count > 1 else [])],
        "healthcheck": _health("20s", "rabbitmq-diagnostics", "-q", "check_running"),
    }


def _node(config: ClusterConfig, node: str, brokers: Sequence[Broker], folder: Path) -> dict[str, Any]:
    broker = next(each for each in brokers if config.master_of(node) in each.masters)
    entry = config.node(node)
    environment = {**dict.fromkeys(broker_variables(config, node), f"/run/secrets/{node}-url"), variable("cluster", "data"): DATA}
    port = entry.http.rpartition(":")[2]
    if port:
        environment |= {
            variable(entry.role, "http", node): f"{_ANY_HOST}:{port}",
            "BROKERHA_URL": f"{'https' if config.http_certificate else 'http'}://{_LOOPBACK}:{port}",
        }
        if not (config.http_certificate and config.http_users):
            # Only the network of the containers and this machine reach it.
            environment[variable("cluster", "http-plain")] = "true"
    backups = []
    if config.backup_folder.parts and entry.role == "worker":
        environment[variable("cluster", "backup-folder")] = BACKUPS
        backups = [f"{_relative(config.backups_directory, folder)}:{BACKUPS}"]
    service = {
        **_COMMON,
        "image": f"${{BROKERHA_IMAGE:-{image()}}}",
        "command": ["node", node, "-c", CLUSTER_FILE],
        "environment": environment,
        "secrets": [f"{node}-url"],
        "volumes": [
            f"{node}-data:{DATA}",
            f"{_relative(config.path, folder)}:{CLUSTER_FILE}:ro",
            *_door_files(config, node, folder),
            *backups,
        ],
        "networks": [_network(broker, len(brokers))],
        "read_only": True,
        "tmpfs": ["/tmp"],  # noqa: S108  (of a container)
        # Longer than a node takes to stop in order.
        "stop_grace_period": f"{KILL_AFTER_S}s",
        # A node waits for its broker anyway; this only saves log lines.
        "depends_on": [broker.address.host],
    }
    if not port:
        return service | {"healthcheck": {"disable": True}}
    health = {"healthcheck": _health("10s", "python", "-c", _IS_ALIVE)} if config.http_certificate else {}
    return service | {"ports": [f"{_LOOPBACK}:{port}:{port}"]} | health


def _health(timeout: str, *command: str) -> dict[str, Any]:
    return {"test": ["CMD", *command], "interval": "30s", "timeout": timeout, "start_period": "60s", "retries": 3}


def _door_files(config: ClusterConfig, node: str, folder: Path) -> list[str]:
    """Return the doors' mounts, at the paths of the cluster file: the users file's folder, the node's certificate and key."""
    mounts = [text.replace("{id}", node) for text in (config.http_certificate, config.http_key) if text]
    if config.http_users:
        users = Path(config.http_users).parent
        if users == Path():
            raise ConfigurationError(
                f'{config.path}: http-users = "{config.http_users}" lies beside the cluster file: containers mount its folder, to see when it is '
                'replaced; put it into one of its own, as http-users = "users/users.toml"'
            )
        mounts.append(str(users))
    places = Path(CLUSTER_FILE).parent
    return [f"{_relative(config.path.parent / each, folder)}:{places / each}:ro" for each in mounts]


def _network(broker: Broker, count: int) -> str:
    return "site" if count == 1 else f"site-{broker.name}"


def _relative(path: Path, folder: Path) -> str:
    """Return a path relative to the folder of compose.yaml, as compose expects it."""
    text = os.path.relpath(path, folder)
    return text if text.startswith(".") else f"./{text}"


def yaml(data: object, indent: int = 0) -> str:
    """Format plain data as YAML: texts are quoted as in JSON, which YAML reads too.

    >>> print(yaml({"a": {"b": ["x", 1]}, "c": {}}), end="")
    a:
      b:
      - "x"
      - 1
    c: {}
    """
    margin = "  " * indent
    if isinstance(data, Mapping):
        return "".join(f"{margin}{key}:{_below(value, indent)}" for key, value in data.items())
    if isinstance(data, list):
        return "".join(f"{margin}- {json.dumps(value)}\n" for value in data)
    return f"{margin}{json.dumps(data)}\n"


def _below(value: object, indent: int) -> str:
    if isinstance(value, Mapping) and value:
        return "\n" + yaml(value, indent + 1)
    if isinstance(value, list) and value:
        return "\n" + yaml(value, indent)
    return f" {json.dumps(value)}\n"
