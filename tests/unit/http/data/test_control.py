"""The control suite over HTTP: what reaches the node, and what a client can get wrong."""

from __future__ import annotations

import json

import pytest

from tests.unit.http.asking import JSON, Node
from tests.unit.http.fake_front import FakeFront

ASK = {"kind": "ask", "target": "main", "text": "ASK { ?s ?p ?o }", "expected": "false"}


def put(node: Node, name: str = "empty", **changed: object) -> int:
    return node.ask("PUT", f"/cluster/control/{name}", json.dumps({**ASK, **changed}), JSON).status


def test_a_check_is_added_as_a_write_and_listed(node: Node) -> None:
    added = node.ask("PUT", "/cluster/control/a.b_c-1", json.dumps(ASK), JSON, Idempotency_Key="t1", Brokerha_Ack="synchronised")

    assert (added.status, added.headers["brokerha-tx"], added.headers["brokerha-lsn"]) == (204, "t1", "1")
    assert added.headers["brokerha-ack"] == "synchronised"
    listed = node.get("/cluster/control")
    assert (listed.status, listed.headers["content-type"], listed.headers["brokerha-lsn"]) == (200, "application/json", "1")
    assert listed.json == {"checks": [{"name": "a.b_c-1", **ASK}]}


@pytest.mark.parametrize(
    ("kind", "query", "expected", "text"),
    [
        ("ask", "ASK { ?s ?p ?o }", True, "true"),
        ("select", "SELECT ?s ?x { ?s ?p ?o OPTIONAL { ?s <urn:x> ?x } }", [["<urn:a>", None]], '[["<urn:a>", null]]'),
        ("select", "SELECT ?s { ?s <urn:x> ?o }", "[]", "[]"),
    ],
)
def test_an_expectation_may_be_what_its_text_stands_for(node: Node, kind: str, query: str, expected: object, text: str) -> None:
    node.front.submit([("add", "main", "<urn:a> <urn:p> <urn:o> .")])
    assert put(node, kind=kind, text=query, expected=expected) == 204
    assert node.front.checks["empty"]["expected"] == text


def test_a_check_is_removed_as_a_write(node: Node) -> None:
    put(node)

    removed = node.ask("DELETE", "/cluster/control/empty")
    again = node.ask("DELETE", "/cluster/control/empty")

    assert (removed.status, removed.headers["brokerha-lsn"]) == (204, "2")
    assert (again.status, again.headers["brokerha-error"]) == (409, "Rejected")
    assert "check 'empty' does not exist" in again.text
    assert node.get("/cluster/control").json == {"checks": []}


def test_the_reason_of_a_rejected_write_reaches_its_client(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.ask("DELETE", "/cluster/control/empty", b"", None, Idempotency_Key="t1")

    rejected = node.get("/tx/t1").json

    assert (rejected["outcome"], rejected["reason"]) == ("rejected", "check 'empty' does not exist")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("nonsense", "not JSON"),
        ("[]", "a check is a JSON object with kind, target, text, expected"),
        (json.dumps({**ASK, "more": 1}), "a check is a JSON object"),
        (json.dumps({"kind": "ask"}), "a check is a JSON object"),
        (json.dumps({**ASK, "text": 1}), "text of a check is text"),
        (json.dumps({**ASK, "expected": 1}), "expected of a check is text"),
        (json.dumps({**ASK, "kind": "construct"}), "unknown kind of check"),
        (json.dumps({**ASK, "text": "\ud800"}), "UTF-8"),
    ],
)
def test_a_body_that_is_no_check_is_refused(node: Node, body: str, words: str) -> None:
    answer = node.ask("PUT", "/cluster/control/empty", body, JSON)

    assert answer.status == 400
    assert words in answer.text
    assert node.front.submitted == []


def test_a_name_that_no_check_can_have_is_refused(node: Node) -> None:
    assert put(node, "a%20b") == 400
    assert put(node, "a%2Fb") == 400


def test_a_check_is_sent_as_json(node: Node) -> None:
    assert node.ask("PUT", "/cluster/control/empty", "ASK { }", {"Content-Type": "text/plain"}).status == 415
    assert node.ask("PUT", "/cluster/control/empty", json.dumps(ASK)).status == 415


def test_a_worker_lists_checks_and_takes_none() -> None:
    worker = Node(FakeFront(role="worker", node_id="w1"))

    assert worker.get("/cluster/control").json == {"checks": []}
    assert put(worker) == 503


def test_checks_go_into_a_transaction_with_other_operations(node: Node) -> None:
    operations = [["control-add", "empty", *ASK.values()], ["put", "t", "k", "v"]]

    assert node.ask("POST", "/tx", json.dumps(operations), JSON).status == 201
    assert list(node.front.checks) == ["empty"]
