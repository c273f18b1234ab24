"""The quarantine of a real broker: what nodes set aside is found there whole, stays in its place, goes back where it came from."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest

from brokerha.model.errors import InvalidRequest, Unreachable
from brokerha.ports.transport import ClientMessage
from brokerha.transports.kombu_transport import KombuTransport
from brokerha.transports.rabbitmq.addresses import parse_addresses
from brokerha.transports.rabbitmq.rejecting import KEPT_IN_A_MINUTE
from brokerha.transports.tools.quarantine import Quarantine, Quarantined
from tests.contracts.transport_contract import take, wait_until
from tests.support.served import Served

pytestmark = pytest.mark.broker


class Site:
    """A master, and an app that publishes."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.master = Served(KombuTransport(url, "orders", "m1", 1, "master"))
        wait_until(lambda: self.master.status().state == "connected", "m1 is connected")
        self.app = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self.app.channel()
        self.channel.confirm_delivery()

    def publish(self, body: bytes, key: str = "any", exchange: str = "brokerha.writes", **properties: Any) -> None:
        self.channel.basic_publish(exchange, key, body, pika.BasicProperties(**properties), mandatory=True)

    def reject(self, body: bytes, reason: str, **properties: Any) -> None:
        """An app's message that the master sets aside."""
        before = self.waiting()
        self.publish(body, **properties)
        (message,) = take(self.master, 1)
        assert isinstance(message, ClientMessage)
        self.master.reject(message, reason)
        wait_until(lambda: self.waiting() == before + 1, "it is in quarantine")

    def waiting(self) -> int:
        """Messages in quarantine."""
        count: int = self.channel.queue_declare("brokerha.rejected", passive=True).method.message_count
        return count

    def close(self) -> None:
        self.master.close()
        self.app.close()


@pytest.fixture
def site(vhost_url: str) -> Iterator[Site]:
    running = Site(vhost_url)
    yield running
    running.close()


def look(site: Site, act: Callable[[Quarantine, Quarantined], None] = lambda _quarantine, _message: None) -> list[Quarantined]:
    """All that is there, each handed to ``act``."""
    with Quarantine(parse_addresses(site.url)[0]) as quarantine:
        found = []
        for message in quarantine.messages(100):
            found.append(message)
            act(quarantine, message)
        return found


def test_a_message_of_an_app_is_there_with_all_that_it_came_with_and_where_from(site: Site) -> None:
    site.reject(
        b"INSERT", "InvalidRequest: no such repository",
        key="m1", content_type="application/sparql-update", message_id="order-1", reply_to="answers",
        correlation_id="c-1", headers={"repository": "stock"},
    )  # fmt: skip
    (found,) = look(site)
    assert (found.node, found.reason, found.body) == ("m1", "InvalidRequest: no such repository", b"INSERT")
    assert (found.exchange, found.key, found.is_of_app) == ("brokerha.writes", "m1", True)
    assert found.seen_ms > 1_700_000_000_000
    kept = {name: found.properties[name] for name in ("content_type", "message_id", "reply_to", "correlation_id")}
    assert list(kept.values()) == ["application/sparql-update", "order-1", "answers", "c-1"]
    assert found.properties["application_headers"] == {"repository": "stock"}
    # And looking changed nothing, not even its name
    assert [again.id for again in look(site)] == [found.id]


def test_one_that_is_tried_again_comes_to_the_node_as_it_was_and_is_gone_here(site: Site) -> None:
    for number in range(3):
        site.reject(b"body-%d" % number, "full", key="m1", message_id=f"order-{number}", headers={"ack": "applied"})

    def again(quarantine: Quarantine, message: Quarantined) -> None:
        if message.body == b"body-1":
            quarantine.retry(message)

    look(site, again)
    (message,) = take(site.master, 1)
    assert isinstance(message, ClientMessage)
    assert (message.body, message.message_id, message.routing_key) == (b"body-1", "order-1", "m1")
    assert message.headers == {"ack": "applied"}
    # Then the others are where they were, in their order
    wait_until(lambda: site.waiting() == 2, "two are left")
    assert [each.body for each in look(site)] == [b"body-0", b"body-2"]


@pytest.mark.parametrize("queue", ["brokerha.writes.any", "brokerha.m1.writes", "brokerha.reads.any"])
def test_one_that_came_by_the_name_of_a_queue_goes_back_there(site: Site, queue: str) -> None:
    site.reject(b"body", "full", exchange="", key=queue)
    look(site, lambda quarantine, message: quarantine.retry(message))
    (message,) = take(site.master, 1)
    assert isinstance(message, ClientMessage)
    assert (message.body, message.exchange, message.routing_key) == (b"body", "", queue)
    wait_until(lambda: site.waiting() == 0, "nothing is left")


