"""The archive job: a stream into a Delta table, each entry once, from where the last run ended, whatever ended that."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from deltalake import DeltaTable

from brokerha.model.errors import InvalidRequest, NotReady, StoreDamaged, StoreError, Unreachable, WentBack
from brokerha.pipeline import observations
from brokerha.pipeline.entries import LogEntry
from brokerha.pipeline.rows import table_of
from brokerha.pipeline.sources import BackupSource, SourceSpec, open_source
from brokerha.pipeline.table import LogTable
from brokerha.spark import archive as archiving
from brokerha.spark.archive import ArchiveOptions, ArchiveReport, Around, take_batch
from brokerha.stores.backup.lines import LinesMissing
from tests.unit.pipeline.made_archives import Log, archive_of, held
from tests.unit.pipeline.random_log import random_entries

ENTRIES = random_entries(21, 600)
OTHER = random_entries(22, 600)


class Place:
    """An archive, the log that goes into it, and what its jobs were told."""

    def __init__(self, path: Path, log: Log, spark: Any) -> None:
        self.table = LogTable(str(path))
        self.log = log
        self.spark = spark
        self.starts = 0
        self.told: list[tuple[int, int]] = []
        self.warnings: list[str] = []

    def run(self, *, cluster: Any = None, stop: threading.Event | None = None, **options: Any) -> ArchiveReport:
        def start() -> Any:
            self.starts += 1
            return nullcontext(self.spark)

        around = Around(
            start, lambda done, total: self.told.append((done, total)), cluster, self.warnings.append, stop or threading.Event()
        )  # fmt: skip
        return archiving.run(ArchiveOptions(**{"into": self.table.where, "source": self.log.spec, **options}), around)

    def check(self) -> list[LogEntry]:
        """What it holds is the log so far, once."""
        found = held(self.table)
        assert found == self.log.entries[: len(found)]
        return found


@pytest.fixture
def place(tmp_path: Path, spark: Any) -> Place:
    return Place(tmp_path / "an archive", Log(tmp_path / "log", ENTRIES[:500]), spark)


def test_each_run_goes_on_where_the_archive_ends_and_all_of_it_is_one_table(place: Place) -> None:
    first = place.run(batch_entries=150)
    assert (first.added_entries, first.batches, first.last_lsn, first.cluster) == (500, 4, 500, "orders")
    assert place.told[-1] == (500, 500)
    place.log.add(ENTRIES[500:])
    second = place.run(to_lsn=560)
    assert (second.added_entries, second.last_lsn, second.source_last_lsn) == (60, 560, 600)
    assert place.run().added_entries == 40
    starts = place.starts
    assert (place.run().added_entries, place.starts) == (0, starts)
    assert len(place.check()) == 600
    frame = DeltaTable(place.table.where).to_pandas()
    expected = table_of(place.log.entries).to_pandas()
    pd.testing.assert_frame_equal(
        frame.sort_values(["lsn", "operation", "part"]).reset_index(drop=True), expected, check_dtype=False
    )


def test_a_batch_that_comes_twice_and_one_of_a_second_job_change_nothing_twice(place: Place, spark: Any) -> None:
    place.run(to_lsn=300)
    rows = spark.read.format("brokerha").options(**place.log.spec.options(), view="pieces")
    take_batch(place.table.where, place.log.spec, (), None, rows.options(startingLsn=101, endingLsn=300).load(), 0)
    assert len(place.check()) == 300
    with pytest.raises(StoreDamaged, match="after LSN 300 the source gave 250 to 400"):
        take_batch(
            place.table.where, place.log.spec, (), None, rows.options(startingLsn=250, endingLsn=400, partitions=1).load(), 0
        )
    assert len(place.check()) == 300


def test_a_job_that_follows_takes_what_comes_and_ends_whole_when_told_to(place: Place) -> None:
    stop = threading.Event()
    reports: list[ArchiveReport] = []
    job = threading.Thread(target=lambda: reports.append(place.run(every_s=0.2, stop=stop)))
    job.start()
    try:
        until_held(place, 500)
        place.log.add(ENTRIES[500:])
        until_held(place, 600)
    finally:
        stop.set()
        job.join(60)
    assert [report.last_lsn for report in reports] == [600]
    assert len(place.check()) == 600


def test_a_job_that_follows_puts_files_together_between_two_batches(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archiving, "MANY_FILES", 3)
    report = place.run(batch_entries=130, to_lsn=390, every_s=0.1)
    assert (report.last_lsn, report.files < 3) == (390, True)
    assert len(place.check()) == 390


def until_held(place: Place, lsn: int) -> None:
    waiting = threading.Event()
    for _ in range(600):
        if place.table.exists() and place.table.state().head.last_lsn >= lsn:
            return
        waiting.wait(0.1)
    raise AssertionError(f"nothing came up to LSN {lsn}")


def test_a_node_that_is_away_is_waited_for_and_given_up_on_after_a_while(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: Iterator[Exception | None] = iter([Unreachable("m1 is away"), NotReady("m1 starts"), None])
    real = open_source

    def opened(spec: SourceSpec) -> Any:
        if (error := next(answers, None)) is not None:
            raise error
        return real(spec)

    monkeypatch.setattr(archiving, "open_source", opened)
    assert place.run().last_lsn == 500
    assert place.warnings == ["m1 is away: trying again for 30 seconds"]
    answers = iter([Unreachable("m1 is away")] * 3)
    with pytest.raises(Unreachable, match="m1 is away"):
        place.run(retry_s=0)


def test_small_files_are_put_together_by_tasks_and_the_old_ones_deleted(place: Place) -> None:
    place.run(batch_entries=50)
    before = place.table.state()
    report = place.run(has_compaction=True, has_vacuum=True, keep_s=0)
    assert (report.merged_files, report.files, report.deleted_files) == (len(before.files), 1, len(before.files))
    assert report.chain == before.head.chain
    assert len(place.check()) == 500
    assert len(list(Path(place.table.where).glob("*.parquet"))) == 1


def test_what_is_asked_for_in_a_dry_run_is_told_and_not_done(place: Place) -> None:
    report = place.run(is_dry_run=True, to_lsn=40)
    assert (report.added_entries, report.is_dry_run, place.starts) == (40, True, 0)
    assert not Path(place.table.where).exists()


def test_an_error_of_a_task_is_one_line_and_leaves_the_archive_as_it_was(place: Place) -> None:
    place.run(to_lsn=100)
    segment = next((place.log.path / "log").iterdir())
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    with pytest.raises(StoreDamaged) as caught:
        place.run()
    assert "\n" not in str(caught.value)
    assert len(place.check()) == 100


# ---- what does not belong together


def test_an_archive_that_holds_nothing_yet_takes_nothing_of_another_cluster(place: Place, tmp_path: Path) -> None:
    place.run(from_lsn=501)
    with pytest.raises(InvalidRequest, match="is of cluster orders, the source is of shop: choose another folder"):
        place.run(source=Log(tmp_path / "shop", ENTRIES, "shop").spec)


def test_another_cluster_another_history_and_a_gap_are_refused_before_spark_starts(
    place: Place, tmp_path: Path, spark: Any
) -> None:
    place.run()
    starts = place.starts
    with pytest.raises(InvalidRequest, match="is of cluster orders, the source is of shop: choose another folder"):
        place.run(source=Log(tmp_path / "shop", ENTRIES, "shop").spec)
    with pytest.raises(StoreError, match="another history than the archive: at LSN 500 the content differs"):
        place.run(source=Log(tmp_path / "other", OTHER).spec)
    with pytest.raises(LinesMissing, match="ends at LSN 500 and the source begins at 551"):
        place.run(source=Log(tmp_path / "late", ENTRIES[550:]).spec)
    with pytest.raises(InvalidRequest, match="begins at LSN 1 already: leave out --from-lsn"):
        place.run(from_lsn=7)
    new = Place(tmp_path / "new", Log(tmp_path / "trimmed", ENTRIES[100:200]), spark)
    with pytest.raises(LinesMissing, match="begins at LSN 101, and lacks what is before it"):
        new.run()
    assert not new.table.exists()
    with pytest.raises(InvalidRequest, match="is no place for data"):
        place.run(into="gopher://h/x")
    assert place.starts == starts
    report = new.run(from_lsn=101)
    assert (report.first_lsn, report.last_lsn) == (101, 200)


def test_an_archive_goes_on_with_a_log_that_went_back_behind_its_end_and_with_no_other(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.run(to_lsn=120)
    monkeypatch.setattr(BackupSource, "rewinds", lambda _self: ((5, 100),))
    with pytest.raises(WentBack, match=r"went back to LSN 100 with lineage 5 .* with an archive in another folder"):
        place.run()
    monkeypatch.setattr(BackupSource, "rewinds", lambda _self: ((5, 120),))
    take_nothing_of_two_lineages(place, monkeypatch)
    assert place.table.state().head.last_lsn == 120


def take_nothing_of_two_lineages(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read while the log went back is not kept."""
    rows = place.spark.read.format("brokerha").options(**place.log.spec.options(), view="pieces")
    monkeypatch.setattr(SourceSpec, "kind", "http")
    with pytest.raises(NotReady, match="went back after a split while it was read"):
        take_batch(place.table.where, place.log.spec, (), None, rows.options(startingLsn=121, endingLsn=300).load(), 0)


