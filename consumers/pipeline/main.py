"""The jobs of the pipeline that consume: one function each, which starts Spark, runs the job, and stops Spark.

``brokerha pipeline`` finds them by the entry point group ``brokerha.jobs``.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from brokerha.pipeline import report_page
from brokerha.pipeline.report import ReportFacts, ReportOptions, Tell
from brokerha.pipeline.sources import cluster_of
from brokerha.spark import archive as archiving
from brokerha.spark import audit as auditing
from brokerha.spark import export as exporting
from brokerha.spark import rebuild as rebuilding
from brokerha.spark import report as reporting
from brokerha.spark.session import SparkOptions, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def report(options: ReportOptions, spark_options: SparkOptions, tell: Tell) -> ReportFacts:
    """Compute a report from an archive and write its page. Raises what `brokerha.spark.report.report` and `session` raise."""
    with session("report", spark_options) as spark:
        facts = reporting.report(spark, options, tell)
    report_page.write(facts, options.out)
    return facts


def rebuild(options: rebuilding.RebuildOptions, spark: SparkOptions, tell: Tell) -> rebuilding.RebuildReport:
    """Rebuild the state at an LSN."""
    return rebuilding.run(options, partial(session, "rebuild", spark), tell, lambda: time.time_ns() // 1000)


def export(options: exporting.ExportOptions, spark: SparkOptions, tell: Tell) -> exporting.ExportReport:
    """Export the state at an LSN."""
    return exporting.run(options, partial(session, "export", spark), tell)


def audit(options: auditing.AuditOptions, spark: SparkOptions, tell: Tell) -> auditing.AuditReport:
    """Audit an archive, and with a cluster its workers."""
    return auditing.run(options, partial(session, "audit", spark), tell)


def archive(options: archiving.ArchiveOptions, spark: SparkOptions, tell: Tell) -> archiving.ArchiveReport:
    """Bring an archive up to date. With `every_s` until SIGINT or SIGTERM, which end it between two commits."""
    stop = threading.Event()
    ends = (signal.SIGINT, signal.SIGTERM) if options.every_s is not None else ()
    before = {number: signal.getsignal(number) for number in ends}

    def listen() -> None:
        for number in ends:
            signal.signal(number, lambda *_: stop.set())

    @contextmanager
    def started() -> Iterator[SparkSession]:
        with session("archive", spark) as running:
            # Spark listens to SIGINT itself from its start on, and would end a batch in its middle.
            listen()
            yield running

    listen()
    try:
        with cluster_of(options.source) as cluster:
            return archiving.run(options, archiving.Around(started, tell, cluster, stop=stop))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
