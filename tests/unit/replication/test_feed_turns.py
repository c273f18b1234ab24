"""Feed: who executes. Turns, a dedicated probe, a probe that dies, and that nothing is executed twice without need."""

from __future__ import annotations

from typing import Any

import pytest

from brokerha.model.wire.messages import Execute
from tests.unit.replication.benches import SiteBench, ranges

THREE = ("w1", "w2", "w3")


class Bench(SiteBench):
    """A site whose workers do what they are sent, and a list of what each was asked to execute."""

    def __init__(self, lsn: int = 0, executed: int = 0, workers: tuple[str, ...] = THREE, **settings: Any) -> None:
        super().__init__(lsn, executed, workers, **settings)
        self.executions: list[tuple[str, int, int]] = []
        self.applied = dict.fromkeys(workers, executed)
        self.dead: set[str] = set()
        self.giving: set[str] = set()

    def alive(self) -> None:
        """A heartbeat of every worker that lives."""
        for node, applied in self.applied.items():
            if node not in self.dead:
                self.heard(node, applied, state="writing-copy" if node in self.giving else "on")

    def run(self, turns: int = 20, step_ms: int = 10) -> None:
        """Let the workers do what they are sent, message by message."""
        for _ in range(turns):
            for node, messages in self.sent().items():
                for kind, first, last in ranges(messages):
                    if node in self.dead:
                        continue
                    if kind == "Execute":
                        self.executions.append((node, first, last))
                        self.applied[node] = max(self.applied[node], last)
                        self.executed(node, first, last)
                    elif first <= self.applied[node] + 1:
                        self.applied[node] = max(self.applied[node], last)
            self.alive()
            self.ms += step_ms


def test_workers_in_sync_take_turns_and_nothing_is_executed_twice() -> None:
    bench = Bench(lsn=100, probe_turn=10)
    bench.alive()
    bench.run(40)
    executed = [lsn for _, first, last in bench.executions for lsn in range(first, last + 1)]
    assert executed == list(range(1, 101))
    assert {last - first + 1 for _, first, last in bench.executions} == {10}
    order = [node for node, _, _ in bench.executions]
    assert order == ["w1", "w2", "w3"] * 3 + ["w1"]


def test_a_worker_that_gives_its_copy_is_left_out_while_others_can_execute() -> None:
    bench = Bench(lsn=40, probe_turn=10)
    bench.giving = {"w2"}
    bench.alive()
    bench.run(40)
    assert [node for node, _, _ in bench.executions] == ["w1", "w3", "w1", "w3"]
    assert [node for node, each in bench.site.workers.items() if each.is_probe] == [bench.feed.probe]


def test_the_whole_turn_is_sent_and_not_one_transaction_of_the_next_one() -> None:
    bench = Bench(lsn=100, probe_turn=10)
    bench.alive()
    assert ranges(bench.sent()["w1"]) == [("Execute", 1, 10)]
    bench.executed("w1", 1, 4)
    sent = bench.sent()
    assert "w1" not in sent
    assert ranges(sent["w2"]) == [("Apply", 1, 4)]
    bench.executed("w1", 5, 10)
    sent = bench.sent()
    # The next one applies what the first executed, and executes from there on.
    assert ranges(sent["w2"]) == [("Apply", 5, 10), ("Execute", 11, 20)]
    assert ranges(sent["w3"]) == [("Apply", 5, 10)]
    assert "w1" not in sent


def test_a_worker_alone_needs_no_turns() -> None:
    bench = Bench(lsn=100, workers=("w1",), probe_turn=10)
    bench.alive()
    assert ranges(bench.sent()["w1"]) == [("Execute", 1, 100)]
    bench.executed("w1", 1, 50)
    bench.sent()
    assert bench.feed.probe == "w1"


def test_a_dedicated_probe_executes_everything_as_long_as_it_is_in_sync() -> None:
    bench = Bench(lsn=100, probe="w3", probe_turn=10)
    bench.alive()
    bench.run()
    assert {node for node, _, _ in bench.executions} == {"w3"}
    bench.dead.add("w3")
    bench.synchronise(10)
    bench.ms += bench.config.dead_after_ms
    bench.alive()
    bench.run()
    assert bench.feed.probe == "w1"
    # It takes over again when it is back and in sync.
    bench.dead.clear()
    bench.run()
    bench.synchronise(10)
    bench.run()
    assert bench.feed.probe == "w3"
    executed = [lsn for _, first, last in bench.executions for lsn in range(first, last + 1)]
    assert executed == list(range(1, 121))


