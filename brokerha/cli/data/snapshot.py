"""``brokerha snapshot``: named content of tables at one LSN.

For example:

    brokerha snapshot create monday prices stock
    brokerha get prices sku-1 --snapshot monday
"""

from __future__ import annotations

from typing import Annotated

import typer

from brokerha.cli.common.cluster import Cluster
from brokerha.cli.common.command import Answer, Group, MinLsnOption
from brokerha.cli.common.output import columns
from brokerha.cli.data.read_write import placed

COLUMNS = columns("name", "lsn", "tables")

app = Group("Snapshots of key-value tables by name: create, list, drop.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the snapshot, up to 64 bytes.")]


@app.command()
def create(
    cluster: Cluster,
    name: NameArgument,
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="TABLE", help="Its tables; all that have a key when none is named.")
    ] = None,
) -> Answer:
    """Keep the content of tables at one LSN, to be read by a name.

    Nothing is copied now: later each key is copied before its first change. A table has at most 16 snapshots.
    """
    return placed(cluster.client.snapshot(name, *(tables or ())))


@app.command("list")
def list_snapshots(cluster: Cluster, min_lsn: MinLsnOption = 0) -> Answer:
    """List all snapshots: with -o json {"snapshots": [{name, tables, lsn}]}."""
    found = cluster.client.snapshots(min_lsn=min_lsn)
    return Answer({"snapshots": found}, [{**each, "tables": ", ".join(each["tables"])} for each in found], COLUMNS)


@app.command()
def drop(cluster: Cluster, name: NameArgument) -> Answer:
    """Drop a snapshot; what older ones still read of it stays."""
    return placed(cluster.client.drop_snapshot(name))
