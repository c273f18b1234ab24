"""``brokerha table``: key-value tables, which begin with their first key and end with their last.

list      their names
export    all keys of one, or some, at one moment while others write: JSON lines or msgpack

    brokerha table export prices > prices.jsonl
"""

from __future__ import annotations

import enum
import json
import os
import sys
from typing import Annotated

import msgpack
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
from brokerha.cli.data.read_write import PrefixOption, RangeOption, SnapshotOption, TableArgument, bounds_of

app = typer.Typer(
    help="Key-value tables: list, export.",
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class ExportForm(enum.StrEnum):
    """How rows are written."""

    JSONL = "jsonl"
    MSGPACK = "msgpack"


@app.command("list")
def list_tables(
    min_lsn: MinLsnOption = 0,
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """List all tables: with -o json {"tables": [name]}."""
    with connected(config, url) as client:
        names = client.tables(min_lsn=min_lsn, timeout=timeout_s)
    output.write({"tables": names}, [{"table": name} for name in names], chosen, {"table": "TABLE"})
    return exits.DONE


@app.command()
def export(
    table: TableArgument,
    prefix: PrefixOption = None,
    bounds: RangeOption = None,
    form: Annotated[
        ExportForm,
        typer.Option("--as", help="A JSON object for each line, or msgpack [key, value] one after the other."),
    ] = ExportForm.JSONL,
    snapshot: SnapshotOption = None,
    min_lsn: MinLsnOption = 0,
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
) -> int:
    """Write all keys and values of a table, or some of them, to standard output.

    However many there are, they show one moment, and others go on writing meanwhile. Nothing is written before all is read. A line is
    {"key": "sku-1", "value": "9.90"}; bytes that are no UTF-8 are key_base64 or value_base64.
    """
    start, end = bounds_of(bounds)
    with connected(config, url) as client:
        found = client.export(
            table,
            prefix=os.fsencode(prefix or ""),
            start=start,
            end=end,
            snapshot=snapshot,
            min_lsn=min_lsn,
            timeout=timeout_s,
        )
        count = 0
        for row in found.rows:
            sys.stdout.buffer.write(msgpack.packb(row) if form is ExportForm.MSGPACK else _line(*row))
            count += 1
        sys.stdout.buffer.flush()
    exits.say(f"{output.counted(count, 'key')} of table {table} at LSN {found.lsn:,}")
    return exits.DONE


def _line(key: bytes, value: bytes) -> bytes:
    from brokerha.http.data.key_forms import row_as_json

    return json.dumps(row_as_json(key, value), ensure_ascii=False).encode() + b"\n"
