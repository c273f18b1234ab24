"""``brokerha pipeline archive`` and ``archive-info``: the log of a cluster as Parquet files, and what such an archive holds.

The archive is its own record of progress: each run goes on where the last one ended, wherever that was killed.
"""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brokerha.cli import exits, output
from brokerha.cli.access import addresses
from brokerha.cli.backup_places import BackupsOption, backup_named, size_text
from brokerha.cli.options import DEFAULT_TIMEOUT_S, ConfigOption, FormatOption, TimeoutOption, UrlOption
from brokerha.cli.output import Format, counted
from brokerha.cli.pipeline import job, spark_options
from brokerha.cli.pipeline_options import DEFAULT_MASTER, DEFAULT_MEMORY, ConfOption, MasterOption, MemoryOption
from brokerha.cli.progress import Meter, progress

if TYPE_CHECKING:
    from brokerha.pipeline.archive import ArchiveState
    from brokerha.pipeline.archive_job import ArchiveReport
    from brokerha.pipeline.sources import SourceSpec

FOLLOW_S = 5.0
HERE_ENTRIES = 20_000
FILE_ENTRIES = 100_000
KEEP_REPLACED_S = 3600.0
RETRY_S = 30.0

JournalOption = Annotated[
    Path | None, typer.Option("--journal", metavar="DIR", help="Read the journal of a master that is stopped.")
]
StreamOption = Annotated[
    str | None, typer.Option("--stream", metavar="URL", help="Read the log stream of --master at this broker.")
]
OfMasterOption = Annotated[str, typer.Option("--master", metavar="ID", help="With --stream: whose stream.")]
BackupOption = Annotated[
    str | None,
    typer.Option("--backup", metavar="NAME", help="Read a backup: its name, or its directory (with a /)."),
]


