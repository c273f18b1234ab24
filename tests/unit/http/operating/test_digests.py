"""What a copy holds, asked for over HTTP bucket by bucket."""

from __future__ import annotations

import msgpack
import pytest

from tests.unit.http.asking import Node


def test_digests_are_asked_for_with_their_bits(node: Node) -> None:
    answer = node.ask("GET", "/cluster/digests?bits=4")

    assert (answer.status, answer.headers["content-type"]) == (200, "application/x-msgpack")
    assert msgpack.unpackb(answer.body) == {"lsn": 0, "kind": "digests", "bits": 4}


def test_digests_without_bits_leave_them_to_the_copy(node: Node) -> None:
    assert msgpack.unpackb(node.ask("GET", "/cluster/digests").body)["bits"] is None


def test_items_are_asked_for_with_their_buckets(node: Node) -> None:
    wanted = {"bits": 4, "buckets": [["graph", "main", 3], ["table", "t", 0]], "limit": 10}

    answer = node.ask("POST", "/cluster/digests/items", msgpack.packb(wanted))

    assert (answer.status, answer.headers["brokerha-lsn"]) == (200, "0")
    found = msgpack.unpackb(answer.body)
    assert [msgpack.unpackb(bucket) for bucket in found.pop("buckets")] == wanted["buckets"]
    assert found == {"lsn": 0, "kind": "items", "bits": 4, "limit": 10}


@pytest.mark.parametrize(
    "body", [b"", b"\xc1", msgpack.packb([]), msgpack.packb({"bits": 3}), msgpack.packb({"buckets": [], "lsn": 3})]
)
def test_what_names_no_buckets_is_refused_with_what_to_write(node: Node, body: bytes) -> None:
    answer = node.ask("POST", "/cluster/digests/items", body)

    assert answer.status == 400
    assert '"buckets": [[store, name, bucket]' in answer.text
