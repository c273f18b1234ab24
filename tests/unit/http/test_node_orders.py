"""Pausing, coining and continuing a node over HTTP: which command reaches the master, and what comes back."""

from __future__ import annotations

import pytest

from brokerha.model.errors import WrongState
from tests.unit.http.asking import JSON, Node, request_of
from tests.unit.http.operating.test_peers import Commanded


@pytest.mark.parametrize("command", ["pause", "coin", "continue"])
def test_each_order_is_one_command(command: str) -> None:
    front = Commanded()
    node = Node(front)
    answer = node.ask("POST", f"/cluster/nodes/m%31-b/{command}", '{"force": true}', JSON)
    assert (answer.status, answer.json["changed"]) == (200, True)
    assert node.ask("POST", f"/cluster/nodes/m1-b/{command}").status == 200
    assert front.commands == [
        (f"node-{command}", {"node": "m1-b", "force": True}, 30_000),
        (f"node-{command}", {"node": "m1-b"}, 30_000),
    ]
    assert request_of(f"node-{command}", {"node": "m1-b"}) == ("POST", f"/cluster/nodes/m1-b/{command}", b"")


def test_what_is_no_order_is_named() -> None:
    front = Commanded()
    answer = Node(front).ask("POST", "/cluster/nodes/m1-b/sleep", "", JSON)
    assert (answer.status, front.commands) == (404, [])
    assert "there are pause, coin, continue" in answer.text
    assert Node(front).ask("POST", "/cluster/nodes/m1-b/pause", '{"view": 3}', JSON).status == 400
    assert Node(front).ask("GET", "/cluster/nodes/m1-b/pause").status == 405


def test_a_refusal_comes_with_its_reason() -> None:
    front = Commanded()
    front.refusal = WrongState("m1-b was not coined since it was paused: first brokerha node coin m1-b")
    answer = Node(front).ask("POST", "/cluster/nodes/m1-b/continue", "", JSON)
    assert answer.status == 409
    assert "first brokerha node coin m1-b" in answer.text
