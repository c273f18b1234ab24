"""What a copy holds, asked for over HTTP bucket by bucket."""

from __future__ import annotations

import msgpack
import pytest

from tests.unit.http.asking import Node


def asked(node: Node) -> tuple[str, dict[str, object]]:
    """Kind and arguments of the last read; what is in an answer is the matter of the stores' own tests."""
    kind, _, arguments, _, _ = node.front.reads[-1]
    return kind, arguments


def test_digests_are_asked_for_with_their_bits(node: Node) -> None:
    answer = node.ask("GET", "/cluster/digests?bits=4")

    assert (answer.status, answer.headers["content-type"], answer.headers["brokerha-lsn"]) == (200, "application/x-msgpack", "0")
    assert msgpack.unpackb(answer.body)
    assert asked(node) == ("digests", {"bits": 4})


def test_digests_without_bits_leave_them_to_the_copy(node: Node) -> None:
    assert node.ask("GET", "/cluster/digests").status == 200
    assert asked(node)[1]["bits"] is None


def test_items_are_asked_for_with_their_buckets(node: Node) -> None:
    wanted = {"bits": 4, "buckets": [["graph", "main", 3], ["table", "t", 0]], "limit": 10}

    answer = node.ask("POST", "/cluster/digests/items", msgpack.packb(wanted))

    assert (answer.status, answer.headers["brokerha-lsn"]) == (200, "0")
    kind, arguments = asked(node)
    assert (kind, arguments["bits"], arguments["limit"]) == ("items", 4, 10)
    assert [msgpack.unpackb(bucket) for bucket in arguments["buckets"]] == wanted["buckets"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "body", [b"", b"\xc1", msgpack.packb([]), msgpack.packb({"bits": 3}), msgpack.packb({"buckets": [], "lsn": 3})]
)
def test_what_names_no_buckets_is_refused_with_what_to_write(node: Node, body: bytes) -> None:
    answer = node.ask("POST", "/cluster/digests/items", body)

    assert answer.status == 400
    assert '"buckets": [[store, name, bucket]' in answer.text
