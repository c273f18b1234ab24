"""``brokerha repository``: RDF repositories, which are created and removed through the log, at all sites at once.

For example:

    brokerha repository add books
    brokerha update --repository books 'INSERT DATA { <urn:a> <urn:b> 1 }'
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from brokerha.cli.common.cluster import Cluster
from brokerha.cli.common.command import Answer, Group, MinLsnOption
from brokerha.cli.common.output import columns
from brokerha.cli.common.terminal import YesOption, confirm
from brokerha.cli.data.read_write import placed
from brokerha.model.errors import Rejected, UnknownRepository
from brokerha.model.ids import is_repository_id

COLUMNS = columns("id=REPOSITORY", "statements")

app = Group("RDF repositories: list, add, remove.")


def _repository_id(text: str) -> str:
    if not is_repository_id(text):
        raise typer.BadParameter(f"{text!r}: up to 64 of A-Z a-z 0-9 _ -")
    return text


IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Its name: up to 64 of A-Z a-z 0-9 _ -", callback=_repository_id)]


@app.command("list")
def list_repositories(cluster: Cluster, min_lsn: MinLsnOption = 0) -> Answer:
    """List all repositories: with -o json {"repositories": [{id, statements}]}."""
    client, rows = cluster.client, list[dict[str, Any]]()
    for name in client.repositories(min_lsn=min_lsn):
        try:
            rows.append({"id": name, "statements": client.size(name, min_lsn=min_lsn)})
        except UnknownRepository:
            continue  # Removed after the names were read.
    return Answer({"repositories": rows}, rows, COLUMNS)


@app.command()
def add(cluster: Cluster, repository: IdArgument) -> None:
    """Create a repository; one that is there already stays as it is."""
    try:
        print(placed(cluster.client.create_repository(repository)).text)
    except Rejected as error:
        if repository not in cluster.client.repositories(min_lsn=error.lsn):
            raise
        print(f"repository {repository} is there already")


@app.command()
def remove(cluster: Cluster, repository: IdArgument, yes: YesOption = False) -> None:
    """Remove a repository with all that is in it, at all sites. A backup is the only way back."""
    statements = cluster.client.size(repository)
    confirm(f"repository {repository} is removed with its {statements:,} statements, at all sites", yes)
    print(placed(cluster.client.remove_repository(repository)).text)
