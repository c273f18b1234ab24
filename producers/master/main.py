"""The process of one master: journal, core, transport, and the HTTP front door."""

from __future__ import annotations

from brokerha.http.app import open_door
from brokerha.nodes.building import open_process
from brokerha.nodes.config.cluster import ClusterConfig
from brokerha.nodes.serving import serve


def main(config: ClusterConfig, node_id: str) -> int:
    """Run a master in the foreground; returns the exit code."""
    node = open_process(config, node_id)
    return serve(node, open_door(config, node_id, node))
