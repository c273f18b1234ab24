"""Both clients over TLS: they speak to a broker whose certificate they can verify, and to no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlsplit

import pytest

from brokerha.model.errors import Unreachable
from brokerha.model.wire import client_wire
from brokerha.model.wire.messages import Outgoing
from brokerha.ports.transport import ClientMessage, ClientReply
from brokerha.transports.client.wire import AmqpWire
from brokerha.transports.kombu_transport import KombuTransport
from tests.contracts.transport_contract import PATIENCE_S, bodies, take, wait_until
from tests.support.served import Served
from tests.support.tls_door import TlsDoor, make_certificate


class Door(NamedTuple):
    """A broker behind TLS with a certificate for ``localhost``."""

    vhost: str
    port: int
    trusted: Path
    stranger: Path

    def url(self, host: str = "localhost", authority: Path | None = None) -> str:
        """How to reach it, trusting an authority (its own, if not said)."""
        file = quote(str(authority or self.trusted), safe="")
        return f"amqps://guest:guest@{host}:{self.port}/{self.vhost}?cacertfile={file}"


@pytest.fixture
def door(vhost_url: str, tmp_path: Path) -> Iterator[Door]:
    plain = urlsplit(vhost_url)
    ours, stranger = make_certificate(tmp_path, "localhost"), make_certificate(tmp_path, "stranger")
    with TlsDoor(ours, plain.hostname or "", plain.port or 5672) as opened:
        yield Door(plain.path.removeprefix("/"), opened.port, ours.certificate, stranger.certificate)


def test_nodes_exchange_large_and_small_messages_over_tls(door: Door):
    one, other = (Served(KombuTransport(door.url(), "orders", name, 1, "master")) for name in ("m1", "m2"))
    try:
        for node in (one, other):
            wait_until(lambda node=node: node.status().state == "connected", f"it is connected: {node.status()}")  # type: ignore[misc]
        large = [bodies(f"{n}", bytes([n]) * (n * 100_000)) for n in range(1, 20)]
        small = bodies("small", b"body")
        one.send([Outgoing("m2", message) for message in (small, *large)])
        came = [each.message for each in take(other, 20)]
        # The small one has a lane of its own, and no order is promised between lanes.
        came.remove(small)
        assert came == large
    finally:
        one.close()
        other.close()


@pytest.mark.parametrize("wrong", ["authority", "host name"])
def test_a_broker_whose_certificate_does_not_hold_is_refused(door: Door, wrong: str):
    url = door.url(authority=door.stranger) if wrong == "authority" else door.url(host="127.0.0.1")
    node = Served(KombuTransport(url, "orders", "m1", 1, "master"))
    wire = AmqpWire(url)
    try:
        wait_until(lambda: "certificate" in node.status().reason.lower(), f"the reason says it: {node.status()}")
        assert node.status().state == "waiting-for-broker"
        with pytest.raises(Unreachable, match=r"(?i)certificate"):
            wire.submit([("t-1", b"")], "applied", 1, 1500)[0].result(PATIENCE_S)
    finally:
        node.close()
        wire.close(0)


def test_a_client_program_writes_over_tls(door: Door):
    master = Served(KombuTransport(door.url(), "orders", "m1", 1, "master"))
    wire = AmqpWire(door.url())
    try:
        (future,) = wire.submit([("t-1", b"body")], "applied", 1, int(PATIENCE_S * 1000))
        (message,) = take(master, 1)
        assert isinstance(message, ClientMessage)
        answer = client_wire.encode_replies([("t-1", "applied", 9, "", "")])
        master.reply([ClientReply(message.reply_to, message.correlation_id, answer, client_wire.REPLIES_TYPE)])
        assert future.result(PATIENCE_S).lsn == 9
    finally:
        wire.close()
        master.close()