_Into = Annotated[Path, typer.Option("--into", metavar="DIR", help="The archive; a new one is made.")]
_FromLsn = Annotated[
    int | None, typer.Option("--from-lsn", min=1, metavar="LSN", help="Where a new archive begins; 1 without it.")
]
_ToLsn = Annotated[
    int | None, typer.Option("--to-lsn", min=1, metavar="LSN", help="Stop there; the end of the log without it.")
]
_Follow = Annotated[
    bool, typer.Option("--follow", help=f"Go on until SIGINT or SIGTERM; looks every {FOLLOW_S:g} seconds.")
]
_Every = Annotated[
    float | None, typer.Option("--every", metavar="SECONDS", min=0.1, help="Follow, and look as often as this.")
]
_Compact = Annotated[bool, typer.Option("--compact", help="Put small files together afterwards.")]
_Vacuum = Annotated[bool, typer.Option("--vacuum", help="Delete files that were put together before.")]
_KeepReplaced = Annotated[
    float,
    typer.Option("--keep-replaced-s", metavar="SECONDS", min=0, help="For how long --vacuum leaves them to readers."),
]
_Pin = Annotated[
    bool, typer.Option("--pin/--no-pin", help="Whether masters keep their log until it is archived, for a week.")
]
_Here = Annotated[
    int, typer.Option("--here", metavar="ENTRIES", min=0, help="Up to so many new entries are read without Spark.")
]
_FileEntries = Annotated[
    int, typer.Option("--file-entries", metavar="N", min=1, help="Entries of one file, and of one task.")
]
_Retry = Annotated[
    float,
    typer.Option(
        "--retry-s", metavar="SECONDS", min=0, help="For how long parts whose node does not answer are tried again."
    ),
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done; write nothing.")]


def source_of(
    *,
    journal: Path | None,
    stream: str | None,
    master: str,
    backup: str | None,
    backups: Path | None,
    config: Path | None,
    url: str | None,
    timeout_s: float,
) -> SourceSpec:
    """The log that is meant: nodes when nothing else is named. Raises typer.BadParameter, ConfigurationError."""
    from brokerha.pipeline.sources import SourceSpec

    if sum(each is not None for each in (journal, stream, backup)) > 1:
        raise typer.BadParameter("write one of --journal, --stream and --backup")
    if journal is not None:
        return SourceSpec(journal=str(journal.absolute()), timeout_s=timeout_s)
    if stream is not None:
        if not master:
            raise typer.BadParameter("--stream needs --master ID: each master has a stream of its own")
        return SourceSpec(stream=stream, master=master, timeout_s=timeout_s)
    if backup is not None:
        return SourceSpec(backup=str(backup_named(backup, backups, config).path.absolute()), timeout_s=timeout_s)
    return SourceSpec(url=",".join(addresses(config, url).values()), timeout_s=timeout_s)


def archive(
    into: _Into,
    journal: JournalOption = None,
    stream: StreamOption = None,
    master: OfMasterOption = "",
    backup: BackupOption = None,
    backups: BackupsOption = None,
    from_lsn: _FromLsn = None,
    to_lsn: _ToLsn = None,
    follow: _Follow = False,
    every_s: _Every = None,
    has_compaction: _Compact = False,
    has_vacuum: _Vacuum = False,
    keep_replaced_s: _KeepReplaced = KEEP_REPLACED_S,
    has_pin: _Pin = True,
    here: _Here = HERE_ENTRIES,
    file_entries: _FileEntries = FILE_ENTRIES,
    retry_s: _Retry = RETRY_S,
    is_dry_run: _DryRun = False,
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    spark_master: MasterOption = DEFAULT_MASTER,
    spark_memory: MemoryOption = DEFAULT_MEMORY,
    spark_conf: ConfOption = [],  # noqa: B006  (typer copies it)
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Bring an archive of the log up to date: Parquet files, each transaction once, from where the last run ended.

    It may be killed at any time; the next run goes on. Exit code 1: archived, but the masters do not keep their log for the next run.
    """
    if from_lsn is not None and to_lsn is not None and from_lsn > to_lsn:
        raise typer.BadParameter(f"there is nothing from LSN {from_lsn} to LSN {to_lsn}")
    program = job("archive")
    from brokerha.pipeline.archive_job import ArchiveOptions

    source = source_of(
        journal=journal, stream=stream, master=master, backup=backup, backups=backups, config=config, url=url,
        timeout_s=timeout_s,
    )  # fmt: skip
    options = ArchiveOptions(
        into=into,
        source=source,
        from_lsn=from_lsn or 0,
        to_lsn=to_lsn,
        every_s=every_s if every_s is not None else FOLLOW_S if follow else None,
        has_compaction=has_compaction,
        has_vacuum=has_vacuum,
        keep_replaced_s=keep_replaced_s,
        is_dry_run=is_dry_run,
        has_pin=has_pin,
        file_entries=file_entries,
        here_entries=here,
        retry_s=retry_s,
    )
    spark = spark_options(spark_master, spark_memory, spark_conf)
    with progress("archive", None, "entries") as meter:
        report: ArchiveReport = program(options, spark, _Follower(meter).take)
    _show(report, chosen)
    return exits.DEGRADED if report.notes else exits.DONE


class _Follower:
    """Moves the meter to how much is done; each look of --follow counts from 0 again."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._done = 0

    def take(self, done: int, _total: int) -> None:
        """So many entries are done in all."""
        self._meter.advance(done - self._done if done >= self._done else done)
        self._done = done


def archive_info(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The archive.")],
    has_verification: Annotated[
        bool,
        typer.Option("--verify", help="Read every file, and compare it with its SHA-256; exit code 2 if one differs."),
    ] = False,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """What an archive holds: its files with their LSNs, sizes and times. Needs no Spark and no cluster."""
    from brokerha.pipeline.archive import Archive

    opened = Archive(directory)
    state = opened.state()
    problems = list(opened.verify()) if has_verification else []
    rows = [_row(each) for each in state.files]
    data = {**_summary(directory, state), "files": rows, "problems": problems if has_verification else None}
    columns = {
        "path": "FILE", "entries": "ENTRIES", "rows": "ROWS", "size": "SIZE", "first_time": "FIRST", "last_time": "LAST",
    }  # fmt: skip
    if chosen is not Format.TABLE:
        output.write(data, rows, chosen, columns)
    else:
        shown = [{**row, "size": size_text(row["size_bytes"])} for row in rows]
        output.write(data, shown, chosen, columns)
        print(
            f"{state.cluster or 'no cluster name'}: {_held(state)}, {counted(state.rows, 'row')}, "
            f"{size_text(state.size_bytes)}, chain {state.chain[:16] or '-'}"
        )
    for problem in problems:
        exits.say(problem)
    return exits.FAILED if problems else exits.DONE


def _summary(directory: Path, state: ArchiveState) -> dict[str, Any]:
    return {
        "archive": str(directory),
        "id": state.id,
        "cluster": state.cluster,
        "first_lsn": state.first_lsn,
        "last_lsn": state.last_lsn,
        "rows": state.rows,
        "size_bytes": state.size_bytes,
        "chain": state.chain,
        "generation": state.generation,
        "made": _time(state.made_us),
        "replaced_files": len(state.replaced),
        "replaced_bytes": sum(each.size_bytes for each in state.replaced),
    }


def _held(state: ArchiveState) -> str:
    if state.last_lsn < state.first_lsn:
        return f"nothing yet, LSN {state.first_lsn:,} comes first"
    return f"LSN {state.first_lsn:,} to {state.last_lsn:,}"


def _row(file: Any) -> dict[str, Any]:
    return {
        **dataclasses.asdict(file),
        "entries": file.entries,
        "first_time": _time(file.first_timestamp),
        "last_time": _time(file.last_timestamp),
    }


def _time(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _show(report: ArchiveReport, chosen: Format) -> None:
    data = {**dataclasses.asdict(report), "notes": list(report.notes)}
    if chosen is not Format.TABLE:
        output.write(data, [data], chosen, {})
        return
    would = "would be" if report.is_dry_run else "were"
    text = f"{report.into}: {counted(report.added_entries, 'transaction')} {would} archived"
    if not report.is_dry_run:
        text += f" in {report.seconds:,.1f} s, as {counted(report.added_rows, 'row')} in {counted(report.added_files, 'file')}"
    if report.merged_files:
        text += f"; {counted(report.merged_files, 'file')} {would} put together into {report.merged_into:,}"
    if report.deleted_files:
        text += f"; {counted(report.deleted_files, 'file')} ({size_text(report.deleted_bytes)}) {would} deleted"
    if report.last_lsn >= report.first_lsn:
        text += f"; it holds LSN {report.first_lsn:,} to {report.last_lsn:,}, {size_text(report.size_bytes)}"
    print(text)
    for note in report.notes:
        exits.say(note)