# ---- the cluster around it


class Cluster:
    """Nodes that are pinned and asked."""

    def __init__(self, error: Exception | None = None) -> None:
        self.pins: list[tuple[str, int, int]] = []
        self.error = error

    def pin(self, name: str, lsn: int, for_s: int) -> None:
        if self.error is not None:
            raise self.error
        self.pins.append((name, lsn, for_s))

    def status(self) -> dict[str, Any]:
        return {"epoch": 1, "nodes": [{"id": "m1", "role": "master", "master": "m1", "state": "in-sync"}]}


def test_masters_keep_their_log_behind_the_archive_and_what_they_say_is_kept(place: Place) -> None:
    cluster = Cluster()
    report = place.run(cluster=cluster)
    name = f"archive-{place.table.state().id.replace('-', '')[:16]}"
    assert cluster.pins == [(name, 1, archiving.PIN_FOR_S), (name, 501, archiving.PIN_FOR_S)]
    assert (report.pinned_from, report.notes) == (501, ())
    assert {each.node for each in observations.read(place.table.where)} == {"m1"}


def test_without_a_pin_the_log_is_archived_and_the_report_says_so(place: Place) -> None:
    report = place.run(cluster=Cluster(NotReady("it starts")))
    assert report.last_lsn == 500
    assert report.notes == ("the cluster does not keep its log for this archive: it starts",)


def test_the_archive_is_a_source_of_rows_like_any_log(place: Place, spark: Any) -> None:
    table = archive_of(Path(place.table.where), ENTRIES, 170)
    rows = spark.read.format("brokerha").option("archive", table.where).option("startingLsn", 150).load()
    found = rows.where("store = 'table' and lsn <= 420").select("lsn", "key").collect()
    expected = [row for row in table_of(ENTRIES[149:420]).to_pylist() if row["store"] == "table"]
    assert sorted((row.lsn, bytes(row.key)) for row in found) == sorted((row["lsn"], row["key"]) for row in expected)
    query = spark.readStream.format("brokerha").option("archive", table.where).load().writeStream
    said = query.format("memory").queryName("of_archive").trigger(availableNow=True).start()
    assert said.awaitTermination(600)
    assert spark.sql("select count(distinct lsn) from of_archive").first()[0] == 600
    assert json.loads(said.lastProgress["sources"][0]["endOffset"])["lsn"] == 600
