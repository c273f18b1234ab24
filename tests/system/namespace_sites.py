"""The three sites of split_sites.py, each with a broker, a master and a worker of its own in a network namespace of its own.

The brokers are three RabbitMQ nodes, and fetch what is for their nodes through the network of namespaces.py; so a cut is what a cut
between real places is, seen from the TCP of two kernels. The test itself stays outside: each HTTP and management port of a site has a
door under the same number on the loopback outside, which no cut touches (clients are at their site).
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from tests.support.broker_source import BrokerSource
from tests.support.management import Management
from tests.support.private_broker import PrivateBroker
from tests.system.namespaces import Network
from tests.system.split_sites import MASTERS, SplitSites


def open_doors(network: Network, site: str, ports: Sequence[int]) -> subprocess.Popen[bytes]:
    """Whoever connects to one of these ports outside reaches the same port at the site; ends with the process that asked for it."""
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", port))) for port in ports]
        words = [str(n) for listener, port in zip(listeners, ports, strict=True) for n in (listener.fileno(), port)]
        command = [sys.executable, "-m", "tests.system.namespace_helpers", "doors", *words]
        return network.helper(site, command, [listener.fileno() for listener in listeners])


class SiteBroker(PrivateBroker):
    """A RabbitMQ node at a site: it listens on the site's loopback, and for the other sites on its address."""

    def __init__(self, network: Network, site: str) -> None:
        super().__init__()
        self._network, self._site = network, site
        self._inside = (*network.inside(site), *self._inside)
        self._doors: subprocess.Popen[bytes] | None = None

    @property
    def amqp_port(self) -> int:
        """The same on the loopback and on the site's address."""
        return self._ports.amqp

    def stop(self) -> None:
        """Ends the node and its doors."""
        super().stop()
        if self._doors is not None:
            self._doors.kill()
            self._doors.wait()
            self._doors = None

    def _write_files(self) -> None:
        super()._write_files()
        address = self._network.address(self._site)
        with (self.folder / "rabbitmq.conf").open("a", encoding="ascii") as conf:
            conf.write(f"listeners.tcp.2 = {address}:{self._ports.amqp}\nloopback_users = none\n")

    def _start_node(self) -> None:
        if self._doors is None:
            self._doors = open_doors(self._network, self._site, (self._ports.amqp, self._ports.management))
        super()._start_node()

    def source(self) -> BrokerSource:
        """The same for those who ask for a broker to share."""
        return BrokerSource(self.amqp_url, self.management_url, f"namespace {self._site}", self)


@contextlib.contextmanager
def brokers_at(network: Network, sites: Sequence[str] = MASTERS) -> Iterator[dict[str, SiteBroker]]:
    """A broker at each site, started side by side."""
    brokers = {site: SiteBroker(network, site) for site in sites}
    try:
        with ThreadPoolExecutor(len(brokers)) as pool:
            list(pool.map(SiteBroker.start, brokers.values()))
        yield brokers
    finally:
        for broker in brokers.values():
            broker.stop()


class NamespaceSites(SplitSites):
    """Sites m1, m2, m3; ``links`` are the wires between them, of which each carries packets in one direction."""

    def __init__(self, folder: Path, network: Network, brokers: dict[str, SiteBroker], mode: str = "quorum") -> None:
        self._network, self._brokers = network, brokers
        self._sources = {master: brokers[master].source() for master in MASTERS}
        super().__init__(folder, self._sources["m1"], mode)
        self.links = network.wires

    def source_of(self, master: str) -> BrokerSource:
        """The broker of a site."""
        return self._sources[master]

    def __enter__(self) -> Self:
        for site in MASTERS:
            open_doors(self._network, site, [port for node, port in self.ports.items() if node.startswith(site)])
        return super().__enter__()

    def _way(self, sender: str, receiver: str) -> tuple[str, int]:
        return self._network.address(sender), self._brokers[sender].amqp_port

    def _command(self) -> list[str]:
        places = [f"{node}={self._network.name_of(node[:2])}" for node in self.ports]
        return [sys.executable, "-m", "tests.system.namespace_helpers", "up", str(self.path), *places]


class FarBroker(NamespaceSites):
    """All nodes at one broker, that of m1, which those of m2 and m3 reach over the network."""

    def __init__(self, folder: Path, network: Network, broker: SiteBroker) -> None:
        super().__init__(folder, network, dict.fromkeys(MASTERS, broker))
        address = network.address("m1")
        # For the file alone, which is written by now with the address of the loopback.
        self.path.write_text(self.path.read_text("utf-8").replace("@127.0.0.1:", f"@{address}:"), encoding="utf-8")

    def _vhosts(self, prefix: str) -> dict[str, str]:
        return dict.fromkeys(MASTERS, prefix)

    def _federate(self, management: Management, sender: str, receiver: str) -> None:
        """There is one broker."""
