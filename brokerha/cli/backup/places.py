"""Where commands find backups and logs: ``--backups DIR``, else the folder in the cluster file; a name with a ``/`` is a directory.

A worker makes backups on its machine, so these commands run there, or on any machine to which the folder was copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from brokerha.cli.common.cluster import cluster_file
from brokerha.cli.common.command import DEFAULT_CONFIG, Options
from brokerha.cli.common.terminal import MEGABYTE, progress

if TYPE_CHECKING:
    from brokerha.ports.copies import Snapshot
    from brokerha.stores.backup.directory import BackupDirectory, BackupFolder
    from brokerha.stores.backup.manifest import Manifest

BackupsOption = Annotated[
    Path | None,
    typer.Option("--backups", metavar="DIR", help="Folder of backups; without it the one of the cluster file."),
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
        str | None,
        typer.Option("--backup", metavar="NAME", help="Read a backup: its name, or its directory (with a /)."),
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
