"""Where ``brokerha replay`` takes lines of the log from: a running master, a journal, a stream, a backup.

Each source says which cluster it is of, what it has, and gives lines of a range in order; a range that begins before what it has is
an error that names the first line that there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from brokerha.cli.backup.places import BackupsOption, backup_named
from brokerha.cli.common.cluster import Cluster
from brokerha.cli.common.options import Options
from brokerha.model.ids import Lsn, NodeId
from brokerha.model.log_lineages import ANYWHERE, Rewinds, read_rewinds, rewinds_of
from brokerha.model.operations import LoggedRow

Lines = Iterator[tuple[Lsn, LoggedRow]]


class Source(NamedTuple):
    """A log that can be read."""

    name: str
    """For people."""
    cluster: str
    """Empty when it does not say."""
    last_lsn: Lsn
    """The last line that it has now."""
    lines: Callable[[Lsn, Lsn], Lines]
    """Lines of a range, both ends included."""
    rewinds: Rewinds = ()
    """How often the log had gone back after splits."""


@dataclass(frozen=True, slots=True)
class SourceOptions(Options):
    """Which log: that of a running master without any of them."""

    journal: Annotated[
        Path | None,
        typer.Option("--journal", metavar="DIR", help="Take the lines from the journal of a master that is stopped."),
    ] = None
    stream: Annotated[
        str | None,
        typer.Option("--stream", metavar="URL", help="Take them from the log stream of --master at this broker."),
    ] = None
    master: Annotated[str, typer.Option("--master", metavar="ID", help="With --stream: whose stream.")] = ""
    backup: Annotated[
        str | None,
        typer.Option("--backup", metavar="NAME", help="Take them from a backup: its name, or its directory (with a /)."),
    ] = None
    backups: BackupsOption = None

    def opened(self, stack: ExitStack, cluster: Cluster) -> Source:
        """The source, closed with the stack. Raises typer.BadParameter."""
        if sum(each is not None for each in (self.journal, self.stream, self.backup)) > 1:
            raise typer.BadParameter("write one of --journal, --stream and --backup")
        if self.journal is not None:
            return _of_journal(stack, self.journal)
        if self.stream is not None:
            if not self.master:
                raise typer.BadParameter("--stream needs --master ID: each master has a stream of its own")
            return _of_stream(stack, self.stream, self.master)
        if self.backup is not None:
            return _of_backup(self.backup, self.backups, cluster.config)
        return _of_master(cluster)


def _of_master(cluster: Cluster) -> Source:
    from brokerha.stores.backup.log_pages import pages

    client = cluster.client
    status = client.status()
    last_lsn = max((node["applied_lsn"] or 0 for node in status["nodes"] if node["role"] == "master"), default=0)

    def logged(first_lsn: Lsn, last_lsn: Lsn) -> list[LoggedRow]:
        return client.logged(first_lsn, last_lsn)

    rewinds = read_rewinds(client.entries(0, 0).get("rewinds"))
    return Source("a master", status["cluster"], last_lsn, lambda first, last: pages(logged, first, last), rewinds)


def _of_journal(stack: ExitStack, directory: Path) -> Source:
    from brokerha.log.log import open_log
    from brokerha.nodes.master.journal_lines import logged_lines
    from brokerha.stores.backup.log_pages import pages

    journal = stack.enter_context(open_log(directory))

    def logged(first_lsn: Lsn, last_lsn: Lsn) -> list[LoggedRow]:
        return logged_lines(journal, first_lsn, last_lsn)

    return Source(
        f"the journal of {journal.node}",
        journal.cluster,
        journal.executed_lsn,
        lambda first, last: pages(logged, first, last),
        rewinds_of(journal.splits()),
    )


def _of_stream(stack: ExitStack, url: str, master: NodeId) -> Source:
    from brokerha.transports.log_stream.reader import LogReader

    reader = stack.enter_context(LogReader(url, master))
    return Source(reader.stream, reader.cluster, reader.last_lsn, reader.lines, reader.rewinds)


def _of_backup(name: str, backups: Path | None, config: Path | None) -> Source:
    from brokerha.stores.backup.log_pages import LinesMissing

    backup = backup_named(name, backups, config)
    manifest = backup.manifest()

    def lines(first_lsn: Lsn, last_lsn: Lsn) -> Lines:
        if first_lsn < manifest.log_first_lsn:
            has = f"its first one is {manifest.log_first_lsn}" if manifest.segments else "it holds no lines at all"
            raise LinesMissing(f"the backup {manifest.name} does not hold the line of LSN {first_lsn}: {has}")
        return backup.lines(manifest, first_lsn, last_lsn)

    rewinds = ((manifest.lineage, ANYWHERE),) if manifest.lineage else ()
    return Source(f"the backup {manifest.name}", manifest.cluster, manifest.last_lsn, lines, rewinds)
