"""What every store must do with checks of keys; test_stores.py runs it on each of them. Fixtures as in store_contract.py."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from brokerha.model import control
from brokerha.model.errors import StoreDiffers
from brokerha.model.operations import APPLIED, REJECTED, Operation
from brokerha.ports.store import Store
from tests.contracts.store_contract import A, effect, logged, quads, read, rows, run


def stock(expected: str = ">= 0", name: str = "stock", key: str = "k") -> Operation:
    return ("control-add", name, "key", "t", key, expected)


def put(value: bytes, key: bytes = b"k") -> Operation:
    return ("put", "t", key, value)


def reason(store: Store, *operations: Operation) -> str:
    """Why the transaction was rejected; it must leave no trace."""
    before = store.applied()
    (result,) = run(store, operations)
    assert result.outcome == REJECTED, result
    assert store.applied()._replace(lsn=before.lsn) == before
    assert store.recompute() == store.applied()
    return result.reason


def names(store: Store) -> list[str]:
    return [check["name"] for check in json.loads(read(store, "control"))["checks"]]


class StoreControlContract:
    """Tests of the control suite."""

    def test_a_transaction_after_which_a_check_does_not_hold_is_rejected(self, store: Store) -> None:
        run(store, [put(b"1")], [stock()])
        assert reason(store, put(b"-1")) == "check 'stock' failed: expected >= 0, found -1 (key 'k' of table 't')"
        assert "found no such key" in reason(store, ("delete", "t", b"k"))
        assert "found none" in reason(store, put(b"none"))
        assert effect(store, put(b"0")) == [["put", "t", b"k", b"0"]]
        assert rows(store, "t") == [(b"k", b"0")]

    def test_only_the_state_after_the_whole_transaction_counts(self, store: Store) -> None:
        run(store, [put(b"1"), stock()])
        assert len(effect(store, put(b"-1"), put(b"7", b"other"), put(b"2"))) == 2
        assert "found -1" in reason(store, put(b"3"), put(b"-1"))

    def test_checks_are_those_after_the_transaction(self, store: Store) -> None:
        assert len(effect(store, stock(), put(b"1"))) == 2
        assert effect(store, put(b"-1"), ("control-remove", "stock")) == [["control-remove", "stock"], ["put", "t", b"k", b"-1"]]
        assert effect(store, stock(">= -5"), put(b"-2")) == [
            ["control-add", "stock", "key", "t", "k", ">= -5"],
            ["put", "t", b"k", b"-2"],
        ]
        assert "expected >= 0, found -2" in reason(store, stock())
        assert "expected >= -5, found -6" in reason(store, put(b"-6"))

    def test_a_check_that_does_not_hold_is_not_added(self, store: Store) -> None:
        assert reason(store, stock()) == "check 'stock' failed: expected >= 0, found no such key (key 'k' of table 't')"
        assert "found -1" in reason(store, stock(), put(b"-1"))
        assert names(store) == []

    def test_the_first_failing_check_by_name_is_the_reason_and_the_rest_goes_on(self, store: Store) -> None:
        run(store, [put(b"1"), stock(name="b"), stock("<= 10", name="a"), stock("present", name="c")])
        results = run(store, [put(b"11")], [put(b"-1")], [("delete", "t", b"k")], [put(b"5")])
        assert [result.reason[:9] for result in results] == ["check 'a'", "check 'b'", "check 'a'", ""]

    def test_adding_again_changes_nothing_and_another_content_replaces(self, store: Store) -> None:
        run(store, [put(b"1"), stock()])
        assert effect(store, stock()) == []
        assert effect(store, stock("<= 3")) == [["control-add", "stock", "key", "t", "k", "<= 3"]]
        assert effect(store, put(b"-1")) == [["put", "t", b"k", b"-1"]]
        assert names(store) == ["stock"]

    def test_added_and_removed_in_one_transaction_is_nothing(self, store: Store) -> None:
        assert effect(store, stock(), ("control-remove", "stock")) == []
        assert reason(store, ("control-remove", "stock")) == "check 'stock' does not exist"

    def test_there_is_a_limit_of_checks(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        many = [stock("absent", f"c{number:03}") for number in range(control.CHECKS_LIMIT)]
        run(store, many)
        assert reason(store, stock("absent", "more")) == "there are 100 checks, which is the limit"
        assert effect(store, ("control-remove", "c007"), stock("absent", "more")) != []
        assert len(names(store)) == control.CHECKS_LIMIT

    def test_checks_are_content(self, store: Store, other: Store) -> None:
        run(store, [stock("absent", "a")], [stock("absent", "b")])
        before = store.applied()
        run(other, [stock("absent", "b"), stock("absent", "a")])
        assert (other.applied().fingerprint, other.applied().items) == (before.fingerprint, 0)
        run(store, [stock("!= 1", "a")])
        assert store.applied().fingerprint != before.fingerprint
        run(store, [stock("absent", "a")])
        assert store.applied().fingerprint == before.fingerprint
        assert store.recompute() == store.applied()

    def test_followers_get_the_checks_and_reject_nothing_themselves(self, store: Store, other: Store) -> None:
        results = run(store, [put(b"1"), stock()], [put(b"-1")], [put(b"2")], [stock("<= 2")])
        assert [result.outcome for result in results] == [APPLIED, REJECTED, APPLIED, APPLIED]
        other.apply(1, logged(results))
        assert other.applied() == other.recompute() == store.applied()
        assert read(other, "control") == read(store, "control")
        assert "expected <= 2, found 3" in reason(other, put(b"3"))

    def test_a_line_that_leads_elsewhere_leaves_no_check(self, store: Store, other: Store) -> None:
        lines = logged(run(store, [stock("absent")]))
        with pytest.raises(StoreDiffers):
            other.apply(1, [(*lines[0][:5], lines[0][5][:-1] + b"\0")])
        assert names(other) == []
        other.apply(1, lines)
        assert names(other) == ["stock"]

    def test_checks_survive_a_restart(self, store: Store, reopened: Callable[[Store], Store]) -> None:
        run(store, [stock("absent"), stock("absent", "b")], [("control-remove", "b")])
        applied = store.applied()
        store = reopened(store)
        assert store.applied() == store.recompute() == applied
        assert names(store) == ["stock"]
        assert "expected absent, found 1" in reason(store, put(b"1"))

    def test_an_operation_without_its_repository_still_fails_first(self, store: Store) -> None:
        run(store, [stock("absent")])
        assert reason(store, ("add", "nowhere", quads(A)), put(b"1")) == "repository 'nowhere' does not exist"
