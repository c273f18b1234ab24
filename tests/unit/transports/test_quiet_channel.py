"""What a quiet channel does with what the broker sends late."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from amqp import spec
from amqp.basic_message import Message

from brokerha.transports.rabbitmq.quiet_channel import QuietChannel


class Wire:
    """py-amqp's connection, as far as a channel asks it."""

    def __init__(self) -> None:
        self.channels: dict[int, Any] = {}
        self.written: list[Any] = []
        self.connected = True
        self.confirm_publish = False
        self.transport = SimpleNamespace(connected=True)

    def _get_free_channel_id(self) -> int:
        return 1

    def frame_writer(self, _kind: int, _channel: int, method: Any, _arguments: bytes | None, _content: Any) -> None:
        self.written.append(method)


def deliver(channel: QuietChannel, tag: str) -> None:
    channel._on_basic_deliver(tag, 5, False, "", "q", Message(b"x"))


def test_a_delivery_of_an_older_channel_of_the_same_number_is_nobodys_and_is_not_rejected() -> None:
    wire = Wire()
    arrived: list[Any] = []
    channel = QuietChannel(wire, lambda _: None, lambda _: None)
    channel.consume("q", "reader 2", arrived.append, lambda _: None, 10)
    before = [*wire.written]
    # When something comes for a reader that this channel never had
    deliver(channel, "reader 1")
    # Then nothing is answered: its tag would be another message here, or none, for which the broker closes the channel
    assert wire.written == before
    assert arrived == []
    assert spec.Basic.Consume in before
    # And what is for its own reader arrives
    deliver(channel, "reader 2")
    assert len(arrived) == 1
