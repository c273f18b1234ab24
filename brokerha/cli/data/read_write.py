"""``brokerha update | query | get | put | delete | publish | consume``: reads and writes from a shell.

A write prints its transaction id and LSN. A read prints its raw result, ready for a pipe. Writes go to any master and are
acknowledged at the level of ``--ack``; the same ``--key`` never takes effect twice.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

from brokerha.cli.common import exits, output
from brokerha.cli.common.command import (
    AckOption,
    Answer,
    ApartOption,
    Cluster,
    FormatOption,
    KeyOption,
    MinLsnOption,
    RepositoryOption,
)
from brokerha.cli.common.inputs import Begun, as_text, first_bytes, opened, read_bytes, read_progress, read_text
from brokerha.cli.common.output import Format
from brokerha.model.operations import BODY_LIMIT_BYTES, VALUE_TOO_LARGE
from brokerha.model.requests import WAIT

if TYPE_CHECKING:
    from brokerha.client.calls import Consumed
    from brokerha.client.exporting import Export
    from brokerha.client.outcomes import Written
    from brokerha.client.reads import QueueMessage
    from brokerha.ports.front import ReadOutcome


RESULTS_JSON = "application/sparql-results+json"
RESULTS_TSV = "text/tab-separated-values"
GRAPH = "application/n-triples;q=0.9"
"""Format of CONSTRUCT and DESCRIBE, which have no rows."""

FileOption = Annotated[Path | None, typer.Option("--file", "-f", metavar="FILE", help="Read it from a file.")]
TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help="Key-value table; it begins with its first key.")]
PrefixOption = Annotated[
    str | None, typer.Option("--prefix", metavar="TEXT", help="All keys that begin so; all keys when it is empty.")
]
RangeOption = Annotated[
    str | None, typer.Option("--range", metavar="FROM..TO", help="Keys from FROM on and before TO; leave out either.")
]
SnapshotOption = Annotated[
    str | None, typer.Option("--snapshot", metavar="NAME", help="As that snapshot shows them (brokerha snapshot list).")
]
KeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="Key, as UTF-8 text.")]


def update(
    cluster: Cluster,
    text: Annotated[str | None, typer.Argument(metavar="SPARQL", help="The update, or - for standard input.")] = None,
    file: FileOption = None,
    repository: RepositoryOption = "main",
    ack: AckOption = "applied",
    apart: ApartOption = "wait",
    key: KeyOption = "",
) -> Answer:
    """Run a SPARQL 1.1 update; one INSERT DATA may have up to 512 MiB, and is answered when it is applied."""
    with first_bytes(text, file, "the update") as (content, whole):
        if whole is None:
            sparql = as_text(content, "the update")
            return placed(cluster.client.update(repository, sparql, key=key, ack=ack, apart=apart))
        if apart != WAIT:
            raise typer.BadParameter(f"--apart {apart} is for updates up to {BODY_LIMIT_BYTES} bytes: leave it out")
        with cluster.client.large_transaction(key=key, ack=ack) as large, read_progress("the update", whole) as look:
            cluster.client.load(repository, whole.content, "ru", inside=large, on_progress=lambda _loaded: look())
        return placed(large.written)


def put(
    cluster: Cluster,
    table: TableArgument,
    name: KeyArgument,
    value: Annotated[str | None, typer.Argument(metavar="VALUE", help="The value, or - for standard input.")] = None,
    file: FileOption = None,
    ack: AckOption = "applied",
    apart: ApartOption = "wait",
    key: KeyOption = "",
) -> Answer:
    """Write one key of a table."""
    content, row_key = read_bytes(value, file, "the value", VALUE_TOO_LARGE), os.fsencode(name)
    return placed(cluster.client.put(table, row_key, content, key=key, ack=ack, apart=apart))


def delete(
    cluster: Cluster,
    table: TableArgument,
    name: KeyArgument,
    ack: AckOption = "applied",
    apart: ApartOption = "wait",
    key: KeyOption = "",
) -> Answer:
    """Delete one key of a table; a key that is not there is no error."""
    row_key = os.fsencode(name)
    return placed(cluster.client.delete(table, row_key, key=key, ack=ack, apart=apart))


def placed(written: Written) -> Answer:
    """Report the position of a write in the order."""
    place = f"LSN {written.lsn:,}" if written.lsn else "no LSN yet"
    data = {"txid": written.txid, "lsn": written.lsn or None, "level": written.level}
    return Answer(data, text=f"{written.level}: {place}, transaction {written.txid}")


def get(
    cluster: Cluster,
    table: TableArgument,
    name: Annotated[str | None, typer.Argument(metavar="KEY", help="Key, as UTF-8 text.")] = None,
    prefix: PrefixOption = None,
    bounds: RangeOption = None,
    snapshot: SnapshotOption = None,
    min_lsn: MinLsnOption = 0,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Read one key of a table, or many (--prefix, --range).

    The value of one key goes to standard output as it is; exit code 2 when there is no such key. Several keys come in byte order, with
    their values, all of one moment; -o is for them.
    """
    if (name is not None) + (prefix is not None) + (bounds is not None) != 1:
        raise typer.BadParameter("which keys? write KEY, --prefix or --range, and one of them only")
    if name is None:
        return _several(exported(cluster, table, prefix, bounds, snapshot, min_lsn)).write(chosen)
    if chosen is not Format.TABLE:
        raise typer.BadParameter("-o is for --prefix and --range: the value of one key is written as it is")
    value = cluster.client.get(table, os.fsencode(name), snapshot=snapshot, min_lsn=min_lsn)
    if value is None:
        exits.say(f"table {table} has no key {name}")
        return exits.FAILED
    write_raw(value)
    return exits.DONE


