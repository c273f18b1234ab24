"""Both transports keep the contract; what only one of them has to show stands below its class."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from amqp.basic_message import Message
from kombu import Connection

from brokerha.model.errors import ConfigurationError
from brokerha.model.wire.messages import Outgoing
from brokerha.ports.transport import Transport
from brokerha.transports.config import LaneLimit, TransportConfig
from brokerha.transports.in_process import local_broker
from brokerha.transports.kombu_transport import SMALL_BYTES, KombuTransport
from tests.contracts.transport_contract import (
    PATIENCE_S,
    TransportContract,
    World,
    bodies,
    count_of,
    fetch,
    take,
    text_of,
    wait_until,
)
from tests.support.broker_source import BrokerSource
from tests.support.served import Served

_INCARNATION = 7


class Nodes:
    """Nodes on one broker; the URL says which."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._nodes: list[Any] = []

    def node(self, name: str, role: str = "master", master: str = "", **limits: Any) -> Transport:
        """Connect a node."""
        config = TransportConfig(**{"look_after_s": 0.0, **limits})
        transport: Any = KombuTransport(self.url, "orders", name, _INCARNATION, role, config, master)
        if not self.url.startswith("embedded:"):
            transport = Served(transport)
        self._nodes.append(transport)
        wait_until(lambda: transport.status().state == "connected", f"{name} is connected")
        found: Transport = transport
        return found

    def refusal(self, name: str, cluster: str) -> str:
        """What a node is told that cannot start."""
        node, deadline = None, time.monotonic() + PATIENCE_S
        try:
            node = KombuTransport(self.url, cluster, name, _INCARNATION, "master")
            while time.monotonic() < deadline:
                node.receive(1, 100)
        except ConfigurationError as refused:
            return str(refused)
        finally:
            if node is not None:
                node.close(0)
        return ""

    def close(self) -> None:
        """Close the nodes."""
        for node in self._nodes:
            node.close()


class InProcessWorld(Nodes):
    """An app beside them that uses the broker of this process as it is."""

    def __init__(self, name: str) -> None:
        super().__init__(f"embedded://{name}")
        self.broker = local_broker.enter(name)

    def publish(self, exchange: str, key: str, body: bytes, **properties: Any) -> bool:
        """Whether it reached a queue."""
        return self.broker.publish(exchange, key, body, properties).routed > 0

    def make_queue(self, name: str) -> None:
        """A queue without binding."""
        self.broker.declare_queue(name, {})

    def get(self, queue: str) -> tuple[bytes, dict[str, Any]] | None:
        """Look until there is a message."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if message := self.broker.take(queue):
                return message.body, message.properties
        return None

    def tx_queues(self) -> list[str]:
        """Queues of transactions that are there now."""
        return sorted(name for name in self.broker._queues if name.startswith("brokerha.tx."))

    def close(self) -> None:
        """Close the nodes, then the app."""
        super().close()
        local_broker.leave(self.broker)


class KombuWorld(Nodes):
    """An app beside them that speaks AMQP."""

    def __init__(self, url: str, list_queues: Callable[[], list[str]] = list) -> None:
        super().__init__(url)
        self.list_queues = list_queues
        self._app = Connection(url, transport_options={"confirm_publish": True})

    def publish(self, exchange: str, key: str, body: bytes, **properties: Any) -> bool:
        """Publish and wait until the broker has confirmed or returned it."""
        channel = self._app.channel()
        returned: list[Any] = []
        channel.events["basic_return"].add(lambda *facts: returned.append(facts))
        channel.basic_publish(Message(body, **properties), exchange=exchange, routing_key=key, mandatory=True)
        channel.close()
        return not returned

    def channel(self) -> Any:
        """A channel of its own, to be used in a ``with``."""
        return self._app.channel()

    def make_queue(self, name: str) -> None:
        """A queue without binding."""
        self._app.default_channel.queue_declare(queue=name, durable=True, auto_delete=False)

    def get(self, queue: str) -> tuple[bytes, dict[str, Any]] | None:
        """Look until there is a message."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            message = self._app.default_channel.basic_get(queue=queue, no_ack=True)
            if message is not None:
                return message.body, message.properties
        return None

    def tx_queues(self) -> list[str]:
        """Queues of transactions that are there now."""
        return [name for name in self.list_queues() if name.startswith("brokerha.tx.")]

    def close(self) -> None:
        """Close the nodes, then the app."""
        super().close()
        self._app.release()


