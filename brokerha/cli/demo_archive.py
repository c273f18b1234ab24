"""The end of ``brokerha demo`` where the extra ``spark`` is installed: the log is archived, and the archive audits all copies.

    doors of m1 and of all workers, on free ports ──> archive the log of m1 ──> audit: the content that the archive leads to,
    each worker's copy, each acknowledged transaction id

These are the programs behind ``brokerha pipeline archive`` and ``brokerha pipeline audit``, called as the commands do. A log as small as
that of the demonstration is worked off in this process; Spark starts by itself when there is more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

from brokerha.cli.output import counted
from brokerha.cli.pipeline import job, spark_options
from brokerha.embedded import EmbeddedCluster
from brokerha.http import HttpServer, create_app
from brokerha.model.errors import BrokerhaError
from brokerha.ports.front import Front

LOOPBACK = "127.0.0.1"
MISSING = "not shown: an archive of the log and its audit; pip install 'brokerha[spark]' brings what they need"
_STOP_S = 5.0


def is_possible() -> bool:
    """Whether the extra is installed."""
    return all(find_spec(name) is not None for name in ("pyspark", "pyarrow"))


def archive_and_audit(
    cluster: EmbeddedCluster, folder: Path, acknowledged: Sequence[str], fingerprint: str, report: Callable[[str], None]
) -> list[str]:
    """Archive the log and audit every copy with it; returns what is wrong.

    ``fingerprint`` is that of the copies, which the archive must lead to.
    """
    try:
        with _doors(cluster) as urls:
            return _compared(urls, folder, acknowledged, fingerprint, report)
    except BrokerhaError as error:
        return [f"archive or audit failed: {error}"]


@contextmanager
def _doors(cluster: EmbeddedCluster) -> Iterator[dict[str, str]]:
    """A door of one master and of each worker: node id -> URL."""
    master = min(cluster.masters)
    nodes: dict[str, Front] = {master: cluster.masters[master], **dict(sorted(cluster.workers.items()))}
    with ExitStack() as stack:
        urls = {}
        for name, node in nodes.items():
            server = HttpServer(create_app(node), LOOPBACK, 0)
            server.start()
            stack.callback(server.stop, _STOP_S)
            urls[name] = server.url
        yield urls


def _compared(
    urls: dict[str, str], folder: Path, acknowledged: Sequence[str], fingerprint: str, report: Callable[[str], None]
) -> list[str]:
    from brokerha.pipeline.archive_job import ArchiveOptions
    from brokerha.pipeline.audit import AuditOptions
    from brokerha.pipeline.sources import SourceSpec

    (source_url, *_), workers = urls.values(), list(urls.items())[1:]
    spark, source, into = spark_options("local[2,4]", "1g", []), SourceSpec(url=source_url), folder / "archive"
    archived = job("archive")(ArchiveOptions(into, source, has_pin=False), spark, _silent)
    report(
        f"archive: LSN {archived.first_lsn:,} to {archived.last_lsn:,} as {counted(archived.rows, 'row')} in "
        f"{counted(archived.files, 'file')}, {archived.size_bytes / 1e6:.1f} MB, {archived.seconds:.1f} s"
    )
    txids = folder / "acknowledged"
    txids.write_text("\n".join(acknowledged) + "\n", encoding="utf-8")
    audited = job("audit")(AuditOptions(into, source=source, copies=tuple(workers), txids=txids), spark, _silent)
    equal = sum(copy.result == "equal" for copy in audited.copies)
    found = 0 if audited.txids is None else audited.txids.found
    report(
        f"audit: the archive leads to {audited.fingerprint or 'no content'} at LSN {audited.lsn:,}; {equal} of {len(workers)} workers hold "
        f"that, {found:,} of {len(acknowledged):,} acknowledged transactions are in it once, {audited.seconds:.1f} s"
    )
    problems = [
        f"{each.node}: {each.result} {each.reason}".strip() for each in audited.copies if each.result != "equal"
    ]
    problems += [f"the archive: {each}" for each in audited.problems[:5]]
    if audited.result != "equal" or equal != len(workers) or found != len(acknowledged):
        problems.append(f"the audit says {audited.result}")
    if audited.fingerprint != fingerprint:
        problems.append(f"the archive leads to {audited.fingerprint}, and the copies are {fingerprint}")
    return problems


def _silent(_done: int, _total: int) -> None:
    """Nobody watches."""
