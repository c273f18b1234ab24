"""``brokerha node``: one node in the foreground, by the program of its role; and orders to a running node.

Programs are found by the entry point group ``brokerha.programs``, so that this library never imports them, and another package can
add its own. A program is ``main(config, node_id) -> exit code``; it handles SIGTERM and SIGINT itself.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brokerha.cli.common import logs
from brokerha.cli.common.command import DEFAULT_CONFIG, Answer, Cluster, ClusterFileOption, Group
from brokerha.model.errors import ConfigurationError

if TYPE_CHECKING:
    from brokerha.nodes.config.cluster import ClusterConfig


PROGRAMS = "brokerha.programs"

Program = Callable[["ClusterConfig", str], int]
RUN = "run"


# A word that is no command is the id of a node to run.
app = Group("Run one node (brokerha node ID); pause, coin, continue one.", default=RUN)
NodeArgument = Annotated[
    str, typer.Argument(metavar="ID", help="Id of a backup, a worker, or the process of a master that stands by.")
]


@app.command(RUN)
def node(
    node_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the node in the cluster file.")],
    config: ClusterFileOption = DEFAULT_CONFIG,
    role: Annotated[
        str, typer.Option("--role", metavar="worker", help="Of a node that is not in the cluster file; only worker.")
    ] = "",
    master: Annotated[str, typer.Option("--master", metavar="ID", help="With --role: the master that it belongs to.")] = "",
    http: Annotated[
        str, typer.Option("--http", metavar="HOST:PORT", help="With --role: where it listens for HTTP; nowhere without it.")
    ] = "",
) -> int:
    """Run one node in the foreground: what a supervisor starts. You can leave out the word run: brokerha node ID.

    The cluster file gives it its role. A worker that was added at run time (brokerha worker add) is not in the file:
    --role worker --master ID say what it is.

    SIGTERM and Ctrl-C stop it in order; kill -9 is as safe. It waits for a broker that is away and never gives up.
    """
    if (role or master or http) and not (role == "worker" and master):
        raise typer.BadParameter(
            "--role worker --master ID (and --http) belong together: they are for a worker that is not in the cluster file"
        )
    return run_node(config, node_id, master, http)


@app.command()
def pause(
    cluster: Cluster,
    node_id: NodeArgument,
    force: Annotated[
        bool, typer.Option("--force", help="Do it although writes wait for this backup, or it is the last worker that is in sync.")
    ] = False,
) -> Answer:
    """Pause a backup, or a worker. It stays paused over restarts, until it is told to continue.

    A paused backup keeps its journal and its place in it, votes, follows no primary, and does not stand for election. To pause a worker is to
    switch it off: brokerha worker off.
    """
    return _order(cluster, "pause", node_id, force=force)


@app.command()
def coin(cluster: Cluster, node_id: NodeArgument) -> Answer:
    """Name the primary that a paused backup will follow: the one that it hears. It stays paused."""
    return _order(cluster, "coin", node_id)


@app.command("continue")
def continue_(cluster: Cluster, node_id: NodeArgument) -> Answer:
    """Have a paused node go on: a backup catches up with the primary that it was coined on, a worker with its master.

    Refused when the backup was not coined, or when another primary, or the same one in another view, acts since. To go on as primary:
    brokerha promote ID.
    """
    return _order(cluster, "continue", node_id)


def _order(cluster: Cluster, what: str, node_id: str, **more: Any) -> Answer:
    """Give an order to the master of a node, which forwards it to the node."""
    answer = cluster.command(cluster.master_of(node_id), f"node-{what}", node=node_id, **more)
    reason = f": {answer['reason']}" if answer["reason"] else ""
    unchanged = "" if answer["changed"] else "; nothing was changed"
    return Answer(answer, text=f"{node_id} is {answer['state']}{reason}{unchanged}")


def run_node(path: Path, node_id: str, master: str = "", http: str = "") -> int:
    """Find the program of a node and run it; return its exit code. With ``master``, the node is a worker of that master."""
    from brokerha.nodes.config.cluster import load_config, with_worker

    config = load_config(path, os.environ)
    if master:
        config = with_worker(config, node_id, master, http)
    entry = config.node(node_id)
    if config.is_embedded:
        raise ConfigurationError(f"{path}: embedded:// is one process for the whole cluster: start it with brokerha up -c {path}")
    logs.to_stderr(logs.NODE)
    return program_of(entry.role)(config, node_id)


def program_of(role: str) -> Program:
    """Return the program of a role. Raises ConfigurationError when none is installed."""
    from importlib.metadata import entry_points  # takes as long as a third of the whole start

    for found in entry_points(group=PROGRAMS, name=role):
        program: Program = found.load()
        return program
    raise ConfigurationError(
        f"no program for the role {role} is installed: install the package that has it (entry point group {PROGRAMS})"
    )


# ---- ``brokerha up``: a whole cluster on this machine, one process for each node, until Ctrl-C.
#
# One process for each node, or all nodes in this one if the broker is embedded; supervising.py watches the processes.


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
    waiting = (cluster.http_urls(), stopped, partial(say_ready, cluster.http_urls()), say_missing)
    threading.Thread(target=wait_until_ready, args=waiting, daemon=True).start()
    try:
        return serve(cluster)
    finally:
        stopped.set()


# ---- ``brokerha demo``: a whole cluster in this process that loses nodes, with equal copies at the end.


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
