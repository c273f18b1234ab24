"""``brokerha repository``: RDF repositories, which are created and removed through the log, at all sites at once.

list     names, and how many statements each has
add      create one, if it is not there
remove   remove one, with all that is in it

    brokerha repository add books
    brokerha update --repository books 'INSERT DATA { <urn:a> <urn:b> 1 }'
"""

from __future__ import annotations

from typing import Annotated, Any

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
from brokerha.model.errors import Rejected, UnknownRepository
from brokerha.model.ids import is_repository_id

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
        written = client.remove_repository(repository, timeout=timeout_s)
    print(f"{written.level}: LSN {written.lsn:,}, transaction {written.txid}")
    return exits.DONE


def _check(repository: str) -> None:
    if not is_repository_id(repository):
        raise typer.BadParameter(f"ID {repository!r}: up to 64 of A-Z a-z 0-9 _ -")
