"""Reads of a door that reaches workers by itself, and what becomes of those that it cannot have answered."""

from __future__ import annotations

from typing import Any

import pytest

from brokerha.http.app import create_app
from brokerha.model.errors import BrokerhaError, NotFound, TimedOut
from brokerha.model.outside.levels import LATEST_LSN
from brokerha.model.wire.messages import Read
from brokerha.ports.front import Readers, ReadOutcome
from tests.unit.http.asking import Node
from tests.unit.http.fake_front import FakeFront


class Near:
    """In place of the connections: answers with what the test says."""

    def __init__(self, answer: ReadOutcome | BrokerhaError | None) -> None:
        self.answer = answer
        self.asked: list[tuple[tuple[str, ...], Read]] = []

    async def read(self, workers: tuple[str, ...], wanted: Read) -> ReadOutcome | None:
        self.asked.append((workers, wanted))
        if isinstance(self.answer, BrokerhaError):
            raise self.answer
        return self.answer

    def close(self) -> None:
        """Nothing is open."""


class Apart(FakeFront):
    """A master with two workers, which is apart if a test wants."""

    def __init__(self, apart: str = "", stale_ms: int | None = 0) -> None:
        super().__init__()
        self.told = (apart, stale_ms)
        self.counted = 0

    def readers(self, min_lsn: int) -> Readers:
        return Readers(("w1", "w2"), 7 if min_lsn == LATEST_LSN else min_lsn, *self.told)

    def was_read(self) -> None:
        self.counted += 1


def node_of(front: FakeFront, near: Any) -> Node:
    node = Node(front)
    node.app = create_app(front, local_reads=near)
    return node


VALUE = ReadOutcome("application/octet-stream", 9, b"near")


def test_a_read_is_answered_without_the_node_and_counts_as_one_of_its_own() -> None:
    front, near = Apart(), Near(VALUE)
    answer = node_of(front, near).get("/kv/t/a", Brokerha_Min_Lsn="latest", Brokerha_Timeout_Ms="900")
    assert (answer.status, answer.body, answer.headers["brokerha-lsn"]) == (200, b"near", "9")
    assert "brokerha-apart" not in answer.headers
    assert near.asked == [(("w1", "w2"), Read("", "get", "t", {"key": b"a"}, 7, 900))]
    assert (front.reads, front.counted) == ([], 1)


def test_what_no_near_worker_answers_goes_to_the_node() -> None:
    front = Apart()
    front.put("t", b"a", b"far")
    answer = node_of(front, Near(None)).get("/kv/t/a")
    assert (answer.status, answer.body, front.counted) == (200, b"far", 0)


def test_a_read_whose_time_is_over_at_a_near_worker_is_not_begun_again_elsewhere() -> None:
    front = Apart()
    answer = node_of(front, Near(TimedOut("the read did not finish in its time"))).get("/kv/t/a")
    assert (answer.status, front.reads) == (503, [])


def test_a_read_inside_of_a_transaction_goes_to_the_node() -> None:
    front, near = Apart(), Near(VALUE)
    node_of(front, near).get("/kv/t/a", Brokerha_Transaction="t-1")
    assert not near.asked


@pytest.mark.parametrize("answer", [VALUE, NotFound("there is no such key")])
def test_a_master_that_is_apart_says_how_old_an_answer_may_be(answer: Any) -> None:
    front = Apart("minority", 4200)
    found = node_of(front, Near(answer)).get("/kv/t/a")
    assert found.status == (200 if answer is VALUE else 404)
    assert (found.headers["brokerha-apart"], found.headers["brokerha-stale-ms"]) == ("minority", "4200")
    assert front.counted == 1
