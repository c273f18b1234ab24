"""Large publications are cut into frames here: the same bytes as py-amqp's own frames, without its copies."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from amqp import spec
from amqp.exceptions import FrameSyntaxError
from amqp.method_framing import frame_writer

from brokerha.transports.rabbitmq.connecting import _LARGE_BYTES, RabbitChannel, RepeatedMessage, _publish_arguments

FRAME_BYTES = 131_072
PROPERTIES = {"content_type": "text/plain", "delivery_mode": 1, "type": "Chunk"}


class Wire:
    """A connection that keeps what is written to it."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.frame_max = FRAME_BYTES
        self.bytes_sent = 0
        self.transport = SimpleNamespace(write=self.written.extend)
        self.frame_writer = frame_writer(self, self.transport)


def channel_on(wire: Wire) -> Any:
    channel: Any = RabbitChannel.__new__(RabbitChannel)
    channel.connection, channel.channel_id = wire, 3
    return channel


@pytest.mark.parametrize("size", [_LARGE_BYTES + 1, FRAME_BYTES - 8, FRAME_BYTES - 7, 1024 * 1024 + 97])
def test_the_frames_are_those_of_py_amqp(size: int) -> None:
    ours, theirs = Wire(), Wire()
    message = RepeatedMessage(bytes(n % 251 for n in range(size)), **PROPERTIES)
    channel_on(ours)._publish(message, "brokerha.data", "w1", mandatory=True)
    arguments = _publish_arguments("brokerha.data", "w1", True)
    theirs.frame_writer(1, 3, spec.Basic.Publish, arguments, message)
    # py-amqp puts what fits into one frame less than it could carry; both are right, and ours is compared frame by frame.
    assert contents(bytes(ours.written)) == contents(bytes(theirs.written))
    assert ours.bytes_sent == theirs.bytes_sent == 1


def contents(written: bytes) -> tuple[list[tuple[int, int]], bytes, bytes]:
    """(kinds and channels of the frames that are no body, their payloads, the body); each frame ends as it must."""
    heads: list[tuple[int, int]] = []
    payloads, body = b"", b""
    while written:
        kind, channel, size = written[0], int.from_bytes(written[1:3], "big"), int.from_bytes(written[3:7], "big")
        assert size + 8 <= FRAME_BYTES
        assert written[7 + size] == 0xCE
        if kind == spec_body():
            body += written[7 : 7 + size]
        else:
            heads.append((kind, channel))
            payloads += written[7 : 7 + size]
        assert channel == 3
        written = written[8 + size :]
    return heads, payloads, body


def spec_body() -> int:
    """Number of the kind of frame that carries a body."""
    return 3


def test_a_property_that_cannot_be_sent_leaves_the_wire_as_it_was() -> None:
    wire = Wire()
    message = RepeatedMessage(b"x" * (_LARGE_BYTES + 1), type=threading.Lock())
    with pytest.raises((TypeError, FrameSyntaxError)):
        channel_on(wire)._publish(message, "brokerha.data", "w1")
    assert not wire.written
