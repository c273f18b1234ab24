"""``brokerha repository``: RDF repositories, which are created and removed through the log, at all sites at once.

list     names, and how many statements each has
add      create one, if it is not there
remove   remove one, with all that is in it

    brokerha repository add books
    brokerha update --repository books 'INSERT DATA { <urn:a> <urn:b> 1 }'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from brokerha.cli.common import exits, output
from brokerha.cli.common.access import connected
from brokerha.cli.common.asking import YesOption, confirm
from brokerha.cli.common.options import (
    DEFAULT_TIMEOUT_S,
    ConfigOption,
    FormatOption,
    MinLsnOption,
    TimeoutOption,
    UrlOption,
)
from brokerha.cli.common.output import Format
from brokerha.model.errors import TOO_MUCH, Rejected, UnknownRepository
from brokerha.model.ids import is_repository_id

if TYPE_CHECKING:
    from brokerha.client import Client
    from brokerha.client.outcomes import Written

PART_STATEMENTS: Final = 20_000
"""Of a repository that is removed: more are removed before it, so many at a time, or fewer where they are long."""
EMPTYING: Final = (
    "DELETE {{ ?s ?p ?o }} WHERE {{ SELECT * {{ ?s ?p ?o }} LIMIT {part} }} ; "
    "DELETE {{ GRAPH ?g {{ ?s ?p ?o }} }} WHERE {{ SELECT * {{ GRAPH ?g {{ ?s ?p ?o }} }} LIMIT {part} }}"
)
COLUMNS = {"id": "REPOSITORY", "statements": "STATEMENTS"}

app = typer.Typer(
    help="RDF repositories: list, add, remove.",
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Its name: up to 64 of A-Z a-z 0-9 _ -")]


@app.command("list")
def list_repositories(
    min_lsn: MinLsnOption = 0,
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """List all repositories: with -o json {"repositories": [{id, statements}]}."""
    rows: list[dict[str, Any]] = []
    with connected(config, url) as client:
        for name in client.repositories(min_lsn=min_lsn, timeout=timeout_s):
            try:
                rows.append({"id": name, "statements": client.size(name, min_lsn=min_lsn, timeout=timeout_s)})
            except UnknownRepository:
                continue  # Removed since the names were read.
    output.write({"repositories": rows}, rows, chosen, COLUMNS)
    return exits.DONE


@app.command()
def add(
    repository: IdArgument,
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
) -> int:
    """Create a repository; one that is there already stays as it is."""
    _check(repository)
    with connected(config, url) as client:
        try:
            written = client.create_repository(repository, timeout=timeout_s)
        except Rejected as error:
            if not str(error).endswith("exists already"):
                raise
            print(f"repository {repository} is there already")
            return exits.DONE
    print(f"{written.level}: LSN {written.lsn:,}, transaction {written.txid}")
    return exits.DONE


@app.command()
def remove(
    repository: IdArgument,
    yes: YesOption = False,
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
) -> int:
    """Remove a repository with all that is in it, at all sites. A backup is the only way back."""
    _check(repository)
    with connected(config, url) as client:
        statements = client.size(repository, timeout=timeout_s)
        confirm(f"repository {repository} is removed with its {statements:,} statements, at all sites", yes)
        written = _remove(client, repository, timeout_s)
    print(f"{written.level}: LSN {written.lsn:,}, transaction {written.txid}")
    return exits.DONE


def _remove(client: Client, repository: str, timeout_s: float) -> Written:
    """Remove it; a large one is emptied in parts before, because what one transaction changes has a limit."""
    part = PART_STATEMENTS
    while True:
        is_small = client.size(repository, min_lsn="latest", timeout=timeout_s) <= part
        try:
            if is_small:
                return client.remove_repository(repository, timeout=timeout_s)
            client.update(repository, EMPTYING.format(part=part), timeout=timeout_s)
        except Rejected as error:
            if part == 1 or not str(error).startswith(TOO_MUCH):
                raise
            part = max(1, part // 4)


def _check(repository: str) -> None:
    if not is_repository_id(repository):
        raise typer.BadParameter(f"ID {repository!r}: up to 64 of A-Z a-z 0-9 _ -")
