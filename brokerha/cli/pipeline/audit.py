"""``brokerha pipeline audit``: is the archive unchanged, and does every worker match it?

Reads only. With a cluster, each worker is compared at its own LSN, and differences are shown by node, store and key. Without one,
the files of the archive are checked, and its content is proved by the fingerprint in an entry.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brokerha.cli.common import exits, output
from brokerha.cli.common.command import DEFAULT_CONFIG, Answer, Cluster, FormatOption, master_urls
from brokerha.cli.common.output import Format, counted
from brokerha.cli.pipeline.command import ArchiveOption, Spark, job, progress_of
from brokerha.model.errors import InvalidRequest, NotReady, TimedOut, Unreachable

if TYPE_CHECKING:
    from brokerha.nodes.config.cluster import ClusterConfig
    from brokerha.pipeline.audit_copies import CopyAudit
    from brokerha.pipeline.report import ReportFacts, ReportOptions
    from brokerha.spark.audit import AuditReport


FINDINGS = {
    "where": "WHERE", "kind": "KIND", "store": "STORE", "name": "NAME", "key": "KEY", "lsn": "LSN", "archived": "IN THE LOG",
    "found": "THERE",
}  # fmt: skip
COPIES = {
    "node": "NODE", "result": "RESULT", "lsn": "LSN", "items": "ITEMS", "buckets": "DIFFERING BUCKETS", "found": "DIFFERENCES",
    "reason": "REASON",
}  # fmt: skip


def audit(
    cluster: Cluster,
    spark: Spark,
    archive: ArchiveOption,
    lsn: Annotated[
        int | None, typer.Option("--lsn", min=0, metavar="LSN", help="Prove the content at this LSN; at the last one without it.")
    ] = None,
    txids: Annotated[
        Path | None, typer.Option("--txids", metavar="FILE", help="Transaction ids, one a line: each must be in the log once.")
    ] = None,
    is_deep: Annotated[
        bool, typer.Option("--deep", help="Compute every row again, also in files whose bytes are what they were.")
    ] = False,
    is_alone: Annotated[bool, typer.Option("--alone", help="The archive alone, also where a cluster file is.")] = False,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Check an archive, and workers against it: what differs is named by node, store, key and LSN.

    With a cluster file these are all workers with an HTTP door, and one of each master none of whose workers has one; with --url, that node's copy.

    Exit code 0: all is equal. 1: something could not be compared. 2: something differs. Nothing is written.
    """
    program = job("audit")
    from brokerha.pipeline.sources import SourceSpec
    from brokerha.spark.audit import AuditOptions

    source = None
    copies: tuple[tuple[str, str], ...] = ()
    if not is_alone and (cluster.config is not None or cluster.url is not None or DEFAULT_CONFIG.exists()):
        source = SourceSpec(url=",".join(cluster.addresses.values()), timeout_s=cluster.timeout_s)
        copies = tuple(cluster.addresses.items()) if cluster.file is None else copies_of(cluster.file)
    options = AuditOptions(
        archive=archive, lsn=lsn, source=source, copies=copies, txids=txids, is_deep=is_deep, timeout_s=cluster.timeout_s
    )
    with progress_of("audit", "steps") as tell:
        report: AuditReport = program(options, spark.options(), tell)
    if copies and cluster.file is not None:
        report = dataclasses.replace(
            report, copies=(*report.copies, *_left_out(cluster, cluster.file, {name for name, _ in copies}))
        )
    _show(report, chosen)
    return {"equal": exits.DONE, "not compared": exits.DEGRADED}.get(report.result, exits.FAILED)


def copies_of(cluster: ClusterConfig) -> tuple[tuple[str, str], ...]:
    """Return (name, URL) of each copy that can be asked: workers with a door, and masters none of whose workers has one.

    Such a master is asked for the copy of one of its workers.
    """
    known, masters = cluster.http_urls(), master_urls(cluster)
    found: list[tuple[str, str]] = []
    for master in cluster.masters:
        own = [(worker, known[worker]) for worker in cluster.workers_of(master.id) if worker in known]
        if not own and master.id in masters and cluster.workers_of(master.id):
            own = [(_one_of(master.id), masters[master.id])]
        found += own
    return tuple(found)


