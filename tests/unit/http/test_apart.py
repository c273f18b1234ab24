"""What HTTP says of a master that cannot agree with the others: what a write wants there, and how old reads may be."""

from __future__ import annotations

from typing import Any

import pytest

from brokerha.model import errors, states
from brokerha.model.operations import pack_operations
from brokerha.model.wire.client_wire import WRITES_TYPE, encode_writes
from brokerha.nodes.observing.staleness import Age, with_age
from tests.unit.http.asking import UPDATE, Node
from tests.unit.http.fake_front import FakeFront

AGE = Age(states.EXCLUDED, 12_345)


class OldFront(FakeFront):
    """Its reads are those of a master that is apart."""

    age = AGE

    def read(self, *arguments: Any, **named: Any) -> Any:
        done = super().read(*arguments, **named)
        outcome: Any = type(done)()
        marked = with_age(outcome, self.age)
        if error := done.exception():
            marked.set_exception(error)
        else:
            marked.set_result(done.result())
        return outcome


def test_a_write_says_what_it_wants_and_waits_when_it_does_not(node: Node) -> None:
    node.ask("PUT", "/kv/t/a", b"1")
    node.ask("PUT", "/kv/t/b", b"1", Brokerha_Apart="refuse")
    node.ask("POST", "/repositories/main/statements", "CLEAR ALL", UPDATE, Brokerha_Apart="wait")
    batch = encode_writes([("t1", pack_operations([("put", "t", b"c", b"1")]))])
    node.ask("POST", "/tx/batch", batch, {"Content-Type": WRITES_TYPE}, Brokerha_Apart="refuse")
    assert node.front.apart == ["wait", "refuse", "wait", "refuse"]


@pytest.mark.parametrize("path", ["/kv/t/a", "/queues/q"])
def test_another_word_is_refused(node: Node, path: str) -> None:
    answer = node.ask("PUT" if path.startswith("/kv") else "POST", path, b"1", Brokerha_Apart="later")
    assert (answer.status, answer.text) == (400, "at a master that is apart a write can wait or refuse, not 'later'\n")
    assert node.front.submitted == []


def test_a_refusal_says_the_reason_and_that_it_may_be_sent_again(node: Node) -> None:
    node.front.refusal = errors.ReadOnly("m1 cannot agree with the other masters now (no-majority: …)")
    answer = node.ask("PUT", "/kv/t/a", b"1", Brokerha_Apart="refuse")
    assert (answer.status, answer.headers["brokerha-error"], answer.headers["retry-after"]) == (503, "ReadOnly", "1")
    assert "cannot agree" in answer.text


READS = [
    "/kv/t/a",
    "/kv/t",
    "/repositories",
    "/repositories/main/size",
    "/repositories/main/contexts",
    "/repositories/main/statements",
    "/repositories/main?query=ASK%20%7B%7D",
    "/queues",
    "/queues/q",
    "/cluster/control",
]


@pytest.mark.parametrize("path", READS)
def test_each_read_says_its_lsn_the_state_and_how_old_it_may_be(path: str) -> None:
    node = Node(OldFront())
    node.ask("PUT", "/kv/t/a", b"1")
    answer = node.get(path)
    assert answer.status == 200
    told = [answer.headers[f"brokerha-{name}"] for name in ("lsn", "apart", "stale-ms")]
    assert told == ["1", states.EXCLUDED, "12345"]


def test_that_there_is_nothing_is_as_old() -> None:
    answer = Node(OldFront()).get("/kv/t/missing")
    assert answer.status == 404
    assert (answer.headers["brokerha-apart"], answer.headers["brokerha-stale-ms"]) == (states.EXCLUDED, "12345")


def test_an_age_that_nobody_knows_is_not_told() -> None:
    front = OldFront()
    front.age = Age(states.NO_MAJORITY, None)
    node = Node(front)
    node.ask("PUT", "/kv/t/a", b"1")
    answer = node.get("/kv/t/a")
    assert answer.headers["brokerha-apart"] == states.NO_MAJORITY
    assert "brokerha-stale-ms" not in answer.headers


@pytest.mark.parametrize("path", READS)
def test_a_master_that_agrees_says_the_lsn_alone(node: Node, path: str) -> None:
    node.ask("PUT", "/kv/t/a", b"1")
    answer = node.get(path)
    assert answer.headers["brokerha-lsn"] == "1"
    assert not {"brokerha-apart", "brokerha-stale-ms"} & set(answer.headers)
