"""Three sites with a broker each, and links between them that a test can cut one by one, in one direction or both.

                  link m1>m2
    m1 ── vhost m1 ────────> vhost m2 ── m2      each arrow is a proxy of its own (tests/support/links.py);
             │ ^ <────────────  │ ^              a node talks to the broker of its own site only, and directly:
             v │     m2>m1      v │              whatever is cut, each site keeps its broker
            vhost m3 ── m3 <─── …

Nodes of different sites reach each other as far as their brokers pass messages on. Here the exchanges of the nodes are federated,
which is what RabbitMQ has for brokers at different places: the broker of m2 is told of the broker of m1 by the address of the proxy
m1>m2, connects to it, and fetches what is for the nodes at m2. So a link is cut where a real one would be. What waits behind it comes late
and in a heap when it is healed, as far as it has not outlived the inboxes that it is for.

The three brokers are three virtual hosts of one: the links are what is tested, virtual hosts share nothing but the process, and a second
and a third RabbitMQ would take ten seconds each to start on two cores.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import secrets
import signal
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Self
from urllib.parse import urlsplit

import httpx2
import pytest

import brokerha
from brokerha.http.operating.families import numbers_of
from brokerha.transports.topology import DATA_EXCHANGE, DATA_MESSAGE_TTL_MS, SYNC_EXCHANGE, SYNC_MESSAGE_TTL_MS
from tests.support.broker_source import BrokerSource
from tests.support.links import RESET, AnyLinks, Links
from tests.support.management import Management
from tests.system.copies import await_equal, copies
from tests.system.processes import DEADLINE_S, ProcessCluster, command
from tests.system.writers import Writer, running

MASTERS: Final = ("m1", "m2", "m3")
LAG_S: Final = 2.0
SETTINGS: Final = f"max-peer-lag-s = {LAG_S}\nround-timeout-ms = 300\nidle-round-ms = 400\nlog-stream = false\n"
_TTL_MS: Final = {SYNC_EXCHANGE: SYNC_MESSAGE_TTL_MS, DATA_EXCHANGE: DATA_MESSAGE_TTL_MS}
_HEARTBEAT_S: Final = 2
"""Between brokers: one that hears nothing for about twice as long gives the connection up."""
_CONNECT_MS: Final = 2000
_UNKNOWN_PLUGIN: Final = 400
WRITE_S: Final = 60.0


class InEpoch(NamedTuple):
    """Where a master is, by its own word."""

    number: int
    members: tuple[str, ...]


class SplitSites(ProcessCluster):
    """Sites m1, m2, m3; ``links`` has one for each ordered pair of them, such as ``m1>m2``."""

    def __init__(self, folder: Path, source: BrokerSource, mode: str = "quorum", workers_each: int = 1) -> None:
        """``mode`` is what the masters do in a split. Makes the virtual hosts and federates them; fails where the broker has not the plugin for it."""
        prefix = f"split-{secrets.token_hex(3)}"
        self.vhosts = self._vhosts(prefix)
        self._proxies = Links()
        self.links: AnyLinks = self._proxies
        self._source = source
        self.mode = mode
        settings = f'split-recovery = "{mode}"\n{SETTINGS}'
        super().__init__(folder, source.url_of(self.vhosts["m1"]), workers_each=workers_each, settings=settings, name="split")

    def _vhosts(self, prefix: str) -> dict[str, str]:
        return {master: f"{prefix}-{master}" for master in MASTERS}

    def _toml(self) -> str:
        text = super()._toml()
        for master, vhost in self.vhosts.items():
            head = f'[[master]]\nid = "{master}"\n'
            text = text.replace(head, f'{head}broker = "{self.source_of(master).url_of(vhost)}"\n')
        return text

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.callback(self._remove)
            for master, vhost in self.vhosts.items():
                self.source_of(master).create_vhost(vhost)
            for sender, receiver in itertools.permutations(MASTERS, 2):
                with self.source_of(receiver).management() as management:
                    self._federate(management, sender, receiver)
            super().__enter__()
            self._undo = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        with self._undo:
            super().__exit__(*exception)

    def _remove(self) -> None:
        for link in self._proxies.of.values():
            link.close()
        for master, vhost in self.vhosts.items():
            self.source_of(master).delete_vhost(vhost)

    def source_of(self, master: str) -> BrokerSource:
        """The broker of a site."""
        return self._source

    def _way(self, sender: str, receiver: str) -> tuple[str, int]:
        """Host and port by which the broker of one site reaches that of another one."""
        target = urlsplit(self.source_of(sender).amqp_url)
        return "127.0.0.1", self._proxies.add(f"{sender}>{receiver}", str(target.hostname), target.port or 5672).port

    def _federate(self, management: Management, sender: str, receiver: str) -> None:
        """Have the broker of one site fetch what nodes of another one send to its own nodes."""
        target, vhost = urlsplit(self.source_of(sender).url_of(self.vhosts[sender])), self.vhosts[receiver]
        host, port = self._way(sender, receiver)
        user = f"{target.username}:{target.password}"
        limits = f"heartbeat={_HEARTBEAT_S}&connection_timeout={_CONNECT_MS}"
        upstream = {
            "uri": f"amqp://{user}@{host}:{port}{target.path}?{limits}",
            "reconnect-delay": 1,
            "max-hops": 1,
            "ack-mode": "on-publish",
        }
        for exchange, ttl_ms in _TTL_MS.items():
            try:
                name = f"{sender} {exchange}"
                management.set_parameter(vhost, "federation-upstream", name, {**upstream, "message-ttl": ttl_ms})
            except httpx2.HTTPStatusError as refused:
                if refused.response.status_code == _UNKNOWN_PLUGIN:
                    pytest.fail(f"enable the plugin rabbitmq_federation at the broker: {refused.response.text}")
                raise
            definition = {"federation-upstream-pattern": f" {re.escape(exchange)}$"}
            management.set_policy(vhost, exchange, definition, f"^{re.escape(exchange)}$", "exchanges")

    def choose(self, mode: str) -> None:
        """Change what becomes of splits, as an operator does it, while everything goes on."""
        ran = command("split-recovery", mode, "-c", str(self.path), "--wait-s", str(WRITE_S))
        assert ran.returncode == 0, f"{ran.stdout}{ran.stderr}\n{self.log_tail()}"
        assert ran.stdout.startswith(f"{mode} is in force at all masters since epoch"), ran.stdout
        self.mode = mode

    # ---- harm

    def cut_between(self, here: Collection[str], there: Collection[str], how: str = RESET) -> None:
        """Cut all links between two groups of sites, in both directions."""
        pairs = [*itertools.product(here, there), *itertools.product(there, here)]
        self.links.cut(*(f"{sender}>{receiver}" for sender, receiver in pairs), how=how)

    def forget_sent(self, master: str) -> int:
        """Drop what waits at a site's broker, such as what is to pass a link that is cut; returns how many queues there are."""
        with self.source_of(master).management() as management:
            return len(management.purge_queues(self.vhosts[master]))

    @contextlib.contextmanager
    def frozen(self, node: str) -> Iterator[None]:
        """SIGSTOP a node, SIGCONT at the end."""
        pid = self.pid(node)
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    # ---- what there is

    def epoch(self, master: str) -> InEpoch:
        """The epoch that a master is in; number 0 when it does not answer."""
        answer = self.get(master, "/metrics")
        numbers = numbers_of(answer.text) if answer else {}
        members = tuple(name for name in MASTERS if numbers.get(("epoch_member", name)))
        return InEpoch(int(numbers.get("epoch", 0)), members)

    def await_epoch(self, members: Collection[str], within_s: float = DEADLINE_S) -> InEpoch:
        """Wait until these masters are in one epoch, which has nobody else."""

        def found() -> InEpoch | None:
            (first, *others) = {self.epoch(master) for master in members}
            return first if not others and first.members == tuple(sorted(members)) else None

        return self.until(found, lambda: f"{sorted(members)} in one epoch: {list(map(self.epoch, members))}", within_s)

    def await_equal(self, within_s: float = 30.0) -> None:
        """Wait until all copies are equal."""
        await_equal(self, within_s)

    def await_executed(self, within_s: float = 30.0) -> None:
        """Wait until every worker is at the end of the log, which has one length; what they hold may differ."""

        def is_executed() -> bool:
            rows = self._rows()
            lsns = {row["applied_lsn"] for row in rows} | {row["received_lsn"] for row in rows if row["role"] == "master"}
            lsns |= {lsn for lsn, _, _ in copies(self)}
            return len(lsns) == 1 and len(rows) == len(MASTERS) + len(self.workers)

        self.until(is_executed, lambda: f"all is executed: {self._rows()}", within_s)

    def _rows(self) -> list[dict[str, Any]]:
        """Of all nodes: of a master and its workers by its own word."""
        found = []
        for master in MASTERS:
            answer = self.get(master, "/cluster/status")
            rows = answer.json()["nodes"] if answer is not None and answer.status_code == 200 else []
            found += [row for row in rows if master in (row["id"], row.get("master"))]
        return found

    def await_settled(self, within_s: float = 30.0) -> None:
        """Wait until all copies are equal; in the mode none, where they may differ for good, until everything is executed."""
        wait = self.await_executed if self.mode == "none" else self.await_equal
        wait(within_s)

    def write(self, master: str, key: str, timeout_s: float = WRITE_S) -> str:
        """Put something there, and wait until it is synchronised; returns its transaction id. Raises what the client raises."""
        with brokerha.connect(self.url(master)) as db:
            return db.put("books", key, b"1", key=key, ack="synchronised", timeout=timeout_s).txid

    def outcomes(self, txid: str) -> list[dict[str, Any]]:
        """What each master says of a transaction, once each of them knows its outcome."""
        found = []
        for master in MASTERS:
            with brokerha.connect(self.url(master)) as db:
                found.append(self.until(partial(_known_outcome, db, txid), f"{master} knows what became of {txid}"))
        return found


def _known_outcome(db: brokerha.Client, txid: str) -> dict[str, Any] | None:
    answer = db.outcome(txid)
    return answer if answer and answer.get("outcome") else None


@contextlib.contextmanager
def writers_at(sites: SplitSites, name: str, masters: Collection[str]) -> Iterator[list[Writer]]:
    """A writer at each of these masters; at the end all links are healed, and each writer has got its answers."""
    with running([Writer(f"{name}-{master}", partial(brokerha.connect, sites.url(master))) for master in masters]) as writers:
        try:
            yield writers
        finally:
            sites.links.heal()
