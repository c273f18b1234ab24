"""Asking: exactly what is missing, from whoever has it, with growing patience, and missing only when nobody has it."""

from __future__ import annotations

from brokerha.following.asking import AskConfig, Asking
from brokerha.model.ids import Instant

SOURCES = ("m1", "w2", "w3")


def at(ms: int) -> Instant:
    return Instant(ms, ms * 1000)


def asking(**settings: int) -> Asking:
    return Asking(AskConfig(**settings))


def test_it_asks_nothing_as_long_as_nothing_is_missing() -> None:
    one = asking()
    assert one.take(at(0)) is None
    assert one.deadline_ms() is None
    assert one.range_text() == "nothing"
    assert not one.is_asked("m1", 1)


def test_the_range_is_asked_for_at_once_and_from_the_primary() -> None:
    one = asking()
    one.want((4, 9), SOURCES, at(0))
    assert one.deadline_ms() == 0
    assert one.take(at(0)) == ("m1", (4, 9))
    assert one.range_text() == "4 to 9"


def test_no_answer_is_asked_again_with_growing_patience_for_as_long_as_it_takes() -> None:
    one = asking(first_wait_ms=100, longest_wait_ms=400)
    one.want((4, 9), SOURCES, at(0))
    asked = [ms for ms in range(0, 2500, 50) if one.take(at(ms))]
    assert asked == [0, 100, 300, 700, 1100, 1500, 1900, 2300]


def test_the_same_range_again_changes_nothing() -> None:
    one = asking(first_wait_ms=100)
    one.want((4, 9), SOURCES, at(0))
    assert one.take(at(0))
    for ms in range(10, 100, 10):
        one.want((4, 9), SOURCES, at(ms))
        assert one.take(at(ms)) is None


def test_a_range_that_shrinks_is_being_answered_and_is_asked_for_anew_only_when_that_stops() -> None:
    one = asking(first_wait_ms=100)
    one.want((4, 9), SOURCES, at(0))
    one.take(at(0))
    one.want((6, 9), SOURCES, at(90))
    assert one.take(at(150)) is None
    assert one.take(at(190)) == ("m1", (6, 9))


def test_another_range_is_asked_for_soon_but_never_more_often_than_the_first_wait() -> None:
    one = asking(first_wait_ms=100)
    one.want((4, 9), SOURCES, at(0))
    one.take(at(0))
    one.want((12, 14), SOURCES, at(30))
    assert one.take(at(99)) is None
    assert one.take(at(100)) == ("m1", (12, 14))


def test_whoever_does_not_have_it_is_left_for_the_next_one() -> None:
    one = asking()
    one.want((4, 9), SOURCES, at(0))
    one.take(at(0))
    assert not one.on_missing("m1", at(5))
    assert one.take(at(5)) == ("w2", (4, 9))
    assert not one.on_missing("w2", at(6))
    assert one.take(at(6)) == ("w3", (4, 9))
    assert one.on_missing("w3", at(7))


def test_what_is_said_of_another_range_or_by_somebody_else_counts_nothing() -> None:
    one = asking()
    one.want((4, 9), ("m1",), at(0))
    one.take(at(0))
    assert not one.on_missing("w2", at(1))
    one.stop()
    assert one.first == 0
    assert not one.on_missing("m1", at(1))


def test_lines_are_taken_from_those_that_were_asked_and_of_that_range_only() -> None:
    one = asking()
    one.want((4, 9), SOURCES, at(0))
    one.take(at(0))
    assert one.is_asked("m1", 4)
    assert one.is_asked("m1", 9)
    assert not one.is_asked("m1", 10)
    assert not one.is_asked("m1", 3)
    assert not one.is_asked("w2", 5)
    one.on_missing("m1", at(1))
    assert one.is_asked("w2", 5)


def test_a_rest_is_asked_of_the_source_that_has_it() -> None:
    one = asking(first_wait_ms=100)
    one.want((4, 9), SOURCES, at(0))
    one.take(at(0))
    one.on_missing("m1", at(1))
    one.take(at(1))
    one.want((6, 9), SOURCES, at(2))
    assert one.take(at(150)) == ("w2", (6, 9))
    one.want((20, 21), SOURCES, at(300))
    assert one.take(at(300)) == ("m1", (20, 21))


def test_a_silent_source_beside_the_leader_is_left_and_the_leader_never_is() -> None:
    one = asking(patience_ms=1000)
    one.want((4, 9), ("m1", "w2"), at(0))
    one.take(at(0))
    assert not one.is_in_vain(at(100_000))
    assert one.source == "m1"
    one.on_missing("m1", at(100_000))
    assert not one.is_in_vain(at(100_999))
    assert one.is_in_vain(at(101_000))
