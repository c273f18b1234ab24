"""Line: whatever comes, in whatever order, overlapping or twice, is a gapless sequence in the end, within bounds.

The naive model is a set of numbers that came; records are named after their number, so that one at the wrong place is seen.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerha.following.line import Limits, Line, Piece, piece
from brokerha.model.invariants import InvariantBroken

Came = tuple[int, int]
"""(first number, count)"""
pieces = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 8)), max_size=40)


def records(first: int, count: int, size: int = 1) -> Piece:
    return piece(first, tuple(f"t{n}" for n in range(first, first + count)), (size,) * count)


def taken(line: Line) -> list[tuple[int, str]]:
    """Everything that can go to the disk, as (number, name)."""
    found: list[tuple[int, str]] = []
    while line.pieces:
        each = line.pop()
        found += zip(each.numbers, each.items, strict=True)
    return found


@given(pieces, st.integers(0, 10))
def test_without_bounds_it_holds_what_a_set_of_numbers_would(came: list[Came], end: int) -> None:
    line = Line(end, Limits())
    known = set(range(1, end + 1))
    for first, count in came:
        before = line.end
        grown = line.add(records(first, count))
        known |= set(range(first, first + count))
        assert line.end == max(next(n for n in range(1000) if n + 1 not in known), end)
        assert grown == line.end - before
        later = [number for number in known if number > line.end]
        assert line.gap() == ((line.end + 1, min(later) - 1) if later else None)
    assert taken(line) == [(n, f"t{n}") for n in range(end + 1, line.end + 1)]


@given(pieces, st.integers(1, 12), st.integers(1, 3), st.integers(1, 5))
def test_with_bounds_nothing_is_out_of_order_and_never_too_much_is_kept(
    came: list[Came], limit: int, size: int, often: int
) -> None:
    line = Line(0, Limits(entries=limit, bytes=2 * limit))
    store: list[tuple[int, str]] = []
    for place, (first, count) in enumerate(came):
        line.add(records(first, count, size))
        # One record of any size in order, and one piece of any length ahead.
        assert sum(len(each.numbers) for each in line.pieces) <= limit
        assert sum(each.size for each in line.pieces) <= max(2 * limit, size)
        assert len(line) <= 2 * limit + 8
        assert line._ahead_bytes <= 2 * limit + 8 * size
        gap = line.gap()
        if first > line.end + 1:
            # What came too early always shows that something is missing before it, whether there was room for it or not.
            assert gap is not None
            assert gap[0] == line.end + 1
        elif first + count - 1 > line.end:
            # And what found no room is asked for later.
            assert gap is not None
        assert gap is None or gap[0] <= gap[1]
        if place % often == 0:
            store += taken(line)
    store += taken(line)
    assert store == [(n, f"t{n}") for n in range(1, len(store) + 1)]
    assert len(line) == 0 or line.gap() is not None


@given(st.lists(st.integers(1, 20), max_size=30), st.integers(1, 8))
def test_whoever_answers_the_gap_again_and_again_comes_to_the_end(early: list[int], limit: int) -> None:
    line = Line(0, Limits(entries=limit))
    for first in early:
        line.add(records(first, 1))
    store: list[int] = []
    for _ in range(100):
        store += [number for number, _ in taken(line)]
        first, last = line.gap() or (len(store) + 1, 20)
        if first > 20:
            break
        line.add(records(first, last - first + 1))
    assert store == list(range(1, 21))


def test_what_was_dropped_is_a_gap_until_it_came() -> None:
    line = Line(0, Limits(entries=1))
    assert line.add(records(3, 1)) == 0
    assert line.gap() == (1, 2)
    # No room: it is asked for with the rest.
    assert not line.hold(records(5, 1))
    assert line.add(records(1, 1)) == 1
    assert line.gap() == (2, 2)
    taken(line)
    line.add(records(2, 1))
    taken(line)
    assert line.gap() == (3, 5)
    line.restart(9)
    assert line.gap() is None
    assert (line.end, len(line), line.pieces) == (9, 0, type(line.pieces)())


def test_a_piece_without_records_shows_a_gap_and_brings_nothing() -> None:
    line = Line(0, Limits())
    assert line.add(records(7, 0)) == 0
    assert line.gap() == (1, 6)
    assert len(line) == 0


def test_what_came_too_early_leaves_its_room_to_what_is_missing() -> None:
    line = Line(0, Limits(entries=10))
    line.add(records(11, 10))
    assert len(line) == 10
    assert line.add(records(1, 10)) == 10
    taken(line)
    assert line.gap() == (11, 20)


def test_the_longer_of_two_pieces_that_begin_alike_is_kept() -> None:
    line = Line(0, Limits())
    for count in (1, 4, 2):
        line.add(records(3, count))
    assert line.add(records(1, 2)) == len(line) == 6


def test_numbers_that_became_void_are_no_gap() -> None:
    line = Line(2, Limits())
    assert line.add(Piece(2, (3, 7), ("c", "g"), (1, 1))) == 5
    assert line.add(Piece(7, (9,), ("i",), (1,))) == 2
    assert line.gap() is None
    assert taken(line) == [(3, "c"), (7, "g"), (9, "i")]


def test_a_cut_never_comes_before_a_record_that_belongs_to_the_one_before() -> None:
    line = Line(0, Limits(entries=3), lambda item: item == "t3")
    line.add(records(1, 5))
    assert line.end == 2
    assert line.gap() == (3, 5)


@pytest.mark.parametrize(("size", "has_room"), [(4, True), (5, False)])
def test_it_has_room_as_long_as_neither_bound_is_reached(size: int, *, has_room: bool) -> None:
    line = Line(0, Limits(entries=10, bytes=10))
    line.add(records(1, 2, size))
    assert line.has_room is has_room


def test_a_piece_after_a_gap_is_never_put_in_order() -> None:
    with pytest.raises(InvariantBroken):
        Line(0, Limits()).put(records(2, 1))
