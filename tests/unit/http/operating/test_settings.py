"""Settings over HTTP: what reaches the master, and what comes back."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from tests.unit.http.asking import JSON, Node
from tests.unit.http.fake_front import FakeFront

ROW = {"name": "idle-round-ms", "value": "1000"}
TOLD = {"master": "m1", "lsn": 3, "problem": ""}


class Commanded(FakeFront):
    """A master that carries out every command."""

    def command(self, name: str, arguments: dict[str, Any], timeout_ms: int = 30_000) -> Future[dict[str, Any]]:
        self.commands.append((name, arguments, timeout_ms))
        future: Future[dict[str, Any]] = Future()
        future.set_result({**TOLD, "settings": [ROW]} if name == "settings" else {**TOLD, "setting": ROW})
        return future


@pytest.fixture
def node() -> Node:
    return Node(Commanded())


@pytest.mark.parametrize(
    ("method", "path", "body", "name", "arguments"),
    [
        ("GET", "/cluster/settings", "", "settings", {}),
        ("GET", "/cluster/settings/idle-round-ms", "", "settings", {}),
        ("PUT", "/cluster/settings/idle-round-ms", '{"value": "2000"}', "setting-set", {"name": "idle-round-ms", "value": "2000"}),
        ("PUT", "/cluster/settings/min-replay-s", '{"value": 0.5}', "setting-set", {"name": "min-replay-s", "value": "0.5"}),
        ("PUT", "/cluster/settings/log-stream", '{"value": true}', "setting-set", {"name": "log-stream", "value": "true"}),
        ("DELETE", "/cluster/settings/idle-round-ms", "", "setting-unset", {"name": "idle-round-ms"}),
    ],
)
def test_each_request_is_one_command_of_the_master(
    node: Node, method: str, path: str, body: str, name: str, arguments: dict[str, Any]
) -> None:
    answer = node.ask(method, path, body, JSON)
    assert answer.status == 200
    asked = arguments if name == "settings" else {**arguments, "by": "", "from": node.front.commands[0][1]["from"]}
    assert node.front.commands == [(name, asked, 30_000)]
    assert answer.json == ({**TOLD, "settings": [ROW]} if path == "/cluster/settings" else {**TOLD, "setting": ROW})


@pytest.mark.parametrize("body", ["", "[]", '"2000"', "{}", '{"value": null}', '{"value": [1]}', '{"value": "1", "by": "me"}'])
def test_a_wrong_body_is_refused_and_reaches_nobody(node: Node, body: str) -> None:
    answer = node.ask("PUT", "/cluster/settings/idle-round-ms", body, JSON)
    assert answer.status == 400
    assert '{"value": ...}' in answer.text
    assert not node.front.commands


def test_one_that_there_is_not_is_not_found(node: Node) -> None:
    answer = node.ask("GET", "/cluster/settings/idle-rounds-ms")
    assert answer.status == 404
    assert "did you mean idle-round-ms" in answer.text
