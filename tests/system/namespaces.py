"""A network of the kernel's own for tests: a namespace for each site, and a router between them that can drop, silently, what a link carries.

       namespace …-m1                 namespace …-router                  namespace …-m2
    10.77.1.2 eth0 ── veth pair ── 10.77.1.1 m1    m2 10.77.2.1 ── veth pair ── eth0 10.77.2.2      each site has a loopback of its own
                                     rules for each ordered pair of sites:
                                       cut    from m1 to m2: blackhole
                                       delay  from m1 to m2: by way of a process that keeps each packet for a while

What tests/support/links.py does to the bytes of a connection, this does to packets. So a cut is one of both ends' TCP: nobody is told,
what was sent is sent again and again, a connection may outlive the cut and deliver then; and one whose acknowledgements are lost is
as good as cut in both ways, though its data arrives.

Needs root, `ip`, and a kernel that makes namespaces; neither netem nor nftables. No address of the machine's own network is
touched: the namespaces are joined with each other only. Names carry the process that made them; what a dead one left, processes
included, is removed by the next `Network`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from typing import Final, Self

from tests.support.links import BLACK_HOLE
from tests.support.owned_processes import started_at

_PREFIX: Final = "brokerha"
_ROUTER: Final = "router"
_IP_S: Final = 20.0
_READY: Final = b"ready\n"
_FIRST_RULE, _FIRST_TABLE = 1000, 100
"""Rules are asked in their order, before that of the main table (32766)."""
_REINJECTED_RULE = 10
_ENDED_S: Final = 10.0


class NamespaceError(RuntimeError):
    """`ip` refused something; the message says what."""


def what_is_missing() -> str:
    """Why there can be no network of namespaces on this machine, in words; empty if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need the program ip"
    try:
        with Network(("m1",)) as network:
            network.run("m1", "ip", "rule", "add", "from", "10.77.1.2", "blackhole")
    except (NamespaceError, OSError) as problem:
        return f"no network namespaces here: {problem}"
    return ""


class Wire:
    """All packets from one site to another one. Cut and delayed by itself: the way back is another wire."""

    def __init__(self, network: Network, sender: str, receiver: str, number: int) -> None:
        self.name = f"{sender}>{receiver}"
        self._network = network
        self._pair = ("from", network.address(sender), "to", network.address(receiver))
        self._rule, self._table, self._device = str(_FIRST_RULE + number), str(_FIRST_TABLE + number), f"slow{number}"
        self._is_harmed = False
        self._slow: subprocess.Popen[bytes] | None = None

    def cut(self, how: str = BLACK_HOLE) -> None:
        """Drop every packet from now on, those of connections that there are included; neither side is told."""
        assert how == BLACK_HOLE, f"a wire of the kernel is cut silently, not by {how}"
        self.heal()
        self._harm("blackhole")

    def hold(self, direction: str) -> None:
        """Not by packets: the other direction is another wire."""
        raise NotImplementedError(f"{self.name} has one direction, {direction} is not one of it")

    def delay(self, delay_ms: float) -> None:
        """Each packet so much later, as many in a second as before."""
        self.heal()
        command = [sys.executable, "-m", "tests.system.namespace_helpers", "delay", self._device, f"{delay_ms:g}"]
        self._slow = self._network.helper(_ROUTER, command)
        self._network.run(_ROUTER, "ip", "link", "set", self._device, "up")
        self._network.run(_ROUTER, "ip", "route", "add", "default", "dev", self._device, "table", self._table)
        self._harm("lookup", self._table)

    def heal(self) -> None:
        """Every packet passes, at once. Those that were dropped do not come back: whoever sent them sends them again."""
        if self._is_harmed:
            self._network.run(_ROUTER, "ip", "rule", "del", "pref", self._rule)
            self._is_harmed = False
        if self._slow is not None:
            _end(self._slow)
            self._slow = None

    def _harm(self, *what: str) -> None:
        self._network.run(_ROUTER, "ip", "rule", "add", "pref", self._rule, *self._pair, *what)
        self._is_harmed = True


class Wires:
    """Wires by name, one for each ordered pair of sites."""

    def __init__(self, of: dict[str, Wire]) -> None:
        self.of = of

    def cut(self, *names: str, how: str = BLACK_HOLE) -> None:
        """Cut these, all others stay as they are."""
        for name in names:
            self.of[name].cut(how)

    def heal(self) -> None:
        """Heal all."""
        for wire in self.of.values():
            wire.heal()


