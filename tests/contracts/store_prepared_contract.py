"""What every store must do with prepared branches; test_stores.py runs it on each. Fixtures as in store_contract.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from brokerha.model.errors import InvalidRequest
from brokerha.model.etags import etag_of
from brokerha.model.operations import APPLIED, REJECTED, Operation, Result, pack_operations, unpack_effect
from brokerha.model.reserved import about, branches
from brokerha.ports.store import Store
from tests.contracts.store_contract import A, B, fingerprint, lines, logged, quads, read, rows, run
from tests.contracts.store_queue_contract import queue

PUT: Operation = ("put", "t", b"k", b"v")
CHECK: Operation = ("control-add", "sum", "key", "t", "other", ">= 0")


def step(store: Store, kind: str, txid: str, *operations: Operation) -> Result:
    """One of the three transactions of a branch, at the next LSN."""
    body = branches.packed(kind, txid, pack_operations(list(operations)) if operations else b"")
    named = {branches.PREPARE: branches.prepare_id(txid), branches.ROLLBACK: branches.rollback_id(txid)}.get(kind, txid)
    return store.execute(store.applied().lsn + 1, [(named, 1_000_000, body)])[0]


def prepare(store: Store, *operations: Operation, txid: str = "b") -> Result:
    return step(store, branches.PREPARE, txid, *operations)


def prepared(store: Store, *operations: Operation, txid: str = "b") -> None:
    result = prepare(store, *operations, txid=txid)
    assert (result.outcome, result.reason) == (APPLIED, "")


def commit(store: Store, txid: str = "b") -> Result:
    return step(store, branches.COMMIT, txid)


def rollback(store: Store, txid: str = "b") -> Result:
    return step(store, branches.ROLLBACK, txid)


def refused(store: Store, *operations: Operation) -> str:
    """Why a transaction is rejected."""
    before = fingerprint(store)
    (result,) = run(store, operations)
    assert result.outcome == REJECTED, result
    assert fingerprint(store) == before
    return result.reason


def held(what: str, txid: str = "b") -> str:
    return f"conflict: {what} is held by prepared transaction {txid}: try again when that is over"


class StorePreparedContract:
    """Tests of prepare, commit, rollback, and of what is kept from others meanwhile."""

    def test_a_commit_makes_what_the_prepare_would_have_changed(self, store: Store) -> None:
        run(store, [("put", "t", b"gone", b"1"), ("publish", "q", "text/plain", b"m"), ("add", "main", quads(A))])
        prepared(
            store,
            PUT,
            ("delete", "t", b"gone"),
            ("accept", "q", "tx.2"),
            ("publish", "q", "text/plain", b"n"),
            ("remove", "main", quads(A)),
            ("add", "main", quads(B)),
            ("create-repository", "r"),
            ("add", "r", quads(A)),
            (*CHECK[:-1], "absent"),
        )
        assert (rows(store, "t"), lines(store), [each[0] for each in queue(store, "q")]) == ([(b"gone", b"1")], [A], ["tx.2"])
        result = commit(store)
        assert result.outcome == APPLIED
        assert rows(store, "t") == [(b"k", b"v")]
        assert [each[0] for each in queue(store, "q")] == ["b.4"]
        assert (lines(store), lines(store, "r")) == ([B], [A])
        assert b'"sum"' in read(store, "control")
        assert ("delete", branches.TABLE, b"b") in unpack_effect(result.effect)
        assert store.recompute() == store.applied()

    def test_what_is_free_of_a_queue_leaves_out_what_branches_take(self, store: Store) -> None:
        def free(**arguments: Any) -> list[str]:
            return [row[0] for row in msgpack.unpackb(read(store, "queue", "q", holder="m1", **arguments))[2]]

        ids = [f"tx.{number}" for number in range(1, 7)]
        run(store, [("publish", "q", "text/plain", b"m")] * 6)
        assert free() == ids
        prepared(store, ("accept", "q", "tx.1"), ("accept", "q", "tx.3"))
        prepared(store, ("accept", "q", "tx.4"), txid="c")
        assert free() == ["tx.2", "tx.5", "tx.6"]
        assert free(limit=2) == ["tx.2", "tx.5"]
        assert [each[0] for each in queue(store, "q")] == ids
        rollback(store)
        assert free() == ["tx.1", "tx.2", "tx.3", "tx.5", "tx.6"]
        commit(store, "c")
        assert free() == ["tx.1", "tx.2", "tx.3", "tx.5", "tx.6"]
        assert [each[0] for each in queue(store, "q")] == free()

    def test_a_rollback_leaves_nothing(self, store: Store) -> None:
        before = fingerprint(store)
        prepared(store, PUT, ("create-repository", "r"))
        assert fingerprint(store) != before
        assert rollback(store).outcome == APPLIED
        assert fingerprint(store) == before
        assert (rollback(store).effect, rollback(store, "never").effect) == (b"", b"")
        assert run(store, [PUT], [("create-repository", "r")])[1].outcome == APPLIED

    def test_what_would_be_rejected_is_not_prepared(self, store: Store) -> None:
        run(store, [("put", "t", b"other", b"1"), CHECK])
        assert prepare(store, ("put", "t", b"other", b"-1")).reason.startswith("check 'sum' failed: expected >= 0, found -1")
        assert prepare(store, ("add", "nowhere", quads(A))).reason == "repository 'nowhere' does not exist"
        assert prepare(store, ("accept", "q", "x.1")).reason == "conflict: message 'x.1' is not in queue 'q'"
        assert prepare(store, ("expect-key", "t", b"other", "")).outcome == REJECTED
        assert "expects a fingerprint cannot be prepared" in prepare(
            store, PUT, ("expect-fingerprint", store.applied().fingerprint)
        ).reason  # fmt: skip
        assert commit(store).reason == "transaction b is not prepared"

    def test_preparing_again_and_committing_again(self, store: Store) -> None:
        prepared(store, PUT)
        again = prepare(store, PUT)
        assert (again.outcome, again.effect) == (APPLIED, b"")
        assert commit(store).outcome == APPLIED
        assert commit(store).outcome == REJECTED

    @pytest.mark.parametrize(
        ("branch", "other", "what"),
        [
            (PUT, ("put", "t", b"k", b"w"), "key 'k' of table 't'"),
            (PUT, ("delete", "t", b"k"), "key 'k' of table 't'"),
            (PUT, ("control-add", "c", "key", "t", "k", "absent"), "key 'k' of table 't'"),
            (("put", "t", b"old", b"1"), ("put", "t", b"old", b"2"), "key 'old' of table 't'"),
            (("expect-key", "t", b"old", etag_of(b"1")), ("put", "t", b"old", b"2"), "key 'old' of table 't'"),
            (("expect-key", "t", b"new", ""), ("put", "t", b"new", b"2"), "key 'new' of table 't'"),
            (("expect-since", "table", "t", 1), ("put", "t", b"any", b"2"), "table 't'"),
            (("expect-range", "t", b"x", b"y", bytes(16)), ("put", "t", b"xx", b"2"), "table 't'"),
            (("expect-since", "queue", "q", 1), ("publish", "q", "text/plain", b""), "queue 'q'"),
            (("expect-since", "graph", "main", 1), ("add", "main", quads(B)), "repository 'main'"),
            (("accept", "q", "tx.4"), ("accept", "q", "tx.4"), "message 'tx.4' of queue 'q'"),
            (("add", "main", quads(B)), ("add", "main", quads(B)), f"quad {B} of repository 'main'"),
            (("remove", "main", quads(A)), ("remove", "main", quads(A)), f"quad {A} of repository 'main'"),
            (("add", "main", quads(A)), ("remove", "main", quads(A)), f"quad {A} of repository 'main'"),
            (("remove", "main", quads(B)), ("add", "main", quads(B)), f"quad {B} of repository 'main'"),
            (("add", "main", quads(A)), ("remove-repository", "main"), "repository 'main'"),
            (("remove-repository", "main"), ("add", "main", quads(B)), "repository 'main'"),
            (("create-repository", "r"), ("create-repository", "r"), "repository 'r'"),
            (("create-repository", "r"), ("create-repository", "s"), "the number of repositories"),
            (CHECK, ("control-add", "d", "key", "t", "x", "absent"), "the control suite"),
            (CHECK, ("put", "t", b"other", b"3"), "key 'other' of table 't'"),
            (
                ("put", about.TABLE, about.setting_key("main", "title"), b"T"),
                ("put", about.TABLE, about.setting_key("main", "title"), b"U"),
                f"key 'main/setting/title' of table '{about.TABLE}'",
            ),
            (("remove-repository", "main"), ("put", about.TABLE, about.setting_key("main", "title"), b"U"), "repository 'main'"),
        ],
    )
    def test_what_would_spoil_it_is_rejected_until_it_is_over(
        self, store: Store, branch: Operation, other: Operation, what: str
    ) -> None:
        message: Operation = ("publish", "q", "text/plain", b"m")
        run(store, [("put", "t", b"old", b"1"), ("put", "t", b"other", b"1"), ("add", "main", quads(A)), message])
        prepared(store, branch)
        assert refused(store, other) == held(what)
        assert prepare(store, other, txid="c").reason == held(what)
        assert rollback(store).outcome == APPLIED
        assert run(store, [other])[0].outcome == APPLIED

    def test_nothing_is_prepared_whose_expectation_another_branch_will_break(self, store: Store) -> None:
        prepared(store, PUT)
        assert prepare(store, ("expect-key", "t", b"k", ""), txid="c").reason == held("key 'k' of table 't'")
        assert prepare(store, ("expect-since", "table", "t", 0), txid="c").reason == held("table 't'")

    def test_two_may_rely_upon_the_same(self, store: Store) -> None:
        prepared(store, ("expect-key", "t", b"k", ""), ("put", "t", b"b", b"1"))
        prepared(store, ("expect-key", "t", b"k", ""), ("put", "t", b"c", b"1"), txid="c")
        assert commit(store).outcome == APPLIED
        assert refused(store, PUT) == held("key 'k' of table 't'", "c")
        assert commit(store, "c").outcome == APPLIED
        assert run(store, [PUT])[0].outcome == APPLIED

    def test_what_has_nothing_to_do_with_it_goes_on(self, store: Store) -> None:
        run(store, [("publish", "q", "text/plain", b"m"), ("publish", "q", "text/plain", b"n")])
        prepared(store, PUT, ("accept", "q", "tx.1"), ("add", "main", quads(A)))
        results = run(
            store,
            [("put", "t", b"x", b"1")],
            [("accept", "q", "tx.2"), ("add", "main", quads(B))],
            [("control-add", "c", "key", "t", "x", "present")],
            [("expect-key", "t", b"k", "")],
            [("create-repository", "r")],
        )
        assert [each.outcome for each in results] == [APPLIED] * 5
        assert commit(store).outcome == APPLIED
        assert (lines(store), queue(store, "q")) == (sorted([A, B]), [])
        assert store.recompute() == store.applied()

    def test_clients_neither_see_nor_write_the_table(self, store: Store) -> None:
        prepared(store, PUT)
        assert read(store, "tables") == b"[]"
        for kind in ("range", "get"):
            with pytest.raises(InvalidRequest, match="brokerha's own"):
                read(store, kind, branches.TABLE, **({"key": b"b"} if kind == "get" else {}))
        for operation in (
            ("put", branches.TABLE, b"b", b"x"),
            ("delete", branches.TABLE, b"b"),
            ("expect-key", branches.TABLE, b"b", ""),
            ("control-add", "c", "key", branches.TABLE, "b", "absent"),
        ):
            with pytest.raises(InvalidRequest, match="brokerha's own"):
                pack_operations([operation])
        body = branches.packed(branches.PREPARE, "x")[:-1]
        assert store.execute(store.applied().lsn + 1, [("x", 1, body)])[0].outcome == REJECTED

    def test_limits(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("brokerha.stores.execution.prepared.SIZE_LIMIT_BYTES", 1000)
        monkeypatch.setattr("brokerha.stores.execution.prepared.SUM_LIMIT_BYTES", 1500)
        monkeypatch.setattr("brokerha.stores.execution.prepared.COUNT_LIMIT", 3)
        assert "the limit is 1000: split it" in prepare(store, ("put", "t", b"a", b"x" * 1000)).reason
        prepared(store, ("put", "t", b"a", b"x" * 900), txid="a")
        assert "1500 is the limit" in prepare(store, ("put", "t", b"c", b"x" * 900)).reason
        prepared(store, PUT)
        prepared(store, ("put", "t", b"d", b""), txid="d")
        assert (
            prepare(store, ("put", "t", b"e", b""), txid="e").reason
            == "3 transactions are prepared, which is the limit: finish some"
        )
        assert rollback(store, "a").outcome == APPLIED
        prepared(store, ("put", "t", b"c", b"x" * 900), txid="c")

    def test_it_is_there_after_a_restart_and_on_copies(self, store: Store, other: Store, reopened: Callable[[Any], Store]) -> None:
        results = [prepare(store, PUT, ("add", "main", quads(A)))]
        other.apply(1, logged(results))
        store = reopened(store)
        assert refused(store, ("put", "t", b"k", b"w")) == held("key 'k' of table 't'")
        lines_ = store.logged(2, 2)
        other.apply(2, lines_)
        assert refused(other, ("put", "t", b"k", b"w")) == held("key 'k' of table 't'")
        assert [commit(each).outcome for each in (store, other)] == [APPLIED] * 2
        assert fingerprint(store) == fingerprint(other)
