"""One measured step of ``python -m tests.bench pipeline``, in its own process: ``python -m …pipeline_steps FOLDER STEP WHERE``.

    read, read-tuples    all rows of the log through the data source, and discard them
    archive              the log into a new archive
    audit                files, chain and fingerprint of that archive
    rebuild              its content at the last LSN, sorted, to the driver
    export               the same into Delta tables

WHERE is ``plain`` (the simple loop), ``1`` or ``2`` (Spark with so many cores), or the URL of a Spark master. Writes one line of
JSON: rows, seconds, seconds until Spark started. The folder holds ``log/``, a backup, and ``archive/``. Each step has its own
process, like a job: with a new JVM, and its own memory.
"""

from __future__ import annotations

import gc
import json
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from brokerha.model.errors import StoreDiffers
from brokerha.pipeline.sources import SourceSpec
from brokerha.pipeline.table import LogTable
from brokerha.stores.backup.directory import BackupDirectory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG: Final = "log"
ARCHIVE: Final = "archive"
STEPS: Final = ("read", "read-tuples", "archive", "audit", "rebuild", "export")
MEMORY: Final = "2g"


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of a measurement."""

    folder: Path

    @property
    def spec(self) -> SourceSpec:
        """The log."""
        return SourceSpec(backup=str(self.folder / LOG))

    @property
    def last_lsn(self) -> int:
        """Last LSN of the log."""
        return BackupDirectory(self.folder / LOG).manifest().last_lsn

    @property
    def archive(self) -> str:
        """The archive of the step ``archive``."""
        return str(self.folder / ARCHIVE)


def _plain(place: Place, step: str) -> int:
    """Run the simple loop; return the rows that it wrote or read."""
    from tests.bench import pipeline_plain as plain

    if step == "read":
        return plain.read(place.spec, place.last_lsn)
    if step == "archive":
        return plain.archive(place.spec, place.last_lsn, place.folder / "plain.parquet")
    (plain.audit if step == "audit" else plain.rebuild)(place.spec, place.last_lsn)
    return 0


def _read(spark: SparkSession, place: Place, *, arrow: bool = True) -> int:
    options = place.spec.options() | {"arrow": str(arrow).lower()}
    spark.read.format("brokerha").options(**options).load().write.format("noop").mode("overwrite").save()
    return 0


def _read_tuples(spark: SparkSession, place: Place) -> int:
    return _read(spark, place, arrow=False)


def _archive(spark: SparkSession, place: Place) -> int:
    from brokerha.spark.archive import ArchiveOptions, Around, run

    shutil.rmtree(place.archive, ignore_errors=True)
    return run(ArchiveOptions(place.archive, place.spec), Around(lambda: nullcontext(spark))).added_rows


def _audit(spark: SparkSession, place: Place) -> int:
    from brokerha.spark.audit import AuditOptions, run

    report = run(AuditOptions(place.archive), lambda: nullcontext(spark), lambda _done, _total: None)
    if report.result != "equal":
        raise StoreDiffers(f"the audit found {report.problems}")
    return report.rows


def _rebuild(spark: SparkSession, place: Place) -> int:
    from brokerha.spark import frames
    from brokerha.spark.rebuild import COLUMNS, batches_of, in_order, partitions_of

    table = LogTable(place.archive)
    state = table.state()
    log = frames.archived(spark, table, state, 1, state.head.last_lsn)
    for _ in batches_of(in_order(frames.state(log, columns=COLUMNS), partitions_of(state, state.head.last_lsn))):
        pass
    return state.rows


def _export(spark: SparkSession, place: Place) -> int:
    from brokerha.spark.export import ExportOptions, run

    into = place.folder / "export"
    shutil.rmtree(into, ignore_errors=True)
    run(ExportOptions(place.archive, str(into)), lambda: nullcontext(spark), lambda _done, _total: None)
    return LogTable(place.archive).state().rows


ON_SPARK: Final[dict[str, Callable[[SparkSession, Place], int]]] = {
    "read": _read,
    "read-tuples": _read_tuples,
    "archive": _archive,
    "audit": _audit,
    "rebuild": _rebuild,
    "export": _export,
}


def measured(place: Place, step: str, where: str) -> dict[str, Any]:
    """Run a step; return plain data."""
    begun = time.perf_counter()
    if where == "plain":
        gc.disable()
        rows = _plain(place, step)
        return {"rows": rows, "seconds": time.perf_counter() - begun, "start_s": 0.0}
    from brokerha.spark.session import SparkOptions, session

    master = f"local[{where}]" if where.isdecimal() else where
    with session(f"bench {step}", SparkOptions(master, MEMORY)) as spark:
        started = time.perf_counter()
        rows = ON_SPARK[step](spark, place)
        return {"rows": rows, "seconds": time.perf_counter() - started, "start_s": started - begun}


def main(arguments: list[str]) -> int:
    """Run the step of three arguments."""
    folder, step, where = arguments
    print(json.dumps(measured(Place(Path(folder)), step, where)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