def test_one_that_is_dropped_is_gone_and_no_other(site: Site) -> None:
    for number in range(3):
        site.reject(b"body-%d" % number, "wrong", message_id=f"order-{number}")
    look(site, lambda quarantine, message: quarantine.drop(message) if message.body == b"body-0" else None)
    wait_until(lambda: site.waiting() == 2, "two are left")
    assert [each.body for each in look(site)] == [b"body-1", b"body-2"]


def test_one_that_no_queue_takes_stays(site: Site) -> None:
    site.reject(b"body", "wrong", key="m1")
    site.master.close()
    site.channel.queue_delete("brokerha.m1.writes")
    with pytest.raises(InvalidRequest, match=r"no queue takes 'm1' of brokerha\.writes"):
        look(site, lambda quarantine, message: quarantine.retry(message))
    wait_until(lambda: site.waiting() == 1, "it is in its place")


def test_of_bytes_that_are_no_message_between_nodes_some_are_kept_and_all_are_counted(site: Site) -> None:
    flood = 5 * KEPT_IN_A_MINUTE
    for number in range(flood):
        site.publish(b"\xc1%d" % number, key="m1", exchange="brokerha.sync")
    wait_until(lambda: site.master.receive(100, 50) == [] and count(site) == flood, "all are counted")
    wait_until(lambda: site.waiting() == KEPT_IN_A_MINUTE, "some are kept")
    found = look(site)
    assert {each.reason.split(":")[0] for each in found} == {"undecodable"}
    assert {(each.exchange, each.key, each.is_of_app) for each in found} == {("brokerha.sync", "m1", False)}
    # And nobody is asked to take them again
    with pytest.raises(InvalidRequest, match="said again by its sender"):
        look(site, lambda quarantine, message: quarantine.retry(message))
    wait_until(lambda: site.waiting() == KEPT_IN_A_MINUTE, "they are in their places")


def count(site: Site) -> int:
    counters: dict[str, int] = site.master.status().counters
    return counters.get("undecodable", 0)


def test_where_no_node_has_run_nothing_is_in_quarantine(vhost_url: str) -> None:
    with Quarantine(parse_addresses(vhost_url)[0]) as quarantine:
        assert list(quarantine.messages(10)) == []


def test_no_broker_is_said_in_words() -> None:
    with pytest.raises(Unreachable, match=r"nothing listens at 127\.0\.0\.1:1"):
        Quarantine(parse_addresses("amqp://guest:guest@127.0.0.1:1/x")[0])


class _Raw(pika.BasicProperties):  # type: ignore[misc]  # pika has no types.
    """Properties as bytes, as no library would write them."""

    def __init__(self, encoded: bytes) -> None:
        super().__init__()
        self._encoded = encoded

    def encode(self) -> list[bytes]:
        return [self._encoded]


def test_headers_in_quarantine_have_types_that_every_client_reads(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.reject(b"x", "why", headers={"large": 2**40, "deep": {"a": [2**40]}})
    encoded: list[bytes] = []
    decode = pika.BasicProperties.decode

    def kept(properties: Any, data: bytes, offset: int = 0) -> Any:
        encoded.append(data)
        return decode(properties, data, offset)

    monkeypatch.setattr(pika.BasicProperties, "decode", kept)
    _, properties, _ = site.channel.basic_get("brokerha.rejected")
    assert (properties.headers["large"], properties.headers["deep"]) == (2**40, {"a": [2**40]})
    for field in (b"\x10brokerha-seen-ms", b"\x05large", b"\x01aA\0\0\0\x09"):
        assert field + b"l\0" in encoded[-1], field


@pytest.mark.parametrize(
    "encoded",
    [
        pytest.param(struct.pack(">HB", 1 << 15, 2) + b"\xff\xfe", id="a type that is no UTF-8"),
        pytest.param(struct.pack(">HI", 1 << 13, 11) + b"\x01kT\x7f" + b"\xff" * 7, id="a time after all years"),
        pytest.param(
            struct.pack(">HI", 1 << 13, 120_004) + b"\x01kS" + struct.pack(">I", 119_997) + b"x" * 119_997, id="large headers"
        ),
    ],
)
def test_a_message_that_no_library_would_write_is_set_aside_and_holds_nobody_up(site: Site, encoded: bytes) -> None:
    site.channel.basic_publish("brokerha.writes", "any", b"poison", _Raw(encoded), mandatory=True)
    (message,) = take(site.master, 1)
    site.master.reject(message, "UnsupportedType: it cannot be read")
    wait_until(lambda: site.waiting() == 1, "it is in quarantine")
    (found,) = look(site)
    assert found.body == b"poison"
    assert found.reason.startswith(("its properties cannot be read: ", "UnsupportedType: it cannot be read"))
    site.publish(b"next", content_type="application/sparql-update")
    (after,) = take(site.master, 1)
    assert after.body == b"next"
    assert site.master.status().counters.get("faults", 0) == 0
