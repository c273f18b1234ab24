"""Masters over HTTP: what reaches the master that is asked, and what comes back."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from brokerha.model.errors import InvalidRequest, NotReady
from tests.unit.http.asking import JSON, Node, request_of
from tests.unit.http.fake_front import FakeFront


class Commanded(FakeFront):
    """A master that takes every wish, unless it refuses; what is so already changes nothing."""

    is_so = False

    def command(self, name: str, arguments: dict[str, Any], timeout_ms: int = 30_000) -> Future[dict[str, Any]]:
        self.commands.append((name, arguments, timeout_ms))
        future: Future[dict[str, Any]] = Future()
        if self.refusal is not None:
            future.set_exception(self.refusal)
        else:
            future.set_result({"master": "m1", "node": "m4", "changed": not self.is_so})
        return future


@pytest.fixture
def front() -> Commanded:
    return Commanded()


@pytest.mark.parametrize(
    ("method", "path", "name", "arguments", "status"),
    [
        ("GET", "/cluster/peers", "peers", {}, 200),
        ("PUT", "/cluster/peers/m4", "peer-add", {"node": "m4"}, 202),
        ("DELETE", "/cluster/peers/m%34", "peer-remove", {"node": "m4", "force": False}, 202),
        ("DELETE", "/cluster/peers/m4?force=true", "peer-remove", {"node": "m4", "force": True}, 202),
    ],
)
def test_each_request_is_one_command_of_the_master(
    front: Commanded, method: str, path: str, name: str, arguments: dict[str, Any], status: int
) -> None:
    answer = Node(front).ask(method, path, "", JSON)
    assert answer.status == status
    assert answer.json["master"] == "m1"
    assert front.commands == [(name, arguments, 30_000)]


def test_what_is_so_already_is_done(front: Commanded) -> None:
    front.is_so = True
    for method in ("PUT", "DELETE"):
        assert Node(front).ask(method, "/cluster/peers/m4", "", JSON).status == 200


def test_a_refusal_comes_with_its_reason(front: Commanded) -> None:
    front.refusal = NotReady("remove m3 is under way here: one at a time")
    answer = Node(front).ask("PUT", "/cluster/peers/m4", "", JSON)
    assert answer.status == 503
    assert "one at a time" in answer.text
    front.refusal = InvalidRequest("m1 cannot take itself out: ask another master")
    assert Node(front).ask("DELETE", "/cluster/peers/m1", "", JSON).status == 400


def test_a_body_is_none_of_it(front: Commanded) -> None:
    assert Node(front).ask("PUT", "/cluster/peers/m4", '{"url": "x"}', JSON).status == 400
    assert not front.commands


def test_the_client_asks_by_these_paths() -> None:
    assert request_of("peers", {}) == ("GET", "/cluster/peers", b"")
    assert request_of("peer-add", {"node": "m4"}) == ("PUT", "/cluster/peers/m4", b"")
    assert request_of("peer-remove", {"node": "m4", "force": True}) == ("DELETE", "/cluster/peers/m4?force=true", b"")
    assert request_of("promote", {"node": "m1-b"}) == ("POST", "/cluster/promote", b'{"node": "m1-b"}')
