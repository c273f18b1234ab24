"""What every store must say of its content bucket by bucket; test_stores.py runs it on each of them."""

from __future__ import annotations

from functools import reduce
from operator import xor
from typing import Any

import msgpack
import pytest

from brokerha.model.control import Check
from brokerha.model.errors import InvalidRequest, TimedOut, TooLarge
from brokerha.ports.store import Store
from brokerha.stores.comparing import digests
from brokerha.stores.comparing.fingerprint import (
    control_digest,
    counts_digest,
    key_digest,
    message_digest,
    quads_digest,
    repository_digest,
    text_of,
)
from brokerha.stores.comparing.items import bucket_of, check_item, key_item, message_item
from brokerha.stores.tables.queue_change import Counts, Message
from tests.contracts.store_contract import IN_GRAPH, A, B, quads, run

CHECK = ("no-x", "key", "t", "x", "absent")


def asked(store: Store, kind: str, **arguments: object) -> dict[str, Any]:
    answer = store.read(kind, "", arguments)
    assert answer.content_type == "application/x-msgpack"
    found: dict[str, Any] = msgpack.unpackb(b"".join(answer.pieces), use_list=False)
    assert found["lsn"] == answer.lsn
    return found


def packed(*buckets: tuple[str, str, int]) -> tuple[bytes, ...]:
    return tuple(msgpack.packb(bucket) for bucket in buckets)


def filled(store: Store) -> None:
    run(
        store,
        [("create-repository", "other"), ("create-repository", "empty")],
        [("add", "main", quads(A, IN_GRAPH)), ("add", "other", quads(B))],
        [("put", "t", b"k", b"v" * 300), ("put", "t", b"l", b""), ("put", "u", b"k", b"w")],
        [("publish", "q", "text/plain", b"gone"), ("publish", "q", "text/plain", b"kept"), ("publish", "r", "", b"")],
        [("accept", "q", "tx.1")],
        [("control-add", *CHECK)],
    )


def whole(found: dict[str, Any]) -> str:
    """The fingerprint that the buckets, counters and repositories make."""
    parts = [int.from_bytes(row[4], "big") for row in found["buckets"]]
    parts += [counts_digest(queue, Counts(*counts)) for queue, counts in found["queues"].items()]
    parts += [repository_digest(name) for name in found["repositories"]]
    return text_of(reduce(xor, parts, 0))


