"""One measured step of ``brokerha bench pipeline``, in a process of its own: ``python -m brokerha.cli.bench_pipeline_steps FOLDER STEP WHERE``.

    read, read-tuples    all rows of the log through the data source, to nowhere
    archive              the log into a new archive
    audit                files, chain and fingerprint of that archive
    rebuild              its content at the last LSN, into sorted files

WHERE is ``plain``, the simple loop; ``here``, the job without Spark, as it runs for small archives; or ``1``, ``2``: Spark with so many cores. Writes one line of JSON: rows, seconds, seconds until Spark was there. The folder holds ``log/``, a backup, and
``archive/``. A process of its own, because a job is one: with a JVM that has just begun, and memory that is its own.
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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from brokerha.model.errors import StoreDiffers
from brokerha.pipeline.archive import Archive
from brokerha.pipeline.sources import SourceSpec
from brokerha.stores.backup_directory import BackupDirectory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from brokerha.pipeline.archive_tasks import Tasks
    from brokerha.pipeline.audit_pieces import Tasks as AuditTasks
    from brokerha.pipeline.rebuilding import Compute

LOG: Final = "log"
ARCHIVE: Final = "archive"
STEPS: Final = ("read", "read-tuples", "archive", "audit", "rebuild")
MEMORY: Final = "2g"


@dataclass(frozen=True, slots=True)
class Place:
    """Where everything lies."""

    folder: Path

    @property
    def spec(self) -> SourceSpec:
        """The log."""
        return SourceSpec(backup=str(self.folder / LOG))

    @property
    def last_lsn(self) -> int:
        """Of the log."""
        return BackupDirectory(self.folder / LOG).manifest().last_lsn

    def archive(self) -> Archive:
        """What the step ``archive`` made."""
        return Archive(self.folder / ARCHIVE)


def _plain_archive(place: Place) -> int:
    from brokerha.cli import bench_pipeline_plain as plain

    return plain.archive(place.spec, place.last_lsn, place.folder / "plain.parquet")


def _plain_read(place: Place) -> int:
    from brokerha.cli import bench_pipeline_plain as plain

    return plain.read(place.spec, place.last_lsn)


def _plain_audit(place: Place) -> int:
    from brokerha.cli import bench_pipeline_plain as plain

    content, expected = plain.state(place.spec, place.last_lsn)
    _same(plain.fingerprint_of(content), expected)
    return 0


def _plain_rebuild(place: Place) -> int:
    from brokerha.cli import bench_pipeline_plain as plain

    content, expected = plain.state(place.spec, place.last_lsn)
    plain.sort(content)
    _same(plain.fingerprint_of(content), expected)
    return 0


def _same(found: bytes, expected: bytes) -> None:
    if found != expected:
        raise StoreDiffers(f"the content has fingerprint {found.hex()}, the log says {expected.hex()}")


PLAIN: Final[dict[str, Callable[[Place], int]]] = {
    "read": _plain_read,
    "archive": _plain_archive,
    "audit": _plain_audit,
    "rebuild": _plain_rebuild,
}


def _read(spark: SparkSession, place: Place, *, arrow: bool = True) -> int:
    options = place.spec.options() | {"arrow": str(arrow).lower()}
    spark.read.format("brokerha").options(**options).load().write.format("noop").mode("overwrite").save()
    return 0


def _read_tuples(spark: SparkSession, place: Place) -> int:
    return _read(spark, place, arrow=False)


def _archive(spark: SparkSession, place: Place) -> int:
    from brokerha.spark.archive import TasksOnSpark

    return _archived(place, TasksOnSpark(spark))


def _archive_here(place: Place) -> int:
    from brokerha.pipeline.archive_tasks import TasksHere

    return _archived(place, TasksHere())


def _archived(place: Place, tasks: Tasks) -> int:
    from brokerha.pipeline.archive_job import ArchiveOptions, Around, run

    into = place.folder / ARCHIVE
    shutil.rmtree(into, ignore_errors=True)
    options = ArchiveOptions(into, place.spec, here_entries=0)
    return run(options, Around(lambda: nullcontext(tasks), lambda _done, _total: None)).added_rows


def _audit(spark: SparkSession, place: Place) -> int:
    from brokerha.spark.audit import TasksOnSpark

    return _audited(place, TasksOnSpark(spark))


def _audit_here(place: Place) -> int:
    from brokerha.pipeline.audit_pieces import TasksHere

    return _audited(place, TasksHere())


def _audited(place: Place, tasks: AuditTasks) -> int:
    from brokerha.pipeline.audit import AuditOptions, run_audit
    from brokerha.pipeline.audit_pieces import EngineOfPieces

    archive = place.archive()
    engine = EngineOfPieces(archive, archive.state(), tasks)

    def no_node(_url: str) -> Any:
        raise NotImplementedError

    report = run_audit(AuditOptions(archive.directory), engine, None, no_node)
    if not report.is_proved or report.problems:
        raise StoreDiffers(f"the audit found {report.problems}")
    return report.rows


def _rebuild(spark: SparkSession, place: Place) -> int:
    from brokerha.spark.rebuild import stage

    return _rebuilt(place, partial(stage, spark))


ON_SPARK: Final[dict[str, Callable[[SparkSession, Place], int]]] = {
    "read": _read,
    "read-tuples": _read_tuples,
    "archive": _archive,
    "audit": _audit,
    "rebuild": _rebuild,
}


def _rebuild_here(place: Place) -> int:
    from brokerha.pipeline.rebuilding_columns import stage_here

    return _rebuilt(place, stage_here)


def _rebuilt(place: Place, compute: Compute) -> int:
    from brokerha.pipeline.rebuilding import staging_folder
    from brokerha.pipeline.rebuilding_content import staged

    archive = place.archive()
    state = archive.state()
    with staging_folder(archive.directory) as staging:
        staged(staging, compute(archive, state, state.last_lsn, staging))
    return state.rows


HERE: Final[dict[str, Callable[[Place], int]]] = {
    "archive": _archive_here,
    "audit": _audit_here,
    "rebuild": _rebuild_here,
}


def measured(place: Place, step: str, where: str) -> dict[str, Any]:
    """Do it; returns plain data."""
    begun = time.perf_counter()
    if where in {"plain", "here"}:
        if where == "plain":
            gc.disable()
        rows = (PLAIN if where == "plain" else HERE)[step](place)
        return {"rows": rows, "seconds": time.perf_counter() - begun, "start_s": 0.0}
    from brokerha.spark.session import SparkOptions, session

    with session(f"bench {step}", SparkOptions(f"local[{where}]", MEMORY)) as spark:
        started = time.perf_counter()
        rows = ON_SPARK[step](spark, place)
        return {"rows": rows, "seconds": time.perf_counter() - started, "start_s": started - begun}


def main(arguments: list[str]) -> int:
    """The step that three arguments name."""
    folder, step, where = arguments
    print(json.dumps(measured(Place(Path(folder)), step, where)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
