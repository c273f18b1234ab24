"""Tasks of a worker: done once whatever comes twice, one at a time, reported as they go, given up when the node stops."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from brokerha.model.errors import StoreError
from brokerha.model.wire.messages import Task, TaskReport
from brokerha.nodes.worker.tasks import REMEMBERED, Answer, Meter, WorkerTasks

WAIT_S = 10.0


class Bench:
    """Work that goes on as a test lets it."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.problem: Exception | None = None
        self.at_bench = threading.Event()
        self.may_end = threading.Event()
        self.woken = threading.Semaphore(0)
        self.now_s = 0.0
        self.tasks = WorkerTasks({"backup": self.work}, "w1", self.woken.release, lambda: self.now_s)

    def work(self, request: str, arguments: Mapping[str, Any], meter: Meter) -> Answer:
        self.calls.append(request)
        for done in (10, 20):
            self.now_s += arguments.get("seconds", 0.0)
            meter(done, 100)
        self.at_bench.set()
        while not self.may_end.wait(0.01):
            meter(30, 100)
        if self.problem is not None:
            raise self.problem
        return {"path": str(arguments.get("name"))}

    def give(self, request: str, kind: str = "backup", **arguments: Any) -> None:
        self.tasks.on_task("m1", Task(request, kind, {"name": "monday", **arguments}))

    def reports(self) -> dict[str, TaskReport]:
        taken = self.tasks.take()
        assert all(each.to == "m1" for each in taken)
        return {each.message.request: each.message for each in taken if isinstance(each.message, TaskReport)}

    def final(self, request: str) -> TaskReport:
        """What a task comes to."""
        self.may_end.set()
        while True:
            assert self.woken.acquire(timeout=WAIT_S), "no report came in time"
            report = self.reports().get(request)
            if report is not None and report.state != "running":
                return report


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.may_end.set()
    made.tasks.close(WAIT_S)


def test_a_task_is_running_at_once_and_done_with_its_answer(bench: Bench):
    bench.give("r1")
    assert bench.reports()["r1"] == TaskReport("r1", "running", 0, 0, "", {})
    assert bench.final("r1") == TaskReport("r1", "done", 100, 100, "", {"path": "monday"})


def test_the_same_request_again_is_not_done_again_and_has_the_same_report(bench: Bench):
    bench.give("r1")
    bench.give("r1")
    done = bench.final("r1")
    bench.give("r1")
    assert bench.reports() == {"r1": done}
    assert bench.calls == ["r1"]


def test_another_task_meanwhile_fails_and_stays_failed(bench: Bench):
    bench.give("r1")
    assert bench.at_bench.wait(WAIT_S)
    bench.give("r2")
    refused = bench.reports()["r2"]
    assert (refused.state, refused.reason) == ("failed", "w1 is busy with r1: try again later")
    bench.final("r1")
    # When the refused one comes once more, late, nobody waits for it any more
    bench.give("r2")
    assert bench.reports() == {"r2": refused}
    assert bench.calls == ["r1"]


def test_progress_is_reported_now_and_then(bench: Bench):
    bench.give("r1", seconds=0.6)
    assert bench.at_bench.wait(WAIT_S)
    # Then the first meter, after 0.6 s, said nothing, and the second did
    assert bench.woken.acquire(timeout=WAIT_S)
    assert bench.reports()["r1"] == TaskReport("r1", "running", 20, 100, "", {})


def test_an_operating_error_is_the_reason(bench: Bench):
    bench.problem = StoreError("the disk is full")
    bench.give("r1")
    failed = bench.final("r1")
    assert (failed.state, failed.reason, failed.answer) == ("failed", "the disk is full", {})


def test_a_fault_fails_the_task_and_not_the_worker(bench: Bench):
    bench.problem = ZeroDivisionError("oh")
    bench.give("r1")
    assert "ZeroDivisionError: oh" in bench.final("r1").reason
    bench.problem = None
    bench.give("r2")
    assert bench.final("r2").state == "done"


def test_an_unknown_kind_fails(bench: Bench):
    bench.give("r1", "polish")
    assert bench.reports()["r1"].reason == "w1 knows no task 'polish', only backup"


def test_stopping_gives_up_what_runs(bench: Bench):
    bench.give("r1")
    assert bench.at_bench.wait(WAIT_S)
    bench.tasks.close(WAIT_S)
    assert bench.reports()["r1"].reason == "w1 was stopped"
    bench.give("r2")
    assert bench.reports()["r2"].state == "failed"


def test_only_so_many_are_remembered(bench: Bench):
    bench.may_end.set()
    for number in range(REMEMBERED + 5):
        bench.give(f"r{number}", "polish")
    assert len(bench.reports()) == REMEMBERED
