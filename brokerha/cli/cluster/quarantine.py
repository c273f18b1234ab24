"""``brokerha quarantine``: messages that nodes could not use, kept in the broker's queue ``brokerha.rejected`` with the reason.

Each broker of the cluster file is asked once; messages that are neither retried nor dropped keep their place.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brokerha.cli.common import exits, logs, output
from brokerha.cli.common.command import Answer, ConfigFileOption, Group, Options, cluster_file, columns
from brokerha.cli.common.terminal import YesOption, confirm
from brokerha.model.errors import ConfigurationError, InvalidRequest, NotFound

if TYPE_CHECKING:
    from brokerha.transports.rabbitmq.addresses import Address
    from brokerha.transports.tools.quarantine import Quarantine, Quarantined

LIST_COLUMNS = columns("id", "seen", "node", "exchange=FROM", "key", "type", "size_bytes=BYTES", "message_id", "reason")
DEFAULT_LIMIT = 1000
SHOWN_BYTES = 64 * 1024
URL_VARIABLE = "BROKERHA_BROKER_URL"

app = Group("Messages that nodes could not use: list, show, retry, drop.")

IdsArgument = Annotated[list[str] | None, typer.Argument(metavar="ID", help="As `quarantine list` names them.")]


@dataclass(frozen=True, slots=True)
class Kept(Options):
    """Messages in quarantine, up to a limit."""

    config: ConfigFileOption = None
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="How many messages of each broker to look at, the oldest first.")
    ] = DEFAULT_LIMIT

    def messages(self, ids: Sequence[str] = ()) -> Iterator[tuple[Quarantine, Quarantined]]:
        """Yield the messages with these ids, or all. Raises NotFound at the end when one is missing."""
        missing = set(ids)
        for quarantine, message in _messages(self.config, self.limit):
            if not ids or message.id in ids:
                missing.discard(message.id)
                yield quarantine, message
        if missing:
            raise NotFound(
                f"not in quarantine: {', '.join(sorted(missing))}, among the {self.limit} oldest messages of each broker; "
                "`brokerha quarantine list` shows what is"
            )


@app.command("list")
def list_(kept: Kept) -> Answer:
    """Show messages in quarantine: where each one came from, and why it is there.

    Exit code: 0 when there is nothing, 1 when there is something.
    """
    rows = [row_of(message) for _, message in kept.messages()]
    if not rows:
        return Answer({"messages": rows}, rows, text="", remarks=["nothing is in quarantine"])
    return Answer({"messages": rows}, rows, LIST_COLUMNS, code=exits.DEGRADED)


@app.command()
def show(kept: Kept, wanted: Annotated[str, typer.Argument(metavar="ID", help="As `quarantine list` names it.")]) -> Answer:
    """Show one message: its properties, its headers and its body, as far as it can be read."""
    message = next(message for _, message in kept.messages([wanted]))
    told = {**row_of(message), "properties": _plain(message.properties), "body": body_of(message)}
    return Answer(told, text=output.yaml_text(told))


@app.command()
def retry(
    kept: Kept,
    ids: IdsArgument = None,
    everything: Annotated[bool, typer.Option("--all", help="All that apps have published.")] = False,
    content_type: Annotated[str, typer.Option("--content-type", metavar="TYPE", help="Instead of the one that it has.")] = "",
    headers: Annotated[
        list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="Instead of, or beside, those that it has.")
    ] = None,
) -> Answer:
    """Publish messages again where they came from: they leave quarantine once the broker has confirmed that.

    If the reason still exists, a message comes back with it. A message without an id of its own can be written twice, if it had
    been written before. Exit code 2 when any could not be published; it keeps its place then.
    """
    _named(ids, everything)
    mended = dict(_header(each) for each in headers or [])
    done, failed = 0, 0
    for quarantine, message in kept.messages(ids or ()):
        if everything and not message.is_of_app:
            continue
        try:
            quarantine.retry(message, content_type, mended)
            done += 1
        except InvalidRequest as error:
            exits.say(str(error))
            failed += 1
    told = f"{output.counted(done, 'message')} published again"
    if failed:
        told += f", {output.counted(failed, 'message')} left in quarantine"
    return Answer({"done": done, "failed": failed}, text="", remarks=[told], code=exits.FAILED if failed else exits.DONE)


@app.command()
def drop(
    kept: Kept,
    ids: IdsArgument = None,
    everything: Annotated[bool, typer.Option("--all", help="All that is in quarantine.")] = False,
    yes: YesOption = False,
) -> Answer:
    """Remove messages for good. There is no other copy of them."""
    _named(ids, everything)
    if everything:
        confirm("--all removes every message that `brokerha quarantine list` shows for good", yes)
    done = 0
    for quarantine, message in kept.messages(ids or ()):
        quarantine.drop(message)
        done += 1
    return Answer({"done": done, "failed": 0}, text="", remarks=[f"{output.counted(done, 'message')} dropped"])


def row_of(message: Quarantined) -> dict[str, Any]:
    """Return the row of a message in `list`."""
    seen = datetime.fromtimestamp(message.seen_ms / 1000, UTC).isoformat(timespec="seconds") if message.seen_ms else None
    return {
        "id": message.id,
        "seen": seen,
        "age_s": max(0, round(time.time() - message.seen_ms / 1000)) if message.seen_ms else None,
        "node": message.node,
        "exchange": message.exchange,
        "key": message.key,
        "type": str(message.properties.get("content_type") or ""),
        "size_bytes": len(message.body),
        "message_id": str(message.properties.get("message_id") or ""),
        "reason": message.reason,
        "can_be_retried": message.is_of_app,
    }


def body_of(message: Quarantined) -> str:
    """Return the beginning of the body: text unchanged, packed data in Python's notation, other bytes as hexadecimal digits."""
    part = message.body[:SHOWN_BYTES]
    more = f" … {len(message.body) - len(part):,} bytes more" if len(message.body) > len(part) else ""
    if "msgpack" in str(message.properties.get("content_type")) and not more:
        import msgpack

        from brokerha.model.outside.unpacking import BROKEN

        try:
            return repr(msgpack.unpackb(part, strict_map_key=False))
        except (*BROKEN, OverflowError):
            pass  # This can be the reason of the quarantine.
    try:
        return part.decode() + more
    except UnicodeDecodeError:
        return part.hex() + more


