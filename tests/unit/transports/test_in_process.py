"""The broker of this process; what a node sees of it is in tests/contracts/test_transports.py."""

from __future__ import annotations

import threading

import pytest

from brokerha.transports.in_process.local_broker import LocalBroker


@pytest.fixture
def local() -> LocalBroker:
    return LocalBroker("b")


def put(local: LocalBroker, queue: str, *texts: str) -> list[tuple[int, ...]]:
    return [tuple(local.publish("", queue, text.encode(), {})) for text in texts]


def get(local: LocalBroker, queue: str) -> list[bytes]:
    bodies = []
    while (message := local.take(queue)) is not None:
        bodies.append(message.body)
    return bodies


def test_what_was_not_settled_goes_back_to_its_place(local: LocalBroker):
    local.declare_queue("q", {})
    put(local, "q", "1", "2", "3", "4")
    first, _, third = (local.take("q") for _ in range(3))
    assert first is not None
    assert third is not None
    local.give_back("q", [third, first])
    again = [local.take("q") for _ in range(3)]
    assert [(each.body, each.redelivered) for each in again if each] == [(b"1", True), (b"3", True), (b"4", False)]


def test_a_full_queue_drops_its_head_or_refuses_as_it_was_declared(local: LocalBroker):
    local.declare_queue("head", {"x-max-length": 2})
    local.declare_queue("refuse", {"x-max-length-bytes": 2, "x-overflow": "reject-publish"})
    assert put(local, "head", "1", "2", "3") == [(1, 0, 0), (1, 0, 0), (1, 0, 1)]
    assert put(local, "refuse", "1", "2", "3") == [(1, 0, 0), (1, 0, 0), (0, 1, 0)]
    assert (get(local, "head"), get(local, "refuse")) == ([b"2", b"3"], [b"1", b"2"])


def test_what_is_for_nobody_reaches_no_queue(local: LocalBroker):
    local.declare_exchange("e", "direct")
    assert local.publish("e", "nobody", b"1", {}).routed == local.publish("", "nobody", b"1", {}).routed == 0


def test_a_missing_exchange_or_queue_is_an_error(local: LocalBroker):
    with pytest.raises(LookupError, match="no exchange"):
        local.publish("missing", "k", b"1", {})
    with pytest.raises(LookupError, match="no queue"):
        local.readers("missing")
    with pytest.raises(LookupError, match="no queue"):
        local.subscribe("missing", threading.Condition(local.lock))


def test_a_fanout_exchange_reaches_every_queue(local: LocalBroker):
    local.declare_exchange("all", "fanout")
    for name in ("a", "b"):
        local.declare_queue(name, {})
        local.bind(name, "all", "whatever")
    assert local.publish("all", "other", b"1", {}).routed == 2
    assert (get(local, "a"), get(local, "b")) == ([b"1"], [b"1"])


class TestExpiry:
    def test_a_queue_that_nobody_has_read_for_its_time_goes_when_another_is_made(self):
        now_s = [0.0]
        broker = LocalBroker("b", lambda: now_s[0])
        broker.declare_queue("short", {"x-expires": 1000})
        broker.declare_queue("for-ever", {})
        now_s[0] = 0.9
        broker.declare_queue("other", {})
        assert broker.has_queue("short")
        now_s[0] = 1.0
        broker.declare_queue("another", {})
        assert sorted(broker._queues) == ["another", "for-ever", "other"]

    def test_reading_and_declaring_again_are_uses(self):
        now_s = [0.0]
        broker = LocalBroker("b", lambda: now_s[0])
        bell = threading.Condition(broker.lock)
        for name in ("read", "declared"):
            broker.declare_queue(name, {"x-expires": 1000})
        broker.subscribe("read", bell)
        for _ in range(3):
            now_s[0] += 0.9
            broker.declare_queue("declared", {"x-expires": 1000})
        assert sorted(broker._queues) == ["declared", "read"]
        broker.unsubscribe("read", bell)
        now_s[0] += 0.9
        broker.declare_queue("other", {})
        assert sorted(broker._queues) == ["declared", "other", "read"]
        now_s[0] += 0.1
        broker.declare_queue("other", {})
        assert sorted(broker._queues) == ["other"]
