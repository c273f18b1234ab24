"""``brokerha update | query | get | put | delete``: reads and writes from a shell.

A write prints its transaction id and LSN; a read prints what was asked for, as it is, so that it can be piped on. Writes go
to any master and are acknowledged at the level of ``--ack``; the same ``--key`` never takes effect twice.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from brokerha.cli.common import exits, output
from brokerha.cli.common.access import connected
from brokerha.cli.common.inputs import read_bytes, read_text
from brokerha.cli.common.options import (
    DEFAULT_TIMEOUT_S,
    AckOption,
    ApartOption,
    ConfigOption,
    FormatOption,
    KeyOption,
    MinLsnOption,
    RepositoryOption,
    TimeoutOption,
    UrlOption,
)
from brokerha.cli.common.output import Format

if TYPE_CHECKING:
    from brokerha.client import Client
    from brokerha.client.outcomes import Written
    from brokerha.ports.front import ReadOutcome

RESULTS_JSON = "application/sparql-results+json"
RESULTS_TSV = "text/tab-separated-values"
GRAPH = "application/n-triples;q=0.9"
"""What CONSTRUCT and DESCRIBE give, as they have no rows."""

FileOption = Annotated[Path | None, typer.Option("--file", "-f", metavar="FILE", help="Read it from a file.")]
TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help="Key-value table; it begins with its first key.")]
PrefixOption = Annotated[
    str | None, typer.Option("--prefix", metavar="TEXT", help="All keys that begin so; all keys when it is empty.")
]
RangeOption = Annotated[
    str | None,
    typer.Option("--range", metavar="FROM..TO", help="Keys from FROM on and before TO; either may be left out."),
]
SnapshotOption = Annotated[
    str | None, typer.Option("--snapshot", metavar="NAME", help="As that snapshot shows them (brokerha snapshot list).")
]
KeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="Key, as UTF-8 text.")]


def update(
    text: Annotated[str | None, typer.Argument(metavar="SPARQL", help="The update, or - for standard input.")] = None,
    file: FileOption = None,
    repository: RepositoryOption = "main",
    ack: AckOption = "applied",
    apart: ApartOption = "wait",
    key: KeyOption = "",
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Run a SPARQL 1.1 update."""
    sparql = read_text(text, file, "the update")
    return _write(
        config, url, chosen, lambda db: db.update(repository, sparql, key=key, ack=ack, apart=apart, timeout=timeout_s)
    )


