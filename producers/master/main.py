"""The process of one master: journal, core, transport, and the HTTP front door."""

from __future__ import annotations

from brokerha.http import HttpServer, create_app
from brokerha.nodes.building import open_process
from brokerha.nodes.config import ClusterConfig
from brokerha.nodes.config_rules import http_address
from brokerha.nodes.serving import serve


def main(config: ClusterConfig, node_id: str) -> int:
    """Run a master in the foreground; returns the exit code."""
    node = open_process(config, node_id)
    address = config.node(node_id).http
    server = HttpServer(create_app(node), *http_address(address)) if address else None
    return serve(node, server)