def _several(found: Export) -> Answer:
    from brokerha.http.data.keys import row_as_json

    rows = list(found.rows)
    shown = [{"key": _escaped(key), "value": _escaped(value)} for key, value in rows]
    data = {"lsn": found.lsn, "rows": [row_as_json(*row) for row in rows]}
    return Answer(
        data, shown, {"key": "KEY", "value": "VALUE"}, remarks=[f"{output.counted(len(rows), 'key')} at LSN {found.lsn:,}"]
    )


def exported(cluster: Cluster, table: str, prefix: str | None, bounds: str | None, snapshot: str | None, min_lsn: Any) -> Export:
    """Export the keys of a table that ``--prefix`` and ``--range`` select. Raises typer.BadParameter."""
    start, end = _bounds_of(bounds)
    return cluster.client.export(table, prefix=os.fsencode(prefix or ""), start=start, end=end, snapshot=snapshot, min_lsn=min_lsn)


def _bounds_of(bounds: str | None) -> tuple[bytes, bytes | None]:
    """Return the first key and the first excluded key of ``FROM..TO``; both can be empty. Raises typer.BadParameter."""
    start, dots, end = (bounds or "..").partition("..")
    if not dots:
        raise typer.BadParameter(f"--range {bounds!r}: write FROM..TO, FROM.. or ..TO")
    return os.fsencode(start), os.fsencode(end) if end else None


def _escaped(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def query(
    cluster: Cluster,
    text: Annotated[str | None, typer.Argument(metavar="SPARQL", help="The query, or - for standard input.")] = None,
    file: FileOption = None,
    repository: RepositoryOption = "main",
    min_lsn: MinLsnOption = 0,
    accept: Annotated[
        str | None, typer.Option("--accept", metavar="TYPE", help="Media type of the result, written as it comes; goes before -o.")
    ] = None,
    chosen: FormatOption = Format.TABLE,
) -> None:
    """Run a SPARQL 1.1 query.

    -o json and -o tsv are the SPARQL results formats; graphs (CONSTRUCT, DESCRIBE) are written as N-Triples.
    """
    sparql = read_text(text, file, "the query")
    wanted = accept or f"{RESULTS_TSV if chosen is Format.TSV else RESULTS_JSON}, {GRAPH}"
    # With accept the result is raw, not Python values.
    found = cluster.client.query(repository, sparql, accept=wanted, min_lsn=min_lsn)
    result = cast("ReadOutcome", found)
    if accept is not None or chosen in {Format.JSON, Format.TSV} or not result.content_type.startswith(RESULTS_JSON):
        write_raw(result.body)
        return
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


def term(binding: Mapping[str, Any] | None) -> str:
    """Format one RDF term for people; empty when the variable is unbound.

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
    """Write bytes to standard output; a terminal gets a line break after them."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    if sys.stdout.isatty() and not content.endswith(b"\n"):
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()


# ---- ``brokerha publish`` and ``brokerha consume``: messages of queues, from and to a shell.
#
# `consume` takes each message in a transaction that commits after the message is written out: at least once. A failure in between,
# such as a full pipe or Ctrl-C, leaves the message in its place. ``--peek`` takes nothing.

WHOLE_BYTES: Final = BODY_LIMIT_BYTES - 1024
"""A longer body leaves no room for names in one transaction."""
QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="Queue; it begins with its first message.")]


