"""Which writes wait for each other, and for how long."""

from __future__ import annotations

import pytest

from brokerha.model.gathering import CLOSE_S, MOST_S, PER_CALLER_S, Gathering


def test_a_lone_writer_never_waits() -> None:
    gathering = Gathering()
    assert gathering.hold_s(1, 0.0) == 0
    for number in range(100):
        now_s = number * 2 * CLOSE_S
        gathering.answered(1, now_s)
        assert gathering.hold_s(1, now_s) == 0
        gathering.left(1)


def test_as_many_as_were_answered_together_are_awaited_and_no_longer_than_they_take() -> None:
    gathering = Gathering()
    gathering.answered(4, 1.0)
    assert gathering.hold_s(3, 1.0) == pytest.approx(4 * PER_CALLER_S)
    assert gathering.hold_s(4, 1.0) == 0
    assert gathering.hold_s(3, 1.0 + 4.1 * PER_CALLER_S) == 0


def test_answers_that_follow_each_other_closely_are_one_group_and_others_are_not() -> None:
    gathering = Gathering()
    for number in range(4):
        gathering.answered(1, 1.0 + number * CLOSE_S / 2)
    assert gathering.awaited == 4
    gathering.answered(1, 1.0 + 4.5 * CLOSE_S)
    assert gathering.awaited == 1


def test_who_has_left_is_not_awaited_any_more() -> None:
    gathering = Gathering()
    gathering.answered(4, 1.0)
    gathering.left(3)
    assert gathering.hold_s(1, 1.0) == 0
    gathering.left(3)
    assert gathering.awaited == 0


def test_nobody_waits_longer_than_the_limit() -> None:
    gathering = Gathering()
    gathering.answered(100_000, 1.0)
    assert gathering.hold_s(1, 1.0) == pytest.approx(MOST_S)
