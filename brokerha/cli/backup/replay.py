"""``brokerha replay``: lines of the log, applied to the directory of a stopped worker, or to a new one.

Every line is compared with its fingerprint, so the result is what every worker had at that LSN. Lines that were applied before an
error or Ctrl-C stay; the same command continues after them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from brokerha.cli.backup.command import LogOptions, backup_named, size_text
from brokerha.cli.common import exits, output
from brokerha.cli.common.command import Answer, Cluster
from brokerha.cli.common.terminal import Meter, progress
from brokerha.model.errors import InvalidRequest, StoreDamaged, WentBack
from brokerha.model.fingerprints import text_of
from brokerha.model.ids import Lsn, NodeId, is_node_id
from brokerha.model.log_lineages import ANYWHERE, Rewinds, newest, problem, read_rewinds, rewinds_of
from brokerha.model.operations import LoggedRow

if TYPE_CHECKING:
    from brokerha.ports.store import Applied


def replay(
    cluster: Cluster,
    wanted: LogOptions,
    into: Annotated[Path, typer.Option("--into", metavar="DIR", help="Directory of a worker that is stopped, or a new one.")],
    from_lsn: Annotated[
        int | None, typer.Option("--from-lsn", min=1, metavar="LSN", help="First line; the one that DIR needs next without it.")
    ] = None,
    to_lsn: Annotated[
        int | None, typer.Option("--to-lsn", min=1, metavar="LSN", help="Last line; the newest of the source without it.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read all lines and say what would be applied; change nothing.")
    ] = False,
    named: Annotated[
        str, typer.Option("--cluster", metavar="NAME", help="Cluster of a new DIR; the one of the source without it.")
    ] = "",
    node_id: Annotated[str, typer.Option("--as", metavar="ID", help="Node id of a new DIR; the name of DIR without it.")] = "",
) -> Answer:
    """Apply lines of the log to a worker's directory: from a running master (--url, -c), a journal, a log stream or a backup.

    A new directory begins empty and takes lines from LSN 1 on. Lines that it has already are only compared. A line that is missing
    is an error that names the first one that there is; exit code 2.
    """
    with ExitStack() as stack:
        source = _opened(wanted, stack, cluster)
        last_lsn = source.last_lsn if to_lsn is None else to_lsn
        owner = _owner(into, named or source.cluster, node_id)
        act = _looked_through if dry_run else _applied
        answer = act(source, into, owner, from_lsn, last_lsn)
    lines = output.counted(answer["lines"], "line")
    remark = (
        f"{into}{' would be' if dry_run else ''} at LSN {answer['lsn']:,} with fingerprint {answer['fingerprint'] or 'not known'}, "
        f"after {lines} from {source.name}"
    )
    return Answer(answer, text="", remarks=[remark])


def _owner(into: Path, cluster: str, node_id: str) -> tuple[str, NodeId]:
    """Return cluster and node of the directory. Raises typer.BadParameter, InvalidRequest."""
    from brokerha.stores.backup.restore_target import obstacle_in, owner_of

    owner = owner_of(into)
    if owner is not None:
        return owner
    if obstacle_in(into).text:
        raise InvalidRequest(f"{into} is no directory of a worker, and not empty: write another one")
    node = node_id or into.resolve().name
    if not is_node_id(node):
        raise typer.BadParameter(f"{node!r} can be no node id (1 to 32 of a-z, 0-9 and -): write --as ID")
    if not is_node_id(cluster):
        raise typer.BadParameter("the source does not say which cluster it is of: write --cluster NAME")
    return cluster, node


def _applied(source: Source, into: Path, owner: tuple[str, NodeId], from_lsn: Lsn | None, last_lsn: Lsn) -> dict[str, Any]:
    from brokerha.stores.backup.restoring import replay as applied_lines
    from brokerha.stores.copies.worker_copy import WorkerCopy

    # The directory and the first line are checked before opening, because opening creates the directory.
    before = _where(into, owner, source)
    first_lsn = _first(from_lsn, before, last_lsn, source)
    lines_to_apply = source.lines(first_lsn, last_lsn) if first_lsn <= last_lsn else iter(())
    begun = list(islice(lines_to_apply, 1))
    with closing(WorkerCopy(into, cluster=owner[0], node=owner[1])) as copy:
        lines = 0
        if first_lsn <= last_lsn:
            if newest(source.rewinds) > copy.lineage:
                copy.begin_lineage(newest(source.rewinds))
            with progress("replay", last_lsn - max(first_lsn, before.lsn + 1) + 1, "lines") as meter:
                lines = applied_lines(copy, chain(begun, lines_to_apply), first_lsn, last_lsn, meter.advance)
        return _answer(into, before.lsn, lines, copy.applied())


def _first(from_lsn: Lsn | None, before: Applied, last_lsn: Lsn, source: Source) -> Lsn:
    """Return the first LSN to read. Raises InvalidRequest when the range cannot be applied."""
    if last_lsn > source.last_lsn:
        raise InvalidRequest(f"{source.name} ends with LSN {source.last_lsn}, before {last_lsn}")
    first_lsn = before.lsn + 1 if from_lsn is None else from_lsn
    if from_lsn is not None and from_lsn > last_lsn:
        raise InvalidRequest(f"--from-lsn {from_lsn} is above --to-lsn {last_lsn}")
    if first_lsn > before.lsn + 1:
        raise InvalidRequest(f"the data is at LSN {before.lsn}, so lines from {before.lsn + 1} on come next, not {first_lsn}")
    return first_lsn


def _answer(into: Path, before_lsn: Lsn, lines: int, after: Applied) -> dict[str, Any]:
    return {
        "directory": str(into),
        "before_lsn": before_lsn,
        "lines": lines,
        "lsn": after.lsn,
        "fingerprint": after.fingerprint,
        "items": after.items,
    }


def _looked_through(source: Source, into: Path, owner: tuple[str, NodeId], from_lsn: Lsn | None, last_lsn: Lsn) -> dict[str, Any]:
    """Read all lines that would be applied."""
    from brokerha.ports.store import Applied

    before = _where(into, owner, source)
    first_lsn = _first(from_lsn, before, last_lsn, source)
    lines, size_bytes, fingerprint = 0, 0, before.fingerprint
    if first_lsn <= last_lsn:
        with progress("read", last_lsn - first_lsn + 1, "lines") as meter:
            for lsn, size, digest in _measured(source.lines(first_lsn, last_lsn), first_lsn, last_lsn, meter):
                if lsn > before.lsn:
                    lines, size_bytes, fingerprint = lines + 1, size_bytes + size, digest
    exits.say(f"{output.counted(lines, 'line')} with effects of {size_text(size_bytes)}; nothing is changed")
    return _answer(into, before.lsn, lines, Applied(max(before.lsn, last_lsn), fingerprint, 0))


def _measured(lines: Lines, first_lsn: Lsn, last_lsn: Lsn, meter: Meter) -> Any:
    from brokerha.stores.backup.lines import LinesMissing

    following = first_lsn
    for lsn, row in lines:
        if lsn != following:
            raise LinesMissing(f"LSN {following} is missing: the next line that there is has LSN {lsn}")
        following += 1
        meter.advance(1)
        yield lsn, len(row[4]), text_of(row[5])
    if following <= last_lsn:
        raise LinesMissing(f"the lines end with LSN {following - 1}, before {last_lsn}")


def _where(into: Path, owner: tuple[str, NodeId], source: Source) -> Applied:
    """Return the position of a directory; do not make one. Raises StoreDamaged, StoreError (in use), WentBack (void lines)."""
    from brokerha.model.fingerprints import EMPTY
    from brokerha.ports.store import Applied
    from brokerha.stores.backup.restore_target import owner_of
    from brokerha.stores.copies.worker_copy import WorkerCopy

    if owner_of(into) is None:
        return Applied(0, text_of(EMPTY), 0)
    with closing(WorkerCopy(into, cluster=owner[0], node=owner[1])) as copy:
        if copy.trouble:
            raise StoreDamaged(f"the data in {into} cannot be used: {copy.trouble}")
        applied = copy.applied()
        if void := problem(source.rewinds, copy.lineage, applied.lsn):
            raise WentBack(f"{void}, with another directory: {into} holds what is void")
        return applied


# ---- sources: a running master, a journal, a stream, a backup
#
# Each knows its cluster and its range, and yields the lines of a range in order. A range that begins too early is # an error that
# names the first available line.

Lines = Iterator[tuple[Lsn, LoggedRow]]


class Source(NamedTuple):
    """A readable log."""

    name: str
    """Name for people."""
    cluster: str
    """Empty when the source does not know it."""
    last_lsn: Lsn
    """LSN of the last available line."""
    lines: Callable[[Lsn, Lsn], Lines]
    """Yields the lines of a range, both ends included."""
    rewinds: Rewinds = ()
    """The points at which the log went back after splits."""


def _opened(wanted: LogOptions, stack: ExitStack, cluster: Cluster) -> Source:
    """Open the source; the stack closes it. Raises typer.BadParameter."""
    wanted.check()
    if wanted.journal is not None:
        return _of_journal(stack, wanted.journal)
    if wanted.stream is not None:
        return _of_stream(stack, wanted.stream, wanted.master)
    if wanted.backup is not None:
        return _of_backup(wanted.backup, wanted.backups, cluster.config)
    return _of_master(cluster)


def _of_master(cluster: Cluster) -> Source:
    from brokerha.stores.backup.lines import pages

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
    from brokerha.stores.backup.lines import pages

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
    from brokerha.stores.backup.lines import LinesMissing

    backup = backup_named(name, backups, config)
    manifest = backup.manifest()

    def lines(first_lsn: Lsn, last_lsn: Lsn) -> Lines:
        if first_lsn < manifest.log_first_lsn:
            has = f"its first one is {manifest.log_first_lsn}" if manifest.segments else "it holds no lines at all"
            raise LinesMissing(f"the backup {manifest.name} does not hold the line of LSN {first_lsn}: {has}")
        return backup.lines(manifest, first_lsn, last_lsn)

    rewinds = ((manifest.lineage, ANYWHERE),) if manifest.lineage else ()
    return Source(f"the backup {manifest.name}", manifest.cluster, manifest.last_lsn, lines, rewinds)
