"""``brokerha promote NODE``: make one process of a master its primary, by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from brokerha.cli.common.cluster import Cluster
from brokerha.cli.common.command import Answer

if TYPE_CHECKING:
    from brokerha.client import Client


def promote(
    cluster: Cluster,
    node: Annotated[str, typer.Argument(metavar="NODE", help="The process: id of a master, or of one of its backups.")],
    force: Annotated[
        bool,
        typer.Option("--force", help="Its own vote is enough. What only others hold is lost: use it when they do not come back."),
    ] = False,
) -> Answer:
    """Make a process the primary of its master.

    Without --force it needs the votes that every fail-over needs, so that nothing acknowledged is lost. It only begins: see status.
    """
    answer = _process(cluster, node).command("promote", {"node": node, "force": force})
    return Answer(answer, text=f"{node} was told to become primary; brokerha status shows who is")


def _process(cluster: Cluster, node: str) -> Client:
    """Return a client of the process itself, or of another process of its master; with ``--url`` of that address."""
    if (file := cluster.file) is not None:
        if file.roles.get(node) not in {"master", "backup"}:
            raise typer.BadParameter(f"{node!r} is no master and no backup of {file.path}")
        urls = file.http_urls()
        known = [urls[each] for each in (node, *file.processes_of(file.master_of(node))) if each in urls]
        if known:
            return cluster.connect(",".join(dict.fromkeys(known)))
    return cluster.client
