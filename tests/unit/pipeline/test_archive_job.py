"""The archive job: rounds, sources that begin too late, nodes that are away, pins, following, dry runs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from brokerha.model.errors import InvalidRequest, NotReady, StoreDamaged, StoreError, Unreachable
from brokerha.model.ids import Lsn
from brokerha.pipeline import archive_job, observations
from brokerha.pipeline.archive_files import Range, write_range
from brokerha.pipeline.archive_job import KEEP_REPLACED_S, PIN_FOR_S, TOLD_EVERY_US, ArchiveOptions, Around
from brokerha.pipeline.archive_tasks import Done, Failure, TasksHere, ranges_of
from brokerha.pipeline.sources import SourceSpec, open_source
from brokerha.stores.log_pages import LinesMissing
from tests.unit.pipeline.archive_place import Log, Place
from tests.unit.pipeline.random_log import random_entries

ENTRIES = random_entries(8, 250)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "archive", Log(tmp_path / "log", ENTRIES[:120]))


class Cluster:
    """Remembers pins."""

    def __init__(self) -> None:
        self.pins: list[tuple[str, Lsn, int]] = []
        self.refusal: Exception | None = None

    def pin(self, name: str, lsn: Lsn, for_s: int) -> None:
        if self.refusal:
            raise self.refusal
        self.pins.append((name, lsn, for_s))

    def status(self) -> dict[str, Any]:
        row = {"id": "w1", "role": "worker", "master": "m1", "state": "running", "applied_lsn": 7, "lag_entries": 1}
        return {"nodes": [{**row, "lag_s": 0.5, "items": 3, "fingerprint": "1:00"}]}


class Trying(TasksHere):
    """Tasks of which the first ones fail."""

    parallel = 2

    def __init__(self, *failures: Failure) -> None:
        self.failures = list(failures)
        self.asked: list[Sequence[Range]] = []

    def write(self, spec: SourceSpec, staging: Path, ranges: Sequence[Range]) -> list[Done]:
        self.asked.append(ranges)
        done = super().write(spec, staging, ranges)
        return [self.failures.pop() if self.failures else each for each in done]


def test_each_run_goes_on_where_the_archive_ends(place: Place) -> None:
    assert place.run().added_entries == 120
    place.log.add(ENTRIES[120:250])
    report = place.run()
    assert (report.added_entries, report.last_lsn, report.files) == (130, 250, 4)
    assert place.told == [(120, 120), (130, 130)]
    again = place.run()
    assert (again.added_entries, again.added_files, again.chain) == (0, 0, report.chain)
    place.check()


def test_a_run_may_stop_at_an_lsn(place: Place) -> None:
    assert place.run(to_lsn=70).last_lsn == 70
    assert place.run(to_lsn=60).last_lsn == 70
    assert place.run().last_lsn == 120
    place.check()


def test_spark_is_started_only_when_there_is_enough_to_do_for_it(place: Place) -> None:
    place.run(here_entries=120)
    assert place.spark_starts == 0
    place.log.add(ENTRIES[120:250])
    place.run(here_entries=100)
    assert place.spark_starts == 1
    place.check()


def test_an_empty_log_makes_an_archive_that_holds_nothing_yet(tmp_path: Path) -> None:
    place = Place(tmp_path / "archive", Log(tmp_path / "log", ENTRIES[:10]))
    report = place.run(to_lsn=0)
    assert (report.last_lsn, report.files, place.state.generation) == (0, 0, 1)
    assert place.run().last_lsn == 10


def test_a_log_that_was_trimmed_before_is_archived_only_when_that_is_said(tmp_path: Path) -> None:
    place = Place(tmp_path / "archive", Log(tmp_path / "log", ENTRIES[100:200]))
    with pytest.raises(LinesMissing, match=r"the source begins at LSN 101.* --from-lsn 101"):
        place.run()
    assert not place.path.exists()
    report = place.run(from_lsn=101)
    assert (report.first_lsn, report.last_lsn) == (101, 200)
    assert not place.state.holds_every_state
    place.log.add(ENTRIES[200:250])
    assert place.run().last_lsn == 250
    place.check()
    assert place.archive.lsn_at(ENTRIES[99].timestamp) == 100
    with pytest.raises(StoreError, match="it has 101 to 250"):
        place.archive.fingerprint_at(100)
    with pytest.raises(InvalidRequest, match="begins at LSN 101 already"):
        place.run(from_lsn=150)


def test_an_archive_does_not_begin_behind_the_end_of_its_source(place: Place) -> None:
    with pytest.raises(InvalidRequest, match="ends at LSN 120, and the archive would begin at 122"):
        place.run(from_lsn=122)
    assert not place.archive.exists()
    assert place.run(from_lsn=121).last_lsn == 120


def test_a_gap_between_archive_and_source_names_both_ends(place: Place, tmp_path: Path) -> None:
    place.run()
    place.log = Log(tmp_path / "later", ENTRIES[150:])
    with pytest.raises(LinesMissing, match="the archive ends at LSN 120 and the source begins at 151"):
        place.run()
    assert place.state.last_lsn == 120
    place.log = Log(tmp_path / "next", ENTRIES[120:])
    assert place.run().last_lsn == 250


def test_a_node_that_is_away_for_a_moment_costs_only_the_tasks_that_met_it(place: Place) -> None:
    place.spark = tasks = Trying(Failure("Unreachable", "m1"), Failure("NotReady", "busy"))
    place.on_pause = lambda: False
    place.run(here_entries=0, file_entries=30)
    assert [len(each) for each in tasks.asked] == [4, 2]
    assert place.warnings == ["busy: trying again for 30 seconds"]
    place.check()


def test_a_source_that_is_silent_is_named_while_it_is_waited_for(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_told = threading.Event()

    def warn(words: str) -> None:
        place.warnings.append(words)
        is_told.set()

    def frozen_until_told(spec: SourceSpec) -> Any:
        assert is_told.wait(30)
        return open_source(spec)

    monkeypatch.setattr(archive_job, "SILENT_S", 0.01)
    monkeypatch.setattr(archive_job, "open_source", frozen_until_told)
    source = place.log.spec
    options = ArchiveOptions(place.path, source)
    archive_job.run(options, Around(spark=lambda: nullcontext(TasksHere()), tell=lambda *_: None, warn=warn))
    assert place.warnings == [f"waiting for {source.name}, for 30 seconds at most"]


def test_a_node_that_stays_away_ends_the_job_and_keeps_what_there_was(place: Place) -> None:
    place.run(to_lsn=50)
    place.spark = Trying(*[Failure("Unreachable", "nobody answers")] * 500)
    place.on_pause = lambda: False
    with pytest.raises(Unreachable, match="nobody answers"):
        place.run(here_entries=0, retry_s=30.0)
    assert 10 < len(place.pauses) < 100
    assert place.state.last_lsn == 50
    assert list((place.path / "staging").iterdir()) == []


def test_an_error_that_will_not_pass_is_not_tried_again(place: Place) -> None:
    place.spark = tasks = Trying(Failure("Unreachable", "m1"), Failure("StoreDamaged", "block 7 of a segment"))
    with pytest.raises(StoreDamaged, match="block 7"):
        place.run(here_entries=0)
    assert len(tasks.asked) == 1
    assert place.state.last_lsn == 0


def test_errors_of_tasks_keep_their_kind_or_become_their_nearest_known_one() -> None:
    assert isinstance(Failure.of(Unreachable("x")).error, Unreachable)
    missing = Failure.of(LinesMissing("LSN 5 is gone")).error
    assert type(missing) is StoreError
    assert str(missing) == "LSN 5 is gone"


def test_the_log_is_pinned_before_it_is_read_and_when_the_run_ends(place: Place) -> None:
    cluster = Cluster()
    report = place.run(cluster=cluster, file_entries=20)
    name = f"archive-{place.state.id}"
    assert cluster.pins == [(name, lsn, PIN_FOR_S) for lsn in (1, 121)]
    assert report.pinned_from == 121
    assert place.run(cluster=cluster, has_pin=False).pinned_from == 0
    assert len(cluster.pins) == 2


def test_a_run_that_takes_long_moves_its_pin_and_observes_meanwhile(place: Place) -> None:
    cluster = Cluster()
    place.step_us = TOLD_EVERY_US // 4
    place.run(cluster=cluster, file_entries=20)
    lsns = [lsn for _, lsn, _ in cluster.pins]
    assert lsns == sorted(lsns)
    assert set(lsns) > {1, 121}
    assert len(list(observations.read(place.path))) > 1


def test_a_cluster_that_takes_no_pin_is_told_and_archived_all_the_same(place: Place) -> None:
    cluster = Cluster()
    cluster.refusal = NotReady("not now")
    report = place.run(cluster=cluster)
    assert report.notes == ("the cluster does not keep its log for this archive: not now",)
    assert (report.pinned_from, report.last_lsn) == (0, 120)
    cluster.refusal = None
    assert place.run(cluster=cluster).notes == ()


def test_each_run_keeps_what_nodes_say_of_themselves(place: Place) -> None:
    place.run(cluster=Cluster())
    place.run(cluster=Cluster())
    first, second = observations.read(place.path)
    assert (first.node, first.role, first.state, first.applied_lsn, first.lag_entries, first.lag_s) == (
        "w1",
        "worker",
        "running",
        7,
        1,
        0.5,
    )
    assert first.time_us < second.time_us


def test_following_archives_what_comes_until_it_is_stopped(place: Place) -> None:
    rest = [ENTRIES[120:130], ENTRIES[130:250]]

    def more() -> bool:
        if not rest:
            return True
        place.log.add(rest.pop(0))
        return False

    place.on_pause = more
    report = place.run(every_s=5.0)
    assert place.pauses == [5.0, 5.0, 5.0]
    assert (report.added_entries, report.last_lsn) == (250, 250)
    place.check()


def test_following_outlives_a_node_that_is_away(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    away = [Unreachable("m1: refused"), NotReady("m1 starts")]

    def opened(spec: SourceSpec) -> Any:
        if away:
            raise away.pop(0)
        return open_source(spec)

    monkeypatch.setattr("brokerha.pipeline.archive_job.open_source", opened)
    place.on_pause = lambda: len(place.pauses) == 3
    assert place.run(every_s=1.0).last_lsn == 120
    assert place.warnings == ["m1: refused: trying again", "m1 starts: trying again"]


def test_a_dry_run_says_what_would_be_done_and_touches_nothing(place: Place, tmp_path: Path) -> None:
    report = place.run(is_dry_run=True)
    assert (report.added_entries, report.is_dry_run, report.source_last_lsn) == (120, True, 120)
    assert not place.path.exists()
    place.run(file_entries=10)
    place.log.add(ENTRIES[120:])
    before = {path: path.stat().st_mtime_ns for path in place.path.rglob("*")}
    report = place.run(is_dry_run=True, has_compaction=True, has_vacuum=True)
    assert (report.added_entries, report.last_lsn, report.merged_files, report.merged_into) == (130, 120, 12, 1)
    assert {path: path.stat().st_mtime_ns for path in place.path.rglob("*")} == before


def test_compaction_changes_files_and_nothing_else(place: Place) -> None:
    place.run(file_entries=10)
    before = place.state
    report = place.run(has_compaction=True)
    place.check()
    assert (report.merged_files, report.merged_into, report.files) == (12, 1, 1)
    state = place.state
    assert (state.rows, state.last_lsn, state.files[-1].last_fingerprint) == (
        before.rows,
        120,
        before.files[-1].last_fingerprint,
    )
    assert {file.path for file in state.replaced} == {file.path for file in before.files}
    assert place.paths() == {"log/1-120.parquet", *(file.path for file in before.files)}


def test_vacuum_deletes_what_was_replaced_long_enough_ago(place: Place) -> None:
    place.run(file_entries=10)
    place.run(has_compaction=True, has_vacuum=True)
    assert len(place.paths()) == 13
    place.now_us += round(KEEP_REPLACED_S * 1e6)
    report = place.run(has_vacuum=True)
    assert report.deleted_files == 12
    assert report.deleted_bytes > 0
    assert place.paths() == {"log/1-120.parquet"}
    assert place.state.replaced == ()
    place.check()


def test_many_small_files_are_put_together_and_deleted_without_being_asked_for(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brokerha.pipeline.archive_job.MANY_FILES", 10)
    rest = list(ENTRIES[120:150])

    def more() -> bool:
        if not rest:
            return True
        place.log.add([rest.pop(0)])
        return False

    place.on_pause = more
    report = place.run(every_s=60.0, to_lsn=149)
    assert report.files < 10
    assert report.merged_files >= 10
    place.now_us += round(KEEP_REPLACED_S * 1e6)
    assert place.run().deleted_files >= 10
    place.check()
    assert len(place.paths()) == len(place.state.files)


def test_compaction_refuses_a_file_that_was_changed_and_keeps_all_of_them(place: Place) -> None:
    place.run(file_entries=10)
    path = place.archive.path(place.state.files[3])
    data = bytearray(path.read_bytes())
    data[50] ^= 1
    path.write_bytes(data)
    before = place.state
    with pytest.raises(StoreDamaged, match=r"31-40.parquet is not what was written"):
        place.run(has_compaction=True)
    assert place.state == before


def test_a_source_that_gives_an_entry_twice_or_ends_early_is_refused(tmp_path: Path) -> None:
    class Wrong:
        cluster = ""

        def __init__(self, lsns: list[int]) -> None:
            self.lsns = lsns

        def read(self, first_lsn: Lsn, last_lsn: Lsn) -> Any:
            return iter([ENTRIES[lsn - 1] for lsn in self.lsns])

    source: Any
    for lsns, words in (
        ([1, 2, 2, 3], "gave LSN 2 where 3 follows"),
        ([1, 3], "gave LSN 3"),
        ([1, 2], "ended before LSN 3"),
    ):
        source = Wrong(lsns)
        with pytest.raises(StoreDamaged, match=words):
            write_range(source, Range(1, 3), tmp_path)


def test_a_round_is_cut_evenly_and_into_no_more_than_it_is_worth() -> None:
    assert ranges_of(1, 5, 4, 100_000) == [Range(1, 5)]
    assert [each.entries for each in ranges_of(1, 40_000, 2, 100_000)] == [20_000, 20_000]
    assert [each.entries for each in ranges_of(1, 10**9, 2, 100_000)] == [100_000] * 4
    for last_lsn in (1, 9_999, 10_001, 123_456, 400_001):
        found = ranges_of(7, last_lsn + 6, 3, 50_000)
        assert found[0].first_lsn == 7
        assert all(other.first_lsn == one.last_lsn + 1 for one, other in pairwise(found))
        assert sum(each.entries for each in found) == min(last_lsn, 300_000)
