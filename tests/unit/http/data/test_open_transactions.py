"""Transactions over HTTP, step by step."""

from __future__ import annotations

import json

import msgpack
import pytest

from brokerha.http import HttpLimits
from brokerha.model.errors import Aborted, OutcomeUnknown, ReadOnly, WrongState
from tests.unit.http.asking import JSON, MSGPACK, Node
from tests.unit.http.fake_front import FakeFront


def begun(node: Node, fields: dict[str, object] | None = None, **headers: str) -> str:
    answer = node.ask("POST", "/tx", json.dumps(fields) if fields is not None else b"", JSON if fields else {}, **headers)
    assert answer.status == 201, answer.text
    assert answer.headers["location"] == f"/tx/{answer.json['txid']}"
    return str(answer.headers["location"])


def test_a_transaction_is_begun_filled_and_committed(node: Node) -> None:
    tx = begun(node)

    first = node.ask("POST", f"{tx}/operations?first=0", '[["put", "t", "k", "v"]]', JSON)
    second = node.ask("POST", f"{tx}/operations", msgpack.packb([["publish", "q", "text/plain", b"m"]]), MSGPACK)
    before = node.get("/kv/t/k").status
    done = node.ask("POST", f"{tx}/commit")

    assert (first.json["count"], second.json["count"], before) == (1, 2, 404)
    assert (done.status, done.json["state"], done.headers["brokerha-lsn"]) == (200, "committed", "1")
    assert node.front.keys == {("t", b"k"): b"v"}
    assert node.front.queues["q"][0][2] == b"m"


def test_operations_that_come_again_with_their_number_are_taken_once(node: Node) -> None:
    tx = begun(node)

    operations = '[["publish", "q", "text/plain", "m"]]'
    answers = [node.ask("POST", f"{tx}/operations?first=0", operations, JSON) for _ in range(2)]
    node.ask("POST", f"{tx}/commit")

    assert [answer.json["count"] for answer in answers] == [1, 1]
    assert len(node.front.queues["q"]) == 1


def test_reads_inside_show_the_operations_so_far_and_others_do_not(node: Node) -> None:
    tx = begun(node)
    node.ask("POST", f"{tx}/operations", '[["put", "t", "k", "v"], ["update", "main", "INSERT DATA { <urn:a> <urn:b> 1 }"]]', JSON)
    inside = tx.removeprefix("/tx/")

    assert node.get("/kv/t/k", Brokerha_Transaction=inside).body == b"v"
    assert node.get("/repositories/main/size", Brokerha_Transaction=inside).text.strip() == "1"
    assert node.get("/kv/t/k").status == 404
    assert node.get("/repositories/main/size").text.strip() == "0"
    assert node.get("/cluster/control", Brokerha_Transaction=inside).status == 400


def test_messages_are_taken_inside_and_come_back_with_a_rollback(node: Node) -> None:
    node.ask("POST", "/queues/q", b"m", {"Content-Type": "text/plain"})
    tx, other = begun(node), begun(node)

    taken = node.ask("POST", f"{tx}/accept?queue=q&count=5&wait-s=0&first=0").json
    locked = node.ask("POST", f"{other}/accept?queue=q").json
    node.ask("POST", f"{tx}/rollback")
    again = node.ask("POST", f"{other}/accept?queue=q").json

    assert ([m["body"] for m in taken["messages"]], taken["count"]) == (["m"], 1)
    assert locked["messages"] == []
    assert [m["body"] for m in again["messages"]] == ["m"]


def test_a_rollback_leaves_nothing_and_the_outcome_says_so(node: Node) -> None:
    tx = begun(node)
    node.ask("POST", f"{tx}/operations", '[["put", "t", "k", "v"]]', JSON)

    assert node.get(tx).json["state"] == "open"
    assert node.ask("POST", f"{tx}/rollback").json["state"] == "aborted"
    assert node.get(tx).json["state"] == "aborted"
    assert not node.front.keys


def test_two_phases_with_an_xid(node: Node) -> None:
    tx = begun(node, {"xid": "1:6f72646572:", "timeout-s": 2.5})
    node.ask("POST", f"{tx}/operations", '[["put", "t", "k", "v"]]', JSON)

    prepared = node.ask("POST", f"{tx}/prepare")
    listed = node.get("/tx").json["transactions"]
    wrong = node.ask("POST", f"{tx}/commit?one-phase=true")
    done = node.ask("POST", f"{tx}/commit?one-phase=false")

    assert node.front.transactions.calls[0][2]["timeout_ms"] == 2500
    assert prepared.json["state"] == "prepared"
    assert [(row["xid"], row["state"], row["node"]) for row in listed] == [("1:6f72646572:", "prepared", "m1")]
    assert (wrong.status, wrong.headers["brokerha-error"]) == (409, "WrongState")
    assert done.status == 200
    assert node.front.keys