class Network:
    """Sites that reach each other through a router; everything is there inside ``with``. Raises NamespaceError."""

    def __init__(self, sites: Sequence[str]) -> None:
        self.sites = tuple(sites)
        self._mine = f"{_PREFIX}-{os.getpid()}-{started_at(os.getpid())}"
        self._helpers: list[subprocess.Popen[bytes]] = []
        pairs = itertools.permutations(self.sites, 2)
        self.wires = Wires({(wire := Wire(self, *pair, number)).name: wire for number, pair in enumerate(pairs)})

    def __enter__(self) -> Self:
        remove_left_behind()
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        self._remove()

    def address(self, site: str) -> str:
        """Where the other sites reach a site."""
        return f"10.77.{self.sites.index(site) + 1}.2"

    def inside(self, place: str) -> tuple[str, ...]:
        """Words to put before a command that is to run at a site; its process becomes that of the command."""
        return ("ip", "netns", "exec", self.name_of(place))

    def run(self, place: str, *command: str) -> str:
        """Run a command at a site to its end; returns what it printed. Raises NamespaceError when it fails."""
        return _run(*self.inside(place), *command)

    def helper(self, place: str, command: Sequence[str], fds: Collection[int] = ()) -> subprocess.Popen[bytes]:
        """Start a command that says when it is ready, and ends when its input does, so that it does not outlive this process."""
        process = subprocess.Popen(
            [*self.inside(place), *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=tuple(fds)
        )
        self._helpers.append(process)
        assert process.stdout is not None
        if process.stdout.readline() != _READY:
            raise NamespaceError(f"{' '.join(command)} does not start")
        return process

    # ---- making and removing

    def name_of(self, place: str) -> str:
        """The namespace of a site."""
        return f"{self._mine}-{place}"

    def _make(self) -> None:
        for place in (_ROUTER, *self.sites):
            _run("ip", "netns", "add", self.name_of(place))
            self.run(place, "ip", "link", "set", "lo", "up")
        # Packets that a slow wire gives back come in from elsewhere than their sender is, and go on as all others do.
        switches = "echo 1 > ip_forward; echo 0 > conf/all/rp_filter; echo 0 > conf/default/rp_filter"
        self.run(_ROUTER, "sh", "-c", f"cd /proc/sys/net/ipv4; {switches}")
        for number, site in enumerate(self.sites, 1):
            end = ("peer", "name", "eth0", "netns", self.name_of(site))
            self.run(_ROUTER, "ip", "link", "add", site, "type", "veth", *end)
            self.run(_ROUTER, "ip", "address", "add", f"10.77.{number}.1/30", "dev", site)
            self.run(_ROUTER, "ip", "link", "set", site, "up")
            self.run(site, "ip", "address", "add", f"10.77.{number}.2/30", "dev", "eth0")
            self.run(site, "ip", "link", "set", "eth0", "up")
            self.run(site, "ip", "route", "add", "default", "via", f"10.77.{number}.1")
        for number, device in enumerate(wire_devices(len(self.wires.of))):
            rule = str(_REINJECTED_RULE + number)
            self.run(_ROUTER, "ip", "rule", "add", "pref", rule, "iif", device, "lookup", "main")

    def _remove(self) -> None:
        for process in self._helpers:
            _end(process)
        for name in _names():
            if name.startswith(f"{self._mine}-"):
                _remove(name)


def wire_devices(count: int) -> Iterator[str]:
    """Devices by which packets of slow wires come back to the router."""
    return (f"slow{number}" for number in range(count))


def remove_left_behind() -> list[str]:
    """End processes in, and remove, namespaces of tests that are dead; returns their names."""
    removed = []
    for name in _names():
        found = re.fullmatch(rf"{_PREFIX}-(\d+)-(\d+)-\w+", name)
        if found and started_at(int(found[1])) != found[2]:
            _remove(name)
            removed.append(name)
    return removed


def _names() -> list[str]:
    return [line.split()[0] for line in _run("ip", "netns", "list").splitlines() if line.strip()]


def _remove(name: str) -> None:
    """A namespace lives as long as a process is in it, so they go first; they are ours, like its name."""
    with contextlib.suppress(NamespaceError):  # Two that clean up may meet.
        for pid in _run("ip", "netns", "pids", name).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        _run("ip", "netns", "delete", name)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_IP_S, check=False)
    if done.returncode != 0:
        raise NamespaceError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def _end(process: subprocess.Popen[bytes]) -> None:
    for end in (process.stdin, process.stdout):
        if end is not None:
            end.close()
    process.kill()
    process.wait(_ENDED_S)