def publish(
    cluster: Cluster,
    queue: QueueArgument,
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="File with the body of the message, or - for standard input.")
    ] = None,
    text: Annotated[str | None, typer.Option("--text", metavar="TEXT", help="The body itself, instead of a file.")] = None,
    content_type: Annotated[
        str, typer.Option("--content-type", metavar="TYPE", help="Kept with the message.")
    ] = "application/octet-stream",
    ack: AckOption = "applied",
    apart: ApartOption = "wait",
    key: KeyOption = "",
) -> Answer:
    """Append a message to a queue; one too long for a transaction goes in pieces, up to 512 MiB, answered when it is applied."""
    if (text is None) == (file is None):
        raise typer.BadParameter("the message: write FILE, - for standard input, or --text TEXT, and one of them only")
    if file is None:
        body = (text or "").encode("utf-8", "surrogateescape")
    else:
        with opened(file, "; for the body itself write --text") as source:
            body = source.content.read(WHOLE_BYTES)
            if len(body) == WHOLE_BYTES and apart != WAIT:
                raise typer.BadParameter(f"--apart {apart} is for messages below {WHOLE_BYTES} bytes: leave it out")
            if len(body) == WHOLE_BYTES:
                with cluster.client.large_transaction(key=key, ack=ack) as large:
                    large.publish(queue, Begun(body, source.content), content_type)
                return placed(large.written)
    return placed(cluster.client.publish(queue, body, content_type, key=key, ack=ack, apart=apart))


def consume(
    cluster: Cluster,
    queue: QueueArgument,
    count: Annotated[int, typer.Option("--count", metavar="N", min=1, help="How many messages at most.")] = 1,
    wait_s: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", min=0, help="How long to wait for a message when there is none.")
    ] = 0.0,
    peek: Annotated[bool, typer.Option("--peek", help="Only look at the first messages; they stay.")] = False,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Take messages from the head of a queue; write them out as they come.

    Their bodies as they are, one after the other; with -o json, yaml or tsv one object or row for each, with its id and content type.

    Exit code 2 when there was none.
    """
    messages: Iterable[QueueMessage | Consumed]
    if peek:
        messages = map(partial(_whole, cluster, queue), cluster.client.queue(queue, limit=count, min_lsn="latest"))
    else:
        messages = cluster.client.consume(queue, count=count, wait=wait_s)
    is_empty = True
    for message in messages:
        _show(message, chosen, is_first=is_empty)
        is_empty = False
    if is_empty:
        exits.say(f"queue {queue} has no message that could be taken" if not peek else f"queue {queue} is empty")
        return exits.FAILED
    return exits.DONE


def _whole(cluster: Cluster, queue: str, message: QueueMessage) -> QueueMessage:
    if message.size is None:
        return message
    return message._replace(body=b"".join(cluster.client.message_body(queue, message.id)))


def _show(message: QueueMessage | Consumed, chosen: Format, *, is_first: bool) -> None:
    if chosen is Format.TABLE:
        write_raw(message.body)
        return
    row = row_of(message.id, message.content_type, message.body)
    if chosen is Format.JSON:
        print(json.dumps(row, ensure_ascii=False))
    elif chosen is Format.YAML:
        print("---\n" + output.yaml_text(row))
    else:
        output.write_tsv([row], with_head=is_first)
    # Flush first: a message is taken for good only after it is written.
    sys.stdout.flush()


def row_of(message_id: str, content_type: str, body: bytes) -> Mapping[str, Any]:
    """Return one message as plain data; ``encoding`` tells how to read the body.

    >>> row_of("t.1", "text/plain", b"hi")["body"]
    'hi'
    """
    try:
        text, encoding = body.decode(), "utf-8"
    except UnicodeDecodeError:
        text, encoding = base64.b64encode(body).decode(), "base64"
    return {"id": message_id, "content_type": content_type, "encoding": encoding, "body": text}
