"""``brokerha table``: key-value tables, which exist from their first key to their last.

For example:

    brokerha table export prices > prices.jsonl
"""

from __future__ import annotations

import enum
import json
import sys
from typing import Annotated

import msgpack
import typer

from brokerha.cli.common import exits, output
from brokerha.cli.common.cluster import Cluster
from brokerha.cli.common.command import Answer, Group, MinLsnOption
from brokerha.cli.data.read_write import PrefixOption, RangeOption, SnapshotOption, TableArgument, exported

app = Group("Key-value tables: list, export.")


class ExportForm(enum.StrEnum):
    """Formats of exported rows."""

    JSONL = "jsonl"
    MSGPACK = "msgpack"


@app.command("list")
def list_tables(cluster: Cluster, min_lsn: MinLsnOption = 0) -> Answer:
    """List all tables: with -o json {"tables": [name]}."""
    names = cluster.client.tables(min_lsn=min_lsn)
    return Answer({"tables": names}, [{"table": name} for name in names], {"table": "TABLE"})


@app.command()
def export(
    cluster: Cluster,
    table: TableArgument,
    prefix: PrefixOption = None,
    bounds: RangeOption = None,
    form: Annotated[
        ExportForm,
        typer.Option("--as", help="A JSON object for each line, or msgpack [key, value] one after the other."),
    ] = ExportForm.JSONL,
    snapshot: SnapshotOption = None,
    min_lsn: MinLsnOption = 0,
) -> None:
    """Write keys and values of a table to standard output: all of them, or some.

    All of them show one moment, while others go on writing. Output starts after everything is read. A line is {"key": "sku-1",
    "value": "9.90"}; bytes that are not UTF-8 are key_base64 or value_base64.
    """
    found = exported(cluster, table, prefix, bounds, snapshot, min_lsn)
    count = 0
    for row in found.rows:
        sys.stdout.buffer.write(msgpack.packb(row) if form is ExportForm.MSGPACK else _line(*row))
        count += 1
    sys.stdout.buffer.flush()
    exits.say(f"{output.counted(count, 'key')} of table {table} at LSN {found.lsn:,}")


def _line(key: bytes, value: bytes) -> bytes:
    from brokerha.http.data.keys import row_as_json

    return json.dumps(row_as_json(key, value), ensure_ascii=False).encode() + b"\n"
