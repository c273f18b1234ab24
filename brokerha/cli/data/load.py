"""``brokerha load``: RDF files of any size into a repository, as many small transactions.

The client cuts the input into concurrent transactions; this command opens the files, shows the progress, and reports the result. A
whole load is no transaction: when it fails, its earlier transactions stay. With ``--key`` an interrupted load can be run again, and
does only what is missing. ``--atomic`` makes it one large transaction (client/large.py), and ``--replace`` one that first empties
the repository.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from brokerha.cli.common import exits, output
from brokerha.cli.common.command import AckOption, Answer, Cluster, KeyOption, RepositoryOption
from brokerha.cli.common.inputs import STANDARD_INPUT, opened, plain_suffix, read_progress
from brokerha.model.errors import BrokerhaError

if TYPE_CHECKING:
    from brokerha.client.large import LargeTransaction
    from brokerha.client.loading import Loaded

STANDARD_INPUT_FORMAT = "nq"
SPELLING = (
    "numbers, dates and language tags are kept by value, not as spelled (docs/guarantees.md, What a store keeps of a literal)"
)


def load(
    cluster: Cluster,
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="RDF files, also .gz, .xz, .bz2; - for standard input.")],
    syntax: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="nt|nq|ttl|trig|rdf|jsonld|ru",
            help="Syntax; by the suffix of each file, nq for -. ru: an INSERT DATA.",
        ),
    ] = None,
    repository: RepositoryOption = "main",
    graph: Annotated[str, typer.Option("--graph", metavar="IRI", help="Graph for triples; the default graph without it.")] = "",
    ack: AckOption = "applied",
    key: KeyOption = "",
    atomic: Annotated[
        bool, typer.Option("--atomic", help="All files as one transaction: all of it or nothing, up to 512 MiB.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="As --atomic, in place of all that the repository holds, in all graphs.")
    ] = False,
) -> Answer:
    """Load RDF files into a repository: as many transactions, or as one with --atomic.

    With --key K you can run an interrupted load again: nothing is done twice.
    """
    for name in files:
        _check_readable(name)
    done: dict[int, Loaded] = {}
    large = cluster.client.large_transaction(ack=ack, key=key) if atomic or replace else None
    with large or nullcontext():
        if large is not None and replace:
            large.clear(repository)
        _load_files(cluster, files, syntax, repository, graph, ack, key, large, done)
    total = _total(done)
    if large is not None:
        total = total._replace(lsn=large.lsn)
    data = {"transactions": 1 if large else total.transactions, "statements": total.statements, "lsn": total.lsn or None}
    words = f"{total.statements:,} statements in one transaction, at" if large else f"{_words(total)}, up to"
    return Answer(data, text=f"{words} LSN {total.lsn:,}", hints=[SPELLING])


def _load_files(
    cluster: Cluster,
    files: list[str],
    syntax: str | None,
    repository: str,
    graph: str,
    ack: str,
    key: str,
    large: LargeTransaction | None,
    done: dict[int, Loaded],
) -> None:
    """Load the files one after the other; ``done`` collects the progress of each."""
    for number, name in enumerate(files):
        own_key = f"{key}.file{number + 1}" if key and len(files) > 1 else key
        with opened(name) as source, read_progress(name, source) as look:

            def take(loaded: Loaded, number: int = number, look: Callable[[], None] = look) -> None:
                done[number] = loaded
                look()

            # For a file without a suffix, the client's error lists the choices.
            by_name = STANDARD_INPUT_FORMAT if name == STANDARD_INPUT else plain_suffix(name)
            try:
                cluster.client.load(
                    repository, source.content, syntax or by_name,
                    graph=graph, ack=ack, key="" if large else own_key, on_progress=take, inside=large,
                )  # fmt: skip
            except BrokerhaError:
                if done and large is None:
                    exits.say(f"{_words(_total(done))} were done before this error:")
                raise


def _check_readable(name: str) -> None:
    """Check that every file can be opened, before any of them is sent. Raises typer.BadParameter.

    A pipe is left alone, because bytes that are read here would be missing in the load.
    """
    if name != STANDARD_INPUT and not Path(name).is_fifo():
        with opened(name) as source:
            source.content.read(1)


def _total(done: Mapping[int, Loaded]) -> Loaded:
    from brokerha.client.loading import Loaded

    files = done.values()
    lsn = max((each.lsn for each in files), default=0)
    return Loaded(sum(each.statements for each in files), sum(each.transactions for each in files), lsn)


def _words(total: Loaded) -> str:
    return f"{output.counted(total.statements, 'statement')} in {output.counted(total.transactions, 'transaction')}"
