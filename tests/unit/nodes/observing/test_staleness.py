"""How old what a site shows may be, and what a read says of it."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from brokerha.model import errors, states
from brokerha.nodes.observing.staleness import UP_TO_DATE, Age, Staleness, with_age
from brokerha.ports.front import ReadOutcome
from tests.unit.master.test_apart import Bench

READ = ReadOutcome("text/plain", 7, b"v")
AGE = Age(states.NO_MAJORITY, 1500)


@pytest.fixture
def bench() -> Bench:
    """m1 of three masters, which has just been started."""
    return Bench()


def wait(bench: Bench, staleness: Staleness, for_ms: int) -> Age:
    """Turns, and what is known at their end."""
    for _ in range(for_ms // 500):
        bench.wait(500)
        staleness.note(bench.core, bench.now())
    return staleness.of(bench.ms)


def test_a_master_that_agrees_is_up_to_date(bench: Bench) -> None:
    staleness = Staleness()
    bench.post("m2", "m3")
    staleness.note(bench.core, bench.now())
    assert staleness.of(bench.ms) == UP_TO_DATE


def test_the_age_counts_from_when_all_members_had_been_heard_of_last(bench: Bench) -> None:
    # Given that m3 is heard of for the last time at 0, and m2 at 1.5 s
    staleness = Staleness()
    bench.post("m2", "m3")
    wait(bench, staleness, 1_500)
    bench.post("m2")
    staleness.note(bench.core, bench.now())
    # Then m1 is up to date as long as m3 may only be late
    assert wait(bench, staleness, 1_000) == UP_TO_DATE
    # When it is not, its silence counts, and it goes on counting
    age = wait(bench, staleness, 500)
    assert (age.apart, age.stale_ms) == (states.WAITING_FOR_PEERS, 3_000)
    age = wait(bench, staleness, 2_000)
    assert (age.apart, age.stale_ms) == (states.NO_MAJORITY, 5_000)
    # When all are heard again it is over
    bench.post("m2", "m3")
    staleness.note(bench.core, bench.now())
    assert staleness.of(bench.ms) == UP_TO_DATE


def test_a_master_that_has_not_agreed_since_its_start_tells_the_age_of_its_last_transaction(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    staleness = Staleness()
    assert wait(bench, staleness, 500) == Age(states.NO_MAJORITY, None)
    monkeypatch.setattr(bench.core.sync, "last", lambda: (bench.now().wall_us - 60_000_000, "t1"))
    assert wait(bench, staleness, 500) == Age(states.NO_MAJORITY, 60_000)
    # A timestamp that is ahead of this clock is no age below 0
    monkeypatch.setattr(bench.core.sync, "last", lambda: (bench.now().wall_us + 60_000_000, "t1"))
    assert wait(bench, staleness, 500) == Age(states.NO_MAJORITY, 0)


def test_a_read_of_a_master_that_agrees_is_passed_on_as_it_is() -> None:
    future: Future[ReadOutcome] = Future()
    assert with_age(future, UP_TO_DATE) is future


def test_a_result_and_that_there_is_nothing_say_how_old_they_may_be() -> None:
    future: Future[ReadOutcome] = Future()
    with_age(future, AGE).set_result(READ)
    assert future.result(0) == READ._replace(apart=states.NO_MAJORITY, stale_ms=1500)
    future = Future()
    with_age(future, AGE).set_exception(errors.NotFound("no such key"))
    with pytest.raises(errors.NotFound) as missing:
        future.result(0)
    assert (missing.value.apart, missing.value.stale_ms) == AGE


def test_an_answer_to_a_caller_that_has_gone_is_dropped() -> None:
    future: Future[ReadOutcome] = Future()
    inner = with_age(future, AGE)
    future.cancel()
    inner.set_result(READ)
    assert future.cancelled()
