"""``brokerha restore``: node directories from a backup, for one worker or a whole stopped cluster; ``--online`` for a running one.

The plan comes first: which state, which directories, what prevents it. Then the whole backup is read. Only after that succeeds, and
every directory is made beside its place, is the first one put in place. The same command continues a run that was killed. Files
that a process has open are never touched.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol

import msgpack
import typer

from brokerha.cli.backup.command import BackupsOption, backup_named, checked_snapshot, size_text, time_us
from brokerha.cli.common import exits, output
from brokerha.cli.common.command import Answer, Cluster, FormatOption, cluster_file, columns
from brokerha.cli.common.output import Format
from brokerha.cli.common.terminal import MEGABYTE, progress
from brokerha.model.control import Check
from brokerha.model.errors import Conflict, InvalidRequest, NotReady, TooLarge
from brokerha.model.fingerprints import differs, text_of
from brokerha.model.ids import Lsn, is_node_id
from brokerha.model.operations import LoggedRow, Operation, pack_operations
from brokerha.stores.backup.undoing import Earlier, Undoing
from brokerha.stores.tables.queue_change import Message

if TYPE_CHECKING:
    from brokerha.client import Client
    from brokerha.nodes.restoring import Place, Restoring
    from brokerha.ports.store import ReadAnswer
    from brokerha.stores.backup.directory import BackupDirectory
    from brokerha.stores.backup.manifest import Manifest
    from brokerha.stores.backup.restore_target import Target

ATTEMPTS: Final = 20
"""Most retries after concurrent writes."""
LINE_S: Final = 30.0
"""Time in which a master must show a line that is in the order."""
MESSAGES_AT_ONCE: Final = 1_000
NODE: Final = "restored"
LINE_BYTES = 10_000
"""Applying a line takes about as long as copying this many bytes: measured with lines of ten quads."""
COLUMNS = columns("node", "role", "directory", "in_the_way")
ToLsnOption = Annotated[
    int | None, typer.Option("--to-lsn", min=0, metavar="LSN", help="Restore the state at this LSN; the last one without it.")
]
ToTimeOption = Annotated[
    str | None, typer.Option("--to-time", metavar="TIME", help="Restore up to the last transaction at or before this time, in UTC.")
]


class Readable(Protocol):
    """The parts of a copy that are read here."""

    def read(self, kind: str, name: str, arguments: dict[str, object]) -> ReadAnswer:
        """Answer a read."""


class EarlierCopy:
    """The wanted state, read from a copy (`undoing.Earlier`)."""

    def __init__(self, copy: Readable) -> None:
        self._copy = copy

    def _read(self, kind: str, name: str, **arguments: object) -> bytes:
        return b"".join(self._copy.read(kind, name, arguments).pieces)

    def value(self, table: str, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        rows = msgpack.unpackb(self._read("range", table, **{"from": key, "to": key + b"\0", "limit": 1}))
        return rows[0][1] if rows else None

    def messages(self, queue: str) -> list[Message]:
        """Return all messages of a queue, oldest first."""
        found: list[Message] = []
        limit = MESSAGES_AT_ONCE
        while True:
            after = {"after": found[-1].id} if found else {}
            try:
                page = msgpack.unpackb(self._read("queue", queue, limit=limit, **after))
            except TooLarge:
                # The bytes of an answer have a limit, too; a few messages always fit.
                limit //= 2
                continue
            found += [Message(*row) for row in page]
            if len(page) < limit:
                return found

    def checks(self) -> Mapping[str, Operation]:
        """Return the control suite."""
        rows = json.loads(self._read("control", ""))["checks"]
        return {row["name"]: ("control-add", *Check(**row)) for row in rows}


@contextmanager
def _earlier_copy(backup: BackupDirectory, manifest: Manifest, target: Target, folder: Path) -> Iterator[EarlierCopy]:
    """Yield the wanted state as a copy in a folder, during the block."""
    from brokerha.nodes.restoring import Place, Restoring
    from brokerha.stores.copies.worker_copy import WorkerCopy

    place = folder / NODE
    work = Restoring(backup, manifest, target, manifest.cluster, [Place(NODE, "worker", place)], NODE)
    work.run(checked_snapshot(backup, manifest))
    copy = WorkerCopy(place, cluster=manifest.cluster, node=NODE)
    try:
        yield EarlierCopy(copy)
    finally:
        copy.close()


class OnlineRestore:
    """A cluster that goes back to an earlier state.

    ``brokerha restore --online``: a running cluster goes back to the state of an earlier LSN, by one transaction in its order.

        backup ──> a copy at LSN 4711, in a temporary folder
                           │ earlier values of keys, queues and checks
        log after 4711 ────┴──> one transaction (stores/backup/undoing.py) that expects the content at the end of the log
                                      │ conflict after another write: read its lines, and try again
                                      v
                           its LSN: from there on all sites have the content of LSN 4711, and the log keeps the lines in between

    Repeating the command changes nothing more. Every site and every client sees either the state before or the state after.
    """

    def __init__(self, client: Client, target: Target) -> None:
        self._client = client
        self._target = target
        self._undoing = Undoing()
        self._read_lsn: Lsn = target.lsn
        self._fingerprint = target.fingerprint
        """Fingerprint of the content at the last line that was read."""

    def check(self) -> Lsn:
        """Return the LSN of the cluster. Raises InvalidRequest when its log does not continue the wanted state."""
        bounds, wanted = self._client.entries(0, 0), self._target.lsn
        first, last = bounds["first_lsn"], bounds["last_lsn"]
        if wanted > last:
            raise InvalidRequest(
                f"the cluster is at LSN {last}, before LSN {wanted} of the backup: it is another one, or was restored since"
            )
        if first > wanted + 1:
            raise InvalidRequest(
                f"the log of the cluster begins with LSN {first}, and what came after LSN {wanted} is not all held any more: "
                "take a later backup, or restore with the cluster stopped (--all)"
            )
        if first <= wanted and differs(self._fingerprint_at(wanted), self._target.fingerprint):
            raise InvalidRequest(
                f"the cluster had another content at LSN {wanted} than the backup has: they have different histories"
            )
        return int(last)

    def run(self, earlier: Earlier, *, dry_run: bool) -> dict[str, Any]:
        """Read and write until no other write interferes. Raises NotReady, Rejected, TooLarge, and the errors of writes."""
        for _ in range(ATTEMPTS):
            self._read_on()
            operations = self._undoing.operations(earlier)
            done: dict[str, Any] = {
                "lsn": self._read_lsn,
                "txid": "",
                "operations": len(operations),
                "bytes": None,
                "is_equal": False,
            }
            if not operations:
                return {**done, "state": "unchanged", "is_equal": not differs(self._fingerprint, self._target.fingerprint)}
            expected = ("expect-fingerprint", text_of(self._fingerprint))
            try:
                done["bytes"] = len(pack_operations([expected, *operations]))
            except TooLarge as error:
                raise TooLarge(
                    f"what came after LSN {self._target.lsn} cannot be undone in one transaction: {error}; restore with the cluster stopped (--all)"
                ) from error
            if dry_run:
                return {**done, "state": "planned"}
            try:
                written = self._client.write([expected, *operations], ack="applied")
            except Conflict as error:
                exits.say(f"somebody wrote after LSN {self._read_lsn:,}: reading on ({error})")
                continue
            is_equal = not differs(self._fingerprint_at(written.lsn), self._target.fingerprint)
            return {**done, "state": "restored", "lsn": written.lsn, "txid": written.txid, "is_equal": is_equal}
        raise NotReady(f"somebody wrote each time, {ATTEMPTS} times: nothing was changed; have the writers pause, and say it again")

    def _fingerprint_at(self, lsn: Lsn) -> bytes:
        """Return the fingerprint of the content at a line that is in the order. Raises NotReady."""
        from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

        # A master gets the result from its worker a moment later, and the client can ask another master than the one of the write.
        asking = Retrying(retry=retry_if_result(lambda found: not found), stop=stop_after_delay(LINE_S), wait=wait_fixed(0.05))
        try:
            lines: list[LoggedRow] = asking(self._client.logged, lsn, lsn)
        except RetryError:
            raise NotReady(
                f"no master shows LSN {lsn} of its log for {LINE_S:g} s: say it again, which changes nothing twice"
            ) from None
        return lines[0][5]

    def _read_on(self) -> None:
        """Read the lines that are new since the last call."""
        last = int(self._client.entries(0, 0)["last_lsn"])
        with progress("log", max(0, last - self._read_lsn), "line", 1) as meter:
            while self._read_lsn < last:
                lines = self._client.logged(self._read_lsn + 1, last)
                for line in lines:
                    self._undoing.take(line[4])
                if not lines:
                    raise NotReady(f"no line after LSN {self._read_lsn} was got, of {last}")
                self._read_lsn += len(lines)
                self._fingerprint = lines[-1][5]
                meter.advance(len(lines))

    @property
    def kept_tables(self) -> list[str]:
        """Reserved tables of the cluster that changed since then, and stay."""
        return sorted(self._undoing.kept_tables)


def restore_online(cluster: Cluster, backup: BackupDirectory, manifest: Manifest, target: Target, *, dry_run: bool) -> Answer:
    """Run the restore. Raises InvalidRequest and StoreDamaged before any change, and the errors of `OnlineRestore.run`."""
    name, online = manifest.name, OnlineRestore(cluster.client, target)
    last = online.check()
    exits.say(
        f"LSN {target.lsn:,} of backup {name}, into the running cluster at LSN {last:,}: {last - target.lsn:,} lines are looked at"
    )
    with TemporaryDirectory(prefix="brokerha-restore-") as folder, _earlier_copy(backup, manifest, target, Path(folder)) as earlier:
        done = online.run(earlier, dry_run=dry_run)
    done = {"backup": name, "to_lsn": target.lsn, **done, "kept_tables": online.kept_tables}
    return Answer(done, text=_told(done), code=exits.DONE)


def _told(done: dict[str, Any]) -> str:
    if done["state"] == "unchanged":
        return f"nothing to do: the content is that of LSN {done['to_lsn']:,} already"
    what = f"{done['operations']:,} operations, {size_text(done['bytes'])}"
    if done["state"] == "planned":
        return f"one transaction of {what} would lead back to LSN {done['to_lsn']:,}; nothing was changed"
    same = "the same content" if done["is_equal"] else "the same content but for ids of messages, or what is no content"
    return f"restored LSN {done['to_lsn']:,} as LSN {done['lsn']:,} (transaction {done['txid']}): {what}; {same}"


def restore(
    running: Cluster,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the backup, or its directory (with a /).")],
    into: Annotated[
        Path | None, typer.Option("--into", metavar="DIR", help="Make one worker's directory; it must be empty or not there.")
    ] = None,
    all_nodes: Annotated[
        bool, typer.Option("--all", help="Make the directories of all nodes of the cluster file; all nodes must be stopped.")
    ] = False,
    nodes: Annotated[
        list[str] | None,
        typer.Option("--node", metavar="ID", help="Make the directory of this node of the cluster file; can be repeated."),
    ] = None,
    online: Annotated[
        bool, typer.Option("--online", help="Take the running cluster of -c or --url back to that state, as one transaction.")
    ] = False,
    to_lsn: ToLsnOption = None,
    to_time: ToTimeOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and read the whole backup; change nothing.")] = False,
    force: Annotated[
        str,
        typer.Option("--force", metavar="CLUSTER", help="Replace data that is in the way: the name of the cluster that is made."),
    ] = "",
    cluster: Annotated[
        str,
        typer.Option("--cluster", metavar="NAME", help="With --into: cluster that it is for; the one of the backup without it."),
    ] = "",
    node_id: Annotated[
        str, typer.Option("--as", metavar="ID", help="With --into: node id that it is for; the name of DIR without it.")
    ] = "",
    backups: BackupsOption = None,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Make directories of nodes from a backup: of one worker (--into), of some nodes (--node), or of a whole cluster (--all).

    Or take a running cluster back to a state of the backup (--online): one transaction undoes what its log changed since, at all sites
    together, and the log keeps what was between. It must fit into one transaction (8 MiB), and the log must reach back to that state.

    The cluster file can name another cluster, other nodes and other places than those that were backed up. Exit code 2 when
    something is in the way or the backup is damaged; then nothing was changed.
    """
    from brokerha.nodes.restoring import Restoring
    from brokerha.stores.backup.restore_target import choose_target

    config = running.config
    backup = backup_named(name, backups, config)
    manifest = backup.manifest()
    target = choose_target(backup, manifest, to_lsn, time_us(to_time) if to_time is not None else None)
    if online:
        if into is not None or all_nodes or nodes or force or cluster or node_id:
            raise typer.BadParameter(
                "--online makes no directories: it goes without --into, --all, --node, --force, --cluster and --as"
            )
        return restore_online(running, backup, manifest, target, dry_run=dry_run).write(chosen)
    named, places, origin = _places(manifest, into, all_nodes, nodes or [], cluster, node_id, config)
    if force and force != named:
        raise typer.BadParameter(f"--force {force}: the cluster that is made is called {named}; write its name to replace its data")
    work = Restoring(backup, manifest, target, named, places, origin)
    plan = plan_of(work)
    _show_plan(plan, chosen)
    refused = _refusal(work, is_forced=bool(force))
    if refused and not dry_run:
        exits.say(refused)
        return exits.FAILED
    _run(work, is_forced=bool(force), dry_run=dry_run)
    in_the_way = f", because this is in the way: {refused}" if refused else ""
    remark = (
        f"the backup is whole; nothing was changed{in_the_way}"
        if dry_run
        else f"restored LSN {target.lsn:,} for {', '.join(place.node for place in places)}"
    )
    done = {**plan, "state": "planned" if dry_run else "restored"}
    code = exits.FAILED if refused else exits.DONE
    return Answer(done, plan["places"], text="", remarks=[remark], code=code).write(chosen)


