"""Backlog: whatever comes, in whatever order, overlapping or twice, is a gapless sequence in the end, within bounds.

The naive model is a set of LSNs that came; items are named after their LSN, so that one at the wrong place is seen.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerha.replication.backlog import Backlog, Items

Piece = tuple[bool, int, int]
pieces = st.lists(st.tuples(st.booleans(), st.integers(1, 30), st.integers(1, 8)), max_size=40)


def items_of(is_execute: bool, first: int, count: int) -> Items:
    if is_execute:
        return tuple((f"t{n}", n, b"body") for n in range(first, first + count))
    return tuple((f"t{n}", n, "applied", "", b"effect", b"fingerprint") for n in range(first, first + count))


def taken(backlog: Backlog, items_limit: int = 1000, bytes_limit: int = 10**6) -> list[tuple[bool, int, str]]:
    """Everything that can go to the store, as (is it executed, LSN, transaction id)."""
    found = []
    while backlog.has_pieces:
        is_execute, first, items = backlog.take(items_limit, bytes_limit)
        found += [(is_execute, lsn, item[0]) for lsn, item in enumerate(items, first)]
    return found


@given(pieces, st.integers(0, 10))
def test_without_bounds_it_holds_what_a_set_of_lsns_would(came: list[Piece], applied: int) -> None:
    backlog = Backlog(applied, limit=10**6)
    known = set(range(1, applied + 1))
    for is_execute, first, count in came:
        before = backlog.queued
        grown = backlog.add(is_execute, first, items_of(is_execute, first, count))
        known |= set(range(first, first + count))
        queued = next(n for n in range(1000) if n + 1 not in known)
        assert backlog.queued == max(queued, applied)
        assert grown == backlog.queued - before
        later = [lsn for lsn in known if lsn > backlog.queued]
        assert backlog.gap() == ((backlog.queued + 1, min(later) - 1) if later else None)
    assert [(lsn, txid) for _, lsn, txid in taken(backlog)] == [
        (n, f"t{n}") for n in range(applied + 1, backlog.queued + 1)
    ]


@given(pieces, st.integers(1, 12), st.integers(1, 5))
def test_with_bounds_nothing_is_out_of_order_and_never_too_much_is_kept(
    came: list[Piece], limit: int, often: int
) -> None:
    backlog = Backlog(0, limit)
    store: list[tuple[int, str]] = []
    for number, (is_execute, first, count) in enumerate(came):
        backlog.add(is_execute, first, items_of(is_execute, first, count))
        assert len(backlog) <= limit
        gap = backlog.gap()
        if first > backlog.queued + 1:
            # What came too early always shows that something is missing before it, whether there was room for it or not.
            assert gap is not None
            assert gap[0] == backlog.queued + 1
            assert gap[1] < first
        assert gap is None or gap[0] <= gap[1]
        if number % often == 0:
            store += [(lsn, txid) for _, lsn, txid in taken(backlog)]
            backlog.on_applied(len(store))
    store += [(lsn, txid) for _, lsn, txid in taken(backlog)]
    assert store == [(n, f"t{n}") for n in range(1, len(store) + 1)]


@given(st.lists(st.integers(1, 20), max_size=30), st.integers(1, 8))
def test_whoever_answers_the_gap_again_and_again_comes_to_the_end(early: list[int], limit: int) -> None:
    backlog = Backlog(0, limit)
    for first in early:
        backlog.add(False, first, items_of(False, first, 1))
    store: list[int] = []
    for _ in range(100):
        store += [lsn for _, lsn, _ in taken(backlog)]
        backlog.on_applied(len(store))
        first, last = backlog.gap() or (len(store) + 1, 20)
        if first > 20:
            break
        backlog.add(False, first, items_of(False, first, last - first + 1))
    assert store == list(range(1, 21))


def test_a_gap_is_seen_even_when_nothing_may_be_held() -> None:
    backlog = Backlog(0, limit=1)
    assert backlog.add(False, 3, items_of(False, 3, 1)) == 0
    assert backlog.gap() == (1, 2)
    # The lowest of what was dropped counts, and what was dropped for its length alone does not.
    backlog.add(False, 5, items_of(False, 5, 1))
    assert backlog.gap() == (1, 2)
    backlog.add(False, 2, items_of(False, 2, 1))
    assert backlog.gap() == (1, 1)
    backlog.add(False, 1, items_of(False, 1, 1))
    assert backlog.gap() is None


def test_what_was_dropped_is_forgotten_when_the_store_is_there_or_it_begins_anew() -> None:
    backlog = Backlog(0, limit=1)
    backlog.add(False, 3, items_of(False, 3, 1))
    backlog.on_applied(2)
    assert backlog.gap() is None
    backlog.add(False, 9, items_of(False, 9, 1))
    backlog.restart(4)
    assert backlog.gap() is None
    assert (backlog.applied, backlog.queued, len(backlog), backlog.has_pieces) == (4, 4, 0, False)


def test_a_message_without_lines_shows_no_gap() -> None:
    backlog = Backlog(0, limit=10)
    backlog.add(False, 7, ())
    assert backlog.gap() is None


def test_what_came_too_early_leaves_half_of_the_room_to_what_is_missing() -> None:
    backlog = Backlog(0, limit=10)
    backlog.add(False, 11, items_of(False, 11, 10))
    assert len(backlog) == 5
    assert backlog.add(False, 1, items_of(False, 1, 10)) == 5
    assert len(backlog) == 10


def test_the_longer_of_two_pieces_that_begin_alike_is_kept() -> None:
    backlog = Backlog(0, limit=100)
    backlog.add(False, 3, items_of(False, 3, 1))
    backlog.add(False, 3, items_of(False, 3, 4))
    backlog.add(False, 3, items_of(False, 3, 2))
    assert backlog.add(False, 1, items_of(False, 1, 2)) == 6


def test_transactions_and_lines_are_never_taken_together() -> None:
    backlog = Backlog(0, limit=100)
    backlog.add(False, 1, items_of(False, 1, 2))
    backlog.add(True, 3, items_of(True, 3, 2))
    backlog.add(True, 5, items_of(True, 5, 1))
    assert backlog.take(100, 10**6) == (False, 1, items_of(False, 1, 2))
    assert backlog.take(100, 10**6) == (True, 3, items_of(True, 3, 3))


@pytest.mark.parametrize(("items_limit", "bytes_limit"), [(2, 10**6), (100, 7)])
def test_what_is_taken_at_once_is_bounded_by_items_and_bytes(items_limit: int, bytes_limit: int) -> None:
    backlog = Backlog(0, limit=100)
    for first in (1, 2, 3, 4):
        backlog.add(True, first, items_of(True, first, 1))
    assert backlog.take(items_limit, bytes_limit) == (True, 1, items_of(True, 1, 2))
