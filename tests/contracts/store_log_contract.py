"""What every store must do with the log: write lines, keep them, apply those of others and compare; test_stores.py runs it.

The fixtures are those of store_contract.py; `other` is a second empty store of the same kind.
"""

from __future__ import annotations

import json

import pytest

from brokerha.model.errors import StoreDiffers
from brokerha.model.fingerprints import EMPTY, UNKNOWN
from brokerha.model.operations import Operation
from brokerha.ports.store import Store
from tests.contracts.store_contract import IN_GRAPH, A, B, C, fingerprint, lines, logged, quads, read, rows, run


class InterruptedByTest(Exception):
    """Raised by a test out of `paced`."""


class StoreLogContract:
    """Tests that need a `store` and an `other` one."""

    def test_applying_effects_gives_what_executing_gave(self, store: Store, other: Store) -> None:
        batches: list[list[list[Operation]]] = [
            [[("put", "t", b"a", b"1"), ("add", "main", quads(A, IN_GRAPH))], [("create-repository", "r"), ("add", "r", quads(B))]],
            [[("put", "t", b"a", b"2")], [("add", "nowhere", quads(A))], [("delete", "t", b"a"), ("remove", "main", quads(A))]],
            [[("remove-repository", "r")], [("create-repository", "r"), ("add", "r", quads(C))]],
        ]
        for batch in batches:
            first = store.applied().lsn + 1
            results = run(store, *batch)
            other.apply(first, logged(results))
            assert other.applied() == store.applied()
            assert other.logged(first, first + 9) == store.logged(first, first + 9) == logged(results)
        assert other.recompute() == store.recompute() == store.applied()
        assert lines(other, "r") == [C]
        assert lines(other) == [IN_GRAPH]

    def test_effects_that_come_again_are_left_out(self, store: Store, other: Store) -> None:
        items = logged(run(store, [("put", "t", b"a", b"1")], [("add", "main", quads(A))], [("put", "t", b"a", b"2")]))
        other.apply(1, items[:2])
        other.apply(1, items[:1])
        assert other.applied().lsn == 2
        other.apply(1, items)
        other.apply(2, items[1:])
        assert other.applied() == store.applied()

    def test_lines_of_the_log_can_be_read_again(self, store: Store) -> None:
        assert store.logged_from() == 1
        assert store.logged(1, 9) == []
        results = [run(store, [("put", "t", b"k", b"%d" % number)])[0] for number in range(5)]
        results += run(store, *[[("put", "t", b"k", b"%d" % number)] for number in range(5, 9)])
        given = logged(results)
        assert store.logged(1, 9) == given
        assert store.logged(3, 7) == given[2:7]
        assert store.logged(8, 20) == given[7:]
        assert store.logged(10, 20) == []
        assert store.logged_from() == 1

    def test_each_result_says_what_the_content_is_after_it(self, store: Store) -> None:
        # Given transactions of all kinds, one of them rejected, in one batch.
        batch: list[list[Operation]] = [
            [("put", "t", b"a", b"1"), ("add", "main", quads(A, IN_GRAPH))],
            [("add", "nowhere", quads(A))],
            [("create-repository", "r"), ("add", "r", quads(B))],
            [("delete", "t", b"a"), ("remove", "main", quads(A, IN_GRAPH))],
            [("remove-repository", "r")],
        ]
        assert fingerprint(store) == EMPTY
        results = run(store, *batch)
        # Then each is what a store has that was stopped there, and nothing is left in the end.
        assert results[1].fingerprint == results[0].fingerprint
        assert len({result.fingerprint for result in results}) == 4
        assert results[-1].fingerprint == fingerprint(store) == EMPTY

    def test_a_line_that_leads_elsewhere_is_refused_and_leaves_no_trace(self, store: Store, other: Store) -> None:
        # Given a copy with another value, which nobody has noticed yet.
        run(store, [("put", "t", b"a", b"good"), ("add", "main", quads(A))])
        run(other, [("put", "t", b"a", b"bad!"), ("add", "main", quads(A))])
        items = logged(
            run(
                store,
                [("put", "t", b"a", b"new"), ("create-repository", "r"), ("add", "r", quads(B)), ("add", "main", quads(C))],
                [("put", "t", b"b", b"1"), ("delete", "t", b"a"), ("remove-repository", "main")],
            )
        )
        # When the old value is replaced, the content is right again by accident, and is taken for right.
        wrong = items[0]._replace(fingerprint=items[1].fingerprint)
        before, held = other.applied(), other.logged(1, 9)
        with pytest.raises(StoreDiffers) as found:
            other.apply(2, [wrong, *items[1:]])
        # Then the error says where, and what this copy would have come to; nothing else has changed.
        assert (found.value.lsn, found.value.fingerprint) == (2, items[0].fingerprint)
        assert other.applied() == other.recompute() == before
        assert other.logged(1, 9) == held
        assert rows(other, "t") == [(b"a", b"bad!")]
        assert lines(other) == [A]
        assert json.loads(read(other, "repositories")) == ["main"]
        other.apply(2, items)
        assert other.applied() == other.recompute() == store.applied()

    def test_a_copy_that_lost_something_differs_at_the_next_line(self, store: Store, other: Store) -> None:
        first = logged(run(store, [("put", "t", b"a", b"1")], [("put", "t", b"b", b"2")]))
        run(other, [("put", "t", b"a", b"1")], [("put", "t", b"c", b"2")])
        more = logged(run(store, [("add", "main", quads(A))], [("add", "main", quads(B))]))
        with pytest.raises(StoreDiffers) as found:
            other.apply(1, first + more)
        assert found.value.lsn == 3
        assert found.value.fingerprint not in {UNKNOWN, more[0].fingerprint}
        assert other.applied().lsn == 2
        assert other.recompute() == other.applied()

    def test_a_line_about_a_repository_that_is_not_here_differs(self, store: Store, other: Store) -> None:
        items = logged(run(store, [("create-repository", "r")], [("add", "r", quads(A))]))
        before = other.applied()
        with pytest.raises(StoreDiffers, match="'r', which is not here") as found:
            other.apply(1, [items[1]._replace(fingerprint=UNKNOWN)])
        assert (found.value.lsn, found.value.fingerprint) == (1, UNKNOWN)
        assert other.applied() == other.recompute() == before

    @pytest.mark.parametrize("unknown", [UNKNOWN, b"\x02" + bytes(16)])
    def test_a_line_that_says_nothing_to_this_version_is_applied_and_kept_as_it_came(
        self, store: Store, other: Store, unknown: bytes
    ) -> None:
        items = [line._replace(fingerprint=unknown) for line in logged(run(store, [("put", "t", b"a", b"1")]))]
        other.apply(1, items)
        assert other.applied() == store.applied()
        assert other.logged(1, 1) == items

    def test_recomputing_says_how_far_it_is_and_can_be_ended(self, store: Store) -> None:
        run(store, *[[("put", "t", b"%d" % number, b"")] for number in range(2500)])
        run(store, [("add", "main", quads(*(f"<urn:s> <urn:p> <urn:{number}>" for number in range(1500))))])
        heard: list[int] = []
        assert store.recompute(heard.append) == store.applied()
        assert heard == [0, 1000, 2000, 2500, 3500]

        # It can be ended among the keys and among the quads.
        for limit in (1000, 3500):

            def enough(items: int, limit: int = limit) -> None:
                if items >= limit:
                    raise InterruptedByTest

            with pytest.raises(InterruptedByTest):
                store.recompute(enough)
        assert store.recompute() == store.applied()
        run(store, [("put", "t", b"k", b"")])
