"""Who reads the broker's list of connections knows each of ours: product, version, node, role, cluster."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

from brokerha.model import VERSION
from brokerha.transports.client.wire import AmqpWire
from brokerha.transports.config import TransportConfig
from brokerha.transports.kombu_transport import KombuTransport
from brokerha.transports.rabbitmq.addresses import parse_addresses
from brokerha.transports.rabbitmq.connecting import open_connection
from brokerha.transports.rabbitmq.identity import TOOL_ROLE, Identity
from tests.contracts.transport_contract import wait_until
from tests.support.broker_source import BrokerSource
from tests.support.served import Served


def test_what_is_not_known_is_not_said() -> None:
    said = Identity("brokerha doctor", TOOL_ROLE).properties()

    assert said == {
        "connection_name": "brokerha doctor",
        "product": "brokerha",
        "version": VERSION,
        "product_version": VERSION,
        "role": "tool",
    }


def test_every_connection_says_to_the_broker_what_it_is(broker: BrokerSource, vhost_url: str) -> None:
    # Given a master, a worker, an app, and a command that looks
    vhost = unquote(urlsplit(vhost_url).path[1:])
    nodes = [Served(KombuTransport(vhost_url, "orders", name, 1, role)) for name, role in (("m1", "master"), ("w1", "worker"))]
    app = AmqpWire(vhost_url, "shop")
    (address,) = parse_addresses(vhost_url)
    tool = open_connection(address, Identity("brokerha doctor", TOOL_ROLE), TransportConfig())
    expected = {f"{node} {role} {way}" for node, role in (("m1", "master"), ("w1", "worker")) for way in ("in", "out")}
    try:
        # When all of them are there
        said: dict[str, Any] = {}

        def are_there() -> bool:
            with broker.management() as management:
                rows = [row["client_properties"] for row in management.connections(vhost) if "client_properties" in row]
            said.update({row["connection_name"]: row for row in rows})
            return set(said) >= {*expected, "shop", "brokerha doctor"}

        wait_until(are_there, f"all connections are listed: {said}")
    finally:
        tool.release()
        app.close(0)
        for node in nodes:
            node.close()

    # Then each has told it, and what the libraries need to say besides is still said
    fields = ("product", "version", "node", "role", "cluster")
    told = {name: tuple(row.get(field) for field in fields) for name, row in said.items()}
    ours = ("brokerha", VERSION)
    assert told == {
        **{name: (*ours, name.split()[0], name.split()[1], "orders") for name in expected},
        "shop": (*ours, None, "client", None),
        "brokerha doctor": (*ours, None, "tool", None),
    }
    assert all("capabilities" in row for row in said.values())
