"""The judge of the bank finds each kind of mistake: a look, a promise and a balance that are wrong, one planted at a time."""

from __future__ import annotations

import pytest

from tests.system.nemesis.bank import Changes, Look
from tests.system.nemesis.bank_books import ABORTED, COMMITTED, GIVEN_UP, UNKNOWN, Attempt, BankBooks

OPENING = Look(1, {"east/1": 50, "west/1": 40, "notes": 10})
GOOD = Look(5, {"east/1": 45, "west/1": 45, "notes": 10})
CHANGES: Changes = {"east/1": -5, "west/1": 5}


@pytest.fixture
def books() -> BankBooks:
    """One transfer that was told committed, one of each other kind that did not take place."""
    books = BankBooks(total=100)
    books.told(Attempt("a", "tx-a", COMMITTED, CHANGES))
    books.told(Attempt("b", "tx-b", ABORTED, CHANGES))
    books.told(Attempt("c", "tx-c", GIVEN_UP, CHANGES))
    books.told(Attempt("d", "tx-d", UNKNOWN, CHANGES))
    books.resolve("d", ABORTED)
    return books


def test_a_bank_that_keeps_its_promises_has_no_faults(books: BankBooks) -> None:
    for node in ("w1", "w2"):
        books.seen(node, OPENING)
        books.seen(node, GOOD)

    assert books.judge({"a": CHANGES}, GOOD, OPENING) == []
    assert (books.count(COMMITTED), dict(books.looks)) == (1, {"w1": 2, "w2": 2})


def test_a_read_with_another_total_is_a_fault_of_its_node(books: BankBooks) -> None:
    books.seen("w2", Look(3, {"east/1": 45, "west/1": 40, "notes": 10}))

    (fault,) = books.judge({"a": CHANGES}, GOOD, OPENING)
    assert fault.startswith("w2 read a total of 95 at LSN 3, not 100")


def test_two_nodes_that_differ_at_one_lsn_are_a_fault_although_the_totals_agree(books: BankBooks) -> None:
    books.seen("w1", GOOD)
    books.seen("w2", Look(GOOD.lsn, {"east/1": 45, "west/1": 40, "notes": 15}))

    (fault,) = books.judge({"a": CHANGES}, GOOD, OPENING)
    assert fault.startswith("at LSN 5 w1 and w2 read different balances")
    assert "'notes': (10, 15)" in fault


@pytest.mark.parametrize(
    ("ledger", "resolved", "fault"),
    [
        ({}, ABORTED, "a (tx-a) was told committed and is lost"),
        ({"a": CHANGES, "b": CHANGES}, ABORTED, "b (tx-b) was told aborted and took place"),
        ({"a": CHANGES, "c": CHANGES}, ABORTED, "c (tx-c) was told given up and took place"),
        ({"a": CHANGES, "d": CHANGES}, ABORTED, "d (tx-d) was told aborted and took place"),
        ({"a": CHANGES}, COMMITTED, "d (tx-d) was told committed and is lost"),
        ({"a": CHANGES}, UNKNOWN, "nobody said what became of d (tx-d)"),
        ({"a": CHANGES, "z": CHANGES}, ABORTED, "z is in the ledger and nobody sent it"),
        ({"a": {"east/1": -7, "west/1": 7}}, ABORTED, "a changed {'east/1': -7, 'west/1': 7}, and was to change"),
    ],
)
def test_each_broken_promise_is_a_fault(books: BankBooks, ledger: dict[str, Changes], resolved: str, fault: str) -> None:
    books.resolve("d", resolved)
    expected = {place: OPENING.places[place] for place in OPENING.places}
    for changes in ledger.values():
        expected = {place: amount + changes.get(place, 0) for place, amount in expected.items()}

    (found,) = books.judge(ledger, Look(9, expected), OPENING)
    assert found.startswith(fault)


def test_a_transfer_that_took_place_twice_shows_in_the_balances_although_the_total_is_right(books: BankBooks) -> None:
    twice = Look(6, {"east/1": 40, "west/1": 50, "notes": 10})

    faults = books.judge({"a": CHANGES}, twice, OPENING)

    assert sorted(fault.split(";")[0] for fault in faults) == ["east/1 holds 40", "west/1 holds 50"]
