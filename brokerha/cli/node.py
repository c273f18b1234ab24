"""``brokerha node``: one node in the foreground, by the program that its role names.

Programs are found by the entry point group ``brokerha.programs``, so that this library never imports them and another
package may bring its own. A program is ``main(config, node_id) -> exit code``; it handles SIGTERM and SIGINT itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from brokerha.cli import logs
from brokerha.cli.options import DEFAULT_CONFIG, ClusterFileOption
from brokerha.model.errors import ConfigurationError

if TYPE_CHECKING:
    from brokerha.nodes.config import ClusterConfig

PROGRAMS = "brokerha.programs"

Program = Callable[["ClusterConfig", str], int]


def node(
    node_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the node in the cluster file.")],
    config: ClusterFileOption = DEFAULT_CONFIG,
    role: Annotated[
        str, typer.Option("--role", metavar="worker", help="Of a node that is not in the cluster file; only worker.")
    ] = "",
    master: Annotated[
        str, typer.Option("--master", metavar="ID", help="With --role: the master that it belongs to.")
    ] = "",
    http: Annotated[
        str,
        typer.Option("--http", metavar="HOST:PORT", help="With --role: where it listens for HTTP; nowhere without it."),
    ] = "",
) -> int:
    """Run one node in the foreground: what a supervisor starts.

    The cluster file gives it its role. A worker that was added at run time (brokerha worker add) is not in the file:
    --role worker --master ID say what it is.

    SIGTERM and Ctrl-C stop it in order; kill -9 is as safe. It waits for a broker that is away and never gives up.
    """
    if (role or master or http) and not (role == "worker" and master):
        message = "--role worker --master ID (and --http) belong together: they are for a worker that is not in the cluster file"
        raise typer.BadParameter(message)
    return run_node(config, node_id, master, http)


def run_node(path: Path, node_id: str, master: str = "", http: str = "") -> int:
    """Find the program of a node and run it; returns its exit code. With ``master`` it is a worker of that one."""
    from brokerha.nodes.config import load_config
    from brokerha.nodes.config_added import with_worker

    config = load_config(path, os.environ)
    if master:
        config = with_worker(config, node_id, master, http)
    entry = config.node(node_id)
    if config.is_embedded:
        message = f"{path}: embedded:// is one process for the whole cluster: start it with brokerha up -c {path}"
        raise ConfigurationError(message)
    logs.to_stderr(logs.NODE)
    return program_of(entry.role)(config, node_id)


def program_of(role: str) -> Program:
    """The program of a role. Raises ConfigurationError when none is installed."""
    from importlib.metadata import entry_points  # takes as long as a third of the whole start

    for found in entry_points(group=PROGRAMS, name=role):
        program: Program = found.load()
        return program
    message = (
        f"no program for the role {role} is installed: install the package that has it (entry point group {PROGRAMS})"
    )
    raise ConfigurationError(message)
