"""What every store must do with who wrote a transaction; test_stores.py runs it on each. Fixtures as in store_contract.py."""

from __future__ import annotations

from brokerha.model.operations import APPLIED, REJECTED, By, Operation, Published, Result, pack_operations, unpack_effect
from brokerha.model.outside.authors import signed
from brokerha.model.reserved import branches
from brokerha.ports.store import Store
from tests.contracts.store_contract import logged, run

ANNA = By("by", "anna")
PUT: Operation = ("put", "t", b"k", b"v")


def by_anna(store: Store, *operations: Operation, prepare: str = "", commit: str = "") -> Result:
    """A transaction of hers at the next LSN, or a step of a branch."""
    body = signed(pack_operations(list(operations)), "anna") if operations else b""
    txid = prepare or commit
    if txid:
        body = branches.packed(branches.PREPARE if prepare else branches.COMMIT, txid, body)
    named = branches.prepare_id(prepare) if prepare else commit or "tx"
    return store.execute(store.applied().lsn + 1, [(named, 1_000_000, body)])[0]


def kinds(result: Result) -> list[str]:
    return [change.kind for change in unpack_effect(result.effect)]


class StoreAuthorContract:
    """Tests of the last operation of a body, and the last change of an effect."""

    def test_it_is_the_last_change_and_changes_nothing(self, store: Store, other: Store) -> None:
        named = by_anna(
            store,
            ("publish", "q", "text/plain", b"m"),
            PUT,
            ("create-repository", "r"),
            ("control-add", "c", "key", "t", "k", "= v"),
        )
        (plain,) = run(
            other,
            [("publish", "q", "text/plain", b"m"), PUT, ("create-repository", "r"), ("control-add", "c", "key", "t", "k", "= v")],
        )

        assert unpack_effect(named.effect) == [*unpack_effect(plain.effect), ANNA]
        assert store.applied() == other.applied()

    def test_the_number_of_an_operation_names_its_message_as_without_it(self, store: Store) -> None:
        (change, _) = unpack_effect(by_anna(store, ("publish", "q", "text/plain", b"m")).effect)

        assert isinstance(change, Published)
        assert change.message_id == "tx.1"

    def test_who_changed_nothing_or_was_rejected_is_known_too(self, store: Store) -> None:
        by_anna(store, PUT)
        results = [by_anna(store, PUT), by_anna(store, ("expect-key", "t", b"k", ""), PUT)]

        assert [result.outcome for result in results] == [APPLIED, REJECTED]
        assert [unpack_effect(result.effect) for result in results] == [[ANNA], [ANNA]]

    def test_a_copy_that_applies_the_line_is_equal(self, store: Store, other: Store) -> None:
        results = [
            by_anna(store, PUT),
            by_anna(store, PUT),
            by_anna(store, ("delete", "t", b"k")),
            by_anna(store, ("accept", "q", "x.1")),
        ]
        other.apply(1, logged(results))

        assert other.applied() == store.applied()
        assert [line.effect for line in other.logged(1, 4)] == [result.effect for result in results]

    def test_it_counts_as_no_change_of_a_store(self, store: Store) -> None:
        by_anna(store, PUT)
        by_anna(store, PUT)
        (result,) = run(store, [("expect-since", "table", "t", 1), ("put", "t", b"k", b"w")])

        assert result.outcome == APPLIED

    def test_a_branch_names_it_when_it_is_prepared_and_when_it_takes_place(self, store: Store, other: Store) -> None:
        first = by_anna(store, PUT, ("publish", "q", "text/plain", b"m"), prepare="b")
        second = by_anna(store, commit="b")

        assert (kinds(first), kinds(second)) == (["put", "by"], ["delete", "publish", "put", "by"])
        assert unpack_effect(second.effect)[-1] == ANNA
        other.apply(1, logged([first, second]))
        assert other.applied() == store.applied()

    def test_a_prepare_that_is_rejected_names_it_too(self, store: Store) -> None:
        by_anna(store, PUT, prepare="b")
        result = by_anna(store, ("put", "t", b"k", b"w"), prepare="c")

        assert (result.outcome, unpack_effect(result.effect)) == (REJECTED, [ANNA])

    def test_what_a_branch_of_hers_holds_is_held(self, store: Store) -> None:
        by_anna(store, PUT, prepare="b")
        (refused,) = run(store, [("put", "t", b"k", b"w")])

        assert (refused.outcome, "held by prepared transaction b" in refused.reason) == (REJECTED, True)
