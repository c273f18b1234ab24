"""The broker of this process, through kombu's own classes and through the channel calls that nodes use."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from amqp.basic_message import Message
from amqp.exceptions import ConsumerCancelled
from kombu import Connection, Consumer, Exchange, Producer, Queue
from kombu.exceptions import ChannelError

from brokerha.transports.in_process.local_broker import LocalBroker
from brokerha.transports.in_process.transport import InProcessTransport


@pytest.fixture
def url() -> str:
    return f"embedded://{secrets.token_hex(4)}"


@pytest.fixture
def channel(url: str) -> Iterator[Any]:
    with Connection(url, transport=InProcessTransport) as connection:
        yield connection.channel()


def put(channel: Any, queue: str, *texts: str) -> None:
    for text in texts:
        channel.basic_publish(Message(text.encode()), exchange="", routing_key=queue)


def get(channel: Any, queue: str) -> list[bytes]:
    bodies = []
    while (message := channel.basic_get(queue, no_ack=True)) is not None:
        bodies.append(message.body)
    return bodies


def test_kombus_own_producer_and_consumer_work_over_it(url: str):
    queue = Queue("q", Exchange("e", "direct"), routing_key="k")
    with Connection(url, transport=InProcessTransport) as one, Connection(url, transport=InProcessTransport) as two:
        got: list[Any] = []
        with Consumer(one.channel(), [queue], on_message=got.append):
            Producer(two.channel()).publish({"a": 1}, exchange="e", routing_key="k", serializer="json")
            one.drain_events(timeout=30)
        got[0].ack()
        assert got[0].payload == {"a": 1}


def test_drain_events_says_when_nothing_came(channel: Any):
    with pytest.raises(TimeoutError):
        channel.connection.drain_events(channel.connection, timeout=0)


def test_a_closed_channel_brings_back_what_was_not_settled_in_its_place(channel: Any):
    channel.queue_declare(queue="q")
    put(channel, "q", "1", "2", "3", "4")
    reader = channel.connection.create_channel(channel.connection)
    taken = [reader.basic_get("q") for _ in range(3)]
    reader.basic_ack(taken[1].delivery_tag)
    reader.close()
    again = [channel.basic_get("q") for _ in range(3)]
    assert [(each.body, each.delivery_info["redelivered"]) for each in again] == [
        (b"1", True),
        (b"3", True),
        (b"4", False),
    ]


def test_prefetch_stops_the_delivery_until_something_is_settled(channel: Any):
    channel.queue_declare(queue="q")
    put(channel, "q", "1", "2", "3")
    got: list[Any] = []
    channel.basic_qos(prefetch_count=2)
    channel.basic_consume(queue="q", callback=got.append)
    while channel.connection.deliver_one():
        pass
    assert [each.body for each in got] == [b"1", b"2"]
    channel.basic_ack(got[1].delivery_tag, multiple=True)
    assert channel.connection.deliver_one()
    assert got[2].body == b"3"


def test_a_requeued_message_goes_back_to_its_place(channel: Any):
    channel.queue_declare(queue="q")
    put(channel, "q", "1", "2")
    channel.basic_reject(channel.basic_get("q").delivery_tag, requeue=True)
    assert get(channel, "q") == [b"1", b"2"]


def test_a_full_queue_drops_its_head_or_refuses_as_it_was_declared(channel: Any):
    told: list[tuple[Any, ...]] = []
    channel.events["drop"].add(lambda *facts: told.append(("drop", *facts)))
    channel.events["basic_nack"].add(lambda *facts: told.append(("nack", *facts)))
    channel.queue_declare(queue="head", arguments={"x-max-length": 2})
    channel.queue_declare(queue="refuse", arguments={"x-max-length-bytes": 2, "x-overflow": "reject-publish"})
    put(channel, "head", "1", "2", "3")
    put(channel, "refuse", "1", "2", "3")
    assert told == [("drop", 1), ("nack", 0, False)]
    assert (get(channel, "head"), get(channel, "refuse")) == ([b"2", b"3"], [b"1", b"2"])


def test_an_unroutable_message_is_returned_if_that_was_asked_for(channel: Any):
    returned: list[Any] = []
    channel.events["basic_return"].add(
        lambda _problem, exchange, key, message: returned.append((exchange, key, message.body))
    )
    channel.exchange_declare("e")
    channel.basic_publish(Message(b"1"), exchange="e", routing_key="nobody", mandatory=True)
    channel.basic_publish(Message(b"2"), exchange="e", routing_key="nobody")
    assert returned == [("e", "nobody", b"1")]


def test_a_missing_exchange_or_queue_is_an_error_as_in_rabbitmq(channel: Any):
    with pytest.raises(ChannelError, match="no exchange"):
        channel.basic_publish(Message(b"1"), exchange="missing", routing_key="k")
    with pytest.raises(ChannelError, match="no queue"):
        channel.queue_declare(queue="missing", passive=True)
    with pytest.raises(ChannelError, match="no queue"):
        channel.basic_consume(queue="missing", callback=print)


def test_a_fanout_exchange_reaches_every_queue(channel: Any):
    channel.exchange_declare("all", "fanout")
    for name in ("a", "b"):
        channel.queue_declare(queue=name)
        channel.queue_bind(queue=name, exchange="all", routing_key="whatever")
    channel.basic_publish(Message(b"1"), exchange="all", routing_key="other")
    assert (get(channel, "a"), get(channel, "b")) == ([b"1"], [b"1"])


def test_consumers_are_told_when_their_queue_is_deleted(channel: Any):
    told: list[str] = []
    for name in ("asked", "silent"):
        channel.queue_declare(queue=name)
    channel.basic_consume(queue="asked", consumer_tag="a", callback=print, on_cancel=told.append)
    channel.queue_delete(queue="asked")
    channel.connection.drain_events(channel.connection, timeout=0)
    assert told == ["a"]
    channel.basic_consume(queue="silent", consumer_tag="s", callback=print)
    channel.queue_delete(queue="silent")
    with pytest.raises(ConsumerCancelled):
        channel.connection.drain_events(channel.connection, timeout=0)


def test_a_purged_queue_is_empty_and_says_how_much_it_held(channel: Any):
    channel.queue_declare(queue="q")
    put(channel, "q", "1", "2")
    assert channel.queue_purge("q") == 2
    assert get(channel, "q") == []


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
        assert broker.queues() == ["another", "for-ever", "other"]

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
        assert broker.queues() == ["declared", "read"]
        broker.unsubscribe("read", bell)
        now_s[0] += 0.9
        broker.declare_queue("other", {})
        assert broker.queues() == ["declared", "other", "read"]
        now_s[0] += 0.1
        broker.declare_queue("other", {})
        assert broker.queues() == ["other"]
