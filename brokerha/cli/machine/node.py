"""``brokerha node``: one node in the foreground, by the program of its role; and orders to a running node.

Programs are found by the entry point group ``brokerha.programs``, so that this library never imports them, and another package can
add its own. A program is ``main(config, node_id) -> exit code``; it handles SIGTERM and SIGINT itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable
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
