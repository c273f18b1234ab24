"""``brokerha snapshot``: what tables held at one LSN, kept by name.

create   of some tables, or of all
list     all snapshots
drop     one

    brokerha snapshot create monday prices stock
    brokerha get prices sku-1 --snapshot monday
"""

from __future__ import annotations

from typing import Annotated

import typer

from brokerha.cli.common import exits, output
from brokerha.cli.common.access import connected
from brokerha.cli.common.options import (
    DEFAULT_TIMEOUT_S,
    ConfigOption,
    FormatOption,
    MinLsnOption,
    TimeoutOption,
    UrlOption,
)
from brokerha.cli.common.output import Format
from brokerha.cli.data.read_write import print_written

COLUMNS = {"name": "NAME", "lsn": "LSN", "tables": "TABLES"}

app = typer.Typer(
    help="Snapshots of key-value tables by name: create, list, drop.",
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the snapshot, up to 64 bytes.")]


@app.command()
def create(
    name: NameArgument,
    tables: Annotated[
        list[str] | None,
        typer.Argument(metavar="TABLE", help="Its tables; all that have a key when none is named."),
    ] = None,
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
) -> int:
    """Keep what tables hold at one LSN, to be read by a name.

    Nothing is copied now: from then on each key is copied before it is changed first. A table has at most 16 snapshots.
    """
    with connected(config, url) as client:
        written = client.snapshot(name, *(tables or ()), timeout=timeout_s)
    print_written(written, Format.TABLE)
    return exits.DONE


@app.command("list")
def list_snapshots(
    min_lsn: MinLsnOption = 0,
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """List all snapshots: with -o json {"snapshots": [{name, tables, lsn}]}."""
    with connected(config, url) as client:
        found = client.snapshots(min_lsn=min_lsn, timeout=timeout_s)
    rows = [{**each, "tables": ", ".join(each["tables"])} for each in found]
    output.write({"snapshots": found}, rows, chosen, COLUMNS)
    return exits.DONE


@app.command()
def drop(
    name: NameArgument,
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
) -> int:
    """Drop a snapshot; what older ones still read of it stays."""
    with connected(config, url) as client:
        written = client.drop_snapshot(name, timeout=timeout_s)
    print_written(written, Format.TABLE)
    return exits.DONE
