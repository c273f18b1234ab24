"""A worker that is not in the cluster file, because it was added while the cluster runs (``brokerha worker add``).

    with_worker(config, "w9", "m1", "127.0.0.1:7309")      the same configuration, with one worker more

Only the process of the new worker needs to know its entry: its master has it in its journal, and the file stays as it is.
"""

from __future__ import annotations

import dataclasses

from brokerha.model.errors import ConfigurationError
from brokerha.model.ids import is_node_id
from brokerha.nodes.config.cluster import ClusterConfig
from brokerha.nodes.config.nodes import WorkerEntry
from brokerha.nodes.config.rules import http_address


def with_worker(config: ClusterConfig, node_id: str, master: str, http: str = "") -> ClusterConfig:
    """The configuration with one worker more. Raises ConfigurationError when the entry cannot be.

    A worker that the file has already, at this master, needs no entry: the configuration comes back as it is.
    """
    if not is_node_id(node_id):
        raise ConfigurationError(f"{node_id!r} is no node id: write 1 to 32 of a-z, 0-9 and -")
    known = {node.id: node for node in config.nodes}.get(node_id)
    if known is not None and (known.role != "worker" or config.master_of(node_id) != master):
        raise ConfigurationError(
            f"{config.path}: {node_id} is a {known.role} of {config.master_of(node_id)} there already"
        )
    if known is not None:
        return config
    if not any(each.id == master for each in config.masters):
        masters = ", ".join(each.id for each in config.masters)
        raise ConfigurationError(f"{config.path}: there is no master {master!r}: write --master with one of {masters}")
    try:
        address = http_address(http) if http else None
    except ValueError as error:
        raise ConfigurationError(f"--http {error}: write for instance 127.0.0.1:7309") from None
    taken = [node.id for node in config.nodes if http and node.http and http_address(node.http) == address]
    if taken:
        raise ConfigurationError(f"--http {http} is the address of {taken[0]}: write another port")
    return dataclasses.replace(config, workers=(*config.workers, WorkerEntry(node_id, master, http)))
