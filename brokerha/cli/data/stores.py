"""``brokerha repository | table | queue | snapshot | control``: the stores of a cluster, and the checks of their data."""

from __future__ import annotations

import enum
import json
import sys
from typing import Annotated, Any

import msgpack
import typer

from brokerha.cli.common import exits, output
from brokerha.cli.common.command import Answer, Cluster, Group, MinLsnOption, RepositoryOption, columns
from brokerha.cli.common.inputs import read_text
from brokerha.cli.common.terminal import YesOption, confirm
from brokerha.cli.data.read_write import PrefixOption, RangeOption, SnapshotOption, TableArgument, exported, placed
from brokerha.model.control import ASK, KEY, SELECT
from brokerha.model.errors import Rejected, TooLarge, UnknownRepository
from brokerha.model.ids import is_repository_id

# ---- ``brokerha repository``: RDF repositories, which are created and removed through the log, at all sites at once.
#
# For example:
#
#     brokerha repository add books
#     brokerha update --repository books 'INSERT DATA { <urn:a> <urn:b> 1 }'

REPOSITORY_COLUMNS = columns("id=REPOSITORY", "statements")

repository_app = Group("RDF repositories: list, add, remove.")


def _repository_id(text: str) -> str:
    if not is_repository_id(text):
        raise typer.BadParameter(f"{text!r}: up to 64 of A-Z a-z 0-9 _ -")
    return text


IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Its name: up to 64 of A-Z a-z 0-9 _ -", callback=_repository_id)]


@repository_app.command("list")
def list_repositories(cluster: Cluster, min_lsn: MinLsnOption = 0) -> Answer:
    """List all repositories: with -o json {"repositories": [{id, statements}]}."""
    client, rows = cluster.client, list[dict[str, Any]]()
    for name in client.repositories(min_lsn=min_lsn):
        try:
            rows.append({"id": name, "statements": client.size(name, min_lsn=min_lsn)})
        except UnknownRepository:
            continue  # Removed after the names were read.
    return Answer({"repositories": rows}, rows, REPOSITORY_COLUMNS)


@repository_app.command("add")
def add_repository(cluster: Cluster, repository: IdArgument) -> Answer:
    """Create a repository; one that is there already stays as it is."""
    try:
        return placed(cluster.client.create_repository(repository))
    except Rejected as error:
        if repository not in cluster.client.repositories(min_lsn=error.lsn):
            raise
        data = {"txid": error.txid, "lsn": error.lsn or None, "level": "applied"}
        return Answer(data, text=f"repository {repository} is there already")


@repository_app.command("remove")
def remove_repository(cluster: Cluster, repository: IdArgument, yes: YesOption = False) -> Answer:
    """Remove a repository with all that is in it, at all sites. A backup is the only way back."""
    statements = cluster.client.size(repository)
    confirm(f"repository {repository} is removed with its {statements:,} statements, at all sites", yes)
    return placed(cluster.client.remove_repository(repository))


# ---- ``brokerha table``: key-value tables, which exist from their first key to their last.
#
# For example:
#
#     brokerha table export prices > prices.jsonl

table_app = Group("Key-value tables: list, export.")


class ExportForm(enum.StrEnum):
    """Formats of exported rows."""

    JSONL = "jsonl"
    MSGPACK = "msgpack"


@table_app.command("list")
def list_tables(cluster: Cluster, min_lsn: MinLsnOption = 0) -> Answer:
    """List all tables: with -o json {"tables": [name]}."""
    names = cluster.client.tables(min_lsn=min_lsn)
    return Answer({"tables": names}, [{"table": name} for name in names], {"table": "TABLE"})


@table_app.command()
def export(
    cluster: Cluster,
    table: TableArgument,
    prefix: PrefixOption = None,
    bounds: RangeOption = None,
    form: Annotated[
        ExportForm, typer.Option("--as", help="A JSON object for each line, or msgpack [key, value] one after the other.")
    ] = ExportForm.JSONL,
    snapshot: SnapshotOption = None,
    min_lsn: MinLsnOption = 0,
) -> None:
    """Write keys and values of a table to standard output: all of them, or some.

    All of them show one moment, while others go on writing. Output starts after everything is read. A line is {"key": "sku-1",
    "value": "9.90"}; bytes that are not UTF-8 are key_base64 or value_base64.
    """
    found = exported(cluster, table, prefix, bounds, snapshot, min_lsn)
    count = 0
    for row in found.rows:
        sys.stdout.buffer.write(msgpack.packb(row) if form is ExportForm.MSGPACK else _line(*row))
        count += 1
    sys.stdout.buffer.flush()
    exits.say(f"{output.counted(count, 'key')} of table {table} at LSN {found.lsn:,}")


