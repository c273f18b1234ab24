"""The faults that a nemesis has: each is a context, inside of which it lasts; at its end it is over, though not all may be well yet.

    with FAULTS["pause"](site, draw) as what:       # "m1b is frozen"
        time.sleep(2)

``draw`` chooses whom it strikes, and nothing else does: the same seed strikes the same ones. Only who is primary is asked.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final
from urllib.parse import urlsplit

import httpx2

from tests.support.private_broker import BrokerError, PrivateBroker
from tests.system.nemesis.site import NemesisSite

Fault = Callable[[NemesisSite, random.Random], AbstractContextManager[str]]
AHEAD_S: Final = (-3600.0, -30.0, -2.0, 2.0, 30.0, 3600.0)
STORM: Final = 150
"""Connections of a storm, of each kind."""
FAULTS: Final[dict[str, Fault]] = {}
"""By name, in their order below: a seed draws from it."""


def fault(how: Callable[[NemesisSite, random.Random], Iterator[str]]) -> Fault:
    """One of `FAULTS`, under the name of its function."""
    found = FAULTS[how.__name__.replace("_", " ")] = contextmanager(how)
    return found


def one_node(site: NemesisSite, draw: random.Random) -> str:
    """Any process that runs: another fault may last."""
    return next(node for node in draw.sample(site.nodes, len(site.nodes)) if site.runs(node))


def one_journal(site: NemesisSite, draw: random.Random) -> str:
    """A process of a master that runs."""
    journals = [*site.processes, *site.masters[1:]]
    return next(node for node in draw.sample(journals, len(journals)) if site.runs(node))


def one_broker(site: NemesisSite, draw: random.Random) -> tuple[str, PrivateBroker]:
    place = draw.randrange(len(site.brokers.nodes))
    return f"broker node {place + 1}", site.brokers.nodes[place]


@fault
def kill(site: NemesisSite, draw: random.Random) -> Iterator[str]:
    several = 1 if (chance := draw.random()) < 0.7 else 3 if chance < 0.9 else len(site.nodes)
    nodes = [node for node in draw.sample(site.nodes, several) if site.runs(node)] or [one_node(site, draw)]
    site.kill(*nodes)
    yield f"kill -9 of {', '.join(nodes)}"
    site.wake(*nodes)


@fault
def kill_primary(site: NemesisSite, _draw: random.Random) -> Iterator[str]:
    node = site.await_primary()
    site.kill(node)
    yield f"kill -9 of the primary {node}"
    site.wake(node)


@fault
def pause_primary(site: NemesisSite, _draw: random.Random) -> Iterator[str]:
    node = site.await_primary()
    site.freeze(node)
    try:
        yield f"the primary {node} frozen"
    finally:
        site.thaw(node)


@fault
def stop(site: NemesisSite, draw: random.Random) -> Iterator[str]:
    node = one_node(site, draw)
    site.stop(node)
    yield f"{node} stopped"
    site.wake(node)


@fault
def pause(site: NemesisSite, draw: random.Random) -> Iterator[str]:
    node = one_node(site, draw)
    site.freeze(node)
    try:
        yield f"{node} frozen"
    finally:
        if site.runs(node):
            site.thaw(node)


@fault
def clock(site: NemesisSite, draw: random.Random) -> Iterator[str]:
    node, ahead_s = one_node(site, draw), draw.choice(AHEAD_S)
    site.harm(node, ahead_s)
    try:
        yield f"the clock of {node} set by {ahead_s:+g} s"
    finally:
        site.harm(node)


@fault
def disk_full(site: NemesisSite, draw: random.Random) -> Iterator[str]:
    node = one_node(site, draw)
    site.fill_disk(node, is_full=True)
    try:
        yield f"the disk of {node} full"
    finally:
        site.fill_disk(node, is_full=False)


@fault
def slow_disk(site: NemesisSite, draw: random.Random) -> Iterator[str]:
    node, slower_s = one_journal(site, draw), draw.choice((0.02, 0.2, 1.0))
    site.harm(node, slower_s=slower_s)
    try:
        yield f"each fsync of {node} {slower_s:g} s slower"
    finally:
        site.harm(node)


@fault
def bad_disk(site: NemesisSite, draw: random.Random) -> Iterator[str]:
    node = one_journal(site, draw)
    site.harm(node, fails=True)
    try:
        yield f"each fsync of {node} fails"
    finally:
        site.harm(node)
        # What it does not know to be on the disk it must not go on from: it ends, or says that it cannot go on.
        if site.runs(node):
            site.kill(node)
        site.ended = [each for each in site.ended if not each.startswith(f"{node} ")]
        site.wake(node)


@fault
def rolling_restart(site: NemesisSite, _draw: random.Random) -> Iterator[str]:
    for node in site.nodes:
        site.stop(node)
        site.start(node)
        site.await_ready(node)
    yield "all processes restarted, one after the other"


@fault
def broker_restart(site: NemesisSite, _draw: random.Random) -> Iterator[str]:
    site.kill_brokers()
    yield "kill -9 of all broker nodes"
    site.start_brokers()


@fault
def broker_kill(site: NemesisSite, draw: random.Random) -> Iterator[str]:
    name, broker = one_broker(site, draw)
    broker.kill()
    yield f"kill -9 of {name}"
    broker.restart()


@fault
def broker_stop(site: NemesisSite, draw: random.Random) -> Iterator[str]:
    name, broker = one_broker(site, draw)
    broker.end()
    yield f"{name} stopped"
    broker.restart()


@fault
def broker_freeze(site: NemesisSite, draw: random.Random) -> Iterator[str]:
    name, broker = one_broker(site, draw)
    broker.freeze()
    try:
        yield f"{name} frozen"
    finally:
        broker.thaw()


@fault
def broker_drain(site: NemesisSite, draw: random.Random) -> Iterator[str]:
    name, broker = one_broker(site, draw)
    broker.drain()
    try:
        yield f"{name} drained"
    finally:
        broker.revive()


@fault
def broker_partition(site: NemesisSite, draw: random.Random) -> Iterator[str]:
    place = draw.randrange(len(site.brokers.nodes))
    site.brokers.cut_off(place)
    try:
        yield f"broker node {place + 1} cut off from the others"
    finally:
        site.brokers.join_again(place)


@fault
def connections(site: NemesisSite, draw: random.Random) -> Iterator[str]:
    name, broker = one_broker(site, draw)
    try:
        count = broker.close_all_connections()
    except BrokerError:
        # It is not back yet from what was done to it before.
        yield f"no connections closed, {name} is not up"
    else:
        yield f"{count} connections closed, by {name}"


@fault
def storm(site: NemesisSite, _draw: random.Random) -> Iterator[str]:
    places = [("127.0.0.1", broker.amqp_port) for broker in site.brokers.nodes]
    places += [("127.0.0.1", urlsplit(site.url(node)).port or 0) for node in site.nodes]
    with contextlib.ExitStack() as opened:
        for place in places:
            for _ in range(STORM):
                with contextlib.suppress(OSError):
                    # Begun and never ended, as a client does that hangs.
                    connection = opened.enter_context(socket.create_connection(place, timeout=1))
                    connection.sendall(
                        b"AMQP\0\0\x09\x01"
                        if place[1] in {b.amqp_port for b in site.brokers.nodes}
                        else b"GET /kv/x HTTP/1.1\r\nHost"
                    )
        yield f"{STORM} connections to each of {len(places)} doors"


def answering(site: NemesisSite) -> PrivateBroker:
    """A node of the broker whose management interface is there: one that was started just now opens it last."""
    for broker in site.brokers.nodes:
        with contextlib.suppress(httpx2.TransportError), broker.management() as management:
            management.overview()
            return broker
    raise BrokerError("no node of the broker answers at its management interface")


@fault
def purge(site: NemesisSite, _draw: random.Random) -> Iterator[str]:
    names = answering(site).purge_queues(site.vhost)
    yield f"{len(names)} queues emptied"


@fault
def delete(site: NemesisSite, _draw: random.Random) -> Iterator[str]:
    names = answering(site).delete_queues(site.vhost)
    yield f"all {len(names)} queues deleted"


@fault
def backup(site: NemesisSite, draw: random.Random) -> Iterator[str]:
    name, node = f"backup-{draw.getrandbits(32)}", draw.choice(site.workers)
    site.do("backup", name)
    site.kill(node)
    shutil.rmtree(site.folder / "var" / node)
    yield f"{name} made, {node} killed and its data lost"
    site.do("restore", name, "--into", str(site.folder / "var" / node))
    shutil.rmtree(site.folder / "var" / "backups" / name)
    site.wake(node)


@fault
def membership(site: NemesisSite, draw: random.Random) -> Iterator[str]:
    site.add_later()
    killed = [draw.choice(site.masters[1:])] if draw.random() < 0.3 else []
    site.kill(*killed)
    yield " and ".join(["m4 added", *(f"{node} killed" for node in killed)])
    if killed:
        site.wake(*killed)
    site.remove_later()


@fault
def mode(site: NemesisSite, _draw: random.Random) -> Iterator[str]:
    """To a strategy in which any side may go on, and back. Nobody is apart meanwhile, so all that quorum promises holds."""
    site.do("split-recovery", "smart", "--wait-s", "90")
    yield "split-recovery smart, and quorum again"
    site.do("split-recovery", "quorum", "--wait-s", "90")


@fault
def roles(site: NemesisSite, draw: random.Random) -> Iterator[str]:
    """Primaries by hand, backups paused, workers switched off: whoever is asked may refuse, and then says why."""
    kind = draw.choice(("promote", "pause", "off"))
    if kind == "promote":
        node = draw.choice(site.processes)
        site.typed("promote", node)
        yield f"{node} promoted"
    elif kind == "pause":
        primary = site.await_primary()
        node = draw.choice([each for each in site.processes if each != primary])
        site.do("node", "pause", node)
        yield f"{node} paused"
        # The coin is of the primary of that moment: another one asks for another coin.
        site.until(
            lambda: not (site.typed("node", "coin", node).returncode or site.typed("node", "continue", node).returncode),
            f"{node} goes on",
            90,
        )
    else:
        node = draw.choice(site.workers[:2])
        site.do("worker", "off", node, "--force")
        yield f"{node} switched off"
        site.do("worker", "on", node)
