"""What every store must do, whatever it is made of; test_stores.py runs it on each of them.

A class below gives two fixtures: `store`, an empty one, and `reopened`, which ends a store as a clean stop would and returns
what stands in its place after a restart. Quads are given in their canonical form, because one of the stores takes them as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import msgpack
import pytest

from brokerha.model.errors import InvalidRequest, NotFound, UnknownRepository
from brokerha.model.fingerprints import EMPTY, from_text
from brokerha.model.invariants import InvariantBroken
from brokerha.model.operations import APPLIED, REJECTED, Logged, Operation, Result, pack_operations, unpack_effect
from brokerha.ports.store import Store
from brokerha.stores.execution import evaluation

A, B, C = (f"<urn:s> <urn:p> <urn:{name}>" for name in "abc")
IN_GRAPH = "<urn:s> <urn:p> <urn:a> <urn:g>"


def quads(*lines: str) -> str:
    return "".join(f"{line} .\n" for line in lines)


def transaction(*operations: Operation, txid: str = "tx") -> tuple[str, int, bytes]:
    return txid, 1_000_000, pack_operations(list(operations))


def run(store: Store, *transactions: tuple[Operation, ...] | list[Operation]) -> list[Result]:
    """Execute transactions in one batch at the next LSN."""
    return store.execute(store.applied().lsn + 1, [transaction(*operations) for operations in transactions])


def logged(results: Sequence[Result]) -> list[Logged]:
    """The lines of the log that `run` leaves behind."""
    return [Logged("tx", 1_000_000, *result) for result in results]


def fingerprint(store: Store) -> bytes:
    return from_text(store.applied().fingerprint)


def effect(store: Store, *operations: Operation) -> list[object]:
    (result,) = run(store, operations)
    assert result.outcome == APPLIED, result
    return [json_like(change) for change in unpack_effect(result.effect)]


def json_like(change: object) -> object:
    """Tuples as lists, all the way down."""
    return [json_like(item) for item in change] if isinstance(change, (tuple, list)) else change


def read(store: Store, kind: str, name: str = "", **arguments: object) -> bytes:
    named = {key.removesuffix("_"): value for key, value in arguments.items()}
    return b"".join(store.read(kind, name, named).pieces)


def lines(store: Store, repository: str = "main") -> list[str]:
    text = read(store, "statements", repository, accept="application/n-quads").decode()
    return sorted(line.removesuffix(" .") for line in text.splitlines())


def rows(store: Store, table: str, **arguments: object) -> list[tuple[bytes, bytes]]:
    return list(msgpack.unpackb(read(store, "range", table, **arguments), use_list=False))


class StoreContract:
    """Tests that need a `store`, and `reopened(store)`."""

    def test_a_new_store_has_only_the_empty_repository_main(self, store: Store) -> None:
        applied = store.applied()
        assert (applied.lsn, applied.items) == (0, 0)
        assert json.loads(read(store, "repositories")) == ["main"]
        assert read(store, "size", "main") == b"0"
        assert store.recompute() == applied

    def test_a_value_that_was_put_is_read_until_it_is_deleted(self, store: Store) -> None:
        assert effect(store, ("put", "t", b"k", b"v")) == [["put", "t", b"k", b"v"]]
        assert read(store, "get", "t", key=b"k") == b"v"
        assert effect(store, ("delete", "t", b"k")) == [["delete", "t", b"k"]]
        with pytest.raises(NotFound):
            read(store, "get", "t", key=b"k")

    def test_an_operation_that_changes_nothing_has_no_effect(self, store: Store) -> None:
        run(store, [("put", "t", b"k", b"v"), ("add", "main", quads(A))])
        nothing = [("put", "t", b"k", b"v"), ("delete", "t", b"other"), ("add", "main", quads(A)), ("remove", "main", quads(B))]
        for operation in nothing:
            assert run(store, [operation]) == [Result(APPLIED, "", b"", fingerprint(store))]
        assert store.applied().items == 2

    def test_an_effect_has_a_limit_and_what_is_over_it_changes_nothing(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        run(store, [("create-repository", "r"), ("add", "r", quads(*(f"<urn:s> <urn:p> <urn:{n}>" for n in range(15))))])
        monkeypatch.setattr(evaluation, "EFFECT_LIMIT_BYTES", 300)
        before = fingerprint(store)
        for operations in (
            [("add", "main", quads(*(f"<urn:s> <urn:p> <urn:{n}>" for n in range(15))))],
            [("remove-repository", "r")],
            [("publish", "q", "text/plain", b"m" * 200), ("put", "t", b"k", b"v" * 100)],
            [("publish", "q", "text/plain", b"m")] * 20,
        ):
            (result,) = run(store, operations)
            assert (result.outcome, result.effect, result.fingerprint) == (REJECTED, b"", before)
            assert "the limit is 300: split it" in result.reason
        assert effect(store, ("add", "main", quads(A, B)))
        assert effect(store, ("publish", "q", "text/plain", b"m" * 200))
        assert store.recompute() == store.applied()

    def test_only_the_net_change_of_a_transaction_is_its_effect(self, store: Store) -> None:
        run(store, [("put", "t", b"k", b"1"), ("add", "main", quads(A))])
        assert effect(store, ("put", "t", b"k", b"2"), ("put", "t", b"k", b"3")) == [["put", "t", b"k", b"3"]]
        assert effect(store, ("delete", "t", b"k"), ("put", "t", b"k", b"3")) == []
        assert effect(store, ("remove", "main", quads(A)), ("add", "main", quads(A, B))) == [["quads", "main", [], [B]]]

    def test_changes_are_sorted_by_kind_and_name_and_key(self, store: Store) -> None:
        run(store, [("put", "t", b"old", b""), ("create-repository", "away")])
        found = effect(
            store,
            ("remove-repository", "away"),
            ("put", "u", b"a", b"1"),
            ("put", "t", b"b", b"2"),
            ("add", "main", quads(C, B, A)),
            ("put", "t", b"a", b"3"),
            ("delete", "t", b"old"),
            ("create-repository", "new"),
            ("add", "new", quads(A)),
        )
        assert found == [
            ["create-repository", "new"],
            ["delete", "t", b"old"],
            ["put", "t", b"a", b"3"],
            ["put", "t", b"b", b"2"],
            ["put", "u", b"a", b"1"],
            ["quads", "main", [], [A, B, C]],
            ["quads", "new", [], [A]],
            ["remove-repository", "away"],
        ]

    def test_a_later_transaction_of_a_batch_sees_the_earlier_ones(self, store: Store) -> None:
        first, second, third = run(
            store,
            [("put", "t", b"k", b"v"), ("add", "main", quads(A))],
            [("put", "t", b"k", b"v"), ("add", "main", quads(A))],
            [("delete", "t", b"k"), ("remove", "main", quads(A))],
        )
        assert first.effect
        assert second == Result(APPLIED, "", b"", first.fingerprint)
        assert json_like(unpack_effect(third.effect)) == [["delete", "t", b"k"], ["quads", "main", [A], []]]
        assert store.applied().items == 0

    @pytest.mark.parametrize(
        ("operation", "reason"),
        [
            (("add", "nowhere", quads(A)), "repository 'nowhere' does not exist"),
            (("remove-repository", "nowhere"), "repository 'nowhere' does not exist"),
            (("create-repository", "main"), "repository 'main' exists already"),
        ],
    )
    def test_a_transaction_with_one_failing_operation_leaves_no_trace(
        self, store: Store, operation: Operation, reason: str
    ) -> None:
        run(store, [("put", "t", b"k", b"v"), ("add", "main", quads(A))])
        before = store.applied()
        good: list[Operation] = [
            ("put", "t", b"k", b"2"),
            ("put", "t", b"new", b"1"),
            ("create-repository", "made"),
            ("add", "made", quads(A)),
            ("add", "main", quads(B)),
        ]
        assert run(store, [*good, operation]) == [Result(REJECTED, reason, b"", from_text(before.fingerprint))]
        assert store.applied() == before._replace(lsn=before.lsn + 1)
        assert store.recompute() == store.applied()
        assert rows(store, "t") == [(b"k", b"v")]
        assert lines(store) == [A]
        assert json.loads(read(store, "repositories")) == ["main"]

    def test_a_rejected_transaction_does_not_stop_the_others_of_its_batch(self, store: Store) -> None:
        results = run(
            store,
            [("add", "main", quads(A))],
            [("add", "main", quads(B)), ("add", "nowhere", quads(B))],
            [("add", "main", quads(C))],
        )
        assert [result.outcome for result in results] == [APPLIED, REJECTED, APPLIED]
        assert lines(store) == [A, C]

    @pytest.mark.parametrize("body", [b"", b"\xc1", msgpack.packb([["sing", "main"]]), msgpack.packb(7)])
    def test_a_body_that_no_client_should_send_is_rejected(self, store: Store, body: bytes) -> None:
        (result,) = store.execute(1, [("tx", 1, body)])
        assert result.outcome == REJECTED
        assert result.reason
        assert store.applied().lsn == 1

    def test_a_batch_that_was_executed_is_answered_again_and_not_executed_again(self, store: Store) -> None:
        batch = [transaction(("put", "t", b"k", b"1")), transaction(("delete", "t", b"k")), transaction(("put", "t", b"k", b"2"))]
        first = store.execute(1, batch[:2])
        applied = store.applied()
        assert store.execute(1, batch[:2]) == first
        assert store.applied() == applied
        assert store.execute(1, batch)[:2] == first
        assert store.applied().lsn == 3

    def test_a_gap_is_a_fault(self, store: Store) -> None:
        with pytest.raises(InvariantBroken):
            store.execute(2, [transaction(("put", "t", b"k", b"1"))])
        with pytest.raises(InvariantBroken):
            store.apply(2, [Logged("tx", 1, APPLIED, "", b"", EMPTY)])
        assert store.applied().lsn == 0

    def test_an_empty_batch_changes_nothing(self, store: Store) -> None:
        before = store.applied()
        assert store.execute(1, []) == []
        store.apply(1, [])
        assert store.applied() == before

    def test_removing_a_repository_names_every_quad_that_goes(self, store: Store) -> None:
        before = store.applied()
        run(store, [("create-repository", "r"), ("add", "r", quads(A, B))])
        assert effect(store, ("add", "r", quads(C)), ("remove-repository", "r")) == [
            ["quads", "r", [A, B], []],
            ["remove-repository", "r"],
        ]
        assert store.applied() == before._replace(lsn=2)
        with pytest.raises(UnknownRepository):
            read(store, "size", "r")

    def test_a_repository_made_and_removed_in_one_transaction_was_never_there(self, store: Store) -> None:
        assert effect(store, ("create-repository", "r"), ("add", "r", quads(A)), ("remove-repository", "r")) == []
        assert json.loads(read(store, "repositories")) == ["main"]

    def test_a_repository_removed_and_made_in_one_transaction_is_emptied(self, store: Store) -> None:
        run(store, [("add", "main", quads(A, B))])
        found = effect(store, ("remove-repository", "main"), ("create-repository", "main"), ("add", "main", quads(B, C)))
        assert found == [["quads", "main", [A], [C]]]
        assert lines(store) == [B, C]

    def test_a_repository_made_again_begins_empty(self, store: Store, reopened: Callable[[Store], Store]) -> None:
        run(store, [("add", "main", quads(A))])
        run(store, [("remove-repository", "main")], [("create-repository", "main"), ("add", "main", quads(B))])
        assert lines(store) == [B]
        run(store, [("remove-repository", "main")])
        run(store, [("create-repository", "main")])
        assert lines(store) == []
        store = reopened(store)
        assert lines(store) == []
        assert store.recompute() == store.applied()

    def test_an_empty_repository_counts_in_the_fingerprint(self, store: Store) -> None:
        before = store.applied().fingerprint
        run(store, [("create-repository", "r")])
        assert store.applied().fingerprint != before

    def test_equal_content_has_equal_fingerprints_whatever_its_history(self, store: Store, other: Store) -> None:
        run(store, [("put", "t", b"a", b"1")], [("add", "main", quads(A))], [("put", "t", b"b", b"2")])
        run(other, [("put", "t", b"b", b"2"), ("add", "main", quads(A, B))], [("put", "t", b"a", b"0")])
        assert store.applied().fingerprint != other.applied().fingerprint
        run(other, [("remove", "main", quads(B)), ("put", "t", b"a", b"1")])
        assert store.applied() == other.applied()

    def test_the_same_line_elsewhere_is_other_content(self, store: Store, other: Store) -> None:
        for name in ("r", "s"):
            run(store, [("create-repository", name)])
            run(other, [("create-repository", name)])
        run(store, [("add", "r", quads(A)), ("put", "t", b"ab", b"c")])
        run(other, [("add", "s", quads(A)), ("put", "t", b"a", b"bc")])
        assert store.applied().fingerprint != other.applied().fingerprint

    def test_a_range_is_what_lies_between_in_key_order(self, store: Store) -> None:
        keys = [b"a", b"a\x00", b"ab", b"b", b"b\xff", b"b\xff\xff", b"c", b"\xff"]
        run(store, [("put", "t", key, b"v" + key) for key in reversed(keys)])
        run(store, [("put", "s", b"a", b"other"), ("put", "t!", b"a", b"other"), ("put", "tt", b"a", b"other")])

        def found(**arguments: object) -> list[bytes]:
            assert all(value == b"v" + key for key, value in rows(store, "t", **arguments))
            return [key for key, _ in rows(store, "t", **arguments)]

        assert found() == keys
        assert found(prefix=b"a") == keys[:3]
        assert found(prefix=b"b\xff") == keys[4:6]
        assert found(prefix=b"\xff") == keys[7:]
        assert found(from_=b"ab", to=b"c") == keys[2:6]
        assert found(from_=b"ab", to=b"c", reverse=True) == keys[5:1:-1]
        assert found(limit=2) == keys[:2]
        assert found(limit=2, reverse=True) == [b"\xff", b"c"]
        assert found(prefix=b"b", from_=b"a", limit=2, reverse=True) == [b"b\xff\xff", b"b\xff"]
        assert found(prefix=b"x") == []
        assert found(from_=b"c", to=b"a") == []
        assert rows(store, "absent") == rows(store, "absent", reverse=True) == []

    def test_tables_are_listed_while_they_have_a_key(self, store: Store) -> None:
        assert json.loads(read(store, "tables")) == []
        run(store, [("put", table, key, b"") for table in ("tt", "t", "t!", "é") for key in (b"a", b"\xff" * 400)])
        run(store, [("put", "once", b"k", b"v"), ("publish", "q", "", b"m")])
        run(store, [("delete", "once", b"k")])
        assert json.loads(read(store, "tables")) == ["t", "t!", "tt", "é"]
        (inside,) = msgpack.unpackb(read(store, "together", reads=(msgpack.packb(("tables", "", {})),)))
        assert json.loads(inside[1]) == ["t", "t!", "tt", "é"]

    def test_large_values_come_in_pieces(self, store: Store) -> None:
        value = bytes(range(256)) * 10_000
        run(store, [("put", "t", b"k", value), ("put", "t", b"l", value)])
        pieces = list(store.read("get", "t", {"key": b"k"}).pieces)
        assert b"".join(pieces) == value
        assert max(map(len, pieces)) <= 1024 * 1024
        pieces = list(store.read("range", "t", {}).pieces)
        assert msgpack.unpackb(b"".join(pieces)) == [[b"k", value], [b"l", value]]
        assert max(map(len, pieces)) <= 1024 * 1024

    @pytest.mark.parametrize(
        ("kind", "name", "arguments"),
        [
            ("dance", "main", {}),
            ("get", "t", {}),
            ("get", "t", {"key": 7}),
            ("get", "t", {"key": b"k" * 401}),
            ("get", "", {"key": b"k"}),
            ("range", "a\0b", {}),
            ("range", "t", {"limit": 0}),
            ("range", "t", {"limit": "ten"}),
        ],
    )
    def test_a_read_that_makes_no_sense_is_refused(self, store: Store, kind: str, name: str, arguments: dict[str, object]) -> None:
        with pytest.raises(InvalidRequest):
            list(store.read(kind, name, arguments).pieces)

    def test_reads_of_a_repository_that_does_not_exist_say_so(self, store: Store) -> None:
        for kind in ("size", "statements"):
            with pytest.raises(UnknownRepository):
                store.read(kind, "nowhere", {})

    def test_a_read_carries_the_lsn_it_saw(self, store: Store) -> None:
        run(store, [("put", "t", b"k", b"v")], [("put", "t", b"k", b"w")])
        asked: list[tuple[str, str, dict[str, object]]] = [
            ("get", "t", {"key": b"k"}),
            ("range", "t", {}),
            ("size", "main", {}),
            ("fingerprint", "", {}),
        ]
        for kind, name, arguments in asked:
            assert store.read(kind, name, arguments).lsn == 2

    def test_the_fingerprint_can_be_read_with_its_counts(self, store: Store) -> None:
        run(store, [("create-repository", "r"), ("add", "r", quads(A, B)), ("put", "t", b"k", b"v")])
        found = json.loads(read(store, "fingerprint"))
        assert found == {"lsn": 1, "fingerprint": store.applied().fingerprint, "items": 3, "repositories": {"main": 0, "r": 2}}

    def test_a_restart_changes_nothing(self, store: Store, reopened: Callable[[Store], Store]) -> None:
        run(store, [("put", "t", b"k", b"v"), ("create-repository", "r"), ("add", "r", quads(A))], [("add", "main", quads(B))])
        run(store, [("add", "nowhere", quads(A))])
        applied, held = store.applied(), store.logged(1, 3)
        store = reopened(store)
        assert store.applied() == store.recompute() == applied
        assert store.logged(1, 3) == held
        assert lines(store) == [B]
        assert lines(store, "r") == [A]
        assert logged(run(store, [("put", "t", b"k", b"w")])) != held[:1]
        assert store.applied().lsn == 4

    def test_closing_twice_is_closing_once(self, store: Store) -> None:
        store.close()
        store.close()
