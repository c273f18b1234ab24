"""The jobs of the pipeline that consume: one function each, which starts Spark, runs the job, and stops Spark.

``brokerha pipeline`` finds them by the entry point group ``brokerha.jobs``.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from brokerha.model.ids import Lsn
from brokerha.pipeline import audit as auditing
from brokerha.pipeline import rebuilding, report_writing
from brokerha.pipeline.archive import Archive, ArchiveState
from brokerha.pipeline.archive_cluster import cluster_of
from brokerha.pipeline.archive_job import ArchiveOptions, ArchiveReport, Around, run
from brokerha.pipeline.archive_tasks import Tasks
from brokerha.pipeline.audit import AuditOptions, AuditReport
from brokerha.pipeline.audit_pieces import Tasks as AuditTasks
from brokerha.pipeline.rebuilding import RebuildOptions, RebuildReport
from brokerha.pipeline.rebuilding_content import Small
from brokerha.pipeline.report import ReportFacts, ReportOptions, Tell
from brokerha.spark.archive import tasks
from brokerha.spark.session import SparkOptions, session


def report(options: ReportOptions, spark_options: SparkOptions, tell: Tell) -> ReportFacts:
    """Compute a report from an archive and write its page. Raises what `brokerha.spark.report.report` and `session` raise."""
    from brokerha.spark import report as on_spark

    with session("report", spark_options) as spark:
        facts = on_spark.report(spark, options, tell)
    report_writing.write(facts, options.out)
    return facts


def rebuild(options: RebuildOptions, spark_options: SparkOptions, tell: Tell) -> RebuildReport:
    """Rebuild the state at an LSN. Spark starts only when the archive has more rows than `here_rows` up to it."""

    def compute(archive: Archive, state: ArchiveState, lsn: Lsn, staging: Path) -> Small:
        from brokerha.spark.rebuild import stage

        with session("rebuild", spark_options) as spark:
            return stage(spark, archive, state, lsn, staging)

    return rebuilding.run(options, compute, tell, lambda: time.time_ns() // 1000)


def archive(options: ArchiveOptions, spark: SparkOptions, tell: Tell) -> ArchiveReport:
    """Bring an archive up to date. With `every_s` until SIGINT or SIGTERM, which end it after the round that is under way."""
    stop = threading.Event()
    ends = (signal.SIGINT, signal.SIGTERM) if options.every_s is not None else ()
    before = {number: signal.getsignal(number) for number in ends}

    def listen() -> None:
        for number in ends:
            signal.signal(number, lambda *_: stop.set())

    @contextmanager
    def started() -> Iterator[Tasks]:
        with tasks(spark) as some:
            # Spark listens to SIGINT itself from its start on, and would end a round in its middle.
            listen()
            yield some

    listen()
    try:
        with cluster_of(options.source) as cluster:
            return run(options, Around(spark=started, tell=tell, cluster=cluster, pause=stop.wait))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def audit(options: AuditOptions, spark_options: SparkOptions, tell: Tell) -> AuditReport:
    """Audit an archive, and with a cluster its workers. Spark starts only when the archive has more rows than `here_rows`."""

    def on_spark() -> AbstractContextManager[AuditTasks]:
        from brokerha.spark.audit import tasks

        return tasks(spark_options)

    return auditing.run(options, on_spark, tell)
