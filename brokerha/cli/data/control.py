"""``brokerha control``: the checks that every transaction must leave true.

add      add a check, or put another one in its place
list     all checks
remove   remove one

    brokerha control add no-orphans --ask 'ASK { FILTER NOT EXISTS { ?s <urn:parent> ?p FILTER NOT EXISTS { ?p a ?t } } }'
    brokerha control add stock --key items sku-1 '>= 0'

A check that does not hold now is not added: exit code 2, with the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from brokerha.cli.common import exits, output
from brokerha.cli.common.access import connected
from brokerha.cli.common.inputs import read_text
from brokerha.cli.common.options import (
    DEFAULT_TIMEOUT_S,
    ConfigOption,
    FormatOption,
    MinLsnOption,
    RepositoryOption,
    TimeoutOption,
    UrlOption,
)
from brokerha.cli.common.output import Format
from brokerha.model.control import ASK, KEY, SELECT

if TYPE_CHECKING:
    from brokerha.client.outcomes import Written

COLUMNS = {"name": "NAME", "kind": "KIND", "target": "ABOUT", "text": "TEXT", "expected": "EXPECTED"}

app = typer.Typer(
    help="The control suite, checks that every transaction must leave true: add, list, remove.",
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the check: A-Z a-z 0-9 _ . -")]


@app.command()
def add(
    name: NameArgument,
    ask: Annotated[
        str | None, typer.Option("--ask", metavar="SPARQL", help="An ASK query, or - for standard input.")
    ] = None,
    select: Annotated[
        str | None, typer.Option("--select", metavar="SPARQL", help="A SELECT query, or - for standard input.")
    ] = None,
    expect: Annotated[
        str | None,
        typer.Option(
            "--expect",
            metavar="ANSWER",
            help="Of --ask: true or false (true without it). Of --select: JSON list of rows, each a list of N-Triples "
            "terms or null.",
        ),
    ] = None,
    key: Annotated[
        tuple[str, str, str] | None,
        typer.Option(
            "--key",
            metavar="TABLE KEY CONDITION",
            help="A key of a table, and present, absent, '= VALUE', '!= VALUE', '>= NUMBER' or '<= NUMBER'.",
        ),
    ] = None,
    repository: RepositoryOption = "main",
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
) -> int:
    """Add a check, or put another one in the place of that name.

    It is judged at once, and from then on after every transaction that touches what it is about; one that fails it is rejected.
    """
    kind, target, text, expected = _check(ask, select, expect, key, repository)
    with connected(config, url) as client:
        written = client.control_add(name, kind, target, text, expected, timeout=timeout_s)
    return _done(written)


@app.command("list")
def list_checks(
    min_lsn: MinLsnOption = 0,
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """List all checks: with -o json {"checks": [{name, kind, target, text, expected}]}."""
    with connected(config, url) as client:
        checks = client.control_list(min_lsn=min_lsn, timeout=timeout_s)
    output.write({"checks": checks}, checks, chosen, COLUMNS)
    return exits.DONE


@app.command()
def remove(
    name: NameArgument,
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
) -> int:
    """Remove a check."""
    with connected(config, url) as client:
        written = client.control_remove(name, timeout=timeout_s)
    return _done(written)


def _check(
    ask: str | None, select: str | None, expect: str | None, key: tuple[str, str, str] | None, repository: str
) -> tuple[str, str, str, str]:
    """Kind, target, text and expectation. Raises typer.BadParameter."""
    if sum(given is not None for given in (ask, select, key)) != 1:
        message = "give the check as --ask, as --select, or as --key, one of them"
        raise typer.BadParameter(message)
    if key is not None:
        if expect is not None:
            message = "--expect belongs to a query; the condition of --key is its third value"
            raise typer.BadParameter(message)
        table, text, condition = key
        return KEY, table, text, condition
    if select is not None:
        if expect is None:
            message = "--select needs --expect, a JSON list of rows"
            raise typer.BadParameter(message)
        return SELECT, repository, read_text(select, None, "the query"), expect
    return ASK, repository, read_text(ask, None, "the query"), expect or "true"


def _done(written: Written) -> int:
    print(f"{written.level}: LSN {written.lsn:,}, transaction {written.txid}")
    return exits.DONE