class StoreDigestsContract:
    """Digests of buckets, and the items in them."""

    def test_the_digests_of_all_buckets_make_the_fingerprint(self, store: Store) -> None:
        filled(store)
        for bits in (1, 10, 16):
            found = asked(store, "digests", bits=bits)
            assert found["lsn"] == store.applied().lsn
            assert found["fingerprint"] == whole(found) == store.applied().fingerprint
            assert found["items"] == store.applied().items == sum(row[3] for row in found["buckets"]) - 1
            assert all(0 <= row[2] < 1 << bits for row in found["buckets"])
            assert found["buckets"] == tuple(sorted(found["buckets"]))

    def test_digests_name_stores_queues_and_repositories(self, store: Store) -> None:
        filled(store)
        found = asked(store, "digests")
        stores = [("control", ""), ("graph", "main"), ("graph", "other"), ("queue", "q"), ("queue", "r")]
        assert sorted({row[:2] for row in found["buckets"]}) == [*stores, ("table", "t"), ("table", "u")]
        assert found["queues"] == {"q": (2, 1), "r": (1, 0)}
        assert found["repositories"] == ("empty", "main", "other")

    def test_an_empty_store_has_no_buckets(self, store: Store) -> None:
        found = asked(store, "digests", bits=4)
        assert (found["buckets"], found["queues"], found["repositories"]) == ((), {}, ("main",))
        assert whole(found) == found["fingerprint"]

    def test_items_of_buckets_are_shown_with_names_digests_and_the_beginning_of_values(self, store: Store) -> None:
        filled(store)
        places = [("graph", "main"), ("table", "t"), ("queue", "q"), ("control", ""), ("graph", "gone"), ("table", "x")]
        wanted = packed(*((*place, bucket) for place in places for bucket in range(4)))
        rows = asked(store, "items", bits=2, buckets=wanted)["rows"]

        message = Message("tx.2", "text/plain", b"kept")
        quad = {line: quads_digest("main", [line]).to_bytes(16, "big") for line in (A, IN_GRAPH)}
        expected = [
            ("control", "", check_item("no-x"), control_digest(Check(*CHECK)).to_bytes(16, "big"), b"no-x"),
            *(("graph", "main", digest, digest, line.encode()) for line, digest in quad.items()),
            ("queue", "q", message_item("q", "tx.2"), message_digest("q", 2, message).to_bytes(16, "big"), b"tx.2"),
            ("table", "t", key_item(b"t\0k"), key_digest(b"t\0k", b"v" * 300), b"k"),
            ("table", "t", key_item(b"t\0l"), key_digest(b"t\0l", b""), b"l"),
        ]
        assert sorted((store_, name, item, digest, text) for store_, name, _, item, digest, text, _ in rows) == sorted(expected)
        assert rows == tuple(sorted(rows))
        assert all(row[2] == bucket_of(row[3], 2) for row in rows)
        values = {row[5]: row[6] for row in rows}
        assert (values[b"k"], values[b"tx.2"], values[A.encode()]) == (b"v" * 256, b"kept", b"")
        assert values[b"no-x"] == b'["key", "t", "x", "absent"]'

    def test_items_of_other_buckets_are_left_out(self, store: Store) -> None:
        filled(store)
        bucket = bucket_of(key_item(b"t\0k"), 16)
        found = asked(store, "items", bits=16, buckets=packed(("table", "t", bucket), ("queue", "r", 0)))
        assert [(row[:3], row[5]) for row in found["rows"]] == [(("table", "t", bucket), b"k")]
        assert found["more"] is False

    def test_of_more_items_than_the_limit_the_first_ones_are_shown(self, store: Store) -> None:
        run(store, [("put", "t", b"%d" % number, b"") for number in range(50)])
        wanted = packed(("table", "t", 0), ("table", "t", 1))
        everything = asked(store, "items", bits=1, buckets=wanted, limit=50)
        assert (len(everything["rows"]), everything["more"]) == (50, False)
        for limit in (1, 7, 49):
            found = asked(store, "items", bits=1, buckets=wanted, limit=limit)
            assert (found["rows"], found["more"]) == (everything["rows"][:limit], True)

    @pytest.mark.parametrize(
        ("kind", "arguments", "reason"),
        [
            ("digests", {"bits": 0}, "bits is a whole number from 1 to 16"),
            ("digests", {"bits": 17}, "bits is a whole number from 1 to 16"),
            ("digests", {"bits": True}, "bits is a whole number from 1 to 16"),
            ("digests", {"limit": 1}, "does not take limit"),
            ("items", {}, "needs the argument 'buckets'"),
            ("items", {"buckets": ()}, "buckets is a list of 1 to 10000"),
            ("items", {"buckets": packed(("table", "t", 0)), "limit": 10_001}, "limit is a whole number from 1 to 10000"),
            ("items", {"buckets": (b"\xc1",)}, "packed"),
            ("items", {"buckets": packed(("table", "t", 4)), "bits": 2}, "0 to 3"),
            ("items", {"buckets": packed(("tables", "t", 0))}, "graph, table, queue, control"),
            ("items", {"buckets": (msgpack.packb([["x"], "t", 0]),)}, "graph, table, queue, control"),
        ],
    )
    def test_what_cannot_be_asked_is_refused(self, store: Store, kind: str, arguments: dict[str, object], reason: str) -> None:
        with pytest.raises(InvalidRequest, match=reason):
            store.read(kind, "", arguments)

    def test_a_walk_is_no_read_of_a_moment_with_others(self, store: Store) -> None:
        wanted = msgpack.packb(("digests", "", {}))
        with pytest.raises(InvalidRequest, match="read 1: 'digests' looks at the whole content"):
            store.read("together", "", {"reads": (wanted,)})

    @pytest.mark.parametrize("kind", ["digests", "items"])
    def test_a_walk_that_nobody_waits_for_ends(self, store: Store, kind: str) -> None:
        run(store, [("put", "t", b"%d" % number, b"") for number in range(600)])
        turns = iter(range(1000))
        arguments: dict[str, object] = {"buckets": packed(("table", "t", 0))} if kind == "items" else {}
        with pytest.raises(TimedOut, match="not looked through in its time"):
            store.read(kind, "", arguments, lambda: next(turns) < 2)

    def test_more_buckets_than_the_limit_are_refused(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        run(store, [("put", "t", b"%d" % number, b"") for number in range(100)])
        monkeypatch.setattr(digests, "BUCKETS_LIMIT", 20)
        with pytest.raises(TooLarge, match="ask with fewer bits"):
            asked(store, "digests", bits=16)
        assert len(asked(store, "digests", bits=4)["buckets"]) <= 16
