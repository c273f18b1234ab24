"""``brokerha pipeline export``: any state of the log, from an archive, as tables for other programs or as N-Quads."""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from brokerha.cli.backup.places import time_us
from brokerha.cli.common.command import Answer
from brokerha.cli.common.output import counted
from brokerha.cli.pipeline.command import ArchiveOption, Spark, job, place_of, progress_of

if TYPE_CHECKING:
    from brokerha.spark.export import ExportReport


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
        int | None,
        typer.Option("--to-lsn", min=0, metavar="LSN", help="The state at this LSN; the last one without it."),
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
