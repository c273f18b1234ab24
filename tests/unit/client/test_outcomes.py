"""What became of a transaction: who is asked when the first master does not know it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import brokerha
from brokerha.client import Client
from brokerha.client.http_nodes import ask_until_known
from brokerha.model import errors
from tests.unit.client.fake_wire import FakeWire
from tests.unit.client.serving import Served, serving
from tests.unit.http.fake_front import FakeFront

BEGUN_AT_M2 = "m2.0a1b2c3d.1.347.t"
ABORTED = {"txid": BEGUN_AT_M2, "state": "aborted", "lsn": None, "outcome": None, "reason": "its primary was lost"}


class KnowingWire(FakeWire):
    """``known`` is what each node answers; any of them is the first."""

    def __init__(self, known: dict[str, dict[str, Any] | None]) -> None:
        super().__init__()
        self.known = known

    def ask(self, what: str, arguments: dict[str, Any], timeout_ms: int) -> Any:
        assert 0 < timeout_ms <= 5000
        self.asked.append((what, arguments))
        return self.known[arguments.get("node", "")]


@pytest.mark.parametrize(
    ("txid", "known", "nodes"),
    [
        (BEGUN_AT_M2, {"": None, "m2": ABORTED}, [None, "m2"]),
        (BEGUN_AT_M2, {"": ABORTED}, [None]),
        (BEGUN_AT_M2, {"": None, "m2": None}, [None, "m2"]),
        ("order-4711", {"": None}, [None]),
    ],
)
def test_the_master_that_began_it_is_asked_when_another_does_not_know_it(
    txid: str, known: dict[str, dict[str, Any] | None], nodes: list[str | None]
) -> None:
    wire = KnowingWire(known)

    assert Client(wire).outcome(txid, timeout=5) == list(known.values())[-1]
    assert [arguments.get("node") for _, arguments in wire.asked] == nodes


@pytest.fixture
def two() -> Iterator[list[Served]]:
    with serving(FakeFront(threaded=True), FakeFront(node_id="m2", threaded=True)) as servers:
        yield servers


def test_over_http_a_connection_that_began_nothing_finds_what_another_master_rolled_back(two: list[Served]) -> None:
    two[1].front.transactions.over[BEGUN_AT_M2] = ("aborted", 0, "its primary was lost")

    with brokerha.connect(f"{two[0].url},{two[1].url}", timeout=5) as db:
        assert db.outcome(BEGUN_AT_M2) == ABORTED
        assert db.outcome("m2.0a1b2c3d.1.348.t") is None


def test_over_http_nothing_is_called_unknown_while_the_one_that_may_know_it_is_not_heard(two: list[Served]) -> None:
    two[1].stop()

    with brokerha.connect(f"{two[0].url},{two[1].url}", timeout=5) as db, pytest.raises(errors.Unreachable, match="refused"):
        db.outcome(BEGUN_AT_M2, timeout=0.5)


# ---- several nodes over HTTP

LATER_S = 1e12
"""A moment that never comes."""


def says(answers: dict[str, list[Any]]) -> Callable[[str, float], str]:
    def ask(url: str, _until_s: float) -> str:
        answer = answers[url].pop(0)
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    return ask


UNKNOWN = errors.NotFound("not known")
BACKUP = errors.NotPrimary("a backup")
AWAY = errors.Unreachable("refused")
FROZEN = errors.TimedOut("no answer")


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ({"a": [UNKNOWN], "b": [BACKUP], "c": ["aborted"]}, ("c", "aborted")),
        ({"a": [UNKNOWN], "b": [BACKUP]}, None),
        ({"a": [AWAY, "aborted"], "b": [UNKNOWN]}, ("a", "aborted")),
        ({"a": [FROZEN, UNKNOWN], "b": [UNKNOWN, UNKNOWN]}, None),
        ({"a": [BACKUP, BACKUP], "b": [BACKUP, "aborted"]}, ("b", "aborted")),
    ],
)
def test_all_are_asked_until_one_knows_it_or_all_that_speak_for_a_master_do_not(
    answers: dict[str, list[Any]], found: tuple[str, str] | None
) -> None:
    assert ask_until_known(list(answers), says(answers), LATER_S, threading.Event()) == found
    assert all(left == [] for url, left in answers.items() if found is None or url <= found[0])


@pytest.mark.parametrize("problem", [AWAY, FROZEN, errors.InvalidRequest("no id")])
def test_what_a_node_said_that_was_not_heard_is_raised_at_the_end(problem: errors.BrokerhaError) -> None:
    closing = threading.Event()
    closing.set()
    with pytest.raises(type(problem), match=str(problem)):
        ask_until_known(["a", "b"], says({"a": [problem], "b": [UNKNOWN]}), LATER_S, closing)
