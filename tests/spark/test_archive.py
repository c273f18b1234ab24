"""The archive job with its tasks on Spark: the same files as without it, errors of one line, and files that Spark reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from brokerha.model.errors import StoreDamaged
from brokerha.pipeline.rows import SCHEMA
from brokerha.spark.archive import TasksOnSpark
from tests.unit.pipeline.archive_place import Log, Place
from tests.unit.pipeline.random_log import random_entries

ENTRIES = random_entries(21, 600)


@pytest.fixture
def place(tmp_path: Path, spark: Any) -> Place:
    place = Place(tmp_path / "archive", Log(tmp_path / "log", ENTRIES[:500]))
    place.spark = TasksOnSpark(spark)
    return place


def test_an_archive_made_on_spark_is_the_one_made_without_it(place: Place, tmp_path: Path) -> None:
    place.run(here_entries=0)
    place.log.add(ENTRIES[500:])
    report = place.run(here_entries=0)
    assert (report.added_entries, report.last_lsn) == (100, 600)
    place.check()
    without = Place(tmp_path / "without", place.log)
    without.run()
    assert place.state.files == without.state.files
    assert without.spark_starts == 0


def test_spark_puts_files_together(place: Place) -> None:
    place.run(here_entries=0, file_entries=50)
    report = place.run(here_entries=0, has_compaction=True)
    assert (report.merged_files, report.files) == (10, 1)
    place.check()


def test_an_error_of_a_task_is_one_line_and_no_second_attempt(place: Place) -> None:
    segment = next((place.log.path / "log").iterdir())
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    with pytest.raises(StoreDamaged) as caught:
        place.run(here_entries=0)
    assert "\n" not in str(caught.value)
    assert place.state.last_lsn == 0


def test_spark_reads_the_files_with_all_columns_and_passes_over_those_that_it_does_not_need(
    place: Place, spark: Any
) -> None:
    place.run(here_entries=0)
    frame = spark.read.parquet(*[str(place.archive.path(file)) for file in place.state.files])
    assert frame.columns == SCHEMA.names
    assert frame.count() == place.state.rows
    assert [row.txid for row in frame.where("lsn = 333").select("txid").distinct().collect()] == ["t333"]
    assert dict(frame.dtypes)["timestamp"] == "timestamp"
    first = frame.where("lsn = 1").select("timestamp").first()
    assert first.timestamp.timestamp() == ENTRIES[0].timestamp / 1e6
