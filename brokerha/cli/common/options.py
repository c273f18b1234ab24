"""Shared options of commands, with the same meaning everywhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Self

import typer

from brokerha.cli.common.output import Format
from brokerha.model.errors import InvalidRequest
from brokerha.model.outside.levels import LATEST, LATEST_LSN, parse_min_lsn
from brokerha.model.requests import APART, APPLIED_LEVEL, LEVELS

_ACK = re.compile(rf"({'|'.join(LEVELS)}|{APPLIED_LEVEL}=[1-9][0-9]{{0,2}})\Z")


def check_ack(text: str) -> str:
    """Check the level of ``--ack``. Raises typer.BadParameter for an unknown one."""
    if not _ACK.match(text):
        raise typer.BadParameter(f"{text!r}: write {', '.join(LEVELS)}, or applied=N with the number of workers")
    return text


def check_apart(text: str) -> str:
    """Check the word of ``--apart``. Raises typer.BadParameter for an unknown one."""
    if text not in APART:
        raise typer.BadParameter(f"{text!r}: write {' or '.join(APART)}")
    return text


def least_lsn(text: object) -> int | str:
    """Parse the value of ``--min-lsn``: a number, or ``latest``. Raises typer.BadParameter."""
    try:
        return LATEST if parse_min_lsn(str(text)) == LATEST_LSN else int(str(text))
    except InvalidRequest as error:
        raise typer.BadParameter(str(error)) from None


ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="Cluster file; without it and --url: cluster.toml, if it is here."),
]
UrlOption = Annotated[
    str | None,
    typer.Option("--url", envvar="BROKERHA_URL", metavar="URL", help="Any node, such as http://127.0.0.1:7201."),
]
ConfigFileOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="Cluster file; without it: cluster.toml, if it is here."),
]
ClusterFileOption = Annotated[
    Path, typer.Option("--config", "-c", metavar="FILE", help="Cluster file; see docs/reference/configuration.md.")
]
FormatOption = Annotated[Format, typer.Option("--output", "-o", metavar="|".join(Format), help="How to write the answer.")]
TimeoutOption = Annotated[
    float, typer.Option("--timeout-s", metavar="SECONDS", min=0.001, max=86400, help="How long to wait for the answer.")
]
RepositoryOption = Annotated[str, typer.Option("--repository", metavar="ID", help="RDF repository.")]
AckOption = Annotated[
    str,
    typer.Option(
        "--ack",
        metavar="LEVEL",
        callback=check_ack,
        help="What to wait for: accepted (durable at one master), synchronised (it has its place in the order), "
        "applied or applied=N (N workers of the site have applied it).",
    ),
]
ApartOption = Annotated[
    str,
    typer.Option(
        "--apart",
        metavar="|".join(APART),
        callback=check_apart,
        help="At a master that cannot agree with the others now: wait (taken in, and carried out once it agrees) or refuse.",
    ),
]
KeyOption = Annotated[
    str,
    typer.Option("--key", metavar="TXID", help="Idempotency key: the same key never takes effect twice. A new one without it."),
]
MinLsnOption = Annotated[
    Any,
    typer.Option(
        "--min-lsn",
        parser=least_lsn,
        metavar="LSN|latest",
        help="Read at this LSN or a later one; latest: at all that is ordered now, as the master that is asked knows it.",
    ),
]

DEFAULT_CONFIG = Path("cluster.toml")
DEFAULT_TIMEOUT_S = 30.0


class Options:
    """A group of options: a command with a parameter of this type has the options of its constructor, after its own.

    It is entered before the command, and left after it.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: there is nothing to close."""
