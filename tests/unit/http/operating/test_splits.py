"""Splits over HTTP: what reaches the master that is asked, and what comes back."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from brokerha.model.errors import BrokerhaError, InvalidRequest, NotFound, NotReady
from tests.unit.http.asking import JSON, Node, request_of
from tests.unit.http.fake_front import FakeFront


class Commanded(FakeFront):
    """A master that takes every command, unless it refuses; what is so already changes nothing."""

    is_so = False

    def command(self, name: str, arguments: dict[str, Any], timeout_ms: int = 30_000) -> Future[dict[str, Any]]:
        self.commands.append((name, arguments, timeout_ms))
        future: Future[dict[str, Any]] = Future()
        if self.refusal is not None:
            future.set_exception(self.refusal)
        else:
            future.set_result({"master": "m1", "changed": not self.is_so})
        return future


@pytest.fixture
def front() -> Commanded:
    return Commanded()


@pytest.mark.parametrize(
    ("method", "path", "body", "name", "arguments", "status"),
    [
        ("GET", "/cluster/split-recovery", "", "split-recovery", {}, 200),
        ("POST", "/cluster/split-recovery", '{"mode": "Smart"}', "split-recovery", {"mode": "Smart"}, 202),
        ("GET", "/cluster/splits", "", "splits", {}, 200),
        ("GET", "/cluster/splits/412", "", "split", {"number": 412}, 200),
        ("GET", "/cluster/splits/412?from=101&limit=50", "", "split", {"number": 412, "from": 101, "limit": 50}, 200),
    ],
)
def test_each_request_is_one_command_of_the_master(
    front: Commanded, method: str, path: str, body: str, name: str, arguments: dict[str, Any], status: int
) -> None:
    answer = Node(front).ask(method, path, body, JSON)
    assert (answer.status, answer.json["master"]) == (status, "m1")
    assert front.commands == [(name, arguments, 30_000)]


def test_what_is_in_force_already_is_done(front: Commanded) -> None:
    front.is_so = True
    assert Node(front).ask("POST", "/cluster/split-recovery", '{"mode": "smart"}', JSON).status == 200


@pytest.mark.parametrize(
    ("error", "status"), [(NotReady("not heard: m3"), 503), (InvalidRequest("stop all masters"), 400), (NotFound("no split 7"), 404)]
)
def test_a_refusal_comes_with_its_reason(front: Commanded, error: BrokerhaError, status: int) -> None:
    front.refusal = error
    answer = Node(front).ask("POST", "/cluster/split-recovery", '{"mode": "smart"}', JSON)
    assert answer.status == status
    assert str(error) in answer.text


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/cluster/split-recovery", ""),
        ("POST", "/cluster/split-recovery", '{"mode": 3}'),
        ("POST", "/cluster/split-recovery", '{"mode": "smart", "wait": 3}'),
        ("GET", "/cluster/splits/last", ""),
        ("GET", "/cluster/splits/-1", ""),
        ("GET", "/cluster/splits/412?from=x", ""),
    ],
)
def test_what_is_wrong_reaches_nobody(front: Commanded, method: str, path: str, body: str) -> None:
    assert Node(front).ask(method, path, body, JSON).status == 400
    assert not front.commands


def test_the_client_asks_by_these_paths() -> None:
    assert request_of("split-recovery", {}) == ("GET", "/cluster/split-recovery", b"")
    assert request_of("split-recovery", {"mode": "smart"}) == ("POST", "/cluster/split-recovery", b'{"mode": "smart"}')
    assert request_of("splits", {}) == ("GET", "/cluster/splits", b"")
    assert request_of("split", {"number": 412}) == ("GET", "/cluster/splits/412", b"")
    assert request_of("split", {"number": 412, "from": 101, "limit": 5}) == ("GET", "/cluster/splits/412?from=101&limit=5", b"")
