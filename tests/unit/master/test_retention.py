"""How much of the log is kept: by number, by age, by what somebody still needs; and never in too large a step."""

from __future__ import annotations

import pytest

from brokerha.log.log import Log
from brokerha.master.config import RetentionConfig
from brokerha.master.retention import LOOK_MS, Facts, Owner, Retention, Step
from brokerha.model.ids import Instant, Lsn
from brokerha.model.invariants import InvariantBroken
from tests.support.logs import memory_log
from tests.unit.log.turns import filled

YOUNG = Instant(0, 0)
"""A moment at which nothing is too old."""
W1, W2, W3 = (Owner("worker", name) for name in ("w1", "w2", "w3"))
M2, M3 = (Owner("peer", name) for name in ("m2", "m3"))
ARCHIVE = Owner("pin", "archive")


def log_of(count: int) -> Log:
    """A log of transactions that were stamped at 10, 20, 30, … and executed."""
    journal = memory_log("m1", "journal")
    filled(journal, turns=count)
    return journal


def decided(
    config: RetentionConfig,
    journal: Log,
    pins: dict[Owner, Lsn] | None = None,
    peers: dict[Owner, Lsn] | None = None,
    *,
    executed_lsn: Lsn | None = None,
    now: Instant = YOUNG,
) -> Step:
    state = journal.state()
    executed = state.executed_lsn if executed_lsn is None else executed_lsn
    step = Retention(config).step(journal, now, Facts(state.lsn, executed, pins or {}, peers or {}))
    assert step is not None
    return step


@pytest.fixture
def journal() -> Log:
    return log_of(100)


def test_the_newest_transactions_are_kept(journal: Log) -> None:
    assert decided(RetentionConfig(max_size=30), journal) == Step(71, 1, ())
    assert decided(RetentionConfig(max_size=100), journal).below == 1
    assert decided(RetentionConfig(max_size=1_000), journal).below == 1


def test_none_is_kept_that_is_too_old(journal: Log) -> None:
    # Given transactions stamped at 10 to 1,000, and a depth of 400: LSN 51 was stamped at 510
    config = RetentionConfig(max_size=90, max_depth_us=400, known_ids=0)
    assert decided(config, journal, now=Instant(0, 905)) == Step(51, 51, ())
    # Whichever bound is reached first
    assert decided(config, journal, now=Instant(0, 455)) == Step(11, 6, ())
    assert decided(config, journal, now=Instant(0, 10**9)) == Step(101, 101, ())


def test_a_clock_that_jumps_ahead_forgets_none_of_the_newest_ids(journal: Log) -> None:
    # Else this master would take a write that is repeated for a new one, and the others would drop it.
    config = RetentionConfig(max_size=90, max_depth_us=400, known_ids=70)
    assert decided(config, journal, now=Instant(0, 10**15)) == Step(101, 31, ())
    assert decided(RetentionConfig(max_depth_us=400), journal, now=Instant(0, 10**15)).ids_below == 1


@pytest.mark.parametrize(
    ("pins", "peers", "executed", "below"),
    [
        ({}, {}, 100, 71),
        ({W1: 60, W2: 90}, {}, 100, 60),
        ({W1: 95}, {}, 100, 71),
        ({ARCHIVE: 70}, {M2: 66}, 100, 66),
        ({W1: 65}, {M2: 66}, 100, 65),
        ({}, {}, 49, 50),
        ({}, {}, 0, 1),
    ],
)
def test_nothing_goes_that_is_needed(
    journal: Log, pins: dict[Owner, Lsn], peers: dict[Owner, Lsn], executed: Lsn, below: Lsn
) -> None:
    config = RetentionConfig(max_size=30)
    assert decided(config, journal, pins, peers, executed_lsn=executed) == Step(below, 1, ())


def test_pins_may_hold_up_to_the_hard_limit_and_are_then_dropped_by_name(journal: Log) -> None:
    config = RetentionConfig(max_size=20, hard_limit=50)
    assert decided(config, journal, {W1: 51}) == Step(51, 1, ())
    assert decided(config, journal, {W1: 50, W2: 55, W3: 7}) == Step(55, 1, (W1, W3))
    assert decided(config, journal, {W1: 50}) == Step(81, 1, (W1,))
    assert decided(RetentionConfig(max_size=20), journal, {W1: 20}) == Step(81, 1, (W1,))
    assert decided(RetentionConfig(max_size=20), journal, {W1: 21}) == Step(21, 1, ())


def test_peers_and_what_is_not_executed_hold_without_a_limit(journal: Log) -> None:
    config = RetentionConfig(max_size=20, hard_limit=50)
    assert decided(config, journal, {W1: 30}, {M2: 10}) == Step(10, 1, ())
    assert decided(config, journal, {W1: 5}, {M2: 10}) == Step(10, 1, (W1,))
    assert decided(config, journal, executed_lsn=3) == Step(4, 1, ())


