"""What every store must do with a repository that holds more quads than an effect should name; test_stores.py runs it on each.

Fixtures as in store_contract.py, of stores for which more than `ABOVE` quads are that many.
"""

from __future__ import annotations

from collections.abc import Callable

from brokerha.model.operations import REJECTED, pack_operations
from brokerha.model.reserved import branches
from brokerha.ports.store import Store
from brokerha.stores.execution.evaluation import CLEAR_ABOVE_CHARACTERS
from tests.contracts.store_contract import IN_GRAPH, A, B, C, effect, lines, logged, quads, read, run
from tests.contracts.store_prepared_contract import step

ABOVE = 2
FULL = ("add", "r", quads(A, B, IN_GRAPH))


def full(store: Store) -> Store:
    """The store with a repository ``r`` of three quads."""
    run(store, [("create-repository", "r"), FULL])
    return store


class StoreClearContract:
    """Tests of repositories that are emptied, or go, without a word about each quad."""

    def test_a_large_repository_goes_without_its_quads_being_named(self, store: Store) -> None:
        assert effect(full(store), ("remove-repository", "r")) == [["clear", "r", 3], ["remove-repository", "r"]]
        assert (store.applied().items, store.recompute()) == (0, store.applied())
        assert read(store, "repositories") == b'["main"]'

    def test_a_small_one_goes_by_name(self, store: Store) -> None:
        run(store, [("create-repository", "r"), ("add", "r", quads(A, B))])
        assert effect(store, ("remove-repository", "r")) == [["quads", "r", [A, B], []], ["remove-repository", "r"]]

    def test_what_is_removed_and_made_again_is_emptied_and_holds_what_comes_after(self, store: Store) -> None:
        again = (("remove-repository", "r"), ("create-repository", "r"), ("add", "r", quads(C, A)))
        assert effect(full(store), ("add", "r", quads(C)), *again) == [["clear", "r", 3], ["quads", "r", [], [A, C]]]
        assert lines(store, "r") == [A, C]
        assert store.recompute() == store.applied()

    def test_what_comes_in_the_same_transaction_goes_as_well(self, store: Store) -> None:
        again = (("remove-repository", "r"), ("create-repository", "r"), ("add", "r", quads(C)))
        assert effect(full(store), *again, *again, ("remove-repository", "r")) == [["clear", "r", 3], ["remove-repository", "r"]]
        assert store.recompute() == store.applied()

    def test_a_transaction_that_fails_after_it_leaves_everything(self, store: Store) -> None:
        before = full(store).applied()
        (result,) = run(store, [("remove-repository", "r"), ("add", "r", quads(C))])
        assert (result.outcome, result.effect) == (REJECTED, b"")
        assert store.applied()._replace(lsn=before.lsn) == before == store.recompute()._replace(lsn=before.lsn)
        assert lines(store, "r") == sorted([A, B, IN_GRAPH])

    def test_it_is_applied_elsewhere_and_read_again_after_a_restart(
        self, store: Store, other: Store, reopened: Callable[[Store], Store]
    ) -> None:
        again = [("remove-repository", "r"), ("create-repository", "r"), ("add", "r", quads(C))]
        results = run(store, [("create-repository", "r"), FULL], again, [("add", "r", quads(A, B))], again)
        other.apply(1, logged(results))
        for each in (other, reopened(store)):
            assert each.applied() == each.recompute()
            assert lines(each, "r") == [C]
        assert results[-1].effect == results[1].effect

    def test_nobody_empties_what_a_prepared_branch_relies_upon(self, store: Store) -> None:
        step(full(store), branches.PREPARE, "b", ("add", "r", quads(C)))
        (result,) = run(store, [("remove-repository", "r")])
        assert "repository 'r' is held by prepared transaction b" in result.reason

    def test_a_branch_empties_all_that_is_there_at_its_commit(self, store: Store) -> None:
        step(full(store), branches.PREPARE, "b", ("remove-repository", "r"))
        (result,) = run(store, [("add", "r", quads(C))])
        assert "repository 'r' is held by prepared transaction b" in result.reason
        step(store, branches.COMMIT, "b")
        assert read(store, "repositories") == b'["main"]'
        assert store.recompute() == store.applied()

    def test_its_last_change_is_the_clearing(self, store: Store) -> None:
        lsn = full(store).applied().lsn
        run(store, [("remove-repository", "r"), ("create-repository", "r")])
        (result,) = run(store, [("expect-since", "graph", "r", lsn), ("put", "t", b"k", b"v")])
        assert result.outcome == REJECTED

    def test_few_long_quads_go_unnamed_as_well(self, store: Store) -> None:
        run(store, [("create-repository", "r"), ("add", "r", quads(A, f'<urn:s> <urn:p> "{"x" * CLEAR_ABOVE_CHARACTERS}"'))])
        assert effect(store, ("remove-repository", "r")) == [["clear", "r", 2], ["remove-repository", "r"]]
        assert store.recompute() == store.applied()

    def test_it_is_an_operation_of_its_own(self, store: Store) -> None:
        assert effect(full(store), ("add", "r", quads(C)), ("clear", "r"), ("add", "r", quads(C))) == [
            ["clear", "r", 3],
            ["quads", "r", [], [C]],
        ]
        assert effect(store, ("add", "r", quads(B)), ("clear", "r"), ("add", "r", quads(A))) == [["quads", "r", [C], [A]]]
        assert run(store, [("clear", "nowhere")])[0].reason == "repository 'nowhere' does not exist"
        assert store.recompute() == store.applied()

    def test_an_open_transaction_sees_what_it_empties(self, store: Store) -> None:
        pending = pack_operations([("add", "r", quads(C)), ("clear", "r"), ("add", "r", quads(B))])
        text = read(full(store), "statements", "r", accept="application/n-quads", pending=pending, txid="t")
        assert text.decode().splitlines() == [f"{B} ."]
