"""What every store must do with large transactions: parts, commit, drop; test_stores.py runs it on each. Fixtures as in store_contract.py."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from brokerha.model.errors import InvalidRequest
from brokerha.model.etags import etag_of
from brokerha.model.operations import APPLIED, REJECTED, Operation, Result, pack_operations, unpack_effect
from brokerha.model.outside.authors import signed
from brokerha.model.reserved import branches, staging
from brokerha.ports.store import Store
from brokerha.stores.execution import staged
from tests.contracts.store_contract import IN_GRAPH, A, B, C, fingerprint, lines, logged, quads, read, rows, run
from tests.contracts.store_prepared_contract import prepared
from tests.contracts.store_queue_contract import queue

NAME = "large"
HOUR = 3_600_000_000


def at_next(store: Store, txid: str, *operations: Operation, user: str = "", timestamp: int = 1_000_000) -> Result:
    """One transaction at the next LSN."""
    body = signed(pack_operations(list(operations)), user)
    return store.execute(store.applied().lsn + 1, [(txid, timestamp, body)])[0]


def stage(store: Store, part: int, *operations: Operation, name: str = NAME, user: str = "", timestamp: int = 1_000_000) -> Result:
    row: Operation = ("stage", name, part)
    return at_next(store, f"{name}.{part}", row, *operations, user=user, timestamp=timestamp)


def commit(store: Store, parts: int, *expectations: Operation, name: str = NAME, user: str = "") -> Result:
    return at_next(store, name, *expectations, ("commit-staged", name, parts), user=user)


def drop(store: Store, name: str = NAME) -> Result:
    return at_next(store, f"{name}.drop", ("drop-staged", name))


def ok(result: Result) -> Result:
    assert (result.outcome, result.reason) == (APPLIED, "")
    return result


def why(store: Store, result: Result) -> str:
    """Why it was rejected."""
    assert result.outcome == REJECTED
    assert store.applied() == store.recompute()
    return result.reason


class StoreStagedContract:
    """Tests of large transactions."""

    def test_all_parts_take_place_at_the_commit_and_nothing_before(self, store: Store) -> None:
        run(store, [("put", "t", b"gone", b"1"), ("add", "main", quads(A, IN_GRAPH))])
        before = lines(store)
        ok(stage(store, 2, ("remove", "main", quads(A)), ("put", "t", b"k", b"2"), ("publish", "q", "text/plain", b"m")))
        ok(stage(store, 1, ("add", "main", quads(B)), ("put", "t", b"k", b"1"), ("delete", "t", b"gone")))
        ok(stage(store, 3, ("publish", "q", "", b"n"), ("add", "main", quads(A, C)), ("remove", "main", quads(C))))
        assert (lines(store), rows(store, "t"), queue(store, "q")) == (before, [(b"gone", b"1")], [])
        ok(commit(store, 3))
        assert (lines(store), rows(store, "t")) == (sorted([A, B, IN_GRAPH]), [(b"k", b"2")])
        assert [each[0] for each in queue(store, "q")] == ["large.1", "large.2"]
        assert store.applied() == store.recompute()
        assert rows(store, staging.TABLE) == []

    def test_its_effect_names_the_parts_by_their_lsns(self, store: Store) -> None:
        run(store, [("put", "t", b"x", b"1")])
        ok(stage(store, 2, ("put", "t", b"b", b"2"), ("publish", "q", "", b"m")))
        run(store, [("put", "t", b"x", b"2")])
        ok(stage(store, 1, ("publish", "q", "", b"n")))
        result = ok(commit(store, 2))
        gone = [("delete", staging.TABLE, staging.part_key(NAME, part)) for part in (1, 2)]
        assert [tuple(change) for change in unpack_effect(result.effect)] == [
            ("staged", NAME, ((4, 0), (2, 1)), (("queue", "q"), ("table", "t"))),
            *gone,
        ]

    def test_another_copy_comes_to_the_same_by_the_log(self, store: Store, other: Store) -> None:
        results = [
            *run(store, [("add", "main", quads(A)), ("put", "t", b"k", b"0")]),
            stage(store, 1, ("add", "main", quads(A, B)), ("put", "t", b"k", b"1")),
            *run(store, [("remove", "main", quads(A)), ("add", "main", quads(C))]),
            stage(store, 2, ("publish", "q", "", b"m"), ("remove", "main", quads(IN_GRAPH))),
            *run(store, [("add", "main", quads(IN_GRAPH))]),
            commit(store, 2),
        ]
        assert [result.outcome for result in results] == [APPLIED] * 6
        other.apply(1, logged(results))
        for each in (store, other):
            assert (lines(each), rows(each, "t")) == (sorted([A, B, C]), [(b"k", b"1")])
            assert each.applied() == each.recompute() == store.applied()

    def test_what_others_change_meanwhile_stays_but_where_the_transaction_says_otherwise(self, store: Store) -> None:
        run(store, [("add", "main", quads(A))])
        ok(stage(store, 1, ("add", "main", quads(A, B)), ("remove", "main", quads(C)), ("put", "t", b"k", b"large")))
        run(store, [("remove", "main", quads(A)), ("add", "main", quads(B, C, IN_GRAPH)), ("put", "t", b"k", b"small")])
        run(store, [("put", "t", b"other", b"small"), ("publish", "q", "", b"m")])
        ok(commit(store, 1))
        assert lines(store) == sorted([A, B, IN_GRAPH])
        assert rows(store, "t") == [(b"k", b"large"), (b"other", b"small")]
        assert store.applied() == store.recompute()

    def test_it_goes_on_after_a_restart(self, store: Store, reopened: Callable[[Store], Store]) -> None:
        run(store, [("add", "main", quads(C))])
        ok(stage(store, 1, ("add", "main", quads(A))))
        store = reopened(store)
        run(store, [("remove", "main", quads(C))])
        ok(stage(store, 2, ("add", "main", quads(B)), ("put", "t", b"k", b"1")))
        store = reopened(store)
        ok(commit(store, 2))
        store = reopened(store)
        assert (lines(store), rows(store, "t")) == ([A, B], [(b"k", b"1")])
        assert store.applied() == store.recompute()
        run(store, [("add", "main", quads(C))])
        assert lines(reopened(store)) == [A, B, C]

    def test_all_of_a_repository_is_replaced(self, store: Store, other: Store) -> None:
        results = [
            *run(store, [("create-repository", "r"), ("add", "r", quads(A, C)), ("add", "main", quads(A, IN_GRAPH))]),
            stage(store, 2, ("add", "main", quads(C))),
            stage(store, 1, ("clear", "main"), ("clear", "r"), ("put", "t", b"k", b"1"), ("add", "main", quads(A, B))),
            # What others do before the commit goes as well.
            *run(store, [("add", "main", quads(IN_GRAPH, C)), ("remove", "main", quads(A)), ("add", "r", quads(B))]),
            commit(store, 2),
            *run(store, [("add", "r", quads(B))]),
        ]
        assert [result.outcome for result in results] == [APPLIED] * 6
        staged = unpack_effect(results[-2].effect)[0]
        assert staged == ("staged", NAME, ((3, 0), (2, 0)), (("graph", "main", 2), ("graph", "r", 3), ("table", "t")))
        other.apply(1, logged(results))
        for each in (store, other):
            assert (lines(each), lines(each, "r"), rows(each, "t")) == ([A, B, C], [B], [(b"k", b"1")])
            assert each.applied() == each.recompute() == store.applied()

    def test_what_is_emptied_goes_on_after_a_restart_and_when_it_is_made_anew(
        self, store: Store, reopened: Callable[[Store], Store]
    ) -> None:
        run(store, [("create-repository", "r"), ("add", "r", quads(C))])
        ok(stage(store, 1, ("clear", "r"), ("add", "r", quads(A)), ("remove", "r", quads(A))))
        store = reopened(store)
        ok(stage(store, 2, ("add", "r", quads(B))))
        run(store, [("remove-repository", "r"), ("create-repository", "r"), ("add", "r", quads(A, C))])
        ok(commit(store, 2))
        store = reopened(store)
        assert lines(store, "r") == [B]
        assert store.applied() == store.recompute()

    @pytest.mark.parametrize(
        ("part", "operations"),
        [
            (2, [("clear", "main")]),
            (1, [("add", "main", quads(A)), ("clear", "main")]),
            (1, [("clear", "main"), ("put", "t", b"k", b""), ("clear", "r")]),
        ],
    )
    def test_what_is_emptied_is_emptied_first(self, store: Store, part: int, operations: list[Operation]) -> None:
        with pytest.raises(InvalidRequest, match="clear comes first in part 1 of a large transaction"):
            stage(store, part, *operations)

    def test_a_repository_that_is_made_anew_meanwhile(self, store: Store) -> None:
        run(store, [("create-repository", "r"), ("add", "r", quads(A))])
        ok(stage(store, 1, ("add", "r", quads(B))))
        run(store, [("remove-repository", "r")])
        ok(stage(store, 2, ("add", "r", quads(C))))
        run(store, [("create-repository", "r")])
        ok(commit(store, 2))
        assert lines(store, "r") == [B, C]
        assert store.applied() == store.recompute()

    def test_a_repository_that_is_made_after_the_part(self, store: Store) -> None:
        ok(stage(store, 1, ("add", "r", quads(A))))
        run(store, [("create-repository", "r"), ("add", "r", quads(C))])
        ok(stage(store, 2, ("add", "r", quads(B))))
        ok(commit(store, 2))
        assert lines(store, "r") == [A, B, C]
        assert store.applied() == store.recompute()

    def test_two_of_the_same_repository(self, store: Store) -> None:
        ok(stage(store, 1, ("add", "main", quads(A, B)), name="one"))
        ok(stage(store, 1, ("remove", "main", quads(A)), ("add", "main", quads(C)), name="two"))
        ok(commit(store, 1, name="one"))
        ok(stage(store, 2, ("add", "main", quads(IN_GRAPH)), name="two"))
        ok(commit(store, 2, name="two"))
        assert lines(store) == sorted([B, C, IN_GRAPH])
        assert store.applied() == store.recompute()

    def test_what_is_dropped_leaves_nothing(self, store: Store) -> None:
        before = fingerprint(store)
        ok(stage(store, 1, ("add", "main", quads(A)), ("put", "t", b"k", b"1")))
        ok(drop(store))
        assert (fingerprint(store), lines(store)) == (before, [])
        assert unpack_effect(ok(drop(store)).effect) == []
        assert why(store, commit(store, 1)) == "part 1 of large transaction large is not staged"

    def test_what_is_too_old_goes_with_the_next_part_of_another(self, store: Store) -> None:
        ok(stage(store, 1, ("put", "t", b"a", b"1"), name="old", timestamp=HOUR))
        ok(stage(store, 2, ("put", "t", b"a", b"1"), name="old", timestamp=2 * HOUR))
        ok(stage(store, 1, ("put", "t", b"b", b"1"), timestamp=3 * HOUR))
        assert len(rows(store, staging.TABLE)) == 3
        ok(stage(store, 2, ("put", "t", b"c", b"1"), timestamp=3 * HOUR + 1))
        assert [staging.part_of(key) for key, _ in rows(store, staging.TABLE)] == [(NAME, 1), (NAME, 2)]

    def test_a_commit_that_cannot_be(self, store: Store) -> None:
        ok(stage(store, 1, ("add", "main", quads(A))))
        ok(stage(store, 3, ("add", "main", quads(B)), user=""))
        assert why(store, commit(store, 3)) == "part 2 of large transaction large is not staged"
        assert why(store, commit(store, 1)) == "2 parts of large transaction large are staged, and 1 are to be committed"
        assert "is committed under its own name" in why(store, at_next(store, "x", ("commit-staged", NAME, 1)))
        assert why(store, stage(store, 1, ("put", "t", b"k", b"v"))) == "part 1 of large transaction large is staged already"
        ok(stage(store, 2, ("add", "nowhere", quads(B))))
        assert why(store, commit(store, 3)) == "repository 'nowhere' does not exist"
        assert lines(store) == []

    def test_only_who_staged_it_commits_it(self, store: Store) -> None:
        ok(stage(store, 1, ("put", "t", b"k", b"v"), user="ann"))
        assert why(store, commit(store, 1, user="bob")) == "large transaction large was staged by somebody else"
        assert why(store, commit(store, 1)) == "large transaction large was staged by somebody else"
        result = ok(commit(store, 1, user="ann"))
        assert unpack_effect(result.effect)[-1] == ("by", "ann")

    def test_expectations_are_judged_at_the_commit(self, store: Store) -> None:
        ok(stage(store, 1, ("put", "t", b"k", b"v")))
        reason = why(store, commit(store, 1, ("expect-since", "table", "t", 0), ("expect-key", "t", b"k", etag_of(b"x"))))
        assert "key" in reason
        ok(commit(store, 1, ("expect-since", "table", "t", 0), ("expect-key", "t", b"k", "")))
        assert why(store, at_next(store, "y", ("expect-since", "table", "t", 1), ("put", "u", b"k", b"v")))

    def test_checks_of_keys_are_judged_at_the_commit(self, store: Store) -> None:
        run(store, [("control-add", "sum", "key", "t", "sum", ">= 0"), ("put", "t", b"sum", b"1")])
        ok(stage(store, 1, ("put", "t", b"sum", b"5")))
        ok(stage(store, 2, ("put", "t", b"sum", b"-1")))
        assert "check 'sum' failed" in why(store, commit(store, 2))
        assert rows(store, "t") == [(b"sum", b"1")]
        ok(drop(store))
        ok(stage(store, 1, ("put", "t", b"sum", b"-1"), name="two"))
        ok(stage(store, 2, ("put", "t", b"sum", b"2"), name="two"))
        ok(commit(store, 2, name="two"))
        assert rows(store, "t") == [(b"sum", b"2")]

    def test_what_a_prepared_transaction_holds_stays(self, store: Store) -> None:
        prepared(store, ("put", "t", b"k", b"v"), ("add", "main", quads(A)))
        ok(stage(store, 1, ("put", "t", b"k", b"w")))
        ok(stage(store, 1, ("remove", "main", quads(A)), name="two"))
        assert "held by prepared transaction b" in why(store, commit(store, 1))
        assert "held by prepared transaction b" in why(store, commit(store, 1, name="two"))

    def test_it_cannot_be_prepared(self, store: Store) -> None:
        ok(stage(store, 1, ("put", "t", b"k", b"v")))
        for row in (("commit-staged", NAME, 1), ("drop-staged", NAME)):
            body = branches.packed(branches.PREPARE, "b", pack_operations([row]))
            (result,) = store.execute(store.applied().lsn + 1, [("b.p", 1_000_000, body)])
            assert "cannot be prepared" in why(store, result)

    def test_a_table_of_which_there_is_a_snapshot_is_left_alone(self, store: Store) -> None:
        run(store, [("put", "t", b"k", b"1"), ("snapshot", "monday", "t")])
        ok(stage(store, 1, ("put", "t", b"k", b"2")))
        assert why(store, commit(store, 1)).startswith("a snapshot shows table 't'")
        assert rows(store, "t", snapshot="monday") == [(b"k", b"1")]

    def test_nobody_lists_its_table_nor_makes_a_snapshot_of_it(self, store: Store) -> None:
        run(store, [("put", "t", b"k", b"1")])
        ok(stage(store, 1, ("put", "u", b"k", b"2")))
        ok(at_next(store, "s", ("snapshot", "all")))
        assert json.loads(read(store, "tables")) == ["t"]
        ok(stage(store, 2, ("put", "u", b"l", b"2")))
        ok(commit(store, 2))
        assert json.loads(read(store, "tables")) == ["t", "u"]
        assert store.applied() == store.recompute()

    def test_what_is_staged_can_be_listed(self, store: Store) -> None:
        ok(stage(store, 1, ("put", "t", b"k", b"v"), user="ann", timestamp=2_000_000))
        ok(stage(store, 2, ("add", "main", quads(A, B)), user="ann", timestamp=4_000_000))
        ok(stage(store, 1, ("put", "t", b"k", b"v"), name="two", timestamp=3_000_000))
        first, second = json.loads(read(store, "staged"))
        assert first.pop("bytes") > 0
        assert first == {"txid": "two", "parts": 1, "items": 1, "user": "", "last_us": 3_000_000}
        assert (second["txid"], second["parts"], second["items"], second["user"], second["last_us"]) == (
            NAME,
            2,
            3,
            "ann",
            4_000_000,
        )
        ok(commit(store, 2, user="ann"))
        assert [each["txid"] for each in json.loads(read(store, "staged"))] == ["two"]

    def test_limits(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(staged, "SIZE_LIMIT_BYTES", 100)
        assert "load the data instead" in why(store, stage(store, 1, ("put", "t", b"k", bytes(100))))
        monkeypatch.undo()
        monkeypatch.setattr(staged, "ITEMS_LIMIT", 2)
        ok(stage(store, 1, ("add", "main", quads(A, B))))
        assert "3 items" in why(store, stage(store, 2, ("put", "t", b"k", b"v")))
        monkeypatch.undo()
        monkeypatch.setattr(staged, "COUNT_LIMIT", 1)
        assert "1 large transactions are staged" in why(store, stage(store, 1, ("put", "t", b"k", b"v"), name="two"))
        ok(stage(store, 2, ("put", "t", b"k", b"v")))

    def test_nobody_writes_the_table_by_its_name(self, store: Store) -> None:
        key = staging.part_key(NAME, 1)
        body = b"\x91" + pack_operations([("put", "t", key, b"v")])[1:].replace(b"\xa1t", b"\xb3urn:brokerha:staged")
        (result,) = store.execute(1, [("x", 1_000_000, body)])
        assert "brokerha's own: it holds what is staged" in why(store, result)
        assert read(store, "range", "t")