def test_peers_that_may_take_over_a_state_hold_up_to_the_hard_limit(journal: Log) -> None:
    retention = Retention(RetentionConfig(max_size=20, hard_limit=50))

    def below(second: int, peers: dict[Owner, Lsn]) -> tuple[Lsn, Lsn, tuple[Owner, ...]]:
        step = retention.step(journal, Instant(second * LOOK_MS, 0), Facts(100, 100, {W1: 70}, peers, peers_give_way=True))
        assert step is not None
        return step.below, step.ids_below, step.dropped

    assert below(1, {M2: 51, M3: 90}) == (51, 1, ())
    assert below(2, {M2: 50, M3: 90}) == (70, 1, (M2,))
    # One that needs what is gone already holds what is held
    journal.trim(55)
    assert below(3, {M2: 7, M3: 1}) == (55, 1, ())


def test_ids_stay_known_as_long_as_a_peer_is_away(journal: Log) -> None:
    config, late = RetentionConfig(max_size=20, max_depth_us=100, known_ids=0), Instant(0, 10**9)
    for peers, ids_below in (({M2: 7}, 7), ({M2: 101}, 101)):
        step = Retention(config).step(journal, late, Facts(100, 100, {}, peers, peers_give_way=True))
        assert step is not None
        assert (step.below, step.ids_below) == (101, ids_below)


def test_forgetting_begins_only_when_it_is_worth_it() -> None:
    config = RetentionConfig(max_size=40)  # Two transactions are worth it.
    journal = log_of(41)
    assert decided(config, journal).below == 1
    filled_more = log_of(42)
    assert decided(config, filled_more).below == 3


def test_it_looks_once_in_a_while_and_in_each_turn_while_there_is_more(journal: Log) -> None:
    retention, facts = Retention(RetentionConfig(max_size=30, slack=10)), Facts(100, 100)
    assert retention.step(journal, Instant(5, 0), facts) == Step(71, 1, ())
    # Given a step that left more to do, of which less than the slack is left
    journal.trim(66)
    retention.done(more=True)
    assert retention.deadline_ms() is None
    # Then it goes on to where it wanted to go, though more could go by now
    assert retention.step(journal, Instant(6, 0), Facts(102, 102)) == Step(71, 1, ())
    # When a pin appears meanwhile, then it counts at once
    assert retention.step(journal, Instant(7, 0), Facts(100, 100, {ARCHIVE: 68})) == Step(68, 1, ())
    retention.done(more=False)
    assert retention.step(journal, Instant(8, 0), facts) is None
    assert retention.deadline_ms() == 5 + LOOK_MS
    # And after a while it looks again; more would not be worth it
    journal.trim(71)
    assert retention.step(journal, Instant(5 + LOOK_MS, 0), Facts(109, 109)) == Step(71, 1, ())
    assert retention.step(journal, Instant(5 + 2 * LOOK_MS, 0), Facts(110, 110)) == Step(81, 1, ())


def test_ids_stay_known_for_the_depth_whether_their_entries_are_held_or_not(journal: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brokerha.log.content.MARK_LSNS", 10)
    config = RetentionConfig(max_size=30, max_depth_us=400, known_ids=0)
    for below in range(11, 72, 10):
        journal.trim(below)
    # LSN 45 was stamped at 450; of what is trimmed, each tenth LSN has a time.
    assert decided(config, journal, now=Instant(0, 855)) == Step(71, 41, ())
    assert decided(config, journal, now=Instant(0, 1_200)) == Step(80, 80, ())


@pytest.mark.parametrize("wrong", [{"max_size": 0}, {"max_depth_us": 0}, {"max_size": 10, "hard_limit": 9}])
def test_bounds_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvariantBroken):
        RetentionConfig(**wrong)


@pytest.mark.parametrize("pins", [{}, {W1: 1_000}])
def test_a_journal_that_is_kept_so_holds_a_bounded_number(pins: dict[Owner, Lsn]) -> None:
    journal, retention = memory_log("m1", "journal"), Retention(RetentionConfig(max_size=40, slack=10))
    author = None
    dropped: set[Owner] = set()
    for turn in range(200):
        author = filled(journal, turns=1, per_turn=7, author=author)
        state = journal.state()
        step = retention.step(journal, Instant(turn * LOOK_MS, 0), Facts(state.lsn, state.executed_lsn, pins))
        assert step is not None
        retention.done(more=journal.keep(step.below))
        dropped.update(step.dropped)
        held = state.lsn - journal.first_lsn() + 1
        assert held <= (160 if pins and not dropped else 40) + 10 + 7
        assert held >= min(40, state.lsn)
    assert dropped == set(pins)
