"""Archive, audit, rebuild and export in an object store, over the protocol of S3: a server on loopback, none of Hadoop's jars."""

from __future__ import annotations

import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from brokerha.model.errors import StoreError
from brokerha.pipeline.places import file_system
from brokerha.pipeline.table import LogTable
from brokerha.spark import archive as archiving
from brokerha.spark import audit as auditing
from brokerha.spark import export as exporting
from brokerha.spark import rebuild as rebuilding
from tests.unit.pipeline.made_archives import Log, archive_of, held
from tests.unit.pipeline.random_log import random_entries

pytest.importorskip("moto")
ENTRIES = random_entries(21, 300)


@pytest.fixture(scope="module")
def bucket(s3_port: int) -> Iterator[str]:
    """The URL of a new bucket."""
    # A process of its own: delta-rs holds the interpreter while it waits for an answer.
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(s3_port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            waiting = threading.Event()
            for _ in range(600):
                with suppress(urllib.error.URLError, ConnectionError):
                    request = urllib.request.Request(f"http://127.0.0.1:{s3_port}/bucket", method="PUT")
                    urllib.request.urlopen(request, timeout=30).close()
                    break
                waiting.wait(0.1)
            yield "s3://bucket"
        finally:
            server.kill()


def no_step(_done: int, _total: int) -> None:
    pass


def test_every_job_works_in_an_object_store(bucket: str, spark: Any, tmp_path: Path) -> None:
    def start() -> Any:
        return nullcontext(spark)

    log, where = Log(tmp_path / "log", ENTRIES[:200]), f"{bucket}/archive"
    archiving.run(archiving.ArchiveOptions(where, log.spec, batch_entries=120), archiving.Around(start))
    log.add(ENTRIES[200:])
    report = archiving.run(archiving.ArchiveOptions(where, log.spec, has_compaction=True), archiving.Around(start))
    assert (report.added_entries, report.last_lsn, report.files) == (100, 300, 1)
    table = LogTable(where)
    assert held(table) == log.entries
    assert table.state().head.chain == archive_of(tmp_path / "here", ENTRIES).state().head.chain

    rebuilt = rebuilding.run(rebuilding.RebuildOptions(where, into=tmp_path / "w1", to_lsn=250), start, no_step)
    assert (rebuilt.lsn, rebuilt.repositories > 0) == (250, True)
    exported = exporting.run(exporting.ExportOptions(where, f"{bucket}/out"), start, no_step)
    assert len(DeltaTable(f"{bucket}/out/keys").to_pandas()) == exported.keys > 0
    with pytest.raises(StoreError, match=r"s3://bucket/out is not empty"):
        exporting.run(exporting.ExportOptions(where, f"{bucket}/out"), start, no_step)

    assert auditing.run(auditing.AuditOptions(where), start, no_step).result == "equal"
    file = table.state().files[0]
    file_system(where).delete_file(file.path)
    (problem,) = auditing.run(auditing.AuditOptions(where), start, no_step).problems
    assert (problem.file, problem.what) == (file.path, "is missing: it held LSN 1 to 300")


def never() -> Any:
    raise AssertionError("Spark is not needed")


def test_a_bucket_that_is_not_there_is_one_line(bucket: str, tmp_path: Path) -> None:
    log = Log(tmp_path / "log", ENTRIES[:20])
    with pytest.raises(StoreError) as told:
        archiving.run(archiving.ArchiveOptions("s3://absent/archive", log.spec), archiving.Around(never))
    assert "\n" not in str(told.value)
    assert "s3://absent/archive" in str(told.value)
