"""``brokerha pipeline archive`` and ``archive-info``: the log of a cluster as a Delta table, and the content of such an archive.

The archive is its own record of progress: each run continues after the last one, even if that was killed.
"""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brokerha.cli.backup.command import LogOptions, backup_named, size_text
from brokerha.cli.common import exits, output
from brokerha.cli.common.command import Answer, Cluster, FormatOption
from brokerha.cli.common.output import Format, counted
from brokerha.cli.pipeline.command import Spark, job, needed, place_of, progress_of

if TYPE_CHECKING:
    from brokerha.pipeline.sources import SourceSpec
    from brokerha.pipeline.table import LogFile, LogState
    from brokerha.spark.archive import ArchiveReport

FOLLOW_S = 5.0
BATCH_ENTRIES = 400_000
KEEP_S = 7 * 24 * 3600.0
RETRY_S = 30.0

_Into = Annotated[
    str, typer.Option("--into", metavar="PLACE", help="The archive, a folder or a URL; a new one is made.", parser=place_of)
]
_FromLsn = Annotated[int | None, typer.Option("--from-lsn", min=1, metavar="LSN", help="Where a new archive begins; 1 without it.")]
_ToLsn = Annotated[int | None, typer.Option("--to-lsn", min=1, metavar="LSN", help="Stop there; the end of the log without it.")]
_Follow = Annotated[bool, typer.Option("--follow", help=f"Go on until SIGINT or SIGTERM; looks every {FOLLOW_S:g} seconds.")]
_Every = Annotated[float | None, typer.Option("--every", metavar="SECONDS", min=0.1, help="Follow, with a batch at most so often.")]
_Compact = Annotated[bool, typer.Option("--compact", help="Put small files together afterwards.")]
_Vacuum = Annotated[bool, typer.Option("--vacuum", help="Delete files that were put together, or left by a killed run, before.")]
_Keep = Annotated[
    float,
    typer.Option("--keep-s", metavar="SECONDS", min=0, help="For how long --vacuum leaves them to readers of earlier versions."),
]
_Pin = Annotated[bool, typer.Option("--pin/--no-pin", help="Whether masters keep their log until it is archived, for a week.")]
_BatchEntries = Annotated[int, typer.Option("--batch-entries", metavar="N", min=1, help="Transactions of one commit at most.")]
_Retry = Annotated[
    float,
    typer.Option("--retry-s", metavar="SECONDS", min=0, help="For how long parts whose node does not answer are tried again."),
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done; write nothing.")]


def source_of(wanted: LogOptions, cluster: Cluster) -> SourceSpec:
    """Return the log of the options: by default that of the nodes. Raises typer.BadParameter, ConfigurationError."""
    from brokerha.pipeline.sources import SourceSpec

    wanted.check()
    timeout_s = cluster.timeout_s
    if wanted.journal is not None:
        return SourceSpec(journal=str(wanted.journal.absolute()), timeout_s=timeout_s)
    if wanted.stream is not None:
        return SourceSpec(stream=wanted.stream, master=wanted.master, timeout_s=timeout_s)
    if wanted.backup is not None:
        backup = backup_named(wanted.backup, wanted.backups, cluster.config)
        return SourceSpec(backup=str(backup.path.absolute()), timeout_s=timeout_s)
    return SourceSpec(url=",".join(cluster.addresses.values()), timeout_s=timeout_s)


def archive(
    wanted: LogOptions,
    cluster: Cluster,
    spark: Spark,
    into: _Into,
    from_lsn: _FromLsn = None,
    to_lsn: _ToLsn = None,
    follow: _Follow = False,
    every_s: _Every = None,
    has_compaction: _Compact = False,
    has_vacuum: _Vacuum = False,
    keep_s: _Keep = KEEP_S,
    has_pin: _Pin = True,
    batch_entries: _BatchEntries = BATCH_ENTRIES,
    retry_s: _Retry = RETRY_S,
    is_dry_run: _DryRun = False,
) -> Answer:
    """Bring an archive of the log up to date: a Delta table, each transaction once, from where the last run ended.

    You can kill it at any time; the next run goes on. Exit code 1: archived, but the masters do not keep their log for the next run.
    """
    if from_lsn is not None and to_lsn is not None and from_lsn > to_lsn:
        raise typer.BadParameter(f"there is nothing from LSN {from_lsn} to LSN {to_lsn}")
    program = job("archive")
    from brokerha.spark.archive import ArchiveOptions

    options = ArchiveOptions(
        into=into,
        source=source_of(wanted, cluster),
        from_lsn=from_lsn or 0,
        to_lsn=to_lsn,
        every_s=every_s if every_s is not None else FOLLOW_S if follow else None,
        has_compaction=has_compaction,
        has_vacuum=has_vacuum,
        keep_s=keep_s,
        is_dry_run=is_dry_run,
        has_pin=has_pin,
        batch_entries=batch_entries,
        retry_s=retry_s,
    )
    with progress_of("archive", "entries") as tell:
        report: ArchiveReport = program(options, spark.options(), tell)
    data = {**dataclasses.asdict(report), "notes": list(report.notes)}
    code = exits.DEGRADED if report.notes else exits.DONE
    return Answer(data, text=_words(report), hints=report.notes, code=code)


def archive_info(
    archive: Annotated[str, typer.Argument(metavar="PLACE", help="The archive, a folder or a URL.", parser=place_of)],
    has_verification: Annotated[
        bool, typer.Option("--verify", help="Read every file, and compare it with its SHA-256; exit code 2 if one differs.")
    ] = False,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Show what an archive holds: its files with their LSNs, sizes and times. Needs no cluster, and starts no Spark."""
    needed()
    from brokerha.pipeline.audit_rows import check_file
    from brokerha.pipeline.table import LogTable

    state = LogTable(archive).state()
    problems = [f"{file.path} {what}" for file in (state.files if has_verification else ()) if (what := check_file(archive, file))]
    rows = [_row(each) for each in state.files]
    data = {**_summary(archive, state), "files": rows, "problems": problems if has_verification else None}
    columns = {
        "path": "FILE", "lsns": "LSN", "rows": "ROWS", "size": "SIZE", "first_time": "FIRST", "last_time": "LAST",
    }  # fmt: skip
    if chosen is not Format.TABLE:
        output.write(data, rows, chosen, columns)
    else:
        shown = [
            {
                **row,
                "path": row["path"] if len(row["path"]) <= _SHOWN else f"{row['path'][:_SHOWN]}…",
                "lsns": f"{row['first_lsn']:,} to {row['last_lsn']:,}",
                "size": size_text(row["size_bytes"]),
            }
            for row in rows
        ]
        output.write(data, shown, chosen, columns)
        print(
            f"{state.head.cluster or 'no cluster name'}: {_held(state)}, {counted(state.rows, 'row')}, "
            f"{size_text(state.size_bytes)}, chain {state.head.chain[:16] or '-'}"
        )
    for problem in problems:
        exits.say(problem)
    return exits.FAILED if problems else exits.DONE


_SHOWN = 16
"""Characters of a file name."""


def _summary(archive: str, state: LogState) -> dict[str, Any]:
    head = state.head
    return {
        "archive": archive,
        "id": state.id,
        "cluster": head.cluster,
        "first_lsn": head.first_lsn,
        "last_lsn": head.last_lsn,
        "last_txid": head.txid,
        "fingerprint": head.fingerprint,
        "rows": state.rows,
        "size_bytes": state.size_bytes,
        "chain": head.chain,
        "version": state.version,
    }


def _held(state: LogState) -> str:
    head = state.head
    if head.last_lsn < head.first_lsn:
        return f"nothing yet, LSN {head.first_lsn:,} comes first"
    return f"LSN {head.first_lsn:,} to {head.last_lsn:,}"


def _row(file: LogFile) -> dict[str, Any]:
    return {**dataclasses.asdict(file), "first_time": _time(file.first_us), "last_time": _time(file.last_us)}


def _time(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _words(report: ArchiveReport) -> str:
    would = "would be" if report.is_dry_run else "were"
    text = f"{report.into}: {counted(report.added_entries, 'transaction')} {would} archived"
    if not report.is_dry_run:
        text += f" in {report.seconds:,.1f} s, as {counted(report.added_rows, 'row')}"
    if report.merged_files:
        text += f"; {counted(report.merged_files, 'file')} {would} put together"
    if report.deleted_files:
        text += f"; {counted(report.deleted_files, 'file')} {would} deleted"
    if report.last_lsn >= report.first_lsn:
        text += f"; it holds LSN {report.first_lsn:,} to {report.last_lsn:,} in {counted(report.files, 'file')}, {size_text(report.size_bytes)}"
    return text
