"""What every store must do with queues and with expectations; test_stores.py runs it on each of them. Fixtures as in store_contract.py."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgpack
import pytest

from brokerha.model.errors import InvalidRequest, NotFound, StoreDiffers
from brokerha.model.etags import etag_of
from brokerha.model.operations import APPLIED, REJECTED, Logged, Operation, Result, unpack_effect
from brokerha.ports.store import Store
from brokerha.stores.tables import queue_change
from tests.contracts.store_contract import A, B, effect, fingerprint, json_like, logged, quads, read, rows, run, transaction
from tests.contracts.store_control_contract import reason

ETAG = etag_of(b"v")
STORES = (("table", "t"), ("graph", "main"), ("queue", "q"))


def publish(body: bytes = b"", queue: str = "q") -> Operation:
    return ("publish", queue, "text/plain", body)


def accept(message_id: str, queue: str = "q") -> Operation:
    return ("accept", queue, message_id)


def execute(store: Store, txid: str, *operations: Operation) -> Result:
    """Execute one transaction of this id."""
    (result,) = store.execute(store.applied().lsn + 1, [transaction(*operations, txid=txid)])
    return result


def follow(store: Store, other: Store) -> None:
    """Have the other store apply what it lacks."""
    first = other.applied().lsn + 1
    other.apply(first, store.logged(first, store.applied().lsn))


def queue(store: Store, name: str = "q", **arguments: object) -> list[tuple[str, str, bytes]]:
    return list(msgpack.unpackb(read(store, "queue", name, **arguments), use_list=False))


def ids(store: Store, name: str = "q", **arguments: object) -> list[str]:
    return [message[0] for message in queue(store, name, **arguments)]


def counters(store: Store) -> dict[str, list[int]]:
    found = json.loads(read(store, "queues"))
    return {name: [each["depth"], each["published"], each["accepted"]] for name, each in found.items()}


class StoreQueueContract:
    """Tests of queues."""

    def test_messages_stay_in_the_order_of_their_publication_until_they_are_accepted(self, store: Store) -> None:
        before = store.applied()
        result = execute(store, "b", ("put", "t", b"k", b"v"), publish(b"1"), publish(b"2", "other"), publish(b"3"))
        assert json_like(unpack_effect(result.effect)) == [
            ["publish", "other", "b.3", "text/plain", b"2"],
            ["publish", "q", "b.2", "text/plain", b"1"],
            ["publish", "q", "b.4", "text/plain", b"3"],
            ["put", "t", b"k", b"v"],
        ]
        execute(store, "a", publish(b"4"))
        assert queue(store) == [("b.2", "text/plain", b"1"), ("b.4", "text/plain", b"3"), ("a.1", "text/plain", b"4")]
        assert store.applied().items == before.items + 5
        assert json_like(unpack_effect(execute(store, "c", accept("b.4")).effect)) == [["accept", "q", "b.4"]]
        assert ids(store) == ["b.2", "a.1"]
        assert counters(store) == {"other": [1, 1, 0], "q": [2, 3, 1]}
        assert store.recompute() == store.applied()

    def test_more_than_nine_messages_of_a_transaction_keep_their_order(self, store: Store, other: Store) -> None:
        execute(store, "tx", *[publish(b"%d" % number) for number in range(12)])
        follow(store, other)
        for each in (store, other):
            assert ids(each) == [f"tx.{number}" for number in range(1, 13)]

    def test_accepting_what_is_not_there_rejects_the_whole_transaction(self, store: Store) -> None:
        execute(store, "tx", publish(b"1"))
        gone = "conflict: message 'tx.7' is not in queue 'q'"
        assert reason(store, ("put", "t", b"k", b"v"), publish(), accept("tx.1"), accept("tx.7")) == gone
        assert reason(store, accept("tx.1", "other")) == "conflict: message 'tx.1' is not in queue 'other'"
        assert reason(store, accept("tx.1"), accept("tx.1")) == "conflict: message 'tx.1' is not in queue 'q'"
        assert ids(store) == ["tx.1"]
        assert rows(store, "t") == []
        execute(store, "c", accept("tx.1"))
        assert reason(store, accept("tx.1")) == "conflict: message 'tx.1' is not in queue 'q'"

    def test_of_two_transactions_that_accept_the_same_message_the_second_is_rejected(self, store: Store) -> None:
        execute(store, "tx", publish(b"1"))
        first, second = run(store, [accept("tx.1")], [accept("tx.1"), ("add", "main", quads(A))])
        assert (first.outcome, second.outcome) == (APPLIED, REJECTED)
        assert read(store, "size", "main") == b"0"

    def test_a_message_published_and_accepted_in_one_transaction_was_never_there(self, store: Store) -> None:
        assert execute(store, "tx", publish(b"1"), accept("tx.1")).effect == b""
        assert counters(store) == {}
        assert json_like(unpack_effect(execute(store, "ty", publish(b"1"), accept("ty.1"), publish(b"2")).effect)) == [
            ["publish", "q", "ty.3", "text/plain", b"2"]
        ]
        assert counters(store) == {"q": [1, 1, 0]}

    def test_a_message_is_never_published_twice_under_one_id(self, store: Store) -> None:
        execute(store, "tx", publish(b"1"))
        result = execute(store, "tx", publish(b"2"))
        assert (result.outcome, result.reason) == (REJECTED, "message 'tx.1' is in queue 'q' already: use another transaction id")
        assert queue(store) == [("tx.1", "text/plain", b"1")]

    def test_applying_gives_what_executing_gave_and_twice_is_once(self, store: Store, other: Store) -> None:
        execute(store, "a", publish(b"1"), publish(b"2"), publish(b"3", "other"))
        execute(store, "b", accept("a.1"), publish(b"4"), accept("a.3", "other"))
        follow(store, other)
        assert other.applied() == store.applied() == other.recompute()
        assert queue(other) == queue(store)
        assert counters(other) == counters(store) == {"other": [0, 1, 1], "q": [2, 3, 1]}
        again = store.logged(2, 2)[0]
        other.apply(3, [again])
        assert other.applied() == store.applied()._replace(lsn=3) == other.recompute()

    def test_a_line_that_leads_to_another_queue_is_found(self, store: Store, other: Store) -> None:
        execute(store, "a", publish(b"1"))
        execute(other, "b", publish(b"1"))
        execute(store, "c", accept("a.1"))
        (line,) = store.logged(2, 2)
        with pytest.raises(StoreDiffers):
            other.apply(2, [line])
        assert ids(other) == ["b.1"]

    def test_order_and_counters_of_a_queue_count_in_the_fingerprint(self, store: Store, other: Store) -> None:
        never_used = store.applied().fingerprint
        execute(store, "a", publish())
        execute(store, "b", publish())
        execute(other, "b", publish())
        execute(other, "a", publish())
        assert store.applied().fingerprint != other.applied().fingerprint
        for each in (store, other):
            execute(each, "c", accept("a.1"), accept("b.1"))
        assert store.applied().fingerprint == other.applied().fingerprint != never_used
        assert store.applied().items == 0

    def test_queues_survive_a_restart(self, store: Store, reopened: Callable[[Store], Store]) -> None:
        execute(store, "a", publish(b"1"), publish(b"2"))
        execute(store, "b", accept("a.1"))
        store = reopened(store)
        execute(store, "c", publish(b"3"))
        assert ids(store) == ["a.2", "c.1"]
        assert counters(store) == {"q": [2, 3, 1]}
        assert store.recompute() == store.applied()

    def test_a_queue_is_read_in_parts(self, store: Store) -> None:
        execute(store, "a", *[publish(b"%d" % number) for number in range(5)], publish(b"", "q!"), publish(b"", "p"))
        assert ids(store, limit=2) == ["a.1", "a.2"]
        assert ids(store, limit=2, after="a.2") == ["a.3", "a.4"]
        assert ids(store, after="a.5") == ids(store, "never") == []
        execute(store, "b", accept("a.2"))
        with pytest.raises(NotFound, match=r"message 'a\.2' is not in queue 'q' any more: begin at its head"):
            ids(store, after="a.2")

    @pytest.mark.parametrize(
        ("name", "arguments"),
        [("", {}), ("a\0b", {}), ("q" * 65, {}), ("q", {"after": 7}), ("q", {"after": "x"}), ("q", {"limit": 0})],
    )
    def test_a_read_of_a_queue_that_makes_no_sense_is_refused(self, store: Store, name: str, arguments: dict[str, object]) -> None:
        with pytest.raises(InvalidRequest):
            list(store.read("queue", name, arguments).pieces)

    def test_there_is_a_limit_to_queues_but_not_to_the_use_of_those_that_are_there(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(queue_change, "QUEUES_LIMIT", 2)
        execute(store, "a", publish(), publish(b"", "r"))
        assert reason(store, publish(b"", "s")) == "there are 2 queues, and 2 is the limit"
        assert execute(store, "b", publish(), accept("a.1")).outcome == APPLIED


class StoreExpectationContract:
    """Tests of what a transaction may demand of the state before it."""

    def test_a_key_is_as_expected_or_the_transaction_is_rejected(self, store: Store) -> None:
        run(store, [("put", "t", b"k", b"v")])
        assert effect(store, ("expect-key", "t", b"k", ETAG), ("expect-key", "t", b"x", "")) == []
        assert effect(store, ("put", "t", b"k", b"w"), ("expect-key", "t", b"k", ETAG)) == [["put", "t", b"k", b"w"]]
        change = ("put", "t", b"k", b"other")
        assert reason(store, change, ("expect-key", "t", b"k", ETAG)) == (
            f"conflict: key 'k' of table 't': expected ETag {ETAG}, found ETag {etag_of(b'w')}: read it again"
        )
        assert "expected no such key, found ETag" in reason(store, ("expect-key", "t", b"k", ""), change)
        assert "found no such key" in reason(store, ("expect-key", "t", b"\xff", ETAG), change)
        assert rows(store, "t") == [(b"k", b"w")]

    def test_a_store_that_was_changed_since_is_told_with_its_lsn(self, store: Store) -> None:
        run(store, [("put", "t", b"k", b"v")], [("add", "main", quads(A))], [publish()])
        since = ("graph", "main", 2), ("table", "t", 1), ("queue", "q", 3), ("table", "never", 0), ("graph", "never", 0)
        assert effect(store, *[("expect-since", *each) for each in since]) == []
        for kind, name, lsn in since[:3]:
            assert reason(store, ("put", "u", b"k", b""), ("expect-since", kind, name, lsn - 1)) == (
                f"conflict: expected {kind} '{name}' unchanged since LSN {lsn - 1}, it was changed at LSN {lsn}"
            )
        assert rows(store, "u") == []

    def test_only_what_was_really_changed_counts(self, store: Store) -> None:
        run(store, [("put", "t", b"k", b"v"), ("add", "main", quads(A)), publish()])
        run(store, [("put", "t", b"k", b"v"), ("remove", "main", quads(B))], [("delete", "t", b"k"), accept("x.1")])
        assert effect(store, *[("expect-since", *each, 1) for each in STORES]) == []
        run(store, [("delete", "t", b"k"), ("remove", "main", quads(A)), accept("tx.3")])
        for each in STORES:
            assert "changed at LSN 5" in reason(store, ("expect-since", *each, 4))

    def test_a_repository_is_changed_when_it_comes_and_when_it_goes(self, store: Store) -> None:
        run(store, [("create-repository", "r")])
        assert "changed at LSN 1" in reason(store, ("expect-since", "graph", "r", 0))
        run(store, [("remove-repository", "r")])
        assert "changed at LSN 3" in reason(store, ("expect-since", "graph", "r", 2))

    def test_an_earlier_transaction_of_the_same_batch_counts(self, store: Store) -> None:
        changes: list[Operation] = [("put", "t", b"k", b"v"), ("add", "main", quads(A)), publish()]
        results = run(store, changes, *[[("expect-since", *each, 0)] for each in STORES])
        assert [result.outcome for result in results] == [APPLIED, REJECTED, REJECTED, REJECTED]

    def test_what_was_applied_counts_as_what_was_executed(
        self, store: Store, other: Store, reopened: Callable[[Store], Store]
    ) -> None:
        run(other, [("put", "t", b"k", b"v")], [("add", "main", quads(A)), publish()], [("put", "t", b"k", b"v")])
        follow(other, store)
        expecting: list[list[Operation]] = [[("expect-since", *each, lsn)] for each in STORES for lsn in (0, 1, 2)]
        results = run(other, *expecting)
        assert [result.outcome for result in results].count(REJECTED) == 5
        assert run(reopened(store), *expecting) == results

    def test_the_fingerprint_is_that_of_the_whole_content_before_the_transaction(self, store: Store) -> None:
        before = store.applied().fingerprint
        assert effect(store, ("put", "t", b"k", b"v"), ("expect-fingerprint", before)) == [["put", "t", b"k", b"v"]]
        now = store.applied().fingerprint
        assert reason(store, ("put", "t", b"k", b"w"), ("expect-fingerprint", before)) == (
            f"conflict: expected fingerprint {before}, found {now}"
        )
        assert effect(store, ("expect-fingerprint", now)) == []

    def test_expectations_are_about_what_the_transaction_finds_wherever_they_stand(self, store: Store) -> None:
        expecting = [("expect-key", "t", b"k", ""), ("expect-since", "table", "t", 0)]
        assert len(effect(store, ("put", "t", b"k", b"v"), *expecting)) == 1

    def test_a_failed_expectation_comes_before_everything_else(self, store: Store) -> None:
        failing: list[Operation] = [accept("x.1"), ("add", "nowhere", quads(A)), ("expect-key", "t", b"k", ETAG)]
        assert reason(store, *failing).startswith("conflict: key 'k' of table 't'")
        assert reason(store, ("add", "nowhere", quads(A)), accept("x.1")).startswith("conflict: message 'x.1'")

    def test_a_rejected_line_of_the_log_is_applied_as_nothing(self, store: Store, other: Store) -> None:
        (result,) = run(store, [("put", "t", b"k", b"v"), ("expect-key", "t", b"k", ETAG)])
        other.apply(1, logged([result]))
        assert other.applied() == store.applied()
        assert fingerprint(other) == result.fingerprint
        assert other.logged(1, 1) == [Logged("tx", 1_000_000, *result)]