def test_a_dedicated_probe_that_is_behind_leaves_the_work_to_the_others() -> None:
    bench = Bench(lsn=100, executed=50, probe="w3", window=20)
    bench.applied["w3"] = 0
    bench.alive()
    assert bench.worker("w3").is_on is False
    sent = bench.sent()
    assert ranges(sent["w1"]) == [("Execute", 51, 70)]
    assert ranges(sent["w3"]) == [("Apply", 1, 20)]
    # And one that falls behind as a probe does so too, once somebody in sync is free.
    bench = Bench(lsn=100, probe="w3", window=20)
    bench.alive()
    bench.sent()
    assert bench.feed.probe == "w3"
    bench.executed("w1", 1, 70)
    bench.heard("w1", 70)
    bench.heard("w3", 0)
    bench.sent()
    assert bench.feed.probe == "w1"


def test_a_probe_that_cannot_write_hands_over_and_is_in_sync_again_when_it_can() -> None:
    bench = Bench(lsn=10)
    bench.alive()
    assert ranges(bench.sent()["w1"]) == [("Execute", 1, 10)]
    bench.heard("w1", 0, state="halted", reason="the disk is full")
    assert bench.worker("w1").reason == "the disk is full"
    assert bench.worker("w1").is_on is False
    assert ranges(bench.sent()["w2"]) == [("Execute", 1, 10)]
    bench.heard("w1", 0)
    assert bench.worker("w1").is_on is True


def test_a_probe_that_dies_is_replaced_and_the_same_lsns_are_executed_again() -> None:
    bench = Bench(lsn=10)
    bench.alive()
    assert ranges(bench.sent()["w1"]) == [("Execute", 1, 10)]
    bench.executed("w1", 1, 4)
    bench.dead.add("w1")
    bench.ms += bench.config.dead_after_ms
    bench.alive()
    assert ranges(bench.sent()["w2"]) == [("Apply", 1, 4), ("Execute", 5, 10)]
    assert bench.feed.probe == "w2"


def test_what_the_dead_probe_executed_is_not_taken_in_twice_when_it_comes_back() -> None:
    bench = Bench(lsn=10)
    bench.alive()
    bench.sent()
    bench.dead.add("w1")
    bench.ms += bench.config.dead_after_ms
    bench.alive()
    bench.run()
    assert bench.feed.executed == 10
    bench.dead.clear()
    bench.heard("w1", 10)
    assert bench.executed("w1", 1, 10) is None
    assert bench.feed.executed == 10


def test_a_probe_with_a_task_hands_over_to_one_that_is_free() -> None:
    bench = Bench(lsn=10)
    bench.alive()
    bench.sent()
    bench.executed("w1", 1, 10)
    bench.worker("w1").task = "backup-1"
    bench.synchronise(5)
    sent = bench.sent()
    assert ranges(sent["w2"])[-1] == ("Execute", 11, 15)


def test_a_condemned_probe_hands_over_at_once() -> None:
    bench = Bench(lsn=10)
    bench.alive()
    bench.sent()
    bench.worker("w1").condemned = "damaged"
    sent = bench.sent()
    assert ranges(sent["w2"]) == [("Execute", 1, 10)]
    assert "w1" not in sent


@pytest.mark.parametrize("follows", ["idle", "load"])
def test_only_a_worker_that_follows_executes(follows: str) -> None:
    bench = Bench(lsn=10)
    bench.heard("w1", follows=follows)
    bench.heard("w2")
    sent = bench.sent()
    assert any(isinstance(message, Execute) for message in sent["w2"])
    assert bench.feed.probe == "w2"


def test_without_anybody_who_may_execute_there_is_no_probe() -> None:
    bench = Bench(lsn=10)
    bench.sent()
    assert bench.feed.probe is None


def test_a_slow_worker_is_never_skipped_and_gets_no_more_than_a_window() -> None:
    bench = Bench(lsn=100, window=20, probe_turn=1000, retransmit_ms=1000)
    bench.dead.add("w3")
    bench.alive()
    bench.heard("w3", 0)
    got: list[tuple[str, int, int]] = []
    for _ in range(30):
        for node, messages in bench.sent().items():
            if node == "w3":
                got += ranges(messages)
            for kind, first, last in ranges(messages):
                if node != "w3":
                    bench.applied[node] = last
                    if kind == "Execute":
                        bench.executed(node, first, last)
        bench.alive()
        bench.heard("w3", 0)
        bench.ms += 100
    # Whatever the others have done: the same window again, from where it stands, about once in a retransmission time.
    assert bench.feed.executed == 100
    assert {(first, last) for _, first, last in got} == {(1, 20)}
    assert 2 <= len(got) <= 5
