"""``brokerha pipeline rebuild``: any state of the log, from an archive, as a backup or as the directory of one worker.

The result is proved before it gets its name: it has the cluster's fingerprint at that LSN, or the exit code is 2 and nothing is
changed.
"""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from brokerha.cli.backup.command import BackupsOption, backup_folder, time_us
from brokerha.cli.common import exits, output
from brokerha.cli.common.command import Answer, ConfigOption
from brokerha.cli.common.output import counted
from brokerha.cli.pipeline.command import ArchiveOption, Spark, job, place_of, progress_of

if TYPE_CHECKING:
    from brokerha.spark.export import ExportReport
    from brokerha.spark.rebuild import RebuildReport


_Name = Annotated[str, typer.Argument(metavar="[NAME]", help="Name of the backup that is made.")]
_Into = Annotated[Path | None, typer.Option("--into", metavar="DIR", help="Make the directory of one worker instead of a backup.")]
_NodeId = Annotated[
    str, typer.Option("--as", metavar="ID", help="With --into: node id that it is for; the name of DIR without it.")
]
_Cluster = Annotated[str, typer.Option("--cluster", metavar="NAME", help="Cluster that it is for; that of the archive without it.")]
_ToLsn = Annotated[
    int | None, typer.Option("--to-lsn", min=0, metavar="LSN", help="The state at this LSN; the last one without it.")
]
_ToTime = Annotated[str, typer.Option("--to-time", metavar="TIME", help="The last transaction at or before this time, in UTC.")]
_Lines = Annotated[
    bool, typer.Option("--lines", help="Put all lines of the log up to there into the backup too, for earlier states.")
]
_Replace = Annotated[bool, typer.Option("--replace", help="Replace a backup of this name.")]
_Force = Annotated[
    str, typer.Option("--force", metavar="CLUSTER", help="With --into: replace data that is there; the cluster's name.")
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be made; write nothing.")]


def rebuild(
    spark: Spark,
    archive: ArchiveOption,
    name: _Name = "",
    into: _Into = None,
    node_id: _NodeId = "",
    cluster: _Cluster = "",
    to_lsn: _ToLsn = None,
    to_time: _ToTime = "",
    has_lines: _Lines = False,
    is_replaced: _Replace = False,
    force: _Force = "",
    is_dry_run: _DryRun = False,
    backups: BackupsOption = None,
    config: ConfigOption = None,
) -> Answer:
    """Rebuild the state at an LSN or a time from an archive: as a backup NAME for brokerha restore, or as a worker's directory (--into).

    A worker that starts from it follows the log from the next LSN on. Exit code 2: something is in the way, or the archive does not lead
    to the fingerprint that it has for that LSN.
    """
    _check_words(name, into, is_of_worker=bool(node_id or force), is_of_backup=has_lines or is_replaced)
    if to_lsn is not None and to_time:
        raise typer.BadParameter("--to-lsn and --to-time are two ways to say up to where: write one of them")
    program = job("rebuild")
    from brokerha.pipeline.table import LogTable
    from brokerha.spark.rebuild import RebuildOptions

    named = cluster or (LogTable(archive).state().head.cluster if force else "")
    if force and force != named:
        message = f"--force {force}: the cluster that is made is called {named}; write its name to replace its data"
        raise typer.BadParameter(message)
    options = RebuildOptions(
        archive=archive,
        backup=name,
        backups=backup_folder(backups, config).path if into is None else None,
        into=into,
        node=node_id,
        cluster=cluster,
        to_lsn=to_lsn,
        to_time_us=time_us(to_time) if to_time else None,
        is_replaced=is_replaced or bool(force),
        has_lines=has_lines,
        is_dry_run=is_dry_run,
    )
    with progress_of("rebuild", "items") as tell:
        report: RebuildReport = program(options, spark.options(), tell)
    code = exits.FAILED if report.in_the_way else exits.DONE
    return Answer(dataclasses.asdict(report), text=_words(report), code=code)


def _check_words(name: str, into: Path | None, *, is_of_worker: bool, is_of_backup: bool) -> None:
    """Raise typer.BadParameter for words that do not fit together."""
    if bool(name) == (into is not None):
        raise typer.BadParameter("what is to be made? write the NAME of a backup, or --into DIR")
    if into is None and is_of_worker:
        raise typer.BadParameter("--as and --force go with --into; a backup is replaced with --replace")
    if into is not None and is_of_backup:
        raise typer.BadParameter("--lines and --replace go with the NAME of a backup; data is replaced with --force")


def _words(report: RebuildReport) -> str:
    stamp = output.time_text(report.timestamp) if report.timestamp else "the beginning"
    state = f"LSN {report.lsn:,} ({report.txid or 'no transaction'}, {stamp}), fingerprint {report.fingerprint}"
    if report.is_dry_run:
        way = f"; it cannot be made now: {report.in_the_way}" if report.in_the_way else ""
        return f"{report.target} would be made for {state}, from {counted(report.rows, 'row')}; nothing was changed{way}"
    return (
        f"{report.target}: {state}; {counted(report.items, 'item')} in {report.seconds:,.1f} s, computed "
        f"from {counted(report.rows, 'row')}, read again and equal"
    )


# ---- ``brokerha pipeline export``: any state of the log, from an archive, as tables for other programs or as N-Quads.


class Kind(StrEnum):
    """Formats of an export."""

    DELTA = "delta"
    NQUADS = "nquads"


def export(
    spark: Spark,
    archive: ArchiveOption,
    into: Annotated[str, typer.Option("--into", metavar="PLACE", help="A new folder or URL.", parser=place_of)],
    kind: Annotated[
        Kind, typer.Option("--as", help="delta: tables of quads, keys and messages; nquads: the quads as text.")
    ] = Kind.DELTA,
    to_lsn: Annotated[
        int | None, typer.Option("--to-lsn", min=0, metavar="LSN", help="The state at this LSN; the last one without it.")
    ] = None,
    to_time: Annotated[
        str, typer.Option("--to-time", metavar="TIME", help="The last transaction at or before this time, in UTC.")
    ] = "",
) -> Answer:
    """Export the state at an LSN or a time: Delta tables, whose files are Parquet, for Spark, DuckDB, Polars and pandas; or N-Quads.

    Exit code 2: something is in the way, or the archive does not lead to the fingerprint that it has for that LSN.
    """
    if to_lsn is not None and to_time:
        raise typer.BadParameter("--to-lsn and --to-time are two ways to say up to where: write one of them")
    program = job("export")
    from brokerha.spark.export import STEPS, ExportOptions

    options = ExportOptions(archive, into, kind.value, to_lsn, time_us(to_time) if to_time else None)
    with progress_of("export", "parts", STEPS) as tell:
        report: ExportReport = program(options, spark.options(), tell)
    parts = [counted(report.quads, "quad")]
    if report.format == Kind.DELTA:
        parts += [counted(report.keys, "key"), counted(report.messages, "message")]
    return Answer(
        dataclasses.asdict(report),
        text=f"{report.into}: LSN {report.lsn:,}, fingerprint {report.fingerprint}; {', '.join(parts)} in {counted(report.files, 'file')}, "
        f"{report.seconds:,.1f} s",
    )