def _places(
    manifest: Manifest, into: Path | None, all_nodes: bool, nodes: list[str], cluster: str, node_id: str, config: Path | None
) -> tuple[str, list[Place], str]:
    """Return the name of the new cluster, the directories, and the node that counts as origin. Raises typer.BadParameter."""
    from brokerha.nodes.restoring import Place, places_of

    if (into is not None) + all_nodes + bool(nodes) != 1:
        raise typer.BadParameter("what is to be made? write --into DIR, --all, or --node ID")
    if into is not None:
        node = node_id or (into.resolve().name if is_node_id(into.resolve().name) else manifest.node)
        named = cluster or manifest.cluster
        for text, option in ((node, "--as"), (named, "--cluster")):
            if not is_node_id(text):
                raise typer.BadParameter(f"{option} {text}: a name has 1 to 32 of a-z, 0-9 and -")
        return named, [Place(node, "worker", into)], node
    if cluster or node_id:
        raise typer.BadParameter("--cluster and --as go with --into; else the cluster file says who is who")
    file = cluster_file(config)
    for node in nodes:
        file.node(node)
    places = [place for place in places_of(file) if all_nodes or place.node in nodes]
    return file.name, places, file.masters[0].id


def plan_of(work: Restoring) -> dict[str, Any]:
    """Return the plan as plain data."""
    manifest, target = work.manifest, work.target
    return {
        "backup": str(work.backup.path),
        "from_cluster": manifest.cluster,
        "cluster": work.cluster,
        "lsn": target.lsn,
        "txid": target.txid,
        "timestamp": target.timestamp,
        "fingerprint": text_of(target.fingerprint),
        "copy_lsn": manifest.lsn if target.base_lsn else None,
        "copy_bytes": manifest.copy_bytes if target.base_lsn else 0,
        "lines": target.lines,
        "places": [
            {"node": place.node, "role": place.role, "directory": str(place.directory), "in_the_way": obstacle.text}
            for place, obstacle in zip(work.places, work.obstacles(), strict=True)
        ],
    }


