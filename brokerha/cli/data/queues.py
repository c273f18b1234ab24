"""``brokerha publish`` and ``brokerha consume``: messages of queues, from and to a shell.

`consume` takes each message in a transaction that commits after the message is written out: at least once. A failure in between,
such as a full pipe or Ctrl-C, leaves the message in its place. ``--peek`` takes nothing.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from brokerha.cli.common import exits, output
from brokerha.cli.common.command import AckOption, Answer, ApartOption, Cluster, FormatOption, KeyOption
from brokerha.cli.common.inputs import Begun, opened
from brokerha.cli.common.output import Format
from brokerha.cli.data.read_write import placed, write_raw
from brokerha.model.operations import BODY_LIMIT_BYTES
from brokerha.model.requests import WAIT

if TYPE_CHECKING:
    from brokerha.client.calls import Consumed
    from brokerha.client.reads import QueueMessage

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
        with opened(file) as source:
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
        float,
        typer.Option("--wait", metavar="SECONDS", min=0, help="How long to wait for a message when there is none."),
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
