"""Sites in network namespaces, and a network between them that drops packets: what a split is for two kernels' TCP.

Given three sites, each with a broker of its own; when packets between sites are dropped silently, in both ways or one; then what
tests/system/test_splits.py says of links that are cut holds here, too. When packets take 40 ms, then writes go on.

Skipped, with the reason, where no namespaces can be made; never because of the broker.

The three sites of split_sites.py, each with a broker, a master and a worker of its own in a network namespace of its own.

The brokers are three RabbitMQ nodes, and fetch what is for their nodes through the network of namespaces.py; so a cut is what a cut
between real places is, seen from the TCP of two kernels. The test itself stays outside: each HTTP and management port of a site has a
door under the same number on the loopback outside, which no cut touches (clients are at their site).
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import pytest

from tests.support.broker_source import BrokerSource
from tests.support.links import BLACK_HOLE
from tests.support.management import Management
from tests.support.private_broker import PrivateBroker
from tests.system.copies import check_books
from tests.system.namespaces import Network, what_is_missing
from tests.system.split_sites import MASTERS, SplitSites, writers_at
from tests.system.test_splits import await_told, halves, one_way, run
from tests.system.writers import told


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


DELAY_MS = 40.0


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NamespaceSites]:
    """Started once: each test leaves three members with equal copies."""
    if problem := what_is_missing():
        pytest.skip(problem)
    with (
        Network(MASTERS) as network,
        brokers_at(network) as brokers,
        NamespaceSites(tmp_path_factory.mktemp("namespaces"), network, brokers) as started,
    ):
        yield started


pytestmark = pytest.mark.broker


def answer(network: Network, here: str, there: str, within_s: float) -> str:
    """What a connection to a port on which nobody listens ends with."""
    ask = f"import socket\ntry: socket.create_connection(('{network.address(there)}', 9), {within_s})\nexcept OSError as e: print(type(e).__name__)"
    return network.run(here, sys.executable, "-S", "-c", ask).strip()


def test_wires_carry_packets_in_one_direction_each() -> None:
    if problem := what_is_missing():
        pytest.skip(problem)
    refused, silent = "ConnectionRefusedError", "TimeoutError"
    with Network(MASTERS) as network:
        wire = network.wires.of["m1>m2"]
        assert answer(network, "m1", "m2", 10.0) == refused
        wire.cut()
        # The question is lost on its way there, the answer on its way back; the third site is not concerned.
        assert [answer(network, *pair, 0.3) for pair in (("m1", "m2"), ("m2", "m1"))] == [silent, silent]
        assert answer(network, "m1", "m3", 10.0) == refused
        wire.delay(400.0)
        assert answer(network, "m1", "m2", 0.3) == silent
        assert answer(network, "m1", "m2", 10.0) == refused
        wire.heal()
        assert answer(network, "m1", "m2", 10.0) == refused


def test_what_a_dead_test_left_is_removed() -> None:
    if problem := what_is_missing():
        pytest.skip(problem)
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        name = f"brokerha-{dead.pid}-1-m1"
    subprocess.run(["ip", "netns", "add", name], check=True)
    inside = ["ip", "netns", "exec", name, "sh", "-c", "echo there; exec sleep 600"]
    with subprocess.Popen(inside, stdout=subprocess.PIPE) as left:
        assert left.stdout is not None
        assert left.stdout.readline() == b"there\n"
        with Network(("m1",)) as network:
            assert name not in network.run("m1", "ip", "netns", "list")
        assert left.wait(10.0) == -signal.SIGKILL


def test_a_site_whose_packets_are_lost(sites: NamespaceSites, covered: Callable[[str], None]) -> None:
    covered("split by the kernel, " + run(sites, halves("m1", BLACK_HOLE), "halves"))


def test_packets_lost_one_way(sites: NamespaceSites, covered: Callable[[str], None]) -> None:
    """The data of m2 arrives at m1, its acknowledgements do not come back: to TCP both ways are cut, and the third site sees both."""
    covered("split by the kernel, " + run(sites, one_way("m1", "m2", BLACK_HOLE), "one-way"))


def test_packets_that_are_late(sites: NamespaceSites, covered: Callable[[str], None]) -> None:
    before = sites.await_epoch(MASTERS)
    with writers_at(sites, "late", MASTERS) as writers:
        for link in sites.links.of.values():
            link.delay(DELAY_MS)
        already, began = told(writers), time.monotonic()
        await_told(sites, writers, 10)
        each_s = (time.monotonic() - began) * len(writers) / (told(writers) - already)
        assert sites.await_epoch(MASTERS) == before
    sites.await_equal()
    sites.check_logs()
    check_books(sites, writers, with_others=True)
    covered(f"packets late by {DELAY_MS:g} ms: {told(writers)} acknowledged, one each {each_s * 1000:.0f} ms and writer")


@pytest.fixture(scope="module")
def at_one_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarBroker]:
    if problem := what_is_missing():
        pytest.skip(problem)
    with (
        Network(MASTERS) as network,
        brokers_at(network, ("m1",)) as brokers,
        FarBroker(tmp_path_factory.mktemp("far-broker"), network, brokers["m1"]) as started,
    ):
        yield started


@pytest.mark.campaign
@pytest.mark.parametrize("cut_s", [5.0, 8.0, 14.0, 25.0, 45.0])
def test_a_site_that_loses_its_broker(at_one_broker: FarBroker, covered: Callable[[str], None], cut_s: float) -> None:
    """Nodes that hang in half-open connections to their broker, for less and for more than these are given up in."""
    sites = at_one_broker
    sites.await_epoch(MASTERS)
    name = f"broker-{cut_s:g}"
    with writers_at(sites, name, MASTERS) as writers:
        await_told(sites, writers, 2)
        sites.cut_between(("m3",), ("m1",), BLACK_HOLE)
        began = time.monotonic()
        without = sites.await_epoch(("m1", "m2"))
        resumed_s = time.monotonic() - began
        await_told(sites, [writer for writer in writers if not writer.name.endswith("m3")], 2)
        # Not a wait for a condition: how old the half-open connections are is what is tested.
        time.sleep(max(0.0, began + cut_s - time.monotonic()))
        sites.links.heal()
        healed = time.monotonic()
        assert sites.await_epoch(MASTERS).number > without.number
        one_epoch_s = time.monotonic() - healed
        await_told(sites, writers, 1)
        told_s = time.monotonic() - healed
    sites.await_equal()
    equal_s = time.monotonic() - healed
    txids = sites.check_logs()
    check_books(sites, writers, with_others=True)
    covered(
        f"m3 without its broker for {cut_s:g} s: the others in an epoch after {resumed_s:.1f} s; healed: one epoch after {one_epoch_s:.1f} s, "
        f"an answer for everybody after {told_s:.1f} s, equal after {equal_s:.1f} s; {len(txids)} in each log, 0 lost, 0 twice"
    )
