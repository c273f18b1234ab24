"""The audit on Spark: its tasks find what one process finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from brokerha.pipeline.audit_pieces import EngineOfPieces, TasksHere
from brokerha.spark.audit import TasksOnSpark
from tests.unit.pipeline.audit_place import lsn_with, rewritten
from tests.unit.pipeline.made_archives import archive_of
from tests.unit.pipeline.random_log import random_entries

ENTRIES = random_entries(7, 600)


def test_content_items_and_ids_are_those_that_one_process_finds(spark: Any, tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "archive", ENTRIES[:400])
    on_spark = EngineOfPieces(archive, archive.state(), TasksOnSpark(spark))
    here = EngineOfPieces(archive, archive.state(), TasksHere())
    tail = ENTRIES[400:]
    assert on_spark.name == "spark"
    for lsn in (0, 57):
        assert on_spark.summary(lsn, 6, tail) == here.summary(lsn, 6, tail)
    found = on_spark.summary(560, 6, tail)
    assert found == here.summary(560, 6, tail)
    assert found.fingerprint == ENTRIES[559].fingerprint
    places = sorted(found.buckets)
    assert {place[0] for place in places} == {"control", "graph", "queue", "table"}
    assert on_spark.items(560, 6, places[::3], 10_000, tail) == here.items(560, 6, places[::3], 10_000, tail)
    wanted = ["t1", "t399", "t400", "t401", "lost"]
    assert on_spark.transactions(wanted, tail) == here.transactions(wanted, tail)


def test_files_are_checked_in_tasks(spark: Any, tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "archive", ENTRIES)
    rewritten(archive, lsn_with("put"), {"value": b"changed"}, "put")
    archive.path(archive.state().files[4]).unlink()
    engine = EngineOfPieces(archive, archive.state(), TasksOnSpark(spark))
    found = list(engine.check(is_deep=True))
    assert [len(each) for each in found] == [0, 2, 0, 0, 1, 0]
    assert found == list(EngineOfPieces(archive, archive.state(), TasksHere()).check(is_deep=True))
