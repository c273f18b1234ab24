"""``brokerha restore``: directories of nodes made from a backup, for one worker or for a whole cluster that is stopped; for one that runs, online.py.

The plan comes first: which state, which directories, what is in the way. Then the backup is read as a whole; only when all of it
is right, and every directory is made beside its place, the first of them is put there. A run that was killed goes on when it is
started again with the same words. Nothing that a process has open is ever touched.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brokerha.cli.backup.places import BackupsOption, backup_named, checked_snapshot, size_text, time_us
from brokerha.cli.common import exits, output
from brokerha.cli.common.access import cluster_file
from brokerha.cli.common.cluster import Cluster
from brokerha.cli.common.command import Answer
from brokerha.cli.common.options import FormatOption
from brokerha.cli.common.output import Format, columns
from brokerha.cli.common.progress import MEGABYTE, progress
from brokerha.model.ids import is_node_id

if TYPE_CHECKING:
    from brokerha.nodes.restoring import Place, Restoring
    from brokerha.stores.backup.manifest import Manifest

LINE_BYTES = 10_000
"""Applying a line takes about as long as copying so much: measured with lines of ten quads."""
COLUMNS = columns("node", "role", "directory", "in_the_way")


ToLsnOption = Annotated[
    int | None,
    typer.Option("--to-lsn", min=0, metavar="LSN", help="Restore the state at this LSN; the last one without it."),
]
ToTimeOption = Annotated[
    str | None,
    typer.Option("--to-time", metavar="TIME", help="Restore up to the last transaction at or before this time, in UTC."),
]


def restore(
    running: Cluster,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the backup, or its directory (with a /).")],
    into: Annotated[
        Path | None,
        typer.Option("--into", metavar="DIR", help="Make one worker's directory; it must be empty or not there."),
    ] = None,
    all_nodes: Annotated[
        bool,
        typer.Option("--all", help="Make the directories of all nodes of the cluster file; all nodes must be stopped."),
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
        typer.Option(
            "--force", metavar="CLUSTER", help="Replace data that is in the way: the name of the cluster that is made."
        ),
    ] = "",
    cluster: Annotated[
        str,
        typer.Option(
            "--cluster", metavar="NAME", help="With --into: cluster that it is for; the one of the backup without it."
        ),
    ] = "",
    node_id: Annotated[
        str, typer.Option("--as", metavar="ID", help="With --into: node id that it is for; the name of DIR without it.")
    ] = "",
    backups: BackupsOption = None,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Make directories of nodes from a backup: of one worker (--into), of some nodes (--node), or of a whole cluster (--all).

    Or take a running cluster back to a state of the backup (--online): one transaction undoes what its log changed since, at all sites
    together, and the log keeps what was between. That has to fit into one transaction (8 MiB), and the log has to reach back so far.

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
        from brokerha.cli.backup.online import restore_online

        if into is not None or all_nodes or nodes or force or cluster or node_id:
            raise typer.BadParameter("--online makes no directories: it goes without --into, --all, --node, --force, --cluster and --as")
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
    manifest: Manifest,
    into: Path | None,
    all_nodes: bool,
    nodes: list[str],
    cluster: str,
    node_id: str,
    config: Path | None,
) -> tuple[str, list[Place], str]:
    """Name of the cluster that is made, the directories, and who counts as origin. Raises typer.BadParameter."""
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
    """What will be done, as plain data."""
    from brokerha.model.fingerprints import text_of

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
    """The plan for people: on standard output as a table, on standard error when that is for a program."""
    stamp = output.time_text(plan["timestamp"]) if plan["timestamp"] else "not known"
    start = (
        f"a copy of {size_text(plan['copy_bytes'])} at LSN {plan['copy_lsn']:,}" if plan["copy_bytes"] else "nothing"
    )
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
    """Why it cannot be done; empty when it can."""
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
            snapshot,
            is_forced=is_forced,
            note_bytes=meter.advance,
            note_lines=lambda lines: meter.advance(lines * LINE_BYTES),
        )
