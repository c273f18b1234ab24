"""The programs of one machine: its nodes, the command and environment of each, and the timeouts around them.

    a node stops by itself            within LONGEST_STOP_S
    its supervisor kills it           after KILL_AFTER_S
    the supervisor itself is killed   after KILL_SUPERVISOR_AFTER_S

Each timeout is longer than the one before, so that a node that is about to stop in order is not killed. A kill is as safe, but
leaves more work to repeat.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from brokerha.model.errors import ConfigurationError
from brokerha.model.ids import NodeId
from brokerha.nodes.config.cluster import ClusterConfig
from brokerha.nodes.config.file import FILE_SUFFIX, variable
from brokerha.nodes.config.settings import nearest
from brokerha.nodes.serving import STOP_S

LONGEST_STOP_S: Final = 7 * STOP_S
"""A worker closes its door, its reads, its loop, its scrub, its tasks, its threads and its connections, each within STOP_S."""
KILL_AFTER_S: Final = 90
KILL_SUPERVISOR_AFTER_S: Final = 105
OPEN_FILES: Final = 8192
"""For clients, data files and connections."""
CONFIGURATION_CODE: Final = 78
"""Exit code of a node with a wrong cluster file: a restart does not help."""
ORDER: Final = {"master": 100, "backup": 200, "worker": 300}
"""Masters start first and stop last, so that no master reports a missing worker. Any order would work."""


@dataclass(frozen=True, slots=True)
class Program:
    """One node of this machine."""

    node: NodeId
    role: str
    command: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


def nodes_here(config: ClusterConfig, names: Sequence[str] = (), hosts: Collection[str] = ()) -> list[NodeId]:
    """Return the ids of the nodes of this machine, in the order of the file: the named ones, else those at these hosts, else all.

    A node without an http address belongs to its master's machine. Raises ConfigurationError for an unknown node, and when none is
    left.
    """
    if config.is_embedded:
        raise ConfigurationError(f"{config.path}: embedded:// is one process, which needs no deployment: name a RabbitMQ in broker")
    ids = [node.id for node in config.nodes]
    for name in names:
        if name not in ids:
            raise ConfigurationError(f'{config.path}: there is no node "{name}": write {nearest(name, ids)}')
    if names:
        return [each for each in ids if each in names]
    if not hosts:
        return ids
    found = [each for each in ids if host_of(config, each) in hosts]
    if not found:
        known = sorted({host_of(config, each) for each in ids} - {""})
        raise ConfigurationError(f"{config.path}: no node has an http address at {', '.join(hosts)}: there are {', '.join(known)}")
    return found


def broker_variables(config: ClusterConfig, node: NodeId) -> list[str]:
    """Return the environment variables that name the file with the URL of a node's broker.

    There is one for each place of the cluster file with this broker, because equal URLs mean a shared broker.
    """
    url = config.broker_of(node)
    of_cluster = [variable("cluster", "broker")] if config.broker == url else []
    of_masters = [variable("master", "broker", each.id) for each in config.masters if each.broker == url]
    return [name + FILE_SUFFIX for name in (*of_cluster, *of_masters)]


def programs(config: ClusterConfig, nodes: Sequence[NodeId], program: Sequence[str], secrets: Path | None) -> list[Program]:
    """Return the programs of these nodes; ``program`` runs brokerha, ``secrets`` is a folder with their own broker URLs."""
    found = []
    for node in nodes:
        environment = dict.fromkeys(broker_variables(config, node), str(url_file(secrets, node))) if secrets else {}
        command = (*program, "node", node, "-c", str(config.path.absolute()))
        found.append(Program(node, config.roles[node], command, environment))
    return found


def writable_folders(config: ClusterConfig) -> list[Path]:
    """Return the folders that nodes write to: data, and backups if they are elsewhere."""
    data, backups = config.data.absolute(), config.backups_directory.absolute()
    return [data] if backups.is_relative_to(data) else [data, backups]


def url_file(secrets: Path, name: str) -> Path:
    """Return the path of a user's broker URL, which contains the password."""
    return secrets / f"{name}.url"


def host_of(config: ClusterConfig, node: NodeId) -> str:
    """Return the host of a node's http address, or of its master's; empty without either."""
    address = config.node(node).http or config.node(config.master_of(node)).http
    return address.rpartition(":")[0].strip("[]")
