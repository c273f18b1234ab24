"""Commands of operators over HTTP: what reaches the master that is asked, and what comes back; and how the client asks for each."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from brokerha.http import HttpLimits
from brokerha.model.errors import BrokerhaError, InvalidRequest, NotFound, NotReady, WrongState
from tests.unit.http.asking import JSON, Node, request_of
from tests.unit.http.fake_front import FakeFront

TASK = "/cluster/tasks/m1%2F7"


class Commanded(FakeFront):
    """A master that takes every command, unless it refuses; what is so already changes nothing."""

    is_so = False

    def command(self, name: str, arguments: dict[str, Any], timeout_ms: int = 30_000) -> Future[dict[str, Any]]:
        self.commands.append((name, arguments, timeout_ms))
        future: Future[dict[str, Any]] = Future()
        if self.refusal is not None:
            future.set_exception(self.refusal)
        elif not self.is_dead:
            future.set_result({"master": "m1", "request": "m1/7", "changed": not self.is_so})
        return future


@pytest.fixture
def node() -> Node:
    return Node(Commanded())


DONE: list[tuple[str, str, str, str, dict[str, Any]]] = [
    ("GET", "/cluster/workers", "", "workers", {}),
    ("GET", "/cluster/tasks", "", "tasks", {}),
    ("GET", TASK, "", "task", {"request": "m1/7"}),
    ("PUT", "/cluster/workers/w2", "", "worker-add", {"worker": "w2"}),
    ("PUT", "/cluster/workers/w2", '{"readable": false}', "worker-add", {"worker": "w2", "readable": False}),
    ("DELETE", "/cluster/workers/w2", "", "worker-remove", {"worker": "w2", "force": False}),
    ("DELETE", "/cluster/workers/w2?force=true", "", "worker-remove", {"worker": "w2", "force": True}),
    ("POST", "/cluster/workers/w2/on", "", "worker-on", {"worker": "w2"}),
    ("POST", "/cluster/workers/w2/off", '{"force": true}', "worker-off", {"worker": "w2", "force": True}),
    ("POST", "/cluster/workers/w2/trust", "{}", "worker-trust", {"worker": "w2"}),
    ("POST", "/cluster/workers/w%322/copy", " ", "worker-copy", {"worker": "w22"}),
    ("POST", "/cluster/repair", '{"from": ["w3", "w4"]}', "worker-repair", {"from": ["w3", "w4"]}),
    ("GET", "/cluster/pins", "", "pins", {}),
    ("PUT", "/cluster/pins/archive", '{"lsn": 7, "for_s": 60}', "pin", {"name": "archive", "lsn": 7, "for_s": 60}),
    ("DELETE", "/cluster/pins/arch%69ve", "", "unpin", {"name": "archive"}),
    ("GET", "/cluster/peers", "", "peers", {}),
    ("GET", "/cluster/split-recovery", "", "split-recovery", {}),
    ("GET", "/cluster/splits", "", "splits", {}),
    ("GET", "/cluster/splits/412", "", "split", {"number": 412}),
    ("GET", "/cluster/splits/412?from=101&limit=50", "", "split", {"number": 412, "from": 101, "limit": 50}),
    *(
        ("POST", f"/cluster/nodes/m%31-b/{order}", body, f"node-{order}", {"node": "m1-b", **force})
        for order in ("pause", "coin", "continue")
        for body, force in (("", {}), ('{"force": true}', {"force": True}))
    ),
]
_BACKUP = {"name": "a", "incremental": True, "replace": False, "worker": "w2"}
BEGUN: list[tuple[str, str, str, str, dict[str, Any], str]] = [
    ("POST", "/cluster/workers/w2/scrub", "", "scrub", {"worker": "w2"}, TASK),
    ("POST", "/cluster/backup", '{"name": "a"}', "backup", {"name": "a", "incremental": False, "replace": False}, TASK),
    ("POST", "/cluster/backup", '{"name": "a", "incremental": true, "replace": false, "worker": "w2"}', "backup", _BACKUP, TASK),
    ("PUT", "/cluster/peers/m4", "", "peer-add", {"node": "m4"}, "/cluster/peers"),
    ("DELETE", "/cluster/peers/m%34", "", "peer-remove", {"node": "m4", "force": False}, "/cluster/peers"),
    ("DELETE", "/cluster/peers/m4?force=true", "", "peer-remove", {"node": "m4", "force": True}, "/cluster/peers"),
    ("POST", "/cluster/split-recovery", '{"mode": "Smart"}', "split-recovery", {"mode": "Smart"}, "/cluster/split-recovery"),
    ("POST", "/cluster/promote", '{"node": "m1-b"}', "promote", {"node": "m1-b", "force": False}, "/cluster/status"),
    ("POST", "/cluster/promote", '{"node": "m1-b", "force": true}', "promote", {"node": "m1-b", "force": True}, "/cluster/status"),
]


@pytest.mark.parametrize(("method", "path", "body", "name", "arguments"), DONE)
def test_each_request_is_one_command_of_the_master(
    node: Node, method: str, path: str, body: str, name: str, arguments: dict[str, Any]
) -> None:
    answer = node.ask(method, path, body, JSON)
    assert (answer.status, answer.json["master"]) == (200, "m1")
    assert node.front.commands == [(name, arguments, 30_000)]


@pytest.mark.parametrize(("method", "path", "body", "name", "arguments", "location"), BEGUN)
def test_what_only_begins_says_where_to_ask_for_it(
    node: Node, method: str, path: str, body: str, name: str, arguments: dict[str, Any], location: str
) -> None:
    answer = node.ask(method, path, body, JSON)
    assert (answer.status, answer.headers["location"], answer.json["master"]) == (202, location, "m1")
    assert node.front.commands == [(name, arguments, 30_000)]


@pytest.mark.parametrize(
    ("method", "path", "body", "name"), [row[:4] for row in BEGUN if row[3] in {"peer-add", "peer-remove", "split-recovery"}]
)
def test_a_wish_for_what_is_so_already_is_done(method: str, path: str, body: str, name: str) -> None:
    front = Commanded()
    front.is_so = True
    assert Node(front).ask(method, path, body, JSON).status == 200
    assert [command[0] for command in front.commands] == [name]


def test_a_command_may_take_as_long_as_its_request(node: Node) -> None:
    node.get(TASK, Brokerha_Timeout_Ms="500")
    assert node.front.commands == [("task", {"request": "m1/7"}, 500)]


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
        ("PUT", "/cluster/pins/archive", "", "lsn is missing"),
        ("PUT", "/cluster/pins/archive", '{"lsn": 7}', "for_s is missing"),
        ("PUT", "/cluster/pins/archive", '{"lsn": "7", "for_s": 60}', "lsn is a whole number, not '7'"),
        ("PUT", "/cluster/pins/archive", '{"lsn": true, "for_s": 60}', "lsn is a whole number, not True"),
        ("PUT", "/cluster/pins/archive", '{"lsn": 7, "for_s": 6.5}', "for_s is a whole number"),
        ("PUT", "/cluster/pins/archive", '{"lsn": 7, "for_s": 60, "name": "b"}', "unknown field 'name'; known are lsn, for_s"),
        ("PUT", "/cluster/peers/m4", '{"url": "x"}', "unknown field 'url'"),
        ("POST", "/cluster/split-recovery", "", "mode is missing"),
        ("POST", "/cluster/split-recovery", '{"mode": 3}', "mode is text"),
        ("POST", "/cluster/split-recovery", '{"mode": "smart", "wait": 3}', "unknown field 'wait'"),
        ("GET", "/cluster/splits/last", "", "'last' is no number of a split"),
        ("GET", "/cluster/splits/-1", "", "'-1' is no number of a split"),
        ("GET", "/cluster/splits/412?from=x", "", "from is a whole number"),
        ("POST", "/cluster/nodes/m1-b/pause", '{"view": 3}', "unknown field 'view'"),
        ("POST", "/cluster/promote", "", "node is missing"),
        ("POST", "/cluster/backup", "", "name is missing: the body is a JSON object with name, incremental, replace, worker"),
        ("POST", "/cluster/backup", "{", "not JSON"),
        ("POST", "/cluster/backup", "[]", "a JSON object with name"),
        ("POST", "/cluster/backup", "{}", "name is missing"),
        ("POST", "/cluster/backup", '{"name": 7}', "name is text"),
        ("POST", "/cluster/backup", '{"name": "a", "replace": 1}', "replace is true or false"),
        (
            "POST",
            "/cluster/backup",
            '{"name": "a", "full": true}',
            "unknown field 'full'; known are name, incremental, replace, worker",
        ),
    ],
)
def test_what_is_wrong_is_refused_and_reaches_nobody(node: Node, method: str, path: str, body: str, words: str) -> None:
    answer = node.ask(method, path, body, JSON)
    assert (answer.status, node.front.commands) == (400, [])
    assert words in answer.text


@pytest.mark.parametrize(("method", "path"), [("PUT", "/cluster/workers/w2"), ("POST", "/cluster/backup")])
def test_a_body_of_another_type_is_refused(node: Node, method: str, path: str) -> None:
    assert node.ask(method, path, "name=a", {"Content-Type": "text/plain"}).status == 415


@pytest.mark.parametrize(
    ("path", "known"), [("workers/w2", "on, off, trust, copy, scrub"), ("nodes/m1-b", "pause, coin, continue")]
)
def test_a_command_that_does_not_exist_is_not_found(node: Node, path: str, known: str) -> None:
    answer = node.ask("POST", f"/cluster/{path}/dance", "", JSON)
    assert (answer.status, node.front.commands) == (404, [])
    assert f"there are {known}" in answer.text
    assert node.ask("GET", f"/cluster/{path}/{known.split(',', maxsplit=1)[0]}").status == 405


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotReady("w2 is not heard: start it first"), 503),
        (InvalidRequest("LSN 1 is not held any more: the log of m1 begins at 5"), 400),
        (NotFound("no split 7"), 404),
        (WrongState("m1-b was not coined since it was paused: first brokerha node coin m1-b"), 409),
    ],
)
def test_a_refusal_of_the_master_comes_with_its_reason(node: Node, error: BrokerhaError, status: int) -> None:
    node.front.refusal = error
    for method, path, body in [*(row[:3] for row in DONE), *(row[:3] for row in BEGUN)]:
        answer = node.ask(method, path, body, JSON)
        assert (answer.status, answer.headers["brokerha-error"]) == (status, type(error).__name__), path
        assert str(error) in answer.text


def test_a_master_that_does_not_answer_is_not_waited_for_for_ever() -> None:
    node = Node(Commanded(), HttpLimits(timeout_ms=1, grace_ms=1))
    node.front.is_dead = True
    look = node.ask("GET", "/cluster/workers", "", JSON)
    assert (look.status, look.headers["brokerha-error"]) == (503, "TimedOut")
    assert "try again" in look.text


def test_of_a_change_without_an_answer_it_is_unknown_whether_it_was_carried_out() -> None:
    node = Node(Commanded(), HttpLimits(timeout_ms=1, grace_ms=1))
    node.front.is_dead = True
    answer = node.ask("POST", "/cluster/backup", '{"name": "a"}', JSON)
    assert (answer.status, answer.headers["brokerha-error"]) == (504, "OutcomeUnknown")
    assert "whether backup was carried out is unknown: look with `brokerha backup list` before you give it again" in answer.text
    assert "try again" not in answer.text


@pytest.mark.parametrize(
    ("name", "arguments", "request_"),
    [
        ("peers", {}, ("GET", "/cluster/peers", b"")),
        ("peer-add", {"node": "m4"}, ("PUT", "/cluster/peers/m4", b"")),
        ("peer-remove", {"node": "m4", "force": True}, ("DELETE", "/cluster/peers/m4?force=true", b"")),
        ("promote", {"node": "m1-b"}, ("POST", "/cluster/promote", b'{"node": "m1-b"}')),
        ("node-pause", {"node": "m1-b"}, ("POST", "/cluster/nodes/m1-b/pause", b"")),
        ("node-coin", {"node": "m1-b"}, ("POST", "/cluster/nodes/m1-b/coin", b"")),
        ("node-continue", {"node": "m1-b"}, ("POST", "/cluster/nodes/m1-b/continue", b"")),
        ("split-recovery", {}, ("GET", "/cluster/split-recovery", b"")),
        ("split-recovery", {"mode": "smart"}, ("POST", "/cluster/split-recovery", b'{"mode": "smart"}')),
        ("splits", {}, ("GET", "/cluster/splits", b"")),
        ("split", {"number": 412}, ("GET", "/cluster/splits/412", b"")),
        ("split", {"number": 412, "from": 101, "limit": 5}, ("GET", "/cluster/splits/412?from=101&limit=5", b"")),
    ],
)
def test_the_client_asks_by_these_paths(name: str, arguments: dict[str, Any], request_: tuple[str, str, bytes]) -> None:
    assert request_of(name, arguments) == request_


@pytest.mark.parametrize(("method", "path", "body", "name", "arguments"), [*DONE, *(row[:5] for row in BEGUN)])
def test_what_the_client_sends_for_a_command_is_that_command_again(
    node: Node, method: str, path: str, body: str, name: str, arguments: dict[str, Any]
) -> None:
    sent = request_of(name, arguments)
    assert sent[0] == method
    assert node.ask(*sent, JSON).status in {200, 202}
    assert node.front.commands == [(name, arguments, 30_000)]