def _line(key: bytes, value: bytes) -> bytes:
    from brokerha.http.data.keys import row_as_json

    return json.dumps(row_as_json(key, value), ensure_ascii=False).encode() + b"\n"


# ---- ``brokerha queue``: message queues, which exist from their first message on.
#
# For example:
#
#     brokerha queue list
#     brokerha consume orders --peek --count 10

QUEUE_COLUMNS = columns("queue", "depth", "published", "accepted")
CLEAR_COUNT = 100
"""Messages that `clear` takes in one transaction; fewer if they are long."""

queue_app = Group("Message queues: list, clear.")


@queue_app.command("list")
def list_queues(cluster: Cluster, min_lsn: MinLsnOption = 0) -> Answer:
    """List all queues with their number of messages: with -o json {"queues": [{queue, depth, published, accepted}]}."""
    rows = [{"queue": name, **counts} for name, counts in sorted(cluster.client.queues(min_lsn=min_lsn).items())]
    return Answer({"queues": rows}, rows, QUEUE_COLUMNS)


@queue_app.command("clear")
def clear_queue(
    cluster: Cluster, queue: Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.")], yes: YesOption = False
) -> None:
    """Take all messages that are in a queue now, for good, at all sites. Later ones stay, and those that a consumer holds."""
    client = cluster.client
    depth = client.queues(min_lsn="latest").get(queue, {"depth": 0})["depth"]
    if depth:
        confirm(f"{output.counted(depth, 'message')} of queue {queue} are taken, for good, at all sites", yes)
    taken, count = 0, CLEAR_COUNT
    while taken < depth:
        try:
            with client.transaction() as tx:
                found = len(tx.accept(queue, min(count, depth - taken), bodies=False))
        except TooLarge:
            if count == 1:
                raise
            count //= 2
            continue
        if not found:
            break
        taken += found
    print(f"queue {queue}: {output.counted(taken, 'message')} taken")


# ---- ``brokerha snapshot``: named content of tables at one LSN.
#
# For example:
#
#     brokerha snapshot create monday prices stock
#     brokerha get prices sku-1 --snapshot monday

SNAPSHOT_COLUMNS = columns("name", "lsn", "tables")

snapshot_app = Group("Snapshots of key-value tables by name: create, list, drop.")

SnapshotArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the snapshot, up to 64 bytes.")]


@snapshot_app.command()
def create(
    cluster: Cluster,
    name: SnapshotArgument,
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="TABLE", help="Its tables; all that have a key when none is named.")
    ] = None,
) -> Answer:
    """Keep the content of tables at one LSN, to be read by a name.

    Nothing is copied now: later each key is copied before its first change. A table has at most 16 snapshots.
    """
    return placed(cluster.client.snapshot(name, *(tables or ())))


@snapshot_app.command("list")
def list_snapshots(cluster: Cluster, min_lsn: MinLsnOption = 0) -> Answer:
    """List all snapshots: with -o json {"snapshots": [{name, tables, lsn}]}."""
    found = cluster.client.snapshots(min_lsn=min_lsn)
    return Answer({"snapshots": found}, [{**each, "tables": ", ".join(each["tables"])} for each in found], SNAPSHOT_COLUMNS)


@snapshot_app.command()
def drop(cluster: Cluster, name: SnapshotArgument) -> Answer:
    """Drop a snapshot; what older ones still read of it stays."""
    return placed(cluster.client.drop_snapshot(name))


# ---- ``brokerha control``: checks that must hold after every transaction.
#
#     brokerha control add no-orphans --ask 'ASK { FILTER NOT EXISTS { ?s <urn:parent> ?p FILTER NOT EXISTS { ?p a ?t } } }'
#     brokerha control add stock --key items sku-1 '>= 0'
#
# A check that does not hold now is refused: exit code 2, with the reason.

CHECK_COLUMNS = columns("name", "kind", "target=ABOUT", "text", "expected")

control_app = Group("The control suite: add, list, remove checks of the data.")

CheckArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the check: A-Z a-z 0-9 _ . -")]


@control_app.command("add")
def add_check(
    cluster: Cluster,
    name: CheckArgument,
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


@control_app.command("list")
def list_checks(cluster: Cluster, min_lsn: MinLsnOption = 0) -> Answer:
    """List all checks: with -o json {"checks": [{name, kind, target, text, expected}]}."""
    checks = cluster.client.control_list(min_lsn=min_lsn)
    return Answer({"checks": checks}, checks, CHECK_COLUMNS)


@control_app.command("remove")
def remove_check(cluster: Cluster, name: CheckArgument) -> Answer:
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