def in_process_world() -> InProcessWorld:
    """A world in this process, with a name of its own."""
    return InProcessWorld(f"test-{secrets.token_hex(4)}")


def rabbitmq_world(broker: BrokerSource, url: str) -> KombuWorld:
    """A world on a virtual host of a broker."""
    vhost = unquote(urlsplit(url).path[1:])

    def list_queues() -> list[str]:
        with broker.management() as management:
            return [queue["name"] for queue in management.queues(vhost)]

    return KombuWorld(url, list_queues)


class TestInProcess(TransportContract):
    @pytest.fixture
    def world(self) -> Iterator[World]:
        world = in_process_world()
        yield world
        world.close()

    def test_a_full_inbox_drops_its_oldest_messages_and_the_sender_counts_them(self, world: World, monkeypatch):
        monkeypatch.setattr("brokerha.transports.topology.SYNC_QUEUE_BYTES", 2000)
        sender, receiver = world.node("m1"), world.node("m2")
        for n in range(200):
            sender.send([Outgoing("m2", fetch(f"{n:04}"))])
        dropped = count_of(sender, "dropped")
        assert 0 < dropped < 200
        assert [text_of(m) for m in take(receiver, 200 - dropped)] == [f"{n:04}" for n in range(dropped, 200)]

    def test_clusters_with_different_names_in_one_process_do_not_meet(self):
        one, other = InProcessWorld("one"), InProcessWorld("other")
        sender, namesake = one.node("m1"), other.node("m2")
        sender.send([Outgoing("m2", fetch("t-1"))])
        assert namesake.receive(10, 1) == []
        one.close()
        other.close()

    def test_the_queues_are_gone_when_the_last_connection_is_closed(self):
        world = InProcessWorld("short-lived")
        world.node("m1")
        assert world.publish("brokerha.sync", "m1", b"")
        world.close()
        broker = local_broker.enter("short-lived")
        assert (broker is world.broker, broker._queues) == (False, {})
        local_broker.leave(broker)

    def test_unsettled_messages_of_apps_stop_those_after_them(self, world: World):
        receiver = world.node("m1", prefetch_clients=2)
        for body in (b"1", b"2", b"3"):
            world.publish("brokerha.writes", "m1", body)
        first, second = take(receiver, 2)
        assert receiver.receive(9, 0) == []
        receiver.settle([second])
        assert [message.body for message in (first, second, *take(receiver, 1))] == [b"1", b"2", b"3"]

    def test_what_came_before_the_door_was_closed_is_not_received_after_it_went_back(self, world: World):
        sender, receiver = world.node("m1"), world.node("m2")
        sender.send([Outgoing("m2", fetch(str(n))) for n in range(3)])
        world.publish("brokerha.writes", "m2", b"write")
        # Given a write that came with messages of nodes, and more than one turn takes
        found = receiver.receive(2, 200)
        receiver.serve_clients(False)
        assert [text_of(message) for message in [*found, *receiver.receive(9, 0)]] == ["0", "1", "2"]
        receiver.serve_clients(True)
        assert [message.body for message in take(receiver, 1)] == [b"write"]

    def test_a_deleted_queue_is_declared_again_and_sync_stays_first(self, world: InProcessWorld):
        sender, receiver = world.node("m1"), world.node("m2")
        world.broker.delete_queue("brokerha.m2.sync")
        assert receiver.receive(10, 1) == []
        sender.send([Outgoing("m2", bodies("t-2", bytes(2 * SMALL_BYTES))), Outgoing("m2", fetch("t-1"))])
        assert [text_of(message) for message in take(receiver, 2)] == ["t-1", "t-2"]
        assert count_of(receiver, "cancelled") == 1


