"""Headers as bytes: what is written has types that RabbitMQ documents, and what cannot be read ends no connection."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import amqp.serialization
import pytest
from pika.data import decode_table

from brokerha.transports.rabbitmq.connecting import RepeatedMessage
from brokerha.transports.rabbitmq.properties import DEPTH_LIMIT, UNREADABLE, Message, install, read, table
from brokerha.transports.rabbitmq.rejecting import HEADERS_LIMIT_BYTES, LEFT_OUT_HEADER, rejected
from brokerha.transports.topology import REASON_HEADER

DOCUMENTED = {b"t", b"I", b"l", b"d", b"S", b"F", b"A", b"T", b"V"}
WRITTEN: dict[str, tuple[Any, bytes, Any]] = {
    "flag": (True, b"t", True),
    "small": (2**31 - 1, b"I", 2**31 - 1),
    "smallest": (-(2**31), b"I", -(2**31)),
    "large": (2**31, b"l", 2**31),
    "time in ms": (1_763_920_000_000, b"l", 1_763_920_000_000),
    "largest": (2**63 - 1, b"l", 2**63 - 1),
    "least": (-(2**63), b"l", -(2**63)),
    "larger": (2**64, b"S", str(2**64)),
    "float": (2.0, b"d", 2.0),
    "text": ("é", b"S", "é"),
    "bytes": (b"\xff", b"S", b"\xff"),
    "nothing": (None, b"V", None),
    "list": ([1, "a", [2**40]], b"A", [1, "a", [2**40]]),
    "table": ({"a": {"b": 2**40}}, b"F", {"a": {"b": 2**40}}),
    "time": (datetime(2001, 2, 3), b"T", datetime(2001, 2, 3, tzinfo=UTC)),  # noqa: DTZ001  (as py-amqp reads it)
    "decimal": (Decimal("1.5"), b"S", "1.5"),
}


def headers_in(properties: bytes) -> bytes:
    """The bytes of the headers of a message that has nothing else."""
    (flags,), (size,) = struct.unpack_from(">H", properties), struct.unpack_from(">I", properties, 2)
    assert flags == 1 << 13
    assert len(properties) == 6 + size
    return properties[6:]


@pytest.mark.parametrize("kind", [Message, RepeatedMessage])
@pytest.mark.parametrize(("value", "letter", "found"), WRITTEN.values(), ids=WRITTEN)
def test_each_header_has_a_type_that_rabbitmq_documents(kind: Any, value: Any, letter: bytes, found: Any) -> None:
    if kind is RepeatedMessage and isinstance(value, (list, dict)):
        pytest.skip("its values are hashable")
    headers = {"k": value}
    message = Message(b"", application_headers=headers)
    encoded = headers_in(message._serialize_properties())
    assert encoded[:3] == b"\x01k" + letter
    assert letter in DOCUMENTED
    # A client of another make reads it, and the message still has what it was given.
    assert decode_table(struct.pack(">I", len(encoded)) + encoded, 0)[0] == {"k": found}
    assert message.properties["application_headers"] is headers


def test_what_goes_to_quarantine_tells_its_time_as_a_signed_number() -> None:
    publication = rejected("m1", b"x", {"application_headers": {"mine": 2**40}}, ("e", "k"), "why", 1_763_920_000_000, 0.0)
    encoded = headers_in(Message(b"", application_headers=publication.properties["application_headers"])._serialize_properties())
    assert b"\x10brokerha-seen-msl" in encoded
    assert b"\x04minel" in encoded


def test_headers_that_leave_no_room_for_ours_are_left_out_of_quarantine() -> None:
    publication = rejected("m1", b"x", {"application_headers": {"a": "x" * HEADERS_LIMIT_BYTES}}, ("e", "k"), "why", 1, 0.0)
    headers = publication.properties["application_headers"]
    assert headers[LEFT_OUT_HEADER] > HEADERS_LIMIT_BYTES
    assert len(table(headers)) < 2000


def nested(levels: int) -> bytes:
    data = b"I\0\0\0\1"
    for _ in range(levels):
        data = b"A" + struct.pack(">I", len(data)) + data
    return b"\x01k" + data


def of_headers(data: bytes) -> bytes:
    return struct.pack(">HI", 1 << 13, len(data)) + data


BROKEN = {
    "a type that is no UTF-8": struct.pack(">HB", 1 << 15, 2) + b"\xff\xfe",
    "lists without end": of_headers(nested(3000)),
    "lists deeper than the limit": of_headers(nested(DEPTH_LIMIT + 1)),
    "an unknown type": of_headers(b"\x01kZ\0"),
    "cut": of_headers(b"\x05kI"),
    "nothing": b"",
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_properties_that_cannot_be_read_say_so(data: bytes) -> None:
    properties, end = read(b"head" + data, 4)
    assert list(properties) == ["application_headers"]
    assert list(properties["application_headers"]) == [UNREADABLE]
    assert end == 4 + len(data)
    # And what was told can be written again, for the quarantine.
    assert table(properties["application_headers"])


@pytest.mark.parametrize("seconds", [253_402_300_800, 1_796_016_255_415, 2**62, 2**64 - 1])
def test_a_time_after_the_year_9999_is_read_as_a_number(seconds: int) -> None:
    """As JavaScript's clock counts, in milliseconds: the message is answered all the same."""
    install()
    properties, _ = read(of_headers(b"\x01kT" + struct.pack(">Q", seconds)), 0)
    assert properties == {"application_headers": {"k": seconds}}
    assert table(properties["application_headers"])


def test_quarantine_tells_why_properties_cannot_be_read() -> None:
    properties, _ = read(BROKEN["an unknown type"], 0)
    publication = rejected("m1", b"x", properties, ("e", "k"), "content type '' is none", 1, 0.0)
    assert publication.properties["application_headers"][REASON_HEADER] == (
        f"its properties cannot be read: {properties['application_headers'][UNREADABLE]}"
    )


def test_py_amqp_reads_with_it() -> None:
    install()
    message = amqp.Message()
    message.inbound_header(struct.pack(">HHQ", 60, 0, 1) + BROKEN["a type that is no UTF-8"])
    assert list(message.properties["application_headers"]) == [UNREADABLE]
    message.inbound_header(struct.pack(">HHQ", 60, 0, 1) + of_headers(nested(DEPTH_LIMIT)))
    assert UNREADABLE not in message.properties["application_headers"]
