"""``brokerha pipeline report``: one HTML page about an archive, with charts and without external resources.

With ``-o json`` the same facts also go to standard output.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brokerha.cli.common.command import Answer
from brokerha.cli.common.output import counted
from brokerha.cli.pipeline.command import ArchiveOption, Spark, job, progress_of
from brokerha.model.errors import InvalidRequest

if TYPE_CHECKING:
    from brokerha.pipeline.report import ReportFacts, ReportOptions

DEFAULT_OUT = Path("report.html")
_ROW = ("out", "cluster", "first_lsn", "last_lsn", "transactions", "rejected", "changes")
"""Fields of the only row of TSV."""


def report(
    spark: Spark,
    archive: ArchiveOption,
    out: Annotated[Path, typer.Option("--out", metavar="FILE.html", help="Where the page goes.")] = DEFAULT_OUT,
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="From this time on, such as 2026-05-01 or 2026-05-01T12:30:00Z.")
    ] = "",
    until: Annotated[str, typer.Option("--until", metavar="TIME", help="Up to this time.")] = "",
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be read, write nothing.")] = False,
) -> Answer:
    """Make one HTML page about an archive.

    Writes by origin and store, size, lag, epochs, rejected transactions, busiest keys and predicates.
    """
    from brokerha.pipeline.report import STEPS, ReportOptions, span
    from brokerha.pipeline.report_page import check_place
    from brokerha.pipeline.table import LogTable

    program = job("report")
    options = ReportOptions(archive=archive, out=out, since_us=_moment(since), until_us=_moment(until), is_dry_run=is_dry_run)
    if options.since_us is not None and options.until_us is not None and options.since_us > options.until_us:
        raise typer.BadParameter(f"--since {since} is after --until {until}")
    if is_dry_run:
        return _plan(options)
    check_place(out)
    given = spark.options()
    found = LogTable(archive)
    # An archive that is missing, empty or without entries of this time is reported before Spark starts.
    span(found, found.state(), options)
    with progress_of("report", "parts", STEPS) as tell:
        facts: ReportFacts = program(options, given, tell)
    told = {"out": str(out), **dataclasses.asdict(facts)}
    return Answer(
        told,
        [{name: told[name] for name in _ROW}],
        text=f"{out}: LSN {facts.first_lsn:,} to {facts.last_lsn:,}, {counted(facts.transactions, 'transaction')}, "
        f"{facts.rejected:,} rejected, {counted(facts.changes, 'change')}",
        hints=facts.notes,
    )


def _moment(text: str) -> int | None:
    """Parse a time into microseconds since 1970; None for an empty text. Raises typer.BadParameter."""
    from brokerha.pipeline.report import time_of

    try:
        return time_of(text) if text else None
    except InvalidRequest as error:
        raise typer.BadParameter(str(error)) from None


def _plan(options: ReportOptions) -> Answer:
    from brokerha.pipeline.report import span
    from brokerha.pipeline.table import LogTable

    archive = LogTable(options.archive)
    state = archive.state()
    bins, first_lsn, last_lsn = span(archive, state, options)
    plan: dict[str, Any] = {
        "archive": str(options.archive),
        "out": str(options.out),
        "dry_run": True,
        "first_lsn": first_lsn,
        "last_lsn": last_lsn,
        "files": len(state.files),
        "rows": state.rows,
        "bins": bins.count,
        "bin_s": bins.width_us / 1e6,
    }
    return Answer(
        plan,
        text=f"would report LSN {first_lsn:,} to {last_lsn:,} in {counted(bins.count, 'part')} of {plan['bin_s']:,.0f} s, from "
        f"{counted(len(state.files), 'file')} with {counted(state.rows, 'row')}, to {options.out}; nothing was written",
    )