def put(
    table: TableArgument,
    name: KeyArgument,
    value: Annotated[str | None, typer.Argument(metavar="VALUE", help="The value, or - for standard input.")] = None,
    file: FileOption = None,
    ack: AckOption = "applied",
    apart: ApartOption = "wait",
    key: KeyOption = "",
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Write one key of a table."""
    content = read_bytes(value, file, "the value")
    return _write(
        config,
        url,
        chosen,
        lambda db: db.put(table, os.fsencode(name), content, key=key, ack=ack, apart=apart, timeout=timeout_s),
    )


def delete(
    table: TableArgument,
    name: KeyArgument,
    ack: AckOption = "applied",
    apart: ApartOption = "wait",
    key: KeyOption = "",
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Delete one key of a table; a key that is not there is no error."""
    return _write(
        config,
        url,
        chosen,
        lambda db: db.delete(table, os.fsencode(name), key=key, ack=ack, apart=apart, timeout=timeout_s),
    )


def get(
    table: TableArgument,
    name: Annotated[str | None, typer.Argument(metavar="KEY", help="Key, as UTF-8 text.")] = None,
    prefix: PrefixOption = None,
    bounds: RangeOption = None,
    snapshot: SnapshotOption = None,
    min_lsn: MinLsnOption = 0,
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Read one key of a table, or all keys with --prefix or --range.

    The value of one key goes to standard output as it is; exit code 2 when there is no such key. Several keys come in byte order, with
    their values, all of one moment; -o is for them.
    """
    if (name is not None) + (prefix is not None) + (bounds is not None) != 1:
        raise typer.BadParameter("which keys? write KEY, --prefix or --range, and one of them only")
    if name is None:
        return _get_range(table, prefix, bounds, snapshot, min_lsn, config, url, timeout_s, chosen)
    if chosen is not Format.TABLE:
        raise typer.BadParameter("-o is for --prefix and --range: the value of one key is written as it is")
    with connected(config, url) as client:
        value = client.get(table, os.fsencode(name), snapshot=snapshot, min_lsn=min_lsn, timeout=timeout_s)
    if value is None:
        exits.say(f"table {table} has no key {name}")
        return exits.FAILED
    write_raw(value)
    return exits.DONE


def _get_range(
    table: str,
    prefix: str | None,
    bounds: str | None,
    snapshot: str | None,
    min_lsn: Any,
    config: Path | None,
    url: str | None,
    timeout_s: float,
    chosen: Format,
) -> int:
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
        rows = list(found.rows)
    if chosen is Format.JSON or chosen is Format.YAML:
        from brokerha.http.data.key_forms import row_as_json

        output.write({"lsn": found.lsn, "rows": [row_as_json(*row) for row in rows]}, [], chosen, {})
    else:
        shown = [{"key": _escaped(key), "value": _escaped(value)} for key, value in rows]
        output.write({}, shown, chosen, {"key": "KEY", "value": "VALUE"})
    exits.say(f"{output.counted(len(rows), 'key')} at LSN {found.lsn:,}")
    return exits.DONE


def bounds_of(bounds: str | None) -> tuple[bytes, bytes | None]:
    """The first key and the first that is left out of ``FROM..TO``, either of which may be empty. Raises typer.BadParameter."""
    start, dots, end = (bounds or "..").partition("..")
    if not dots:
        raise typer.BadParameter(f"--range {bounds!r}: write FROM..TO, FROM.. or ..TO")
    return os.fsencode(start), os.fsencode(end) if end else None


def _escaped(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def query(
    text: Annotated[str | None, typer.Argument(metavar="SPARQL", help="The query, or - for standard input.")] = None,
    file: FileOption = None,
    repository: RepositoryOption = "main",
    min_lsn: MinLsnOption = 0,
    accept: Annotated[
        str | None,
        typer.Option("--accept", metavar="TYPE", help="Media type of the result, written as it comes; goes before -o."),
    ] = None,
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Run a SPARQL 1.1 query.

    -o json and -o tsv are the SPARQL results formats; graphs (CONSTRUCT, DESCRIBE) are written as N-Triples.
    """
    sparql = read_text(text, file, "the query")
    wanted = accept or f"{RESULTS_TSV if chosen is Format.TSV else RESULTS_JSON}, {GRAPH}"
    with connected(config, url) as client:
        # With accept the answer comes as it is, not as Python values.
        result = cast(
            "ReadOutcome", client.query(repository, sparql, accept=wanted, min_lsn=min_lsn, timeout=timeout_s)
        )
    if accept is not None or chosen in {Format.JSON, Format.TSV} or not result.content_type.startswith(RESULTS_JSON):
        write_raw(result.body)
        return exits.DONE
    answer = json.loads(result.body)
    if chosen is Format.YAML:
        print(output.yaml_text(answer))
    elif "boolean" in answer:
        print("yes" if answer["boolean"] else "no")
    else:
        names = answer["head"].get("vars", [])
        rows = [{name: term(row.get(name)) for name in names} for row in answer["results"]["bindings"]]
        output.console().print(output.table(rows, {name: name for name in names}))
        exits.say(f"{output.counted(len(rows), 'row')} at LSN {result.lsn:,}")
    return exits.DONE


def term(binding: Mapping[str, Any] | None) -> str:
    """One RDF term as people read it; empty when the variable is not bound.

    >>> term({"type": "literal", "value": "Haus", "xml:lang": "de"})
    'Haus@de'
    """
    if binding is None:
        return ""
    if binding["type"] == "uri":
        return f"<{binding['value']}>"
    if binding["type"] == "bnode":
        return f"_:{binding['value']}"
    if binding["type"] == "triple":
        parts = binding["value"]
        return f"<< {' '.join(term(parts[place]) for place in ('subject', 'predicate', 'object'))} >>"
    language = binding.get("xml:lang")
    return f"{binding['value']}@{language}" if language else str(binding["value"])


def write_raw(content: bytes) -> None:
    """Bytes to standard output; a terminal gets a line break after them."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    if sys.stdout.isatty() and not content.endswith(b"\n"):
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()


def _write(config: Path | None, url: str | None, chosen: Format, act: Callable[[Client], Written]) -> int:
    """Do one write and show where it is in the order."""
    with connected(config, url) as client:
        written = act(client)
    print_written(written, chosen)
    return exits.DONE


def print_written(written: Written, chosen: Format) -> None:
    """Where a write is in the order."""
    answer = {"txid": written.txid, "lsn": written.lsn or None, "level": written.level}
    if chosen is Format.TABLE:
        place = f"LSN {written.lsn:,}" if written.lsn else "no LSN yet"
        print(f"{written.level}: {place}, transaction {written.txid}")
    else:
        output.write(answer, [answer], chosen, {})
