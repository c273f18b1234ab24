"""Tasks: given to a worker that is free, the last one that serves goes on serving, told until it is done, failed when it dies."""

from __future__ import annotations

import pytest

from brokerha.model.errors import NotReady
from brokerha.model.ids import Instant
from brokerha.model.wire.messages import Task, TaskReport
from brokerha.replication.site.tasks import AGAIN_MS, KEPT, Tasks
from tests.unit.replication.benches import SiteBench


class Bench(SiteBench):
    """A site whose workers are in sync, and its tasks."""

    def __init__(self, workers: tuple[str, ...] = ("w1", "w2")) -> None:
        super().__init__(workers=workers)
        self.tasks = Tasks(self.site)
        for node in workers:
            self.heard(node)

    def now(self) -> Instant:
        return Instant(self.ms, self.ms * 1000)

    def begin(self, kind: str = "backup", node: str = "", *, is_protected: bool = True) -> str:
        return self.tasks.begin(kind, {"name": "b"}, node, is_protected, self.now())

    def told(self) -> list[tuple[str, object]]:
        return [(out.to, out.message) for out in self.tasks.messages(self.now())]

    def report(self, request: str, state: str = "running", done: int = 0, node: str = "w1") -> None:
        self.tasks.on_report(node, TaskReport(request, state, done, 100, "", {"lsn": 5}), self.now())


def test_a_task_is_told_at_once_and_again_until_it_is_reported() -> None:
    bench = Bench()
    request = bench.begin()
    told = [("w1", Task(request, "backup", {"name": "b"}))]
    assert bench.tasks.deadline_ms() == bench.ms
    assert bench.told() == told
    assert bench.told() == []
    bench.ms += AGAIN_MS
    assert bench.told() == told
    bench.report(request)
    assert bench.told() == []
    assert bench.tasks.deadline_ms() == bench.ms + AGAIN_MS


def test_the_worker_of_a_backup_answers_no_reads_meanwhile_and_goes_on_following() -> None:
    bench = Bench()
    request = bench.begin(node="w1")
    assert bench.site.readable(bench.ms) == ["w2"]
    assert bench.worker("w1").is_on
    assert bench.worker("w1").state == "off"
    bench.report(request, "done", 100)
    assert bench.site.readable(bench.ms) == ["w1", "w2"]
    row = bench.tasks.row(request, bench.ms)
    assert row is not None
    assert (row["state"], row["answer"], row["left_s"]) == ("done", {"lsn": 5}, None)


def test_a_scrub_takes_nobody_out_of_service() -> None:
    bench = Bench(("w1",))
    bench.begin("scrub", "w1", is_protected=False)
    assert bench.site.readable(bench.ms) == ["w1"]


def test_the_last_worker_that_serves_goes_on_with_it() -> None:
    bench = Bench(("w1",))
    request = bench.begin()
    assert (bench.site.readable(bench.ms), bench.worker("w1").state) == (["w1"], "on")
    with pytest.raises(NotReady, match="no worker of this site is in sync and free"):
        bench.begin()
    with pytest.raises(NotReady, match="worker w1 is not in sync, or busy"):
        bench.begin(node="w1")
    bench.report(request, "done", 100)
    bench.begin(is_protected=False)
    assert (bench.site.readable(bench.ms), bench.worker("w1").state) == ([], "off")


def test_one_that_gets_no_reads_counts_as_nobody_that_serves_and_is_taken_first() -> None:
    bench = Bench(("w1", "w2"))
    bench.worker("w2").is_readable = False
    request = bench.begin()
    assert bench.site.readable(bench.ms) == ["w1"]
    assert bench.told() == [("w2", Task(request, "backup", {"name": "b"}))]


def test_two_backups_leave_one_worker_that_serves() -> None:
    bench = Bench()
    bench.begin()
    bench.begin()
    assert bench.site.readable(bench.ms) == ["w2"]
    with pytest.raises(NotReady):
        bench.begin()


def test_a_worker_that_is_not_in_sync_or_does_not_follow_is_not_taken() -> None:
    bench = Bench(("w1", "w2", "w3"))
    bench.heard("w1", follows="load")
    bench.heard("w2", follows="idle", view=0)
    request = bench.begin(is_protected=False)
    assert bench.told() == [("w3", Task(request, "backup", {"name": "b"}))]


def test_the_one_with_the_fewest_reads_is_taken() -> None:
    bench = Bench(("w1", "w2", "w3"))
    bench.heard("w1", running_reads=5)
    bench.heard("w2", running_reads=2)
    bench.heard("w3", running_reads=4)
    bench.begin()
    assert bench.told()[0][0] == "w2"


def test_a_worker_that_dies_or_is_removed_fails_its_task() -> None:
    for is_removed in (False, True):
        bench = Bench()
        request = bench.begin(node="w1")
        bench.told()
        if is_removed:
            bench.site.forget("w1")
        else:
            bench.ms += bench.config.dead_after_ms
        assert bench.told() == []
        row = bench.tasks.row(request, bench.ms)
        assert row is not None
        assert (row["state"], row["reason"]) == ("failed", "worker w1 died meanwhile, and whether it had finished is not known")
        assert bench.tasks.deadline_ms() is None


def test_reports_of_others_and_of_what_has_ended_change_nothing() -> None:
    bench = Bench()
    request = bench.begin(node="w1")
    bench.report(request, "done", node="w2")
    bench.report("backup-1", "done")
    assert bench.tasks.rows(bench.ms)[0]["state"] == "running"
    bench.report(request, "failed")
    bench.report(request, "done")
    assert bench.tasks.rows(bench.ms)[0]["state"] == "failed"


def test_progress_has_a_rate_and_a_time_left() -> None:
    bench = Bench()
    request = bench.begin()
    row = bench.tasks.row(request, bench.ms)
    assert row is not None
    assert (row["per_s"], row["left_s"]) == (0.0, None)
    bench.ms += 2000
    bench.report(request, done=40)
    row = bench.tasks.row(request, bench.ms)
    assert row is not None
    assert (row["done"], row["total"], row["per_s"], row["left_s"]) == (40, 100, 20.0, 3.0)
    assert bench.tasks.row("unknown", bench.ms) is None


def test_tasks_of_one_instant_have_names_of_their_own() -> None:
    bench = Bench()
    one = bench.begin("scrub", "w1", is_protected=False)
    other = bench.begin("scrub", "w2", is_protected=False)
    assert one != other
    assert [row["worker"] for row in bench.tasks.rows(bench.ms)] == ["w1", "w2"]


def test_finished_tasks_are_remembered_for_a_while() -> None:
    bench = Bench()
    for _ in range(KEPT + 5):
        bench.ms += 1
        bench.heard("w1")
        bench.report(bench.begin("scrub", "w1", is_protected=False), "done")
    assert len(bench.tasks.rows(bench.ms)) == KEPT + 1
