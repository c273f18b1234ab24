"""A scrub compares the data with the fingerprint of the same LSN, at a bounded rate, and ends when it is told to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from brokerha.model.errors import StoreDamaged, StoreError
from brokerha.model.ids import Lsn
from brokerha.model.operations import Logged, Operation, Put, typed_changes
from brokerha.ports.store import Applied
from brokerha.stores.comparing.scrub import Finding, Scrub
from tests.contracts.store_contract import A, B, quads, run
from tests.support.memory_store.worker_copy import MemoryCopy


class Hand:
    """A clock and a wait that take no time."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.waits_s: list[float] = []
        self.is_stopped = False

    def clock(self) -> float:
        return self.now_s

    def stopped_within(self, wait_s: float) -> bool:
        self.waits_s.append(wait_s)
        self.now_s += wait_s
        return self.is_stopped


class Busy(MemoryCopy):
    """A copy that is written while it is looked at."""

    def __init__(self) -> None:
        super().__init__(lambda: "j")
        self.before_held: Callable[[], object] = lambda: None
        self.while_held: Callable[[], object] = lambda: None
        self.steps = [1]

    def recompute(self, paced: Callable[[int], None] = lambda _items: None) -> Applied:
        self.before_held()
        found = super().recompute()
        for items in self.steps:
            paced(items)
            self.while_held()
        return found


class Forgetful(Busy):
    """A copy that keeps no line of the log."""

    def logged(self, first_lsn: Lsn, last_lsn: Lsn) -> list[Logged]:
        return []


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.fixture
def copy() -> Busy:
    copy = Busy()
    run(copy, [("put", "t", b"k", b"v"), ("add", "main", quads(A))])
    return copy


def scrub(copy: MemoryCopy, hand: Hand) -> Finding | None:
    return Scrub(copy, items_per_s=10.0, clock=hand.clock, stopped_within=hand.stopped_within).run()


def write(copy: MemoryCopy) -> None:
    operation: Operation = ("put", "t", b"k", b"%d" % copy.applied().lsn)
    run(copy, [operation])


def test_a_good_copy_has_nothing_wrong(copy: Busy, hand: Hand) -> None:
    assert scrub(copy, hand) == Finding(1, 2)


@pytest.mark.parametrize(
    "change",
    [
        ("put", "t", b"k", b"w"),
        ("put", "t", b"foreign", b""),
        ("delete", "t", b"k"),
        ("quads", "main", [A], []),
        ("quads", "main", [], [B]),
    ],
)
def test_a_silent_change_is_found_and_both_fingerprints_are_named(copy: Busy, hand: Hand, change: Operation) -> None:
    expected = copy.applied()
    copy.damage(*typed_changes([change]))
    assert copy.applied() == expected, "nobody sees it"
    found = scrub(copy, hand)
    assert found is not None
    assert found.lsn == 1
    assert f"expected is fingerprint {expected.fingerprint}:" in found.damage
    assert f"the data at LSN 1 has fingerprint {copy.recompute().fingerprint}" in found.damage


def test_writes_before_and_while_the_data_is_held_are_no_damage(copy: Busy, hand: Hand) -> None:
    copy.before_held = copy.while_held = lambda: write(copy)
    assert scrub(copy, hand) == Finding(2, 2)
    copy.damage(Put("put", "t", b"k", b"w"))
    found = scrub(copy, hand)
    assert found is not None
    # The key that was changed is written over before the data is held: the old value's part stays wrong for ever.
    assert found.lsn == 4
    assert "at LSN 4" in found.damage


def test_a_fingerprint_that_nobody_knows_any_more_says_nothing(hand: Hand) -> None:
    copy = Forgetful()
    copy.before_held = lambda: write(copy)
    assert scrub(copy, hand) == Finding(1, 1, is_compared=False)


def test_the_rate_is_kept_whatever_the_steps_are(copy: Busy, hand: Hand) -> None:
    copy.steps = [10, 20, 60]
    scrub(copy, hand)
    assert hand.waits_s == pytest.approx([1.0, 1.0, 4.0])


def test_a_scrub_that_is_late_does_not_wait(copy: Busy, hand: Hand) -> None:
    def late() -> None:
        hand.now_s += 5.0

    copy.steps = [10, 20, 90]
    copy.while_held = late
    scrub(copy, hand)
    assert hand.waits_s == pytest.approx([1.0, 0.0, 0.0])


def test_a_scrub_that_is_stopped_ends_at_the_next_step(copy: Busy, hand: Hand) -> None:
    copy.steps = [10, 20, 30]

    def stop() -> None:
        hand.is_stopped = True

    copy.while_held = stop
    assert scrub(copy, hand) is None
    assert len(hand.waits_s) == 2


def test_what_cannot_be_read_is_damage_and_a_closed_copy_is_not(copy: Busy, hand: Hand) -> None:
    def fail(error: Exception) -> Callable[[], None]:
        def failing() -> None:
            raise error

        return failing

    copy.while_held = fail(StoreDamaged("key b'k' is damaged"))
    assert scrub(copy, hand) == Finding(0, 0, "key b'k' is damaged")
    copy.while_held = fail(StoreError("the store is closed"))
    with pytest.raises(StoreError, match="closed"):
        scrub(copy, hand)
