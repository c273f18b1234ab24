"""Operations, effects, ids, errors and state words: what is taken, and how what is not is named."""

from __future__ import annotations

import msgpack
import pytest

from brokerha.model import errors, etags, operation_checks, operations, states
from brokerha.model.errors import InvalidRequest, OutcomeUnknown, Rejected, TooLarge
from brokerha.model.ids import is_node_id, is_repository_id, is_tx_id
from brokerha.model.invariants import InvariantBroken, invariant

ETAG = etags.etag_of(b"v")
GOOD = [
    ("update", "main", "INSERT DATA {}"),
    ("add", "main", "<urn:a> <urn:b> <urn:c> ."),
    ("remove", "main", ""),
    ("put", "prices", b"sku", b""),
    ("delete", "prices", b"sku"),
    ("create-repository", "other"),
    ("remove-repository", "other"),
    ("publish", "orders", "application/json", b"{}"),
    ("publish", "orders", "", b""),
    ("accept", "orders", "order:4711/a.12"),
    ("expect-key", "prices", b"sku", ETAG),
    ("expect-key", "prices", b"sku", ""),
    ("expect-range", "t", b"a", b"", bytes(16)),
    ("expect-since", "graph", "main", 0),
    ("expect-since", "table", "a table", 7),
    ("expect-since", "queue", "orders", 2**40),
    ("expect-fingerprint", "1:000000000000000000000000000000ff"),
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
        (("publish", "q", b"text/plain", b""), "publish takes"),
        (("publish", "", "text/plain", b""), "a queue name has 1 to 64 bytes"),
        (("publish", "a\0b", "text/plain", b""), "a queue name has 1 to 64 bytes"),
        (("publish", "q" * 65, "text/plain", b""), "a queue name has 1 to 64 bytes"),
        (("publish", "q", "t" * 256, b""), "a content type has at most 255"),
        (("publish", "q", "text\r\nX: y", b""), "a content type has at most 255"),
        (("publish", "q", "t\u00e4xt", b""), "a content type has at most 255"),
        (("accept", "q" * 65, "tx.1"), "a queue name has 1 to 64 bytes"),
        (("accept", "q", "tx"), "no message id"),
        (("accept", "q", "tx.0"), "no message id"),
        (("accept", "q", "t x.1"), "no message id"),
        (("accept", "q", "tx.1234567"), "no message id"),
        (("expect-key", "", b"k", ""), "a table name has 1 to"),
        (("expect-key", "t", b"", ""), "a key has 1 to"),
        (("expect-key", "t", b"k", ETAG.strip('"')), "no ETag"),
        (("expect-range", "", b"", b"", bytes(16)), "a table name has 1 to"),
        (("expect-range", "t", b"k" * 600, b"", bytes(16)), "a range is from a key of at most"),
        (("expect-range", "t", b"", b"", b"short"), "has 16 bytes, this one has 5"),
        (("expect-since", "store", "main", 1), "about a graph, table or queue"),
        (("expect-since", "graph", "no such/name", 1), "no repository id"),
        (("expect-since", "table", "", 1), "a table name has 1 to"),
        (("expect-since", "queue", "\0", 1), "a queue name has 1 to"),
        (("expect-since", "queue", "q", -1), "0 or more"),
        (("expect-since", "queue", "q", 2**63), "below 2\\*\\*63"),
        (("expect-since", "queue", "q", 2**70), "below 2\\*\\*63"),
        (("put", "\ud800", b"k", b"v"), "surrogate"),
        (("update", "main", "INSERT DATA { <urn:a> <urn:b> '\ud800' }"), "surrogate"),
        (("expect-since", "queue", "q", True), "expect-since takes"),
        (("expect-fingerprint", "ff"), "no fingerprint"),
        (("expect-fingerprint", "2:000000000000000000000000000000ff"), "no fingerprint"),
        (("expect-fingerprint", "1:ff"), "no fingerprint"),
        (("put", "urn:brokerha:mine", b"k", b"v"), "names begin with 'urn:brokerha:' are brokerha's own"),
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
    with pytest.raises(TooLarge, match="divide the value"):
        operations.pack_operations([("put", "t", b"k", b"v" * operations.BODY_LIMIT_BYTES)])
    with pytest.raises(TooLarge, match="100000"):
        operations.check_operations([GOOD[3]] * (operations.OPERATIONS_LIMIT + 1))


def test_a_message_is_called_by_its_transaction_and_the_place_of_its_operation() -> None:
    assert operations.message_id("order:4711", 3) == "order:4711.3"
    assert operation_checks.is_message_id("order:4711.3")
    assert operation_checks.is_message_id(operations.message_id("x" * 128, operations.OPERATIONS_LIMIT))


def test_effects_come_back_equal_and_nothing_is_nothing() -> None:
    changes = operations.typed_changes([("put", "t", b"k", b"v"), ("quads", "main", (), ("<urn:a> <urn:b> <urn:c>",))])
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
    assert states.describe(states.HALTED, "why") == {"state": "halted", "reason": "why", "action": states.ACTIONS["halted"]}
