"""The bridge: what leaves RabbitMQ, and how."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Self
from unittest.mock import Mock

import pika
import pytest

from brokerha.model.errors import BrokerhaError, InvalidRequest, NotAllowed, NotReady, Rejected
from brokerha.model.ids import is_tx_id
from producers import bridge


class Channel:
    """One message waits; what becomes of it is noted."""

    def __init__(self, message_id: str | None) -> None:
        self.properties = pika.BasicProperties(message_id=message_id, content_type="text/plain", user_id="shop", expiration="5000")
        self.ends: list[str] = []
        self.aside: tuple[str, bytes, pika.BasicProperties] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def channel(self) -> Channel:
        return self

    def basic_qos(self, **_: int) -> None:
        pass

    def consume(self, _queue: str, **_: float) -> Iterator[tuple[Any, Any, bytes]]:
        yield SimpleNamespace(delivery_tag=1), self.properties, b"body"

    def confirm_delivery(self) -> None:
        self.ends.append("confirms")

    def queue_declare(self, queue: str, *, durable: bool) -> None:
        assert durable
        self.ends.append(f"{queue} is there")

    def basic_publish(self, exchange: str, key: str, body: bytes, properties: pika.BasicProperties, *, mandatory: bool) -> None:
        assert mandatory
        assert not exchange
        self.ends.append("put aside")
        self.aside = (key, body, properties)

    def basic_ack(self, _tag: int) -> None:
        self.ends.append("taken")


@pytest.mark.parametrize(
    ("message_id", "error", "ends"),
    [
        ("7", None, ["taken"]),
        ("7", InvalidRequest("no queue name"), ["q.aside is there", "put aside", "taken"]),
        # Under its id it is rejected for ever: it must not hold up those behind it.
        ("7", Rejected("message '7' is in queue 'into' already", "q/7", 3), ["q.aside is there", "put aside", "taken"]),
        # What passes, or has another id the next time, is tried again.
        (None, Rejected("there are 100 queues, and 100 is the limit", "t", 3), []),
        ("7", NotReady("no worker"), []),
        ("7", NotAllowed("bob lacks the role write"), []),
    ],
)
def test_a_message_leaves_the_queue_when_it_is_taken_or_never_can_be(
    monkeypatch: pytest.MonkeyPatch, message_id: str | None, error: BrokerhaError | None, ends: list[str]
) -> None:
    channel = Channel(message_id)
    monkeypatch.setattr(pika, "BlockingConnection", lambda _parameters: channel)

    def publish(*_: object, key: str) -> SimpleNamespace:
        assert key == ("q/7" if message_id else "")
        if error is not None:
            raise error
        return SimpleNamespace(lsn=3)

    cluster: Any = SimpleNamespace(publish=publish)
    with contextlib.nullcontext() if ends else pytest.raises(BrokerhaError):
        bridge.move(pika.URLParameters("amqp://h/"), "q", cluster, "into", "q.aside", threading.Event())
    assert channel.ends == ["confirms", *ends]
    if channel.aside is not None:
        queue, body, properties = channel.aside
        assert (queue, body, properties.delivery_mode) == ("q.aside", b"body", 2)
        assert properties.headers == {"brokerha-reason": str(error), "brokerha-user-id": "shop"}
        # RabbitMQ takes no other's name, and must not drop it.
        assert (properties.message_id, properties.user_id, properties.expiration) == (message_id, None, None)


@pytest.mark.parametrize(("queue", "message_id"), [("q", "id 7"), ("q", "sieben-ü"), ("q", "7" * 127), ("große bestellungen", "7")])
def test_a_queue_or_an_id_that_makes_no_transaction_id_costs_no_message(
    monkeypatch: pytest.MonkeyPatch, queue: str, message_id: str
) -> None:
    """Each was refused, and gone where the queue had no dead letters."""
    keys: list[str] = []
    for each in (message_id, message_id, "7" + message_id):
        channel = Channel(each)
        monkeypatch.setattr(pika, "BlockingConnection", Mock(return_value=channel))
        cluster: Any = Mock()
        bridge.move(pika.URLParameters("amqp://h/"), queue, cluster, "into", "q.aside", threading.Event())
        keys.append(cluster.publish.call_args.kwargs["key"])
    assert all(is_tx_id(key) for key in keys)
    # The same message is the same transaction, and another one is another
    assert keys[0] == keys[1] != keys[2]
