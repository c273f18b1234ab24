"""``brokerha promote NODE``: make one process of a master its primary, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from brokerha.cli.common import exits, output
from brokerha.cli.common.access import cluster_file, connected
from brokerha.cli.common.options import DEFAULT_TIMEOUT_S, ConfigOption, FormatOption, TimeoutOption, UrlOption
from brokerha.cli.common.output import Format

if TYPE_CHECKING:
    from brokerha.client import Client


def promote(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The process: id of a master, or of one of its backups.")],
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Its own vote is enough. What only others hold is lost: use it when they do not come back."
        ),
    ] = False,
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Make a process the primary of its master.

    Without --force it needs the votes that every fail-over needs, so that nothing acknowledged is lost. It only begins: see status.
    """
    with _process(node, config, url) as client:
        answer = client.command("promote", {"node": node, "force": force}, timeout=timeout_s)
    if chosen is Format.TABLE:
        print(f"{node} was told to become primary; brokerha status shows who is")
    else:
        output.write(answer, [answer], chosen, {})
    return exits.DONE


def _process(node: str, config: Path | None, url: str | None) -> Client:
    """A client of the process itself, or of another one of its master; with ``--url`` of whoever is there."""
    if url is None or config is not None:
        import brokerha

        file = cluster_file(config)
        if file.roles.get(node) not in {"master", "backup"}:
            raise typer.BadParameter(f"{node!r} is no master and no backup of {file.path}")
        urls = file.http_urls()
        known = [urls[each] for each in (node, *file.processes_of(file.master_of(node))) if each in urls]
        if known:
            return brokerha.connect(",".join(dict.fromkeys(known)))
    return connected(config, url)
