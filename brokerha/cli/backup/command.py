"""``brokerha backup``: make a backup of the cluster, list those of this machine, verify one."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from brokerha.cli.common import exits, output
from brokerha.cli.common.command import (
    DEFAULT_CONFIG,
    Answer,
    Cluster,
    ConfigOption,
    Group,
    Options,
    Row,
    cluster_file,
    columns,
    no_misspelled_command,
    until_reached,
)
from brokerha.cli.common.terminal import MEGABYTE, progress
from brokerha.model.errors import NotReady, StoreError

if TYPE_CHECKING:
    from brokerha.client import Client
    from brokerha.ports.copies import Snapshot
    from brokerha.stores.backup.directory import BackupDirectory, BackupFolder
    from brokerha.stores.backup.manifest import Manifest


# ---- Where commands find backups and logs: ``--backups DIR``, else the folder in the cluster file; a name with a ``/`` is a directory.
#
# A worker makes backups on its machine, so these commands run there, or on any machine to which the folder was copied.

BackupsOption = Annotated[
    Path | None, typer.Option("--backups", metavar="DIR", help="Folder of backups; without it the one of the cluster file.")
]


@dataclass(frozen=True, slots=True)
class LogOptions(Options):
    """The log to read: by default that of running nodes."""

    journal: Annotated[
        Path | None, typer.Option("--journal", metavar="DIR", help="Read the journal of a master that is stopped.")
    ] = None
    stream: Annotated[
        str | None, typer.Option("--stream", metavar="URL", help="Read the log stream of --master at this broker.")
    ] = None
    master: Annotated[str, typer.Option("--master", metavar="ID", help="With --stream: whose stream.")] = ""
    backup: Annotated[
        str | None, typer.Option("--backup", metavar="NAME", help="Read a backup: its name, or its directory (with a /).")
    ] = None
    backups: BackupsOption = None

    def check(self) -> None:
        """Raise typer.BadParameter when options do not fit together."""
        if sum(each is not None for each in (self.journal, self.stream, self.backup)) > 1:
            raise typer.BadParameter("write one of --journal, --stream and --backup")
        if self.stream is not None and not self.master:
            raise typer.BadParameter("--stream needs --master ID: each master has a stream of its own")


def backup_folder(backups: Path | None, config: Path | None) -> BackupFolder:
    """Return the folder of backups. Raises ConfigurationError, typer.BadParameter."""
    from brokerha.stores.backup.directory import BackupFolder

    if backups is None and config is None and not DEFAULT_CONFIG.exists():
        raise typer.BadParameter(
            f"which folder of backups? write --backups DIR, or -c FILE; there is no {DEFAULT_CONFIG} in this folder"
        )
    return BackupFolder(backups if backups is not None else cluster_file(config).backups_directory)


def backup_named(name: str, backups: Path | None, config: Path | None) -> BackupDirectory:
    """Return the backup with a name, or in a directory. Raises ConfigurationError, InvalidRequest, typer.BadParameter."""
    from brokerha.stores.backup.directory import BackupDirectory

    if "/" in name:
        return BackupDirectory(Path(name))
    return backup_folder(backups, config).backup(name)


def checked_snapshot(backup: BackupDirectory, manifest: Manifest) -> Snapshot:
    """Read a whole backup, with a progress bar, and return its copy. Raises StoreDamaged."""
    from brokerha.stores.backup.restoring import check_backup

    with progress("verify", manifest.size_bytes, "MB", MEGABYTE) as meter:
        return check_backup(backup, manifest, meter.advance)


def time_us(text: str) -> int:
    """Parse a time into microseconds since 1970: ISO 8601, in UTC by default, or the number itself.

    >>> time_us("2026-11-21T04:15:42.116798"), time_us("1795234542116798")
    (1795234542116798, 1795234542116798)
    """
    epoch = datetime.fromtimestamp(0, UTC)
    try:
        # Shorter numbers are not microseconds: they would be a time before any data.
        is_number = text.isdecimal() and len(text) > 14
        when = epoch + timedelta(microseconds=int(text)) if is_number else datetime.fromisoformat(text)
        since = (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).astimezone(UTC) - epoch
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{text!r} is no time: write 2026-11-21T04:15:42 (UTC), with an offset such as +01:00, or microseconds since 1970"
        ) from None
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def size_text(size_bytes: int) -> str:
    """Format a size for people.

    >>> size_text(1_234_567)
    '1.2 MB'
    """
    return f"{size_bytes / 1e6:,.1f} MB"


POLL_S = 0.5
"""Time between two questions for the progress of a backup."""
COLUMNS = columns(
    "name", "cluster", "worker", "made", "least_lsn=FROM LSN", "last_lsn=TO LSN", "last_time=LAST TRANSACTION",
    "size", "segments", "problem",
)  # fmt: skip

NameArgument = Annotated[str, typer.Argument(metavar="NAME", callback=no_misspelled_command, help="Name of the backup.")]


app = Group("Back the cluster up (backup NAME), list and verify backups.", default="make", no_args_is_help=True)


@app.command()
def make(
    cluster: Cluster,
    name: NameArgument,
    incremental: Annotated[
        bool, typer.Option("--incremental", help="Add to the backup what was written since, instead of copying everything.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a backup of this name; it goes when the new one is verified.")
    ] = False,
    worker: Annotated[
        str, typer.Option("--worker", metavar="ID", help="Worker that makes it; the least busy one without it.")
    ] = "",
) -> Answer:
    """Back the whole content up; you can leave out the word make. The site goes on reading and writing meanwhile.

    A worker that is in sync makes it in the backup folder of its machine, reads it again, and only then gives it its name: one of the first
    master that has one in sync, without --worker. Ctrl-C ends the command, not the backup, and says where it goes on. --timeout-s is for each question, not for the whole.
    """
    if incremental and replace:
        raise typer.BadParameter("--incremental adds to a backup, --replace makes it anew: write one of them")
    client, task = _begun(cluster, name, worker, incremental=incremental, replace=replace)
    at = task["worker"]
    try:
        task = _followed(cluster, client, task)
    except KeyboardInterrupt:
        exits.say(f"backup {name} goes on at {at}, and gets its name when it is complete: brokerha backup list shows it there")
        raise
    if task["state"] != "done":
        raise StoreError(f"backup {name} at {at}: {task['reason']}")
    answer = {"worker": at, **task["answer"]}
    size = size_text(answer["size_bytes"])
    return Answer(answer, text=f"backup {name}: LSN {answer['lsn']:,}, {size}, in {answer['path']} at {at}")


def _begun(cluster: Cluster, name: str, worker: str, **wanted: bool) -> tuple[Client, Row]:
    """Return (the master that gives it to a worker, the task). Raises NotReady when no site has a worker for it, Unreachable."""
    masters = [cluster.master_of(worker)] if worker else cluster.masters
    if len(masters) > 1:
        masters = list(cluster.worker_lists()[0])
    refused = {}
    for master in masters:
        try:
            return cluster.at(master), cluster.at(master).backup(name, worker=worker, **wanted)
        except NotReady as error:
            refused[master] = str(error)
        except KeyboardInterrupt:
            exits.say(
                f"it is not known whether backup {name} began: brokerha backup list shows it where it was made, when it is complete"
            )
            raise
    raise NotReady("; ".join(f"{master}: {reason}" for master, reason in refused.items()))


def _followed(cluster: Cluster, client: Client, task: Row) -> Row:
    """Ask for the progress of a task until it ends. Raises NotReady when the master has forgotten it, Unreachable."""
    while task["state"] == "running" and not task["total"]:
        task = _next(cluster, client, task)
    done = 0
    with progress(f"backup at {task['worker']}", task["total"] or 0, "MB", MEGABYTE) as meter:
        while task["state"] == "running":
            meter.advance(task["done"] - done)
            done = task["done"]
            task = _next(cluster, client, task)
    return task


def _next(cluster: Cluster, client: Client, task: Row) -> Row:
    time.sleep(POLL_S)
    # The backup continues by itself, and a restarting master is back in a moment.
    retrying = until_reached(cluster.timeout_s, POLL_S)
    found: Row | None = retrying(client.task, task["request"])
    if found is None:
        raise NotReady(
            f"the master does not know {task['request']} any more, because it was started again; the backup may go on at "
            f"{task['worker']}: look with brokerha backup list"
        )
    return found


@app.command("list")
def list_backups(backups: BackupsOption = None, config: ConfigOption = None) -> Answer:
    """Show the backups on this machine. Exit code 2 when one of them cannot be used."""
    folder = backup_folder(backups, config)
    rows = []
    for name in folder.names():
        try:
            rows.append(_row(folder.backup(name).manifest()))
        except StoreError as error:
            rows.append({**dict.fromkeys(_FIELDS), "name": name, "problem": str(error)})
    data = {"folder": str(folder.path), "backups": rows}
    if not rows:
        return Answer(data, rows, text="", remarks=[f"there is no backup in {folder.path}"])
    shown = [{**row, "size": size_text(row["size_bytes"]) if row["size_bytes"] is not None else None} for row in rows]
    code = exits.FAILED if any(row["problem"] for row in rows) else exits.DONE
    return Answer(data, rows, COLUMNS, shown, code=code)


_FIELDS = (
    "name", "cluster", "worker", "node", "made", "made_us", "least_lsn", "base_lsn", "lsn", "last_lsn", "last_txid", "last_timestamp",
    "last_time", "fingerprint", "base_items", "items", "size_bytes", "segments", "problem",
)  # fmt: skip


def _row(manifest: Manifest) -> Row:
    stamp = manifest.last_timestamp
    return {
        "name": manifest.name,
        "cluster": manifest.cluster,
        "worker": manifest.node,
        "node": manifest.node,
        "made": output.time_text(manifest.made_us)[:19],
        "made_us": manifest.made_us,
        "least_lsn": manifest.least_lsn,
        "base_lsn": manifest.lsn,
        "lsn": manifest.lsn,
        "last_lsn": manifest.last_lsn,
        "last_txid": manifest.last_txid,
        "last_timestamp": stamp,
        "last_time": output.time_text(stamp) if stamp else None,
        "fingerprint": manifest.last_fingerprint,
        "base_items": manifest.items,
        "items": manifest.items,
        "size_bytes": manifest.size_bytes,
        "segments": len(manifest.segments),
        "problem": None,
    }


@app.command()
def verify(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the backup, or its directory (with a /).")],
    backups: BackupsOption = None,
    config: ConfigOption = None,
) -> Answer:
    """Read a backup, every byte of it, and compare it with its manifest. Exit code 2 when anything is wrong; nothing is changed."""
    backup = backup_named(name, backups, config)
    manifest = backup.manifest()
    with progress("verify", manifest.size_bytes, "MB", MEGABYTE) as meter:
        problems = list(backup.verify(meter.advance))
    answer = {**_row(manifest), "problems": problems}
    found = output.counted(len(problems), "problem") if problems else "no problem"
    remark = f"backup {manifest.name} up to LSN {manifest.last_lsn:,}, {size_text(manifest.size_bytes)}: {found}"
    return Answer(
        answer, [{**answer, "problems": "; ".join(problems)}], text="\n".join(problems), remarks=[remark],
        code=exits.FAILED if problems else exits.DONE,
    )  # fmt: skip
