"""A command over AMQP is published once: after a lost connection or a silence another master would take it for a new one."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from brokerha.model.errors import OutcomeUnknown
from brokerha.transports.client import wire
from brokerha.transports.client.wire import AmqpWire
from brokerha.transports.rabbitmq.addresses import NOBODY

BACKUP = {"name": "backup", "arguments": {"name": "monday"}}


class Line:
    """A thread that is the test, and a channel; keeps what is published, and the timers."""

    user = NOBODY

    def __init__(self, *_: Any) -> None:
        self.published: list[str] = []
        self.timers: list[Callable[[], None]] = []

    def start(self) -> None:
        """Nothing runs."""

    def call(self, act: Callable[[], None]) -> None:
        act()

    def call_later(self, _seconds: float, act: Callable[[], None]) -> Callable[[], None]:
        self.timers.append(act)
        return act

    def forget(self, act: Callable[[], None]) -> None:
        self.timers.remove(act)

    def renew(self, reason: str) -> None:
        self.owner.lost(reason)

    def basic_publish(self, _exchange: str, _key: str, _body: bytes, properties: Any, **_: Any) -> None:
        self.published.append(properties.correlation_id)

    owner: AmqpWire


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Line:
    monkeypatch.setattr(wire, "PikaThread", Line)
    made = AmqpWire("amqp://nowhere")
    thread: object = made._thread
    assert isinstance(thread, Line)
    thread.owner = made
    made.up(thread)
    return thread


def asked(line: Line, what: str, arguments: dict[str, Any]) -> Future[Any]:
    return line.owner._asked(what, arguments, 60_000)


def test_a_command_ends_as_unknown_with_its_connection(line: Line) -> None:
    command, look = asked(line, "command", BACKUP), asked(line, "command", {"name": "tasks", "arguments": {}})
    line.owner.lost("the broker ended the connection")
    line.owner.up(line)
    assert line.published == ["1", "2", "2"]
    assert not look.done()
    with pytest.raises(OutcomeUnknown, match="whether backup was carried out is unknown: look with `brokerha backup list` before"):
        command.result(0)


def test_a_command_that_is_not_answered_is_not_published_again(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    command = asked(line, "command", BACKUP)
    # The broker has room again; then it is silent for as long as anything else would be published again
    line.owner.blocked(True)
    line.owner.blocked(False)
    now_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now_s + 40)
    line.owner._on_timer()
    assert (line.published, command.done()) == (["1"], False)
    monkeypatch.setattr(time, "monotonic", lambda: now_s + 70)
    line.owner._on_timer()
    with pytest.raises(OutcomeUnknown, match="no answer came: whether backup"):
        command.result(0)


def test_a_command_that_no_queue_took_is_published_again(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    command = asked(line, "command", BACKUP)
    line.owner.returned("1")
    # It was not taken, so it survives its connection
    line.owner.lost("the broker ended the connection")
    line.owner.up(line)
    assert line.published == ["1", "1"]
    assert not command.done()
