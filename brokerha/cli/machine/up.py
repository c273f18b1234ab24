"""``brokerha up``: a whole cluster on this machine, until Ctrl-C; ``brokerha demo``: one in this process that loses nodes.

One process for each node (supervising.py watches them), or all nodes in this process if the broker is embedded.
"""

from __future__ import annotations

import os
import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from brokerha.cli.common import logs
from brokerha.cli.common.command import DEFAULT_CONFIG, ClusterFileOption
from brokerha.model.errors import ConfigurationError

if TYPE_CHECKING:
    from brokerha.nodes.config.cluster import ClusterConfig


def up(
    config: ClusterFileOption = DEFAULT_CONFIG,
    restart: Annotated[bool, typer.Option("--restart", help="Start a node that ended again, after a pause.")] = False,
    stop_timeout_s: Annotated[
        float, typer.Option("--stop-timeout-s", metavar="SECONDS", min=0.1, help="How long nodes have to stop by themselves.")
    ] = 15.0,
) -> int:
    """Start every node of a cluster file on this machine.

    One process each; each line begins with its name; Ctrl-C stops them in order.

    With broker = "embedded://" all nodes run in this one process.
    """
    from brokerha.cli.machine.supervising import Up
    from brokerha.nodes.config.cluster import load_config

    cluster = load_config(config, os.environ)
    refuse_taken(cluster)
    if cluster.is_embedded:
        return _serve_embedded(cluster)
    return Up(cluster, partial(node_command, config), restart=restart, stop_timeout_s=stop_timeout_s).run()


def refuse_taken(cluster: ClusterConfig) -> None:
    """Raise ConfigurationError when the address of a node is taken before its start: that program would answer in its place."""
    from brokerha.doctor.machine_facts import listens
    from brokerha.nodes.config.rules import http_address

    for name in cluster.http_urls():
        address = cluster.node(name).http
        if listens(*http_address(address)):
            raise ConfigurationError(
                f"{cluster.path}: another process listens at {address} of {name}, perhaps a node of another cluster or of an earlier brokerha up:"
                " stop it, or give this node another address"
            )


def node_command(path: Path, node_id: str) -> list[str]:
    """Return the command for one node, with the Python that runs this program."""
    return [sys.executable, "-m", "brokerha", "node", node_id, "-c", str(path)]


def _serve_embedded(cluster: ClusterConfig) -> int:
    from brokerha.cli.machine.supervising import say_missing, say_ready, wait_until_ready
    from brokerha.embedded import serve

    logs.to_stderr(logs.NODE)
    stopped = threading.Event()
    waiting = (
        cluster.http_urls(),
        stopped,
        partial(say_ready, cluster.http_urls(), [master.id for master in cluster.masters]),
        say_missing,
    )
    threading.Thread(target=wait_until_ready, args=waiting, daemon=True).start()
    try:
        return serve(cluster)
    finally:
        stopped.set()


def demo(
    input: Annotated[  # noqa: A002  (the name of the option)
        Path | None, typer.Option("--input", metavar="FILE.nt", help="RDF to load; without it, data of Python itself.")
    ] = None,
    broker: Annotated[
        str, typer.Option("--broker", metavar="URL", help="A RabbitMQ instead of the broker inside this process.")
    ] = "embedded://",
) -> int:
    """Show a whole cluster at work in this process.

    Loads data through all masters, stops and heals nodes, and compares all copies; with the extra spark, archives the log and audits it.

    Ends with exit code 0 only if all copies are equal.
    """
    from brokerha.cli.machine.demonstration import run

    logs.to_stderr(logs.LOSSES)
    return run(input, broker)
