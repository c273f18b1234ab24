"""Pins of the log over HTTP: what reaches the master, and what comes back."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from brokerha.model.errors import InvalidRequest
from tests.unit.http.asking import JSON, Node
from tests.unit.http.fake_front import FakeFront

DONE = {"name": "archive", "lsn": 7}


class Commanded(FakeFront):
    """A master that carries out every command, unless it refuses."""

    def command(self, name: str, arguments: dict[str, Any], timeout_ms: int = 30_000) -> Future[dict[str, Any]]:
        self.commands.append((name, arguments, timeout_ms))
        future: Future[dict[str, Any]] = Future()
        if self.refusal is not None:
            future.set_exception(self.refusal)
        else:
            future.set_result(DONE)
        return future


@pytest.fixture
def node() -> Node:
    return Node(Commanded())


@pytest.mark.parametrize(
    ("method", "path", "body", "name", "arguments"),
    [
        ("GET", "/cluster/pins", "", "pins", {}),
        ("PUT", "/cluster/pins/archive", '{"lsn": 7, "for_s": 60}', "pin", {"name": "archive", "lsn": 7, "for_s": 60}),
        ("DELETE", "/cluster/pins/arch%69ve", "", "unpin", {"name": "archive"}),
    ],
)
def test_each_request_is_one_command_of_the_master(
    node: Node, method: str, path: str, body: str, name: str, arguments: dict[str, Any]
) -> None:
    answer = node.ask(method, path, body, JSON)
    assert (answer.status, answer.json) == (200, DONE)
    assert node.front.commands == [(name, arguments, 30_000)]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("", "lsn is missing"),
        ('{"lsn": 7}', "for_s is missing"),
        ('{"lsn": "7", "for_s": 60}', "lsn is a whole number, not '7'"),
        ('{"lsn": true, "for_s": 60}', "lsn is a whole number, not True"),
        ('{"lsn": 7, "for_s": 6.5}', "for_s is a whole number"),
        ('{"lsn": 7, "for_s": 60, "name": "b"}', "unknown field 'name'; known are lsn, for_s"),
    ],
)
def test_a_wrong_body_is_refused_and_reaches_nobody(node: Node, body: str, words: str) -> None:
    answer = node.ask("PUT", "/cluster/pins/archive", body, JSON)
    assert answer.status == 400
    assert words in answer.text
    assert not node.front.commands


def test_a_refusal_of_the_master_comes_with_its_reason(node: Node) -> None:
    node.front.refusal = InvalidRequest("LSN 1 is not held any more: the log of m1 begins at 5")
    answer = node.ask("PUT", "/cluster/pins/archive", '{"lsn": 1, "for_s": 60}', JSON)
    assert answer.status == 400
    assert "begins at 5" in answer.text
