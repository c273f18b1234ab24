"""``brokerha control``: checks that must hold after every transaction.

    brokerha control add no-orphans --ask 'ASK { FILTER NOT EXISTS { ?s <urn:parent> ?p FILTER NOT EXISTS { ?p a ?t } } }'
    brokerha control add stock --key items sku-1 '>= 0'

A check that does not hold now is refused: exit code 2, with the reason.
"""

from __future__ import annotations

from typing import Annotated

import typer

from brokerha.cli.common.cluster import Cluster
from brokerha.cli.common.command import Answer, Group, MinLsnOption, RepositoryOption
from brokerha.cli.common.inputs import read_text
from brokerha.cli.common.output import columns
from brokerha.cli.data.read_write import placed
from brokerha.model.control import ASK, KEY, SELECT

COLUMNS = columns("name", "kind", "target=ABOUT", "text", "expected")

app = Group("The control suite: add, list, remove checks of the data.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the check: A-Z a-z 0-9 _ . -")]


@app.command()
def add(
    cluster: Cluster,
    name: NameArgument,
    ask: Annotated[str | None, typer.Option("--ask", metavar="SPARQL", help="An ASK query, or - for standard input.")] = None,
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
) -> Answer:
    """Add a check, or replace the one of that name.

    It is judged at once, and then after every transaction that touches its subject; a transaction that fails it is rejected.
    """
    check = _check(ask, select, expect, key, repository)
    return placed(cluster.client.control_add(name, *check))


@app.command("list")
def list_checks(cluster: Cluster, min_lsn: MinLsnOption = 0) -> Answer:
    """List all checks: with -o json {"checks": [{name, kind, target, text, expected}]}."""
    checks = cluster.client.control_list(min_lsn=min_lsn)
    return Answer({"checks": checks}, checks, COLUMNS)


@app.command()
def remove(cluster: Cluster, name: NameArgument) -> Answer:
    """Remove a check."""
    return placed(cluster.client.control_remove(name))


def _check(
    ask: str | None, select: str | None, expect: str | None, key: tuple[str, str, str] | None, repository: str
) -> tuple[str, str, str, str]:
    """Return kind, target, text and expectation. Raises typer.BadParameter."""
    if sum(given is not None for given in (ask, select, key)) != 1:
        raise typer.BadParameter("give the check as --ask, as --select, or as --key, one of them")
    if key is not None:
        if expect is not None:
            raise typer.BadParameter("--expect belongs to a query; the condition of --key is its third value")
        return KEY, *key
    if select is not None:
        if expect is None:
            raise typer.BadParameter("--select needs --expect, a JSON list of rows")
        return SELECT, repository, read_text(select, None, "the query"), expect
    return ASK, repository, read_text(ask, None, "the query"), expect or "true"
