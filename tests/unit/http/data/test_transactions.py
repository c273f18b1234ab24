"""Transactions in one request, outcomes, batches, and what every write answers with."""

from __future__ import annotations

import json
from typing import Any

import msgpack
import pytest
import structlog

from brokerha.http import HttpLimits
from brokerha.model.errors import JournalFull, KeyReused, NotReady, ReadOnly, TimedOut
from brokerha.model.etags import etag_of
from brokerha.model.operations import pack_operations
from brokerha.model.wire.client_wire import REPLIES_TYPE, WRITES_TYPE, encode_writes
from tests.unit.http.asking import JSON, MSGPACK, Node
from tests.unit.http.fake_front import FakeFront

PUT = pack_operations([("put", "t", b"k", b"v")])


def test_operations_over_several_stores_are_one_transaction(node: Node) -> None:
    operations = msgpack.packb([["put", "t", b"k", b"v"], ["update", "main", "INSERT DATA { <urn:a> <urn:b> 1 }"]])

    answer = node.ask("POST", "/tx", operations, {**MSGPACK, "Idempotency-Key": "order/1"})

    assert answer.status == 201
    assert answer.headers["location"] == "/tx/order%2F1"
    assert answer.json == {"txid": "order/1", "state": "applied", "lsn": 1}
    assert len(node.front.repositories["main"]) == 1


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["", "with a byte order mark"])
def test_operations_may_be_json_with_text_or_base64_for_bytes(node: Node, mark: str) -> None:
    body = '[["put", "t", "ä", {"base64": "/w=="}], ["delete", "t", {"base64": "AA=="}]]'

    assert node.ask("POST", "/tx", mark + body, JSON).status == 201
    assert node.front.keys == {("t", "ä".encode()): b"\xff"}


def test_the_outcome_of_a_transaction_can_be_asked_for_by_its_location(node: Node) -> None:
    location = node.ask("POST", "/tx", PUT, {**MSGPACK, "Idempotency-Key": "a/b?c"}).headers["location"]

    assert node.get(location).json == {"txid": "a/b?c", "state": "applied", "lsn": 1, "outcome": "applied", "reason": ""}


# ---- the header contract


def test_every_write_names_its_transaction_its_lsn_and_the_level_it_reached(node: Node) -> None:
    answer = node.ask("PUT", "/kv/t/k", b"v", Idempotency_Key="mine")

    assert answer.headers["brokerha-tx"] == "mine"
    assert answer.headers["brokerha-lsn"] == "1"
    assert answer.headers["brokerha-ack"] == "applied"


@pytest.mark.parametrize(
    ("ack", "level", "copies"),
    [("accepted", "accepted", 1), ("synchronised", "synchronised", 1), ("applied", "applied", 1), ("applied=3", "applied", 3)],
)
def test_a_writer_chooses_what_to_wait_for(node: Node, ack, level, copies) -> None:
    answer = node.ask("PUT", "/kv/t/k", b"v", Brokerha_Ack=ack, Brokerha_Timeout_Ms="1234")

    assert node.front.submitted == [(answer.headers["brokerha-tx"], level, copies, 1234)]
    assert answer.headers["brokerha-ack"] == level


def test_without_headers_a_write_waits_for_one_copy_and_the_usual_time(node: Node) -> None:
    node.ask("PUT", "/kv/t/k", b"v")

    assert node.front.submitted[0][1:] == ("applied", 1, 30_000)


def test_the_same_key_is_the_same_transaction_and_another_body_under_it_is_refused(node: Node) -> None:
    first = node.ask("PUT", "/kv/t/k", b"v", Idempotency_Key="mine")
    again = node.ask("PUT", "/kv/t/k", b"v", Idempotency_Key="mine")
    other = node.ask("PUT", "/kv/t/k", b"w", Idempotency_Key="mine")

    assert first.headers["brokerha-lsn"] == again.headers["brokerha-lsn"] == "1"
    assert (other.status, other.headers["brokerha-error"]) == (409, "KeyReused")
    assert len(node.front.results) == 1


def test_a_deadline_that_passes_is_504_with_the_transaction_id(node: Node) -> None:
    node.front.is_silent = True

    answer = node.ask("PUT", "/kv/t/k", b"v", Idempotency_Key="mine")

    assert (answer.status, answer.headers["brokerha-tx"]) == (504, "mine")
    assert "outcome unknown of transaction mine" in answer.text
    assert "send it again with this id as its key" in answer.text


