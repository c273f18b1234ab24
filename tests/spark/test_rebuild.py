"""A state rebuilt on Spark is the one that the lines lead to: row by row, at any LSN, and a worker goes on from it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from brokerha.model.errors import StoreDiffers
from brokerha.pipeline import rebuilding
from brokerha.pipeline.archive import Archive, ArchiveState
from brokerha.pipeline.rebuilding import RebuildOptions, RebuildReport
from brokerha.pipeline.rebuilding_content import Content, Small, folded, line_of, staged
from brokerha.spark.rebuild import stage
from brokerha.stores.worker_copy import WorkerCopy
from tests.unit.pipeline.made_archives import archive_of
from tests.unit.pipeline.random_log import random_entries

COUNT = 600
ENTRIES = random_entries(21, COUNT)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    return archive_of(tmp_path_factory.mktemp("archive") / "of orders", ENTRIES, 170)


def plain(content: Content) -> dict[str, Any]:
    """Everything of a content, to be compared."""
    fields = {field.name: getattr(content, field.name) for field in dataclasses.fields(Content)}
    return fields | {
        "is_staged": None,
        "quads": {name: sorted(content.quads(name)) for name in content.repositories},
        "keys": list(content.keys()),
        "messages": list(content.messages()),
        "checks": sorted(content.checks),
        "counts": dict(content.counts),
        "changes": dict(content.changes),
    }


@pytest.mark.parametrize("lsn", [0, 171, COUNT])
def test_what_the_tasks_write_is_the_content_of_the_fold(
    spark: Any, archive: Archive, tmp_path: Path, lsn: int
) -> None:
    found = staged(tmp_path, stage(spark, archive, archive.state(), lsn, tmp_path))
    assert plain(found) == plain(folded(archive, archive.state(), lsn))


def rebuilt(spark: Any, archive: Archive, **options: Any) -> RebuildReport:
    def compute(of: Archive, state: ArchiveState, lsn: int, staging: Path) -> Small:
        return stage(spark, of, state, lsn, staging)

    wanted = RebuildOptions(archive=archive.directory, here_rows=0, **options)
    return rebuilding.run(wanted, compute, lambda _done, _total: None)


def test_a_worker_starts_from_a_state_rebuilt_on_spark_and_follows_the_log(
    spark: Any, archive: Archive, tmp_path: Path
) -> None:
    report = rebuilt(spark, archive, into=tmp_path / "w9", to_lsn=420)
    assert report.is_on_spark
    copy = WorkerCopy(tmp_path / "w9", cluster="orders", node="w9")
    assert copy.applied() == copy.recompute()
    assert (copy.applied().lsn, copy.applied().fingerprint) == (420, report.fingerprint)
    copy.apply(421, [line_of(entry) for entry in ENTRIES[420:]])
    assert copy.applied() == copy.recompute()
    copy.close()


def test_a_quad_that_somebody_took_out_of_the_archive_leads_to_no_worker(spark: Any, tmp_path: Path) -> None:
    changed = archive_of(tmp_path / "a", ENTRIES)
    for file in changed.state().files:
        table = pq.read_table(changed.path(file))
        kinds = table["kind"].to_pylist()
        pq.write_table(
            table.filter([kind != "add" or number % 7 > 0 for number, kind in enumerate(kinds)]), changed.path(file)
        )
    with pytest.raises(StoreDiffers, match=f"LSN {COUNT} has fingerprint 1:.* the log says"):
        rebuilt(spark, changed, into=tmp_path / "w9")
    assert not (tmp_path / "w9").exists()
