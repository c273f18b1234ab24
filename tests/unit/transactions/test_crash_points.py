"""The primary dies at every point of a transaction, between each record and each message: nothing is half there, and nobody was lied to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from brokerha.transactions.book import ABORTED, COMMITTED
from tests.unit.transactions.bench import TxBench, word_of
from tests.unit.transactions.queue_site import publish

ABC = ["A", "B", "C"]


@dataclass
class Told:
    """What a client did and was told."""

    bench: TxBench
    txid: str = ""
    error: str = "nothing"
    answer: dict[str, Any] = field(default_factory=dict)

    def ask(self, action: str, **arguments: Any) -> None:
        """One step, unless the one before went wrong."""
        if self.bench.is_alive:
            reply = self.bench.ask(action, self.txid, **arguments)
            self.error, self.answer = reply.error, reply.answer

    def begin(self, **arguments: Any) -> None:
        """Begin; the id is known to the client before it asks."""
        self.txid = f"{self.bench.prefix}{next(self.bench.numbers):x}.t"
        self.ask("begin", **arguments)


def one_phase(bench: TxBench) -> Told:
    """A transaction of one client."""
    told = Told(bench)
    told.begin()
    told.ask("operations", operations=publish("Q", "A"))
    told.ask("operations", operations=publish("Q", "B", "C"))
    told.ask("commit")
    return told


def two_phases(bench: TxBench) -> Told:
    """The same with an xid, prepared first."""
    told = Told(bench)
    told.begin(xid="1:aa:")
    told.ask("operations", operations=publish("Q", *ABC))
    told.ask("prepare")
    told.ask("commit", one_phase=False)
    return told


def joined_open(bench: TxBench) -> Told:
    """A backup becomes ready while the transaction is open, and gets what was done before."""
    bench.backups["b2"].is_ready = False
    told = Told(bench)
    told.begin(xid="1:aa:")
    told.ask("operations", operations=publish("Q", "A"))
    bench.backups["b2"].is_ready = True
    told.ask("operations", operations=publish("Q", "B", "C"))
    told.ask("prepare")
    told.ask("commit", one_phase=False)
    return told


def joined_between(bench: TxBench) -> Told:
    """The crash of the design note: prepared and closed, then an expected backup joins and becomes ready, then the commit."""
    if "b3" in bench.backups:
        bench.backups["b3"].is_paused, bench.backups["b3"].is_ready = True, False
    told = Told(bench)
    told.begin(xid="1:aa:")
    told.ask("operations", operations=publish("Q", *ABC))
    told.ask("prepare")
    if "b3" in bench.backups:
        bench.rejoin("b3")
    told.ask("commit", one_phase=False)
    return told


def rolled_back(bench: TxBench) -> Told:
    """Prepared, then rolled back."""
    told = Told(bench)
    told.begin(xid="1:aa:")
    told.ask("operations", operations=publish("Q", *ABC))
    told.ask("prepare")
    told.ask("rollback")
    return told


STORIES: list[Callable[[TxBench], Told]] = [one_phase, two_phases, joined_open, joined_between, rolled_back]


def bench_of(story: Callable[[TxBench], Told], seed: int = 0, loss: float = 0.0) -> TxBench:
    backups = ("b1", "b2", "b3") if story is joined_between else ("b1", "b2")
    sync_n = 2 if story is joined_between else 1
    return TxBench(backups, sync_n=sync_n, seed=seed, loss=loss, retry_ms=100)


def points_of(story: Callable[[TxBench], Told]) -> tuple[int, int]:
    """First and last crash point of a story that goes well."""
    bench = bench_of(story)
    first = bench.crash_points
    story(bench)
    bench.run(500)
    return first + 1, bench.crash_points


def check(told: Told) -> None:
    """What was told is what is there, everywhere the same, whole or not at all; and nothing is left behind."""
    bench = told.bench
    bench.settle()
    word = word_of(bench.outcome(told.txid))
    if word == "prepared":
        # Nobody was told how it ended: its coordinator finds it, and decides.
        assert bench.core.transacting.coordinator.book.table[told.txid].xid
        assert told.error or "state" not in told.answer or told.answer["state"] == "prepared"
        reply = bench.ask("rollback", told.txid)
        assert reply.answer["state"] == ABORTED
        bench.settle()
        word = ABORTED
    texts = [queues.texts("Q") for queues in bench.contents()]
    assert word in (COMMITTED, ABORTED), word
    assert texts == [ABC if word == COMMITTED else []] * len(texts)
    if not told.error and told.answer.get("state") in (COMMITTED, ABORTED):
        assert told.answer["state"] == word
    if told.error == "Aborted":
        assert word == ABORTED
    bench.check_clean()


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_story_without_a_crash_ends_as_told(story: Callable[[TxBench], Told]) -> None:
    told = story(bench_of(story))
    assert not told.error
    check(told)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_whoever_takes_over_at_any_crash_point_has_all_of_it_or_nothing(story: Callable[[TxBench], Told]) -> None:
    first, last = points_of(story)
    assert last - first > 10
    for point in range(first, last + 1):
        bench = bench_of(story)
        bench.crash_at = point
        told = story(bench)
        bench.run(500)
        for queues in bench.contents():
            assert queues.texts("Q") in ([], ABC), f"crash point {point}"
        bench.crash_at = None
        bench.fail_over()
        check(told)


@pytest.mark.parametrize("story", [one_phase, two_phases], ids=lambda story: story.__name__)
def test_the_same_process_starts_again_after_any_crash_point(story: Callable[[TxBench], Told]) -> None:
    first, last = points_of(story)
    for point in range(first, last + 1):
        bench = bench_of(story)
        bench.crash_at = point
        told = story(bench)
        bench.run(500)
        bench.crash_at = None
        bench.restart()
        check(told)


@pytest.mark.parametrize("seed", range(40))
def test_over_a_wire_that_loses_repeats_and_delays(seed: int) -> None:
    story = STORIES[seed % len(STORIES)]
    bench = bench_of(story, seed, loss=0.3)
    told = story(bench)
    if seed % 3 == 0:
        bench.fail_over()
    check(told)
