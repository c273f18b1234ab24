"""What a broker can do to its clients, and that nodes go on by themselves after each of it.

Given two nodes that hear each other; when the fault has happened and is over, then messages go both ways again, writes
of apps are taken, and the status says so. What was under way may be lost, except messages of apps.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from brokerha.model.wire.messages import Envelope, Outgoing
from brokerha.ports.transport import Transport
from brokerha.transports.config import TransportConfig
from brokerha.transports.kombu_transport import KombuTransport
from brokerha.transports.rabbitmq.addresses import parse_addresses
from brokerha.transports.rabbitmq.connecting import open_connection
from brokerha.transports.rabbitmq.identity import Identity
from brokerha.transports.rabbitmq.reader import ClientReader
from brokerha.transports.topology import QueueRow
from tests.contracts.test_transports import KombuWorld
from tests.contracts.transport_contract import count_of, fetch, take, text_of, wait_until
from tests.support.private_broker import PrivateBroker
from tests.support.served import Served


class Pair(NamedTuple):
    """Two masters on a broker that may be hurt."""

    broker: PrivateBroker
    vhost: str
    world: KombuWorld
    one: Transport
    other: Transport

    def must_hear_each_other(self) -> None:
        """Messages go both ways, within our patience; old ones may come late, or never."""
        for sender, receiver, name in ((self.one, self.other, "m2"), (self.other, self.one, "m1")):
            text = secrets.token_hex(8)

            def has_come(sender: Transport = sender, receiver: Transport = receiver, name: str = name, text: str = text) -> bool:
                sender.send([Outgoing(name, fetch(text))])
                return any(isinstance(m, Envelope) and text_of(m) == text for m in receiver.receive(1000, 100))

            wait_until(has_come, f"a message reaches {name}: {self.one.status()} {self.other.status()}")

    def must_be(self, state: str) -> None:
        """Both nodes say so."""
        wait_until(lambda: self.one.status().state == state, f"{state}: {self.one.status()}")
        wait_until(lambda: self.other.status().state == state, f"{state}: {self.other.status()}")


@pytest.fixture
def pair(private_broker: PrivateBroker) -> Iterator[Pair]:
    vhost = f"faults-{secrets.token_hex(4)}"
    world = KombuWorld(private_broker.create_vhost(vhost))
    pair = Pair(private_broker, vhost, world, world.node("m1"), world.node("m2"))
    pair.must_hear_each_other()
    yield pair
    if not private_broker.is_running:
        private_broker.restart()
    world.close()
    private_broker.delete_vhost(vhost)


def test_nodes_go_on_after_the_broker_was_killed_and_started_again(pair: Pair):
    pair.broker.kill()
    pair.must_be("waiting-for-broker")
    # The reason is at first that the connection broke, and then what trying again comes to.
    wait_until(lambda: "nothing listens" in pair.one.status().reason, f"it says why: {pair.one.status()}")
    pair.broker.restart()
    pair.must_be("connected")
    pair.must_hear_each_other()
    assert count_of(pair.one, "faults") == 0


def test_an_unsettled_write_survives_the_death_of_the_broker(pair: Pair):
    assert pair.world.publish("brokerha.writes", "m1", b"write", delivery_mode=2)
    (first,) = take(pair.one, 1)
    pair.broker.kill()
    pair.broker.restart()
    # The settling of the old delivery must not touch the new one.
    pair.one.settle([first])
    (again,) = take(pair.one, 1)
    assert (again.body, again.redelivered) == (b"write", True)


def test_nodes_go_on_after_every_queue_was_purged(pair: Pair):
    pair.broker.purge_queues(pair.vhost)
    pair.must_hear_each_other()


def test_nodes_go_on_after_every_queue_was_deleted(pair: Pair):
    pair.broker.delete_queues(pair.vhost)
    pair.must_hear_each_other()
    assert count_of(pair.one, "cancelled") > 0
    wait_until(lambda: pair.world.publish("brokerha.writes", "m1", b"write"), "writes find their queue")
    (message,) = take(pair.one, 1)
    assert message.body == b"write"


def test_a_queue_of_apps_that_lost_its_reader_unseen_is_read_again(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    real, lost = ClientReader._consume_from, list[str]()

    def lose_one(reader: ClientReader, row: QueueRow) -> None:
        # As RabbitMQ does when the queue that is read anew was just being deleted, and is declared again after that.
        if row.name == "brokerha.m1.writes" and not lost:
            lost.append(row.name)
            reader._consumed.add(row.name)
        else:
            real(reader, row)

    monkeypatch.setattr(ClientReader, "_consume_from", lose_one)
    pair.broker.close_all_connections()
    wait_until(lambda: bool(lost), "the reader is lost")
    pair.must_hear_each_other()
    wait_until(lambda: pair.world.publish("brokerha.writes", "m1", b"write"), "the write finds its queue")
    (message,) = take(pair.one, 1)
    assert message.body == b"write"
    assert count_of(pair.one, "cancelled") > 0


@pytest.mark.parametrize("exchange", ["brokerha.sync", "brokerha.data", "brokerha.writes", "brokerha.rejected"])
def test_nodes_go_on_after_an_exchange_was_deleted(pair: Pair, exchange: str):
    channel = pair.world._app.channel()
    channel.exchange_delete(exchange)
    channel.close()
    pair.must_hear_each_other()
    wait_until(lambda: _routes(pair, exchange), f"{exchange} is there again with its binding")


def test_nodes_go_on_after_the_broker_closed_their_connections(pair: Pair):
    pair.broker.close_all_connections()
    pair.must_hear_each_other()
    assert count_of(pair.one, "reconnects") > 0


def test_a_rejected_message_is_not_lost_when_its_exchange_is_gone(pair: Pair):
    pair.world.publish("brokerha.writes", "m1", b"poison")
    (message,) = take(pair.one, 1)
    channel = pair.world._app.channel()
    channel.exchange_delete("brokerha.rejected")
    channel.close()
    pair.one.reject(message, "not understood")
    kept = pair.world.get("brokerha.rejected")
    assert kept is not None
    assert kept[0] == b"poison"


def test_a_broker_without_memory_is_reported_and_nothing_is_lost_that_must_not_be(pair: Pair):
    pair.broker.ctl("set_vm_memory_high_watermark", "0")
    try:
        # A broker tells only those who publish, once it has looked at its memory.
        for node, peer in ((pair.one, "m2"), (pair.other, "m1")):

            def is_blocked(node: Transport = node, peer: str = peer) -> bool:
                node.send([Outgoing(peer, fetch("blocked"))])
                return node.status().state == "blocked"

            wait_until(is_blocked, f"blocked: {node.status()}")
        assert pair.one.status().reason
        pair.one.send([Outgoing("m2", fetch("later"))])
        assert pair.one.status().outbox > 0
    finally:
        pair.broker.ctl("set_vm_memory_high_watermark", "absolute", "2GB")
    pair.must_be("connected")
    pair.must_hear_each_other()


def test_a_virtual_host_that_is_missing_is_named_and_used_once_it_is_there(private_broker: PrivateBroker):
    vhost = f"late-{secrets.token_hex(4)}"
    node = Served(KombuTransport(private_broker.url_of(vhost), "orders", "m1", 1, "master", TransportConfig(retry_most_ms=200)))
    try:
        wait_until(lambda: vhost in node.status().reason, "the reason names the virtual host")
        assert node.status().state == "waiting-for-broker"
        private_broker.create_vhost(vhost)
        wait_until(lambda: node.status().state == "connected", "it is connected")
    finally:
        node.close()
        private_broker.delete_vhost(vhost)


def test_an_inbox_from_an_older_version_is_made_anew_and_a_queue_of_writes_is_left_to_a_person(pair: Pair):
    # Given queues for m3 that were declared with other limits
    channel = pair.world._app.channel()
    for name in ("brokerha.m3.sync", "brokerha.m3.writes"):
        channel.queue_declare(queue=name, durable=True, auto_delete=False, arguments={"x-max-length": 5})
    channel.close()
    # When m3 starts as a worker, then it has its inbox
    worker = pair.world.node("m3", role="worker")
    worker.close()
    # When it starts as a master, then the queue of writes is named, and keeps what is in it
    master = Served(KombuTransport(pair.world.url, "orders", "m3", 1, "master", TransportConfig(retry_most_ms=200)))
    try:
        wait_until(lambda: "brokerha.m3.writes" in master.status().reason, "the reason names the queue")
        channel = pair.world._app.channel()
        channel.queue_delete(queue="brokerha.m3.writes")
        channel.close()
        wait_until(lambda: master.status().state == "connected", "it is connected")
    finally:
        master.close()


def test_a_user_without_rights_is_told_so(pair: Pair):
    pair.broker.ctl("add_user", "reader", "secret-word")
    pair.broker.ctl("set_permissions", "-p", pair.vhost, "reader", "", "", ".*")
    url = pair.world.url.replace("guest:guest@", "reader:secret-word@")
    node = Served(KombuTransport(url, "orders", "m4", 1, "master"))
    try:
        wait_until(lambda: "access to exchange" in node.status().reason, f"the reason says it: {node.status()}")
        assert "secret-word" not in node.status().reason
    finally:
        node.close()
        pair.broker.ctl("delete_user", "reader")


def test_the_first_broker_that_answers_is_taken(pair: Pair):
    node = Served(KombuTransport(f"amqp://guest:guest@127.0.0.1:1/;{pair.world.url}", "orders", "m4", 1, "master"))
    try:
        wait_until(lambda: node.status().state == "connected", "it is connected")
    finally:
        node.close()


def test_a_wrong_password_is_named_and_tried_again(private_broker: PrivateBroker):
    url = private_broker.amqp_url.replace("guest:guest@", "guest:secret-word@")
    node = Served(KombuTransport(url, "orders", "m1", 1, "master"))
    try:
        wait_until(lambda: "refuses" in node.status().reason, "the reason names the refusal")
        assert "secret-word" not in node.status().reason
    finally:
        node.close()


def test_a_frozen_broker_is_given_up_after_two_heartbeats_and_found_again(pair: Pair):
    node = pair.world.node("m3", heartbeat_s=2, connect_timeout_s=1.0)
    pair.broker.freeze()
    wait_until(lambda: node.status().state == "waiting-for-broker", "the silence is noticed")
    pair.broker.thaw()
    wait_until(lambda: node.status().state == "connected", "it is connected")


def _routes(pair: Pair, exchange: str) -> bool:
    """Whether a message for m1 finds a queue; a missing exchange closes the channel of who publishes."""
    key = "" if exchange == "brokerha.rejected" else "m1"
    try:
        return pair.world.publish(exchange, key, b"probe")
    except pair.world._app.channel_errors:
        return False


def test_a_wait_ends_in_time_although_heartbeats_come_and_the_connection_lives_on(vhost_url: str) -> None:
    # Given heartbeats that come more often than the wait is long
    (address,) = parse_addresses(vhost_url)
    with open_connection(address, Identity("waits", "tool"), TransportConfig(heartbeat_s=2)) as connection:
        channel = connection.channel()
        for _ in range(2):
            with pytest.raises(TimeoutError):
                connection.connection.drain_events(timeout=2.5)
        # Then the broker has heard this side meanwhile
        assert channel.queue_declare(queue="still-here", durable=True, auto_delete=False).queue == "still-here"


def test_the_broker_answers_on_a_channel_that_it_serves_behind_what_was_sent_before(vhost_url: str) -> None:
    (address,) = parse_addresses(vhost_url)
    with open_connection(address, Identity("asks", "tool"), TransportConfig()) as connection:
        channel = connection.channel()
        answers: list[int] = []
        for number in range(3):
            channel.ask(lambda number=number: answers.append(number))
            while len(answers) <= number:
                connection.connection.drain_events(timeout=5)
        assert answers == [0, 1, 2]
