"""A node of the broker that takes what is published, and from which nothing comes of it: a master leaves it for the next one.

Nodes of RabbitMQ whose tables differ are hard to make at will, so two virtual hosts stand for them: all masters can be reached in one, and
m1 is made to connect to the other one, whose queues and exchanges nobody but m1 uses.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from brokerha.master.config import MasterConfig
from brokerha.model import states
from brokerha.nodes.building import SystemClock
from brokerha.nodes.config.cluster import ClusterConfig
from brokerha.nodes.master.node import MasterNode
from brokerha.nodes.settings import NodeSettings
from brokerha.replication.site.config import FeedConfig
from brokerha.sync.config import SyncConfig
from brokerha.transports.config import TransportConfig
from brokerha.transports.kombu_transport import KombuTransport
from tests.contracts.transport_contract import wait_until
from tests.support.broker_source import BrokerSource
from tests.support.logs import memory_log

MASTERS = ("m1", "m2", "m3")
WAIT_S = 60.0


class Sites(NamedTuple):
    """Three masters without workers."""

    nodes: dict[str, MasterNode]

    def left(self) -> int:
        """How often m1 left a node of the broker."""
        return self.nodes["m1"].transport.status().counters.get("left_broker_nodes", 0)

    def state(self, master: str) -> tuple[str, str]:
        """Its state word and reason."""
        node = self.nodes[master]
        return node.loop.call(node.view.state).result(WAIT_S)

    def write(self, master: str) -> None:
        """A write takes its place in the order."""
        assert self.nodes[master].submit([("put", "t", b"k", b"v")], level="synchronised").result(WAIT_S).lsn


@pytest.fixture
def sites(broker: BrokerSource) -> Iterator[Sites]:
    """m1 knows the virtual host that leads nowhere first."""
    names = [f"{kind}-{secrets.token_hex(4)}" for kind in ("nowhere", "all")]
    nowhere, all_ = map(broker.create_vhost, names)
    nodes: dict[str, MasterNode] = {}
    for master in MASTERS:
        url = f"{nowhere};{all_}" if master == "m1" else all_
        config = MasterConfig(SyncConfig(master, MASTERS), FeedConfig(()))
        wire = KombuTransport(url, "left", master, 1, "master", TransportConfig())
        settings = NodeSettings(ClusterConfig(name="left", broker=url), master)
        nodes[master] = MasterNode(config, "left", memory_log(master, f"journal-of-{master}"), wire, SystemClock(), settings)
        nodes[master].start()
    yield Sites(nodes)
    for node in nodes.values():
        node.stop(5)
    for name in names:
        broker.delete_vhost(name)


def test_a_master_leaves_a_broker_node_where_it_hears_nobody_and_one_where_nobody_hears_it(
    sites: Sites, covered: Callable[[str], None]
) -> None:
    # Hears nobody: both of its connections lead nowhere.
    wait_until(lambda: "m1 hears no other master through its broker node" in sites.state("m1")[1], "it says so")
    sites.write("m1")
    assert sites.left() == 2
    wait_until(lambda: sites.state("m1") == (states.OK, ""), "all is well")

    # Is not heard: what it publishes leads nowhere, while all comes to it.
    m1 = sites.nodes["m1"]
    m1.loop.call(lambda: m1.transport.leave_broker_node(["out"])).result(WAIT_S)
    wait_until(lambda: "m1 is not heard by" in sites.state("m1")[1], "it says so")
    sites.write("m1")
    assert sites.left() == 4
    for master in MASTERS:
        wait_until(lambda master=master: sites.state(master) == (states.OK, ""), "all is well")  # type: ignore[misc]
    assert sites.nodes["m2"].transport.status().counters.get("reconnects", 0) == 0
    covered("a broker node that leads nowhere: left by a master that hears nobody there, and by one that nobody hears")
