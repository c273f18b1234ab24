"""Commands about workers over HTTP: what reaches the master, and what comes back."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from brokerha.http import HttpLimits
from brokerha.model.errors import NotReady
from tests.unit.http.asking import JSON, Asked, Node
from tests.unit.http.fake_front import FakeFront

DONE = {"worker": "w2", "changed": True}


class Commanded(FakeFront):
    """A master that carries out every command."""

    def command(self, name: str, arguments: dict[str, Any], timeout_ms: int = 30_000) -> Future[dict[str, Any]]:
        self.commands.append((name, arguments, timeout_ms))
        future: Future[dict[str, Any]] = Future()
        if self.is_dead:
            return future
        if self.refusal is not None:
            future.set_exception(self.refusal)
        else:
            future.set_result({"request": "scrub-1", "state": "running"} if name == "scrub" else DONE)
        return future


@pytest.fixture
def node() -> Node:
    return Node(Commanded())


def asked(node: Node, method: str, path: str, body: str = "", headers: dict[str, str] | None = None) -> Asked:
    return node.ask(method, path, body, JSON if headers is None else headers)


@pytest.mark.parametrize(
    ("method", "path", "body", "name", "arguments"),
    [
        ("GET", "/cluster/workers", "", "workers", {}),
        ("GET", "/cluster/tasks", "", "tasks", {}),
        ("PUT", "/cluster/workers/w2", "", "worker-add", {"worker": "w2"}),
        ("PUT", "/cluster/workers/w2", '{"readable": false}', "worker-add", {"worker": "w2", "readable": False}),
        ("DELETE", "/cluster/workers/w2", "", "worker-remove", {"worker": "w2", "force": False}),
        ("DELETE", "/cluster/workers/w2?force=true", "", "worker-remove", {"worker": "w2", "force": True}),
        ("POST", "/cluster/workers/w2/on", "", "worker-on", {"worker": "w2"}),
        ("POST", "/cluster/workers/w2/off", '{"force": true}', "worker-off", {"worker": "w2", "force": True}),
        ("POST", "/cluster/workers/w2/trust", "{}", "worker-trust", {"worker": "w2"}),
        ("POST", "/cluster/workers/w%322/copy", " ", "worker-copy", {"worker": "w22"}),
        ("POST", "/cluster/repair", '{"from": ["w3", "w4"]}', "worker-repair", {"from": ["w3", "w4"]}),
    ],
)
def test_each_request_is_one_command_of_the_master(
    node: Node, method: str, path: str, body: str, name: str, arguments: dict[str, Any]
) -> None:
    answer = asked(node, method, path, body)
    assert (answer.status, answer.json) == (200, DONE)
    assert node.front.commands == [(name, arguments, 30_000)]


def test_a_look_at_the_data_only_begins_and_is_asked_for_as_a_task(node: Node) -> None:
    answer = asked(node, "POST", "/cluster/workers/w2/scrub")
    assert (answer.status, answer.headers["location"]) == (202, "/cluster/tasks/scrub-1")


@pytest.mark.parametrize(
    ("method", "path", "body", "words"),
    [
        ("PUT", "/cluster/workers/w2", "{", "not JSON"),
        ("PUT", "/cluster/workers/w2", "[]", "a JSON object with readable"),
        ("PUT", "/cluster/workers/w2", '{"readable": 1}', "readable is true or false, not 1"),
        ("PUT", "/cluster/workers/w2", '{"force": true}', "unknown field 'force'; known are readable"),
        ("POST", "/cluster/workers/w2/off", '{"force": "yes"}', "force is true or false"),
        ("POST", "/cluster/repair", "", "name the workers of another site"),
        ("POST", "/cluster/repair", '{"from": []}', "name the workers of another site"),
        ("POST", "/cluster/repair", '{"from": [7]}', "name the workers of another site"),
        ("POST", "/cluster/repair", '{"from": "w2"}', "from is a list of names"),
    ],
)
def test_a_wrong_body_is_refused_and_reaches_nobody(node: Node, method: str, path: str, body: str, words: str) -> None:
    answer = asked(node, method, path, body)
    assert answer.status == 400
    assert words in answer.text
    assert not node.front.commands


def test_a_body_of_another_type_is_refused(node: Node) -> None:
    answer = asked(node, "PUT", "/cluster/workers/w2", "readable=false", {"Content-Type": "text/plain"})
    assert answer.status == 415


def test_a_command_that_does_not_exist_is_not_found(node: Node) -> None:
    answer = asked(node, "POST", "/cluster/workers/w2/dance")
    assert answer.status == 404
    assert "there are on, off, trust, copy, scrub" in answer.text
    assert asked(node, "GET", "/cluster/workers/w2/on").status == 405


def test_a_refusal_of_the_master_comes_with_its_reason(node: Node) -> None:
    node.front.refusal = NotReady("w2 is the last worker in sync: switch another one on first, or say force")
    answer = asked(node, "POST", "/cluster/workers/w2/off")
    assert (answer.status, answer.headers["brokerha-error"]) == (503, "NotReady")
    assert "say force" in answer.text


def test_a_master_that_does_not_answer_is_not_waited_for_for_ever() -> None:
    node = Node(Commanded(), HttpLimits(timeout_ms=1, grace_ms=1))
    node.front.is_dead = True
    assert asked(node, "GET", "/cluster/workers").headers["brokerha-error"] == "TimedOut"
