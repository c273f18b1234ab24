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
from brokerha.cli.common.command import DEFAULT_CONFIG, Cluster, FormatOption, master_urls
from brokerha.cli.common.output import Format, counted
from brokerha.cli.pipeline.command import ArchiveOption, Spark, job, progress_of
from brokerha.model.errors import NotReady, TimedOut, Unreachable

if TYPE_CHECKING:
    from brokerha.nodes.config.cluster import ClusterConfig
    from brokerha.pipeline.audit_copies import CopyAudit
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
    from brokerha.pipeline.audit_copies import EQUAL, NOT_COMPARED
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
    return {EQUAL: exits.DONE, NOT_COMPARED: exits.DEGRADED}.get(report.result, exits.FAILED)


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
    from brokerha.pipeline.audit_copies import DIFFERS, EQUAL, NOT_COMPARED

    lines = [f"the archive {report.archive} holds {_held(report)}"]
    if report.problems:
        lines.append("use a copy of this archive, or archive again into an empty place")
    if report.is_proved:
        lines.append(f"its rows lead to {report.fingerprint} at LSN {report.lsn:,}, as the entry of that LSN says")
    lines += report.notes
    equal = sum(copy.result == EQUAL for copy in report.copies)
    if report.copies:
        hold = "holds" if len(report.copies) == 1 else "hold"
        left = ", ".join(copy.node for copy in report.copies if copy.result == NOT_COMPARED)
        lines.append(
            f"{equal} of {counted(len(report.copies), 'worker')} {hold} what the log leads to"
            + (f"; not compared: {left}" if left else "")
        )
    if any(copy.result == DIFFERS for copy in report.copies):
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