def _show_plan(plan: dict[str, Any], chosen: Format) -> None:
    """Show the plan to people: on standard output for a table, else on standard error."""
    stamp = output.time_text(plan["timestamp"]) if plan["timestamp"] else "not known"
    start = f"a copy of {size_text(plan['copy_bytes'])} at LSN {plan['copy_lsn']:,}" if plan["copy_bytes"] else "nothing"
    lines = [
        f"from      {plan['backup']} (cluster {plan['from_cluster']})",
        f"state     LSN {plan['lsn']:,}, transaction {plan['txid'] or 'not known'}, {stamp} UTC",
        f"          fingerprint {plan['fingerprint']}",
        f"made of   {start}, then {output.counted(plan['lines'], 'line')} of the log",
        f"cluster   {plan['cluster']}",
    ]
    if chosen is not Format.TABLE:
        for line in lines:
            exits.say(line)
        return
    print("\n".join(lines))
    output.console().print(output.table(plan["places"], COLUMNS))


def _refusal(work: Restoring, *, is_forced: bool) -> str:
    """Return why the restore cannot be done; empty when it can."""
    for obstacle in work.obstacles():
        if obstacle.is_locked:
            return obstacle.text
        if obstacle.text and not is_forced:
            return f"{obstacle.text}; take another directory, or replace it with --force {work.cluster}"
    return ""


def _run(work: Restoring, *, is_forced: bool, dry_run: bool) -> None:
    manifest = work.manifest
    snapshot = checked_snapshot(work.backup, manifest)
    if dry_run:
        return
    workers = sum(place.role == "worker" for place in work.places)
    copied = manifest.copy_bytes if work.target.base_lsn else 0
    with progress("restore", workers * (copied + work.target.lines * LINE_BYTES), "MB", MEGABYTE) as meter:
        work.run(
            snapshot, is_forced=is_forced, note_bytes=meter.advance, note_lines=lambda lines: meter.advance(lines * LINE_BYTES)
        )
