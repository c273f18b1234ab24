"""Operations, effects, ids, errors and state words: what is taken, and how what is not is named."""

from __future__ import annotations

import msgpack
import pytest

from brokerha.model import errors, operations, states
from brokerha.model.errors import InvalidRequest, OutcomeUnknown, Rejected, TooLarge
from brokerha.model.ids import is_node_id, is_repository_id, is_tx_id
from brokerha.model.invariants import InvariantBroken, invariant

GOOD = [
    ("update", "main", "INSERT DATA {}"),
    ("add", "main", "<urn:a> <urn:b> <urn:c> ."),
    ("remove", "main", ""),
    ("put", "prices", b"sku", b""),
    ("delete", "prices", b"sku"),
    ("create-repository", "other"),
    ("remove-repository", "other"),
]


def test_operations_come_back_equal() -> None:
    assert operations.unpack_operations(operations.pack_operations(list(GOOD))) == GOOD


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        ((), "starts with the name"),
        ("put", "starts with the name"),
        ((1, "main"), "starts with the name"),
        (("explode",), "unknown operation 'explode'"),
        (("put", "t", b"k"), "put takes"),
        (("put", "t", "k", b"v"), "put takes"),
        (("update", "no such/name", "x"), "no repository id"),
        (("put", "", b"k", b"v"), "table name"),
        (("put", "a\0b", b"k", b"v"), "table name"),
        (("put", "t" * 65, b"k", b"v"), "table name"),
        (("put", "t", b"", b"v"), "a key has 1 to"),
        (("delete", "t", b"k" * 401), "a key has 1 to"),
    ],
)
def test_a_bad_operation_is_named_with_its_place(operation: object, words: str) -> None:
    with pytest.raises(InvalidRequest, match=f"operation 2: .*{words}"):
        operations.check_operations([GOOD[0], operation])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"\xc1", "not a msgpack list"),
        (b"", "not a msgpack list"),
        (msgpack.packb({"a": 1}), "not a msgpack list"),
        (msgpack.packb([]), "at least one"),
        (b"\xd9\x02\xff\xff", "not a msgpack list"),
    ],
)
def test_a_bad_body_is_named(body: bytes, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        operations.unpack_operations(body)


def test_limits_are_told_with_their_numbers() -> None:
    with pytest.raises(TooLarge, match="split"):
        operations.unpack_operations(b"x" * (operations.BODY_LIMIT_BYTES + 1))
    with pytest.raises(TooLarge, match="split"):
        operations.pack_operations([("put", "t", b"k", b"v" * operations.BODY_LIMIT_BYTES)])
    with pytest.raises(TooLarge, match="100000"):
        operations.check_operations([GOOD[3]] * (operations.OPERATIONS_LIMIT + 1))


def test_effects_come_back_equal_and_nothing_is_nothing() -> None:
    changes = [("put", "t", b"k", b"v"), ("quads", "main", (), ("<urn:a> <urn:b> <urn:c>",))]
    assert operations.unpack_effect(operations.pack_effect(changes)) == changes
    assert operations.pack_effect([]) == b""
    assert operations.unpack_effect(b"") == []


def test_ids() -> None:
    assert is_node_id("m-1")
    assert not is_node_id("M1")
    assert not is_node_id("m1\n")
    assert is_tx_id("order:4711/ä".replace("ä", "a"))
    assert not is_tx_id("with space")
    assert is_repository_id("Main_1")
    assert not is_repository_id("a/b")


def test_errors_carry_what_a_caller_needs() -> None:
    assert OutcomeUnknown("t-1").txid == "t-1"
    assert "t-1" in str(OutcomeUnknown("t-1"))
    rejected = Rejected("because", "t-1", 7)
    assert (str(rejected), rejected.txid, rejected.lsn) == ("because", "t-1", 7)
    assert issubclass(errors.NotFound, errors.InvalidRequest)


def test_a_broken_invariant_says_what_it_knew() -> None:
    invariant(True, "fine")
    with pytest.raises(InvariantBroken, match=r"order: a=1, b='x'"):
        invariant(False, "order", b="x", a=1)
    with pytest.raises(InvariantBroken, match=r"^plain$"):
        invariant(False, "plain")


def test_every_state_has_an_action_text() -> None:
    words = {value for name, value in vars(states).items() if name.isupper() and isinstance(value, str)}
    assert words == set(states.ACTIONS)
    assert states.describe(states.HALTED, "why") == {
        "state": "halted",
        "reason": "why",
        "action": states.ACTIONS["halted"],
    }
