"""The process of one worker: store, core, transport, and the reading half of the HTTP front door."""

from __future__ import annotations

from brokerha.http.app import open_door
from brokerha.nodes.building import open_worker
from brokerha.nodes.config.cluster import ClusterConfig
from brokerha.nodes.serving import serve


def main(config: ClusterConfig, node_id: str) -> int:
    """Run a worker in the foreground; returns the exit code."""
    node = open_worker(config, node_id)
    return serve(node, open_door(config, node_id, node))