class TestRabbitMQ(TransportContract):
    @pytest.fixture
    def world(self, broker: BrokerSource, vhost_url: str) -> Iterator[World]:
        world = rabbitmq_world(broker, vhost_url)
        yield world
        world.close()

    def test_a_full_outbox_drops_its_oldest_messages_and_counts_them(self):
        # Given a broker that is not there
        sender = Served(
            KombuTransport(
                "amqp://guest:guest@127.0.0.1:1/", "orders", "m1", 1, "master", TransportConfig(outbox_sync=LaneLimit(10, 10_000))
            )
        )
        # When more is sent than the outbox may hold, then the newest stay
        for n in range(25):
            sender.send([Outgoing("m2", fetch(str(n)))])
        status = sender.status()
        assert (status.outbox, status.counters["dropped"]) == (10, 15)
        assert status.state == "waiting-for-broker"
        sender.close(timeout_ms=0)

    def test_a_node_that_was_there_before_another_cluster_came_waits_until_that_has_gone(self, world: KombuWorld):
        node = world.node("m1", redeclare_every_ms=100, retry_most_ms=100)
        with world.channel() as channel:
            channel.exchange_delete("brokerha.cluster")
            theirs = {"alternate-exchange": "brokerha.cluster.stock"}
            channel.exchange_declare("brokerha.cluster", "fanout", durable=True, auto_delete=False, arguments=theirs)
        wait_until(lambda: "belongs to the cluster stock, and this is orders" in node.status().reason, "it says why it waits")
        assert node.status().state == "waiting-for-broker"
        with world.channel() as channel:
            channel.exchange_delete("brokerha.cluster")
        wait_until(lambda: node.status().state == "connected", "it goes on")

    def test_a_second_process_under_a_node_id_publishes_nothing(self, world: KombuWorld):
        first, receiver = world.node("m1"), world.node("m2")
        second = Served(KombuTransport(world.url, "orders", "m1", _INCARNATION + 1, "master", TransportConfig(retry_most_ms=100)))
        second.send([Outgoing("m2", fetch("second"))])
        wait_until(lambda: "another process runs under the id" in second.status().reason, "it is refused its inbox")
        # Nothing tells that it will never publish.
        time.sleep(0.5)
        first.send([Outgoing("m2", fetch("first"))])
        assert [text_of(message) for message in take(receiver, 1)] == ["first"]
        assert second.status().outbox == 1
        first.close()
        wait_until(lambda: second.status().state == "connected", "its turn has come")
        second.close()

    def test_a_slow_receiver_stops_the_broker_and_not_the_sync_messages(self, world: World):
        # Given a receiver whose inbox for data holds little
        sender = world.node("m1")
        receiver = world.node("m2", inbox_data=LaneLimit(5, 1 << 20), prefetch_data=10)
        sender.send([Outgoing("m2", bodies(f"data-{n}", bytes(SMALL_BYTES))) for n in range(200)])
        wait_until(lambda: sender.status().outbox == 0, "everything is published")
        # When a sync message comes after two hundred data messages, then it is among the first to be taken
        sender.send([Outgoing("m2", fetch("sync"))])
        wait_until(lambda: sender.status().outbox == 0, "it is published")
        # Nothing tells when it has arrived, and who takes fifty messages meanwhile proves nothing.
        time.sleep(1.0)
        texts = [text_of(message) for message in take(receiver, 201, limit=1)]
        assert texts.index("sync") < 50
        assert [text for text in texts if text != "sync"] == [f"data-{n}" for n in range(200)]
