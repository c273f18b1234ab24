"""What others send is unpacked within bounds, or refused with an error that says why."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import msgpack
import pytest

from brokerha.model.errors import InvalidRequest
from brokerha.model.operations import unpack_operations
from brokerha.model.outside.unpacking import BROKEN, unpack_foreign
from brokerha.model.wire import client_wire

LEVELS = 100_000
DEEP = {
    "lists": b"\x91" * LEVELS + b"\x01",
    "maps": b"\x81\xa1a" * LEVELS + b"\x01",
    "maps as keys": b"\x81" * LEVELS,
    "long lists": b"\xdd\0\0\0\x01" * LEVELS + b"\x01",
    "no end": b"\x91" * 5_000_000,
}


@pytest.mark.parametrize("data", DEEP.values(), ids=DEEP)
def test_what_is_nested_too_deep_is_refused_in_little_memory(data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(BROKEN):
            unpack_foreign(data)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "read", [client_wire.decode_writes, client_wire.decode_read, client_wire.decode_replies, unpack_operations]
)
@pytest.mark.parametrize("data", [*DEEP.values(), b"\x91" * 900 + b"\x01", b"\x93\xa3put\xa1t" + b"\x91" * 900 + b"\x01"])
def test_a_request_that_is_nested_deep_is_an_invalid_request(read: Callable[[bytes], object], data: bytes) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read(data)
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize(
    "head", [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff"]
)
def test_a_length_that_lies_costs_nothing(head: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(BROKEN):
            unpack_foreign(head + b"x" * 100)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_many_small_maps_are_refused_before_they_fill_the_memory() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(BROKEN, match="more than 100000 maps"):
            unpack_foreign(b"\xdd" + (5_000_000).to_bytes(4, "big") + b"\x80" * 5_000_000)
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()


def test_numbers_that_are_none_are_no_number_of_a_read() -> None:
    for field in ("min_lsn", "timeout_ms"):
        for value in (float("nan"), float("inf"), 2**64 - 1, -(2**63), "1", [1]):
            with pytest.raises(InvalidRequest, match=f"a read: {field} is a whole number"):
                client_wire.decode_read(msgpack.packb({"kind": "size", field: value}))
