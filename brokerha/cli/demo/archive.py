"""The end of ``brokerha demo`` if the extra ``spark`` is installed: Spark archives the log, and audits all copies with the archive.

    doors of m1 and of all workers, on free ports ──> archive the log of m1 ──> audit: the content that the archive leads to,
    each worker's copy, each acknowledged transaction id

These are the jobs behind ``brokerha pipeline archive`` and ``brokerha pipeline audit``, in one session of Spark on this machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path

from brokerha.cli.common.output import counted
from brokerha.embedded import EmbeddedCluster
from brokerha.http import HttpServer, create_app
from brokerha.model.errors import BrokerhaError
from brokerha.ports.front import Front

LOOPBACK = "127.0.0.1"
MISSING = "not shown: an archive of the log and its audit; pip install 'brokerha[spark]' brings what they need"
_STOP_S = 5.0


def is_possible() -> bool:
    """Tell whether the extra is installed."""
    return all(find_spec(name) is not None for name in ("pyspark", "pyarrow", "deltalake"))


def archive_and_audit(
    cluster: EmbeddedCluster, folder: Path, acknowledged: Sequence[str], fingerprint: str, report: Callable[[str], None]
) -> list[str]:
    """Archive the log and audit every copy with it; return the problems.

    ``fingerprint`` is that of the copies; the archive must lead to it.
    """
    try:
        with _doors(cluster) as urls:
            return _compared(urls, folder, acknowledged, fingerprint, report)
    except BrokerhaError as error:
        return [f"archive or audit failed: {error}"]


@contextmanager
def _doors(cluster: EmbeddedCluster) -> Iterator[dict[str, str]]:
    """Open a door of one master and of each worker: node id -> URL."""
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
    from brokerha.pipeline.sources import SourceSpec
    from brokerha.spark import archive as archiving
    from brokerha.spark import audit as auditing
    from brokerha.spark.session import SparkOptions, session

    (source_url, *_), workers = urls.values(), list(urls.items())[1:]
    source, into, txids = SourceSpec(url=source_url), str(folder / "archive"), folder / "acknowledged"
    txids.write_text("\n".join(acknowledged) + "\n", encoding="utf-8")
    begun_s = time.monotonic()
    with session("demo", SparkOptions(memory="1g")) as spark:
        report(f"Spark {spark.version} started in {time.monotonic() - begun_s:.1f} s")
        around = archiving.Around(lambda: nullcontext(spark))
        archived = archiving.run(archiving.ArchiveOptions(into, source, has_pin=False), around)
        report(
            f"archived on Spark: LSN {archived.first_lsn:,} to {archived.last_lsn:,} as {counted(archived.rows, 'row')} of a Delta table, "
            f"{archived.size_bytes / 1e6:.1f} MB, {archived.seconds:.1f} s"
        )
        wanted = auditing.AuditOptions(into, source=source, copies=tuple(workers), txids=txids)
        audited = auditing.run(wanted, lambda: nullcontext(spark), _silent)
    equal = sum(copy.result == "equal" for copy in audited.copies)
    found = 0 if audited.txids is None else audited.txids.found
    report(
        f"audited on Spark: the archive leads to {audited.fingerprint or 'no content'} at LSN {audited.lsn:,}; {equal} of {len(workers)} workers hold "
        f"that, {found:,} of {len(acknowledged):,} acknowledged transactions are in it once, {audited.seconds:.1f} s"
    )
    problems = [f"{each.node}: {each.result} {each.reason}".strip() for each in audited.copies if each.result != "equal"]
    problems += [f"the archive: {each}" for each in audited.problems[:5]]
    if audited.result != "equal" or equal != len(workers) or found != len(acknowledged):
        problems.append(f"the audit says {audited.result}")
    if audited.fingerprint != fingerprint:
        problems.append(f"the archive leads to {audited.fingerprint}, and the copies are {fingerprint}")
    return problems


def _silent(_done: int, _total: int) -> None:
    """Ignore the progress."""
