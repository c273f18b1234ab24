"""The fingerprint: fixed values of this version, and that no two kinds of content are hashed alike."""

from __future__ import annotations

import doctest
import itertools

from hypothesis import given
from hypothesis import strategies as st

from brokerha.stores.comparing import fingerprint
from brokerha.stores.comparing.fingerprint import (
    counts_digest,
    key_digest,
    message_digest,
    quads_digest,
    repository_digest,
    text_of,
)
from brokerha.stores.execution import evaluation
from brokerha.stores.sparql import tokens
from brokerha.stores.tables import key_range, queue_change
from brokerha.stores.tables.queue_change import Counts, Message

LINE = "<urn:s> <urn:p> <urn:o>"


def test_version_one_gives_these_values_for_ever() -> None:
    """Nodes of several releases compare them; a change needs another version number in front."""
    assert text_of(quads_digest("main", [LINE])) == "1:2622dcdcc459ab6330d2257f360f7c40"
    assert text_of(int.from_bytes(key_digest(b"table\0key", b"value"), "big")) == "1:80c3bc2982d9431866a61ca2c438ff0c"
    assert text_of(repository_digest("main")) == "1:cdeaf7d4c374a7fe769a0f98a5dab865"
    message = Message("tx.1", "text/plain", b"body")
    assert text_of(message_digest("queue", 7, message)) == "1:7302befb57299cc8c24580f2ef252999"
    assert text_of(counts_digest("queue", Counts(7, 3))) == "1:124c1a2669f6b04f25d73dd38884d2d4"
    assert text_of(0) == "1:" + 32 * "0"


@given(st.lists(st.text(max_size=5), max_size=6))
def test_the_digest_of_many_quads_is_that_of_each_in_any_order(lines: list[str]) -> None:
    one_by_one = 0
    for line in lines:
        one_by_one ^= quads_digest("main", [line])
    assert quads_digest("main", reversed(lines)) == one_by_one
    assert quads_digest("main", lines + lines) == 0


def test_what_is_split_otherwise_is_hashed_otherwise() -> None:
    digests = [
        quads_digest("a", ["bc"]),
        quads_digest("ab", ["c"]),
        int.from_bytes(key_digest(b"t\0k", b"v"), "big"),
        int.from_bytes(key_digest(b"t\0", b"kv"), "big"),
        int.from_bytes(key_digest(b"t\0kv", b""), "big"),
        int.from_bytes(key_digest(b"\0tk", b"v"), "big"),
        message_digest("q", 1, Message("a", "b", b"c")),
        message_digest("q", 2, Message("a", "b", b"c")),
        message_digest("qa", 1, Message("", "b", b"c")),
        message_digest("q", 1, Message("ab", "", b"c")),
        message_digest("q", 1, Message("a", "bc", b"")),
        message_digest("r", 1, Message("a", "b", b"c")),
        counts_digest("q", Counts(1, 0)),
        counts_digest("q", Counts(1, 1)),
        counts_digest("r", Counts(1, 0)),
        repository_digest("a"),
        repository_digest("abc"),
    ]
    assert all(one != other for one, other in itertools.combinations(digests, 2))


def test_the_examples_in_the_modules_are_true() -> None:
    for module in (fingerprint, key_range, evaluation, queue_change, tokens):
        found = doctest.testmod(module)
        assert found.attempted
        assert not found.failed