def test_without_a_word_about_phases_the_state_decides(node: Node) -> None:
    tx = begun(node, {"xid": "1:6f72646572:"})
    node.ask("POST", f"{tx}/commit")

    assert node.front.transactions.calls[-1][2]["one_phase"] is None


def test_level_session_and_by_hand_reach_the_node(node: Node) -> None:
    tx = begun(node, Brokerha_Session="s1")
    node.ask("POST", f"{tx}/commit?by-hand=true", Brokerha_Session="s1", Brokerha_Ack="applied=2")

    begin, commit = [call[2] for call in node.front.transactions.calls]
    assert begin["session"] == commit["session"] == "s1"
    assert (commit["level"], commit["copies"], commit["by_hand"]) == ("applied", 2, True)


@pytest.mark.parametrize("step", ["commit?by-hand=maybe", "rollback?by-hand=maybe", "commit?one-phase=2"])
def test_a_yes_or_no_that_is_neither_is_refused_and_ends_nothing(node: Node, step: str) -> None:
    tx = begun(node)
    answer = node.ask("POST", f"{tx}/{step}")

    assert (answer.status, answer.text.split(" is ")[1][:13]) == (400, "true or false")
    assert [call[0] for call in node.front.transactions.calls] == ["begin"]


@pytest.mark.parametrize(
    ("error", "status"),
    [(Aborted("a key was not as expected"), 409), (WrongState("it is in use"), 409), (ReadOnly("disk full"), 503)],
)
def test_what_a_commit_is_refused_with_has_its_status_and_names_the_transaction(node: Node, error, status) -> None:
    tx = begun(node)
    node.front.refusal = error

    answer = node.ask("POST", f"{tx}/commit", Accept="application/json")

    assert (answer.status, answer.json["error"]) == (status, type(error).__name__)
    assert answer.headers["brokerha-tx"] == tx.removeprefix("/tx/")


def test_a_deadline_that_passes_in_a_commit_is_504_with_the_transaction(node: Node) -> None:
    tx = begun(node)
    node.front.is_silent = True
    silent = node.ask("POST", f"{tx}/commit")
    dead = Node(limits=HttpLimits(grace_ms=20))
    other = begun(dead)
    dead.front.is_dead = True
    unanswered = dead.ask("POST", f"{other}/commit", Brokerha_Timeout_Ms="20")
    step = dead.ask("POST", f"{other}/ping", Brokerha_Timeout_Ms="20")

    for answer, name in ((silent, tx), (unanswered, other)):
        assert (answer.status, answer.headers["brokerha-error"]) == (504, OutcomeUnknown.__name__)
        assert answer.headers["brokerha-tx"] == name.removeprefix("/tx/")
    assert (step.status, step.headers["brokerha-error"]) == (503, "TimedOut")


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "text"),
    [
        ("", b'{"xid": 5}', JSON, 400, "xid is text"),
        ("", b'{"timeout-s": "long"}', JSON, 400, "timeout-s a number"),
        ("", b'{"timeout-s": 3601}', JSON, 400, "at most 3600"),
        ("", b'{"name": "x"}', JSON, 400, "begun with nothing"),
        ("/m1.9/operations", b'[["put", "t", "k", "v"]]', JSON, 404, "m1.9 is not open"),
        ("/TX/operations", b'[["fly"]]', JSON, 400, "unknown operation 'fly'"),
        ("/TX/operations", b"[]", {}, 415, "application/x-msgpack"),
        ("/TX/operations?first=x", b"[]", JSON, 400, "first"),
        ("/TX/operations?first=7", b'[["put", "t", "k", "v"]]', JSON, 400, "operation 7"),
        ("/TX/accept", b"", {}, 400, "?queue="),
        ("/TX/dance", b"", {}, 404, "no step 'dance'"),
        ("/TX/forget", b"", {}, 409, "decided by hand"),
    ],
)
def test_bad_steps_get_one_clear_sentence(node: Node, path, body, headers, status, text) -> None:
    tx = begun(node).removeprefix("/tx/")

    answer = node.ask("POST", "/tx" + path.replace("TX", tx), body, headers)

    assert answer.status == status
    assert text in answer.text
    assert not node.front.results


def test_a_worker_has_no_transactions() -> None:
    node = Node(FakeFront(role="worker", node_id="w1"))

    answers = [node.ask("POST", "/tx"), node.get("/tx"), node.ask("POST", "/tx/t/commit")]

    assert {answer.status for answer in answers} == {503}
    assert all("send writes to master m1" in answer.text for answer in answers)


def test_a_process_is_promoted_by_a_command(node: Node) -> None:
    node.ask("POST", "/cluster/promote", '{"node": "m1-b", "force": true}', JSON)

    assert node.front.commands[0][:2] == ("promote", {"node": "m1-b", "force": True})
    assert node.ask("POST", "/cluster/promote", "{}", JSON).status == 400