def test_a_node_that_does_not_answer_at_all_is_504_too() -> None:
    node = Node(limits=HttpLimits(grace_ms=20))
    node.front.is_dead = True

    write = node.ask("PUT", "/kv/t/k", b"v", Brokerha_Timeout_Ms="20")
    read = node.get("/kv/t/k", Brokerha_Timeout_Ms="20")

    assert (write.status, write.headers["brokerha-tx"]) == (504, "m1.1")
    assert "outcome unknown" in write.text
    assert "send it again with this id as its key" in write.text
    assert (read.status, read.headers["brokerha-error"]) == (503, "TimedOut")


def test_the_door_knows_who_sent_a_query_that_timed_out(node: Node) -> None:
    node.front.read_error = TimedOut("the read did not finish in its time: ask for less, or give it more time")
    with structlog.testing.capture_logs() as lines:
        assert node.get("/repositories/main?query=ASK%7B%7D").status == 503
        assert node.get("/kv/t/k").status == 503
    (line,) = [line for line in lines if line["event"] == "a query timed out"]
    assert (line["repository"], line["query"], line["user"], line["node"]) == ("main", "ASK{}", "", node.front.node_id)
    assert {"origin", "reason"} <= line.keys()


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotReady("the queue is full: try again"), 503),
        (ReadOnly("disk-full: free disk space"), 503),
        (KeyReused("another transaction came first"), 409),
        (JournalFull("no space left"), 503),
    ],
)
def test_what_a_node_refuses_a_write_with_has_its_status(node: Node, error, status) -> None:
    node.front.refusal = error

    answer = node.ask("PUT", "/kv/t/k", b"v")

    assert (answer.status, answer.text) == (status, f"{error}\n")
    assert answer.headers["brokerha-error"] == type(error).__name__
    assert ("retry-after" in answer.headers) == (status == 503)


# ---- batches


def batch(node: Node, *writes: tuple[str, bytes], **headers: str) -> list[tuple[Any, ...]]:
    answer = node.ask("POST", "/tx/batch", encode_writes(writes), {"Content-Type": WRITES_TYPE}, **headers)
    assert (answer.status, answer.headers["content-type"]) == (200, REPLIES_TYPE)
    unpacker = msgpack.Unpacker(use_list=False)
    unpacker.feed(answer.body)
    return [row for rows in unpacker for row in rows]


def test_a_batch_is_many_transactions_in_its_order_each_with_a_reply(node: Node) -> None:
    other = pack_operations([("put", "t", b"k", b"w")])

    rows = batch(node, ("a", PUT), ("b", other), ("c", PUT), Brokerha_Ack="synchronised")

    assert [(row[0], row[1], row[2]) for row in rows] == [
        ("a", "synchronised", 1),
        ("b", "synchronised", 2),
        ("c", "synchronised", 3),
    ]
    assert [entry[1] for entry in node.front.submitted] == ["synchronised"] * 3


def test_in_a_batch_a_bad_transaction_is_refused_and_the_others_go_on(node: Node) -> None:
    rows = batch(node, ("a", PUT), ("b", b"\xc1"), ("c", pack_operations([("remove-repository", "x")])), ("d", PUT))

    by_id = {row[0]: row for row in rows}
    assert by_id["b"][1:4] == ("refused", 0, "InvalidRequest")
    assert by_id["c"][1:4] == ("rejected", 2, "Rejected")
    assert (by_id["a"][1], by_id["d"][1]) == ("applied", "applied")


def test_replies_of_a_batch_come_from_another_thread_too() -> None:
    node = Node(FakeFront(threaded=True))

    rows = batch(node, *[(f"t{number}", PUT) for number in range(500)])

    assert sorted(row[0] for row in rows) == sorted(f"t{number}" for number in range(500))


def test_a_batch_that_a_node_does_not_answer_ends_as_unknown() -> None:
    node = Node(limits=HttpLimits(grace_ms=20))
    node.front.is_dead = True

    rows = batch(node, ("a", PUT), ("b", PUT), Brokerha_Timeout_Ms="20")

    assert [row[:4] for row in rows] == [("a", "unknown", 0, "OutcomeUnknown"), ("b", "unknown", 0, "OutcomeUnknown")]


def test_a_batch_has_a_limit() -> None:
    node = Node(limits=HttpLimits(batch_limit=2))

    answer = node.ask("POST", "/tx/batch", encode_writes([("a", PUT)] * 3), {"Content-Type": WRITES_TYPE})

    assert answer.status == 413
    assert not node.front.submitted


def test_a_list_whose_expectation_fails_is_a_conflict(node: Node) -> None:
    wanted = [["expect-key", "t", "k", etag_of(b"another")], ["put", "t", "k", "v"]]
    answer = node.ask("POST", "/tx", json.dumps(wanted), {"Content-Type": "application/json"})

    assert (answer.status, answer.headers["brokerha-error"]) == (409, "Conflict")
