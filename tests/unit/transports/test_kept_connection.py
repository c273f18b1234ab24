"""What a connection does that the broker has closed, as it does to all clients of a node that is put into maintenance mode."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from amqp.exceptions import ConnectionForced

from brokerha.transports.config import TransportConfig
from brokerha.transports.lanes import Counters
from brokerha.transports.link import LinkState
from brokerha.transports.rabbitmq import kept_connection
from brokerha.transports.rabbitmq.addresses import Address, parse_addresses
from brokerha.transports.rabbitmq.identity import Identity
from brokerha.transports.rabbitmq.kept_connection import KeptConnection


class Wire:
    """py-amqp's connection, with a frame socket on which the broker says goodbye."""

    def __init__(self) -> None:
        self.transport = self
        self.is_open = True
        self.unsent_bytes = 0
        self.may_have_more = False
        self.server_properties = {"version": "3.10.8"}

    def on_inbound_frame(self, frame: object) -> None: ...

    def fill(self) -> None:
        self.is_open = False
        raise ConnectionForced("Node was put into maintenance mode", reply_code=320)

    def collect(self) -> None:
        self.is_open = False


class KombuConnection:
    """Kombu's, which connects again when it is asked for the wire of a connection that is over; nobody listens there any more."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.is_released = False

    @property
    def connection(self) -> Wire:
        if not self.wire.is_open:
            raise ConnectionRefusedError(111, "Connection refused")
        return self.wire

    def release(self) -> None:
        self.is_released = True


class Session:
    """Nothing to do."""

    def turn(self, now_s: float) -> float:
        return now_s + 1

    def is_idle(self) -> bool:
        return True

    def end(self) -> None: ...


def test_a_connection_that_the_broker_closes_is_lost_and_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[KombuConnection] = []
    woken = threading.Event()

    def opens(*_arguments: Any, **_options: Any) -> KombuConnection:
        opened.append(KombuConnection())
        return opened[-1]

    monkeypatch.setattr(kept_connection, "open_connection", opens)
    addresses = parse_addresses("amqp://u:p@127.0.0.1:1/v;amqp://u:p@127.0.0.1:2/v")
    identity, state = Identity("m1 master in", "master"), LinkState(("in",))
    kept = KeptConnection(identity, "in", addresses, lambda _: Session(), woken.set, state, TransportConfig(), Counters())
    for number in (1, 2):
        assert not kept.serve(time.monotonic()), "it has it opened"
        assert woken.wait(10)
        woken.clear()
        kept.serve(time.monotonic())
        assert (len(opened), opened[-1].is_released) == (number, True)


@pytest.mark.parametrize(("lasts_s", "pauses"), [(0.1, [0, 50, 100, 200]), (60.0, [0, 0, 0, 0])])
def test_a_connection_that_does_not_last_is_tried_less_and_less_often(
    lasts_s: float, pauses: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [1_000.0]
    woken = threading.Event()
    monkeypatch.setattr(kept_connection, "open_connection", lambda *_arguments, **_options: KombuConnection())
    monkeypatch.setattr(kept_connection, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(Wire, "fill", lambda _wire: None)
    monkeypatch.setattr(Wire, "next_frame", lambda _wire: None, raising=False)
    monkeypatch.setattr(Wire, "heartbeat_tick", lambda _wire, rate: rate, raising=False)
    monkeypatch.setattr(Wire, "flush", lambda _wire: None, raising=False)
    addresses = parse_addresses("amqp://u:p@127.0.0.1:1/v;amqp://u:p@127.0.0.1:2/v")
    identity, state = Identity("m1 master in", "master"), LinkState(("in",))
    kept = KeptConnection(identity, "in", addresses, lambda _: Session(), woken.set, state, TransportConfig(), Counters())
    for pause_ms in pauses:
        kept.serve(now_s[0])
        assert woken.wait(10)
        woken.clear()
        kept.serve(now_s[0])
        assert (state.read()[0], state.most_bytes) == ("connected", 128 * 1024 * 1024)
        now_s[0] += lasts_s
        kept.leave()
        assert pause_ms / 2 <= (kept.due_s - now_s[0]) * 1000 <= pause_ms + 1e-6
        now_s[0] = kept.due_s


def test_who_leaves_goes_through_the_addresses_in_the_order_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    aimed: list[int] = []
    woken = threading.Event()

    def opens(address: Address, *_arguments: Any, **_options: Any) -> KombuConnection:
        aimed.append(address.port)
        return KombuConnection()

    monkeypatch.setattr(kept_connection, "open_connection", opens)
    monkeypatch.setattr(Wire, "fill", lambda _wire: None)
    monkeypatch.setattr(Wire, "next_frame", lambda _wire: None, raising=False)
    monkeypatch.setattr(Wire, "heartbeat_tick", lambda _wire, rate: rate, raising=False)
    monkeypatch.setattr(Wire, "flush", lambda _wire: None, raising=False)
    addresses = parse_addresses(";".join(f"amqp://u:p@127.0.0.1:{port}/v" for port in (2, 3, 1)))
    identity, state = Identity("m1 master in", "master"), LinkState(("in",))
    config = TransportConfig(retry_first_ms=1, retry_most_ms=1)
    kept = KeptConnection(identity, "in", addresses, lambda _: Session(), woken.set, state, config, Counters())
    for _ in range(6):
        kept.serve(kept.due_s)
        assert woken.wait(10)
        woken.clear()
        kept.serve(kept.due_s)
        kept.leave()
    assert aimed == [2, 1, 2, 3, 1, 2]
