"""Writes from any language: plain pika, no client of ours, against a cluster over a real RabbitMQ.

Good messages are applied and answered at the level they ask for; each kind of bad message goes to brokerha.rejected with its
reason, is answered, changes nothing and never loops.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pika
import pytest

from brokerha.embedded import EmbeddedCluster
from brokerha.transports.topology import REJECTED_EXCHANGE
from tests.support.configs import config_of

WAIT_S = 20.0


@pytest.fixture
def cluster(vhost_url: str, tmp_path: Path) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config_of("amqp", vhost_url, tmp_path, {"m1": "w1", "m2": "w2"})) as running:
        running.client("m1").put("ready", b"k", b"v", timeout=WAIT_S)
        yield running


class App:
    """A program that knows AMQP and nothing else."""

    def __init__(self, url: str) -> None:
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()
        self.replies = self.channel.queue_declare("", exclusive=True).method.queue

    def send(self, body: bytes, content_type: str, **properties: Any) -> list[Any]:
        """Publish one message and return the rows of its reply."""
        key = properties.pop("routing_key", "any")
        self.channel.basic_publish(
            "brokerha.writes",
            key,
            body,
            pika.BasicProperties(
                content_type=content_type, delivery_mode=2, reply_to=self.replies, correlation_id="7", **properties
            ),
            mandatory=True,
        )
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            method, header, answer = self.channel.basic_get(self.replies, auto_ack=True)
            if method is not None:
                assert header.correlation_id == "7"
                return list(msgpack.unpackb(answer))
            self.connection.process_data_events(0.02)
        raise AssertionError("no reply")

    def read(self, table: str) -> dict[str, Any]:
        """Read all keys of a table; return the answer."""
        self.connection.process_data_events()
        reading = msgpack.packb({"kind": "range", "name": table, "arguments": {}})
        properties = pika.BasicProperties("application/vnd.brokerha.read+msgpack", reply_to=self.replies)
        self.channel.basic_publish("brokerha.writes", "m1", reading, properties, mandatory=True)
        for method, _, answer in self.channel.consume(self.replies, auto_ack=True, inactivity_timeout=WAIT_S):
            self.channel.cancel()
            assert method is not None, "no answer"
            return dict(msgpack.unpackb(answer))
        raise AssertionError

    def rejected(self) -> tuple[bytes, dict[str, Any]] | None:
        """The oldest message of brokerha.rejected, taken out."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            method, header, body = self.channel.basic_get(REJECTED_EXCHANGE, auto_ack=True)
            if method is not None:
                return body, dict(header.headers or {})
            self.connection.process_data_events(0.05)
        return None


@pytest.fixture
def app(vhost_url: str) -> Iterator[App]:
    program = App(vhost_url)
    yield program
    program.connection.close()


def test_each_content_type_is_one_transaction(cluster: EmbeddedCluster, app: App) -> None:
    operations = msgpack.packb([["put", "t", b"k", b"1"], ["put", "t", b"l", b"2"]])
    rows = app.send(operations, "application/x-msgpack", message_id="key-1")
    assert rows[0][:2] == ["key-1", "applied"]
    rows = app.send(b'INSERT DATA { <urn:a> <urn:b> "c" }', "application/sparql-update", headers={"repository": "main"})
    assert rows[0][1] == "applied"
    rows = app.send(b'<urn:a> <urn:b> "d" .\n', "application/n-quads", routing_key="m2", headers={"ack": "synchronised"})
    assert rows[0][1] == "synchronised"
    rows = app.send(b'<urn:a> <urn:b> "e" .\n', "application/n-quads", headers={"ack": "accepted"})
    assert rows[0][1] == "accepted"
    db = cluster.client("m1")
    assert db.get("t", b"k", timeout=WAIT_S) == b"1"


def test_the_same_key_is_the_same_transaction(cluster: EmbeddedCluster, app: App) -> None:
    body = msgpack.packb([["put", "t", b"once", b"1"]])
    first = app.send(body, "application/x-msgpack", message_id="same", routing_key="m1")[0]
    again = app.send(body, "application/x-msgpack", message_id="same", routing_key="m2")[0]
    assert first == again
    other = app.send(msgpack.packb([["put", "t", b"once", b"2"]]), "application/x-msgpack", message_id="same")[0]
    assert other[1] == "refused"
    assert other[3] == "KeyReused"


@pytest.mark.parametrize(
    ("body", "content_type", "properties", "error", "words"),
    [
        (b"\xc1\xc1", "application/x-msgpack", {}, "InvalidRequest", "msgpack"),
        (msgpack.packb({"a": 1}), "application/x-msgpack", {}, "InvalidRequest", "list of operations"),
        (msgpack.packb([["explode", "x"]]), "application/x-msgpack", {}, "InvalidRequest", "unknown operation"),
        (b"INSERT DATA { <urn:a> ", "application/sparql-update", {}, "InvalidRequest", "MALFORMED"),
        (b"LOAD <http://127.0.0.1/x>", "application/sparql-update", {}, "InvalidRequest", "LOAD"),
        (b"\xff\xfe", "application/sparql-update", {}, "InvalidRequest", "UTF-8"),
        (b"<urn:a> <urn:b> .", "application/n-quads", {}, "InvalidRequest", "MALFORMED"),
        (b"hello", "text/html", {}, "UnsupportedType", "text/html"),
        (msgpack.packb([["put", "t", b"k", b"x" * (9 << 20)]]), "application/x-msgpack", {}, "TooLarge", "split"),
        (
            msgpack.packb([["put", "t", b"k", b"1"]]),
            "application/x-msgpack",
            {"headers": {"ack": "perhaps"}},
            "InvalidRequest",
            "perhaps",
        ),
    ],
)
def test_bad_messages_are_answered_and_kept_aside(
    cluster: EmbeddedCluster, app: App, body: bytes, content_type: str, properties: dict[str, Any], error: str, words: str
) -> None:
    before = cluster.masters["m1"].runner.core.sync.lsn
    row = app.send(body, content_type, **properties)[0]
    assert row[1] == "refused"
    assert row[3] == error
    assert words in row[4]
    kept = app.rejected()
    assert kept is not None
    assert kept[0] == body
    assert any(words in str(value) for value in kept[1].values())
    assert cluster.masters["m1"].runner.core.sync.lsn == before


def test_an_unknown_repository_is_rejected_at_its_place_in_the_order(cluster: EmbeddedCluster, app: App) -> None:
    row = app.send(b"INSERT DATA { <urn:a> <urn:b> 1 }", "application/sparql-update", headers={"repository": "nowhere"})[0]
    assert row[1] == "rejected"
    assert "nowhere" in row[4]


def test_an_answer_that_is_too_large_for_the_broker_is_refused_and_holds_up_nothing(cluster: EmbeddedCluster, app: App) -> None:
    # Given 18 MiB of values, which RabbitMQ 4 takes in no message and RabbitMQ 3 does
    for number in range(3):
        cluster.client("m1").put("large", b"%d" % number, b"x" * (6 << 20), timeout=WAIT_S)
    answer = app.read("large")
    if os.environ.get("BROKERHA_TEST_RABBITMQ") == "4":
        assert (answer["error"], "ask for less" in answer["reason"]) == ("TooLarge", True)
    else:
        assert (answer["error"], len(answer["body"]) > 18 << 20) == ("", True)
    # Then the next one is answered
    assert app.read("ready")["error"] == ""
