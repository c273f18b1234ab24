"""Long work over HTTP: a backup begins, and its task says how far it is; lines of the log that a store can apply."""

from __future__ import annotations

import msgpack
import pytest

from brokerha.http import HttpLimits
from brokerha.model.errors import NotReady
from brokerha.model.fingerprints import packed
from tests.unit.http.asking import JSON, Node


def test_a_backup_is_answered_at_once_and_asked_for_by_its_request(node: Node) -> None:
    begun = node.ask("POST", "/cluster/backup", '{"name": "monday"}', JSON)

    assert (begun.status, begun.headers["location"]) == (202, "/cluster/tasks/monday")
    assert begun.json["state"] == "running"
    assert node.front.commands[0][:2] == ("backup", {"name": "monday", "incremental": False, "replace": False})

    assert node.get("/cluster/tasks/monday").json["done"] == 40
    assert node.get("/cluster/tasks/monday").json["answer"]["path"] == "backups/monday"


def test_what_is_asked_for_reaches_the_node(node: Node) -> None:
    node.ask("POST", "/cluster/backup", '{"name": "a", "incremental": true, "replace": false, "worker": "w2"}', JSON)
    node.get("/cluster/tasks/m1%2F7", Brokerha_Timeout_Ms="500")

    assert node.front.commands[0][1] == {"name": "a", "incremental": True, "replace": False, "worker": "w2"}
    assert node.front.commands[1] == ("task", {"request": "m1/7"}, 500)


def test_a_request_that_nobody_knows_is_not_found(node: Node) -> None:
    answer = node.get("/cluster/tasks/other")
    assert (answer.status, answer.headers["brokerha-error"]) == (404, "NotFound")


def test_a_node_that_cannot_make_a_backup_now_says_why(node: Node) -> None:
    node.front.refusal = NotReady("w1 is the last worker that is on: a backup would take it away")
    answer = node.ask("POST", "/cluster/backup", '{"name": "a"}', JSON)
    assert (answer.status, answer.text) == (503, "w1 is the last worker that is on: a backup would take it away\n")


def test_a_node_that_does_not_answer_is_not_waited_for_for_ever() -> None:
    node = Node(limits=HttpLimits(timeout_ms=1, grace_ms=1))
    node.front.is_dead = True
    answer = node.ask("POST", "/cluster/backup", '{"name": "a"}', JSON)
    assert (answer.status, answer.headers["brokerha-error"]) == (503, "TimedOut")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("", "name is missing: the body is a JSON object with name, incremental, replace, worker"),
        ("{", "not JSON"),
        ("[]", "a JSON object with name"),
        ("{}", "name is missing"),
        ('{"name": 7}', "name is text"),
        ('{"name": "a", "replace": 1}', "replace is true or false"),
        ('{"name": "a", "full": true}', "unknown field 'full'; known are name, incremental, replace, worker"),
    ],
)
def test_a_body_that_is_no_backup_is_refused(node: Node, body: str, words: str) -> None:
    answer = node.ask("POST", "/cluster/backup", body, JSON)
    assert answer.status == 400
    assert words in answer.text
    assert not node.front.commands


def test_a_body_of_another_type_is_refused(node: Node) -> None:
    assert node.ask("POST", "/cluster/backup", "name=a", {"Content-Type": "text/plain"}).status == 415


def test_the_log_with_effects_is_what_a_store_can_apply(node: Node) -> None:
    for number in range(3):
        node.ask("PUT", "/kv/t/k", str(number).encode(), Idempotency_Key=f"t{number + 1}")

    answer = node.get("/cluster/log?from=2&to=9&effects=1", Accept="application/x-msgpack")

    assert msgpack.unpackb(answer.body) == [
        ["t2", 1002, "applied", "", b"", packed(2)],
        ["t3", 1003, "applied", "", b"", packed(3)],
    ]
    assert answer.headers["content-type"] == "application/x-msgpack"
    assert node.get("/cluster/log?effects=1", Accept="application/json").status == 406
    assert node.get("/cluster/log?from=5&to=4&effects=1").status == 400
