"""Reads of one moment over HTTP."""

from __future__ import annotations

import msgpack
import pytest

from tests.unit.http.asking import Node


def test_several_reads_are_answered_in_their_order_with_one_lsn(node: Node) -> None:
    node.ask("PUT", "/kv/t/k", b"v")
    node.ask("POST", "/queues/q", b"m", {"Content-Type": "text/plain", "Idempotency-Key": "a"})
    wanted = [["queue", "q", {"limit": 5}], ["get", "t", {"key": b"k"}]]

    answer = node.ask("POST", "/together", msgpack.packb(wanted))

    assert (answer.status, answer.headers["brokerha-lsn"]) == (200, "2")
    (queue_type, queue), value = msgpack.unpackb(answer.body)
    assert (queue_type, msgpack.unpackb(queue)) == ("application/x-msgpack", [["a.1", "text/plain", b"m"]])
    assert value == ["application/octet-stream", b"v"]


@pytest.mark.parametrize("body", [b"", b"\xc1", msgpack.packb({"reads": []}), msgpack.packb(7)])
def test_what_is_no_list_is_refused_with_what_to_write(node: Node, body: bytes) -> None:
    answer = node.ask("POST", "/together", body)

    assert answer.status == 400
    assert "a list of [kind, name, arguments]" in answer.text
