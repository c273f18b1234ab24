"""What client programs and masters say to each other: both directions come back equal, everything else is named."""

from __future__ import annotations

from decimal import Decimal

import msgpack
import pytest

from brokerha.model.errors import InvalidRequest, TooLarge
from brokerha.model.wire import client_wire


def test_both_directions_come_back_equal() -> None:
    writes = [("t-1", b"a"), ("t-2", b"")]
    assert client_wire.decode_writes(client_wire.encode_writes(writes)) == writes
    replies = [("t-1", "applied", 7, "", ""), ("t-2", "rejected", 8, "Rejected", "why")]
    assert client_wire.decode_replies(client_wire.encode_replies(replies)) == replies
    read = client_wire.decode_read(client_wire.encode_read("get", "t", {"key": b"k"}, 4, 1000))
    assert read == {"kind": "get", "name": "t", "arguments": {"key": b"k"}, "min_lsn": 4, "timeout_ms": 1000}
    question = client_wire.decode_read(client_wire.encode_question("status", {"timeout_ms": 5}))
    assert question == {"ask": "status", "arguments": {"timeout_ms": 5}}
    answer = client_wire.decode_answer(client_wire.encode_read_answer("", "", "text/plain", 3, b"x"))
    assert (answer["error"], answer["lsn"], answer["body"]) == ("", 3, b"x")
    assert client_wire.decode_answer(client_wire.encode_answer("NotReady", "why", None))["error"] == "NotReady"


def test_terms_come_from_headers() -> None:
    assert client_wire.terms({}) == ("applied", 1, client_wire.DEFAULT_TIMEOUT_MS)
    assert client_wire.terms({"ack": "applied=2", "timeout_ms": 10}) == ("applied", 2, 10)
    assert [client_wire.apart_of(headers) for headers in ({}, {"apart": "refuse"})] == ["wait", "refuse"]
    assert client_wire.headers_of("applied", 1, 10, "refuse")["apart"] == "refuse"
    assert client_wire.terms({"ack": "accepted", "copies": 3}) == ("accepted", 3, client_wire.DEFAULT_TIMEOUT_MS)
    for headers in (
        {"ack": "applied=many"},
        {"ack": "accepted=2"},
        {"ack": "perhaps"},
        {"copies": "many"},
        {"timeout_ms": 1.5},
        {"timeout_ms": True},
        {"timeout_ms": Decimal("Infinity")},
        {"timeout_ms": float("nan")},
        {"copies": "9" * 5000},
        {"ack": 1},
        {"ack": {"applied": 2}},
    ):
        with pytest.raises(InvalidRequest):
            client_wire.terms(headers)


@pytest.mark.parametrize(
    "data", [b"\xc1", b"", msgpack.packb(1), msgpack.packb([]), msgpack.packb([["t"]]), msgpack.packb([[1, b""]])]
)
def test_bad_batches_are_named(data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        client_wire.decode_writes(data)


@pytest.mark.parametrize("data", [b"\xc1", msgpack.packb([1]), msgpack.packb({"kind": 1}), msgpack.packb({"arguments": 3})])
def test_bad_reads_are_named(data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        client_wire.decode_read(data)


@pytest.mark.parametrize(("data", "why"), [(b"", "incomplete input"), (b'{"kind":"size"}', "extra data")])
def test_what_is_no_msgpack_is_said_in_words(data: bytes, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        client_wire.decode_read(data)


def test_bad_answers_are_named() -> None:
    for data in (msgpack.packb([[1]]), msgpack.packb({})):
        with pytest.raises(InvalidRequest):
            client_wire.decode_replies(data)
    with pytest.raises(InvalidRequest):
        client_wire.decode_answer(msgpack.packb({}))
    with pytest.raises(TooLarge):
        client_wire.decode_writes(b"x" * (client_wire.MESSAGE_LIMIT_BYTES + 1))