def _left_out(cluster: Cluster, file: ClusterConfig, asked: set[str]) -> list[CopyAudit]:
    """Return the workers that no address leads to, those added at run time included, as not compared."""
    from brokerha.pipeline.audit_copies import NOT_COMPARED, CopyAudit

    sites = {master.id: list(file.workers_of(master.id)) for master in file.masters}
    try:
        listed = [row for row in cluster.client.status()["nodes"] if row["role"] == "worker"]
    except (Unreachable, TimedOut, NotReady):
        listed = []
    for row in listed:
        if row["id"] not in sites.setdefault(row["master"], []):
            sites[row["master"]].append(row["id"])
    names: list[str] = []
    for master, workers in sites.items():
        if _one_of(master) in asked:
            names += [f"another worker of {master}"] * (len(workers) - 1)
        else:
            names += [worker for worker in workers if worker not in asked]
    return [CopyAudit(name, NOT_COMPARED, reason="it has no http in the cluster file") for name in names]


def _one_of(master: str) -> str:
    return f"a worker of {master}"


def _show(report: AuditReport, chosen: Format) -> None:
    found = findings(report)
    if chosen is not Format.TABLE:
        output.write(
            {**dataclasses.asdict(report), "problems": [each._asdict() for each in report.problems], "result": report.result},
            found,
            chosen,
            FINDINGS,
        )
        return
    copies = [{**dataclasses.asdict(copy), "found": _number(copy)} for copy in report.copies]
    if copies:
        output.console().print(output.table(copies, COPIES))
    if found:
        if copies:
            print()
        output.console().print(output.table(found, FINDINGS))
    for line in _summary(report):
        print(line)


def _number(copy: Any) -> str:
    number = len(copy.differences)
    return f"{number:,} and more" if copy.has_more else f"{number:,}"


def _summary(report: AuditReport) -> list[str]:
    lines = [f"the archive {report.archive} holds {_held(report)}"]
    if report.problems:
        lines.append("use a copy of this archive, or archive again into an empty place")
    if report.is_proved:
        lines.append(f"its rows lead to {report.fingerprint} at LSN {report.lsn:,}, as the entry of that LSN says")
    lines += report.notes
    equal = sum(copy.result == "equal" for copy in report.copies)
    if report.copies:
        hold = "holds" if len(report.copies) == 1 else "hold"
        left = ", ".join(copy.node for copy in report.copies if copy.result == "not compared")
        lines.append(
            f"{equal} of {counted(len(report.copies), 'worker')} {hold} what the log leads to"
            + (f"; not compared: {left}" if left else "")
        )
    if any(copy.result == "differs" for copy in report.copies):
        lines.append("brokerha worker copy NODE brings another copy to a worker that differs")
    ids = report.txids
    if ids is not None:
        text = f"{ids.found:,} of {counted(ids.given, 'transaction id')} are in the log, {ids.rejected:,} of them rejected"
        are = "is" if ids.missing_number == 1 else "are"
        lines.append(text + (f"; {ids.missing_number:,} {are} missing" if ids.missing_number else ""))
    return [*lines, f"{report.result}, {report.seconds:,.1f} s"]


def _held(report: AuditReport) -> str:
    """Describe the content of an archive, and whether it is unchanged."""
    problems = counted(len(report.problems), "problem") if report.problems else ""
    if report.last_lsn < report.first_lsn:
        return f"nothing yet{f': {problems}' if problems else ''}"
    lsns = f"LSN {report.first_lsn:,} to {report.last_lsn:,} in {counted(report.files, 'file')}"
    return f"{lsns}: {problems or 'all are what was archived'}"


def findings(report: AuditReport) -> list[dict[str, Any]]:
    """Return everything that is wrong, one row each."""
    rows = [_finding(each.file, "archive", lsn=each.lsn or None, found=each.what) for each in report.problems]
    rows += [
        _finding(copy.node, each.kind, each.store, each.name, each.key, each.lsn or None, each.archived, each.found)
        for copy in report.copies
        for each in copy.differences
    ]
    if report.txids is not None:
        rows += [_finding("log", "missing id", key=txid) for txid in report.txids.missing]
        rows += [
            _finding("log", "repeated id", key=txid, found=f"at LSN {', '.join(map(str, lsns))}")
            for txid, lsns in report.txids.repeated
        ]
    return rows


def _finding(
    where: str, kind: str, store: str = "", name: str = "", key: str = "", lsn: int | None = None, archived: str = "", found: str = ""
) -> dict[str, Any]:  # fmt: skip
    return {
        "where": where, "kind": kind, "store": store, "name": name, "key": key, "lsn": lsn, "archived": archived, "found": found,
    }  # fmt: skip


# ---- ``brokerha pipeline report``: one HTML page about an archive, with charts and without external resources.
#
# With ``-o json`` the same facts also go to standard output.

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