def _plain(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _plain(value) if isinstance(value, dict) else value if isinstance(value, str | int | float | bool) else str(value)
        for name, value in properties.items()
    }


def _header(given: str) -> tuple[str, str | int]:
    name, sign, value = given.partition("=")
    if not name or not sign:
        raise typer.BadParameter(f"--header {given}: write NAME=VALUE")
    return name, int(value) if value.isascii() and value.isdigit() else value


def _named(ids: list[str] | None, everything: bool) -> None:
    if bool(ids) == everything:
        raise typer.BadParameter("which messages? write their IDs, or --all")


def _messages(config: Path | None, limit: int) -> Iterator[tuple[Quarantine, Quarantined]]:
    from brokerha.transports.tools.quarantine import Quarantine

    logs.to_stderr(logs.COMMAND)
    for address in _brokers(config):
        with Quarantine(address) as quarantine:
            for message in quarantine.messages(limit):
                yield quarantine, message


def _brokers(config: Path | None) -> list[Address]:
    """Return each broker of the cluster once; BROKERHA_BROKER_URL overrides the file."""
    from brokerha.transports.rabbitmq.addresses import parse_addresses

    if url := os.environ.get(URL_VARIABLE, ""):
        return list(parse_addresses(url))[:1]
    cluster = cluster_file(config)
    if cluster.is_embedded:
        raise ConfigurationError(
            f"{cluster.path}: an embedded cluster has no broker, so nothing is kept in quarantine: see its log"
        )
    urls = dict.fromkeys(cluster.broker_of(master.id) for master in cluster.masters)
    return [next(iter(parse_addresses(url))) for url in urls]
