"""What every store must do with reads inside of a transaction and with reads of one moment; test_stores.py runs it on each of them.

Fixtures as in store_contract.py. What needs SPARQL is in tests/unit/stores/reads/test_open_reads.py.
"""

from __future__ import annotations

import json
from typing import Any

import msgpack
import pytest

from brokerha.model.errors import InvalidRequest, NotFound, TooLarge, UnknownRepository
from brokerha.model.etags import etag_of
from brokerha.model.operations import BODY_LIMIT_BYTES, Operation, pack_operations
from brokerha.ports.store import Store
from tests.contracts.store_contract import A, B, C, lines, quads, read, rows, run
from tests.contracts.store_queue_contract import accept, counters, execute, ids, publish, queue


def opened(*operations: Operation, txid: str = "open") -> dict[str, Any]:
    """The arguments of a read inside of a transaction with these operations so far."""
    return {"pending": pack_operations(list(operations)), "txid": txid}


def wanted(kind: str, name: str = "", **arguments: object) -> bytes:
    packed: bytes = msgpack.packb((kind, name, arguments))
    return packed


def together(store: Store, *reads: bytes, **arguments: object) -> list[tuple[str, bytes]]:
    answer = store.read("together", "", {"reads": reads, **arguments})
    return [(kind, body) for kind, body in msgpack.unpackb(b"".join(answer.pieces), use_list=False)]


class StorePendingContract:
    """Tests of reads on top of operations that are not executed yet."""

    @pytest.fixture(autouse=True)
    def _filled(self, store: Store) -> None:
        operations = [("put", "t", key, key) for key in (b"a", b"b", b"c", b"d")]
        execute(store, "tx", publish(b"1"), publish(b"2"), ("add", "main", quads(A)), *operations)
        self.standing = store.applied()
        self.filled = store

    @pytest.fixture(autouse=True)
    def _nothing_is_kept(self, _filled: None) -> Any:
        yield
        assert self.filled.recompute() == self.filled.applied() == self.standing
        assert ids(self.filled) == ["tx.1", "tx.2"]
        assert lines(self.filled) == [A]

    def test_keys_show_the_last_operation_on_them(self, store: Store) -> None:
        arguments = opened(("put", "t", b"a", b"1"), ("put", "t", b"a", b"2"), ("delete", "t", b"b"))
        assert read(store, "get", "t", key=b"a", **arguments) == b"2"
        assert read(store, "get", "t", key=b"c", **arguments) == b"c"
        with pytest.raises(NotFound):
            read(store, "get", "t", key=b"b", **arguments)
        assert read(store, "get", "t", key=b"b") == b"b"

    def test_a_range_shows_keys_put_and_not_those_deleted_within_its_limit(self, store: Store) -> None:
        arguments = opened(("put", "t", b"bb", b"new"), ("delete", "t", b"b"), ("put", "t", b"d", b"D"), ("put", "u", b"c", b""))
        found = [(b"a", b"a"), (b"bb", b"new"), (b"c", b"c"), (b"d", b"D")]
        assert rows(store, "t", **arguments) == found
        assert rows(store, "t", reverse=True, **arguments) == found[::-1]
        assert rows(store, "t", limit=2, **arguments) == found[:2]
        assert rows(store, "t", from_=b"b", to=b"d", **arguments) == found[1:3]
        assert rows(store, "u", **arguments) == [(b"c", b"")]

    def test_a_queue_shows_messages_published_and_not_those_accepted(self, store: Store) -> None:
        arguments = opened(publish(b"3"), accept("tx.1"), publish(b"4"), publish(b"5"), accept("open.4"))
        assert queue(store, **arguments) == [
            ("tx.2", "text/plain", b"2"),
            ("open.1", "text/plain", b"3"),
            ("open.3", "text/plain", b"4"),
        ]
        assert ids(store, limit=2, **arguments) == ["tx.2", "open.1"]
        assert ids(store, after="tx.1", **arguments) == ["tx.2", "open.1", "open.3"]
        assert ids(store, after="open.1", **arguments) == ["open.3"]
        assert json.loads(read(store, "queues", **arguments)) == {"q": {"depth": 3, "published": 4, "accepted": 1}}
        assert counters(store) == {"q": [2, 2, 0]}

    def test_what_may_reject_the_transaction_later_is_not_judged(self, store: Store) -> None:
        failing: list[Operation] = [accept("gone.1"), ("expect-key", "t", b"a", etag_of(b"other")), ("control-remove", "none")]
        arguments = opened(*failing, ("put", "t", b"a", b"1"))
        assert read(store, "get", "t", key=b"a", **arguments) == b"1"
        assert ids(store, **arguments) == ["tx.1", "tx.2"]
        assert json.loads(read(store, "queues", **arguments))["q"]["accepted"] == 0

    def test_quads_show_what_was_added_and_removed(self, store: Store) -> None:
        arguments = opened(("add", "main", quads(B, C)), ("remove", "main", quads(A, C)))
        found = read(store, "statements", "main", accept="application/n-quads", **arguments)
        assert found.decode() == quads(B)
        assert read(store, "size", "main", **arguments) == b"1"

    def test_repositories_come_and_go(self, store: Store) -> None:
        made = opened(("create-repository", "r"), ("add", "r", quads(A, B)))
        assert read(store, "size", "r", **made) == b"2"
        gone = opened(("remove-repository", "main"))
        emptied = opened(("remove-repository", "main"), ("create-repository", "main"), ("add", "main", quads(B)))
        for name, arguments in (("main", gone), ("r", gone), ("nowhere", made)):
            with pytest.raises(UnknownRepository):
                read(store, "size", name, **arguments)
        assert read(store, "statements", "main", accept="application/n-quads", **emptied).decode() == quads(B)

    def test_no_operations_are_no_difference(self, store: Store) -> None:
        for nothing in ({"pending": b""}, {"pending": None}, {"pending": b"", "txid": "open"}):
            assert rows(store, "t", **nothing) == rows(store, "t")
            assert ids(store, **nothing) == ["tx.1", "tx.2"]
            assert read(store, "size", "main", **nothing) == b"1"

    @pytest.mark.parametrize(
        "arguments", [{"pending": "text"}, {"pending": b"\xc1"}, {"pending": msgpack.packb([["sing", "q"]])}, {"txid": "a b"}]
    )
    def test_what_is_no_body_of_a_transaction_is_refused(self, store: Store, arguments: dict[str, object]) -> None:
        for kind, more in (("get", {"key": b"a"}), ("range", {}), ("queue", {}), ("size", {})):
            with pytest.raises(InvalidRequest):
                read(store, kind, "main", **more, **arguments)
        with pytest.raises(TooLarge):
            read(store, "queues", pending=bytes(BODY_LIMIT_BYTES + 1))

    def test_reads_together_answer_as_each_alone_and_all_of_one_lsn(self, store: Store) -> None:
        answers = together(
            store,
            wanted("get", "t", key=b"a"),
            wanted("range", "t", limit=2),
            wanted("size", "main"),
            wanted("statements", "main", accept="application/n-quads"),
            wanted("queue", "q", limit=1),
            wanted("queues"),
            wanted("fingerprint"),
            wanted("repositories"),
            wanted("control"),
        )
        assert [kind for kind, _ in answers[:3]] == ["application/octet-stream", "application/x-msgpack", "text/plain"]
        assert [body for _, body in answers] == [
            b"a",
            read(store, "range", "t", limit=2),
            b"1",
            quads(A).encode(),
            read(store, "queue", "q", limit=1),
            read(store, "queues"),
            read(store, "fingerprint"),
            read(store, "repositories"),
            read(store, "control"),
        ]
        assert store.read("together", "", {"reads": [wanted("queues")]}).lsn == self.standing.lsn

    def test_reads_together_show_an_open_transaction_over_all_stores(self, store: Store) -> None:
        arguments = opened(("put", "t", b"a", b"1"), publish(b"3"), ("add", "main", quads(B)), ("create-repository", "r"))
        reads = wanted("get", "t", key=b"a"), wanted("queue", "q", after="tx.2"), wanted("size", "main")
        answers = [body for _, body in together(store, *reads, wanted("size", "r"), **arguments)]
        assert answers == [b"1", msgpack.packb([("open.2", "text/plain", b"3")]), b"2", b"0"]

    def test_one_read_that_fails_fails_all_and_is_named(self, store: Store) -> None:
        good = wanted("queues")
        with pytest.raises(NotFound, match="read 2: there is no such key"):
            together(store, good, wanted("get", "t", key=b"none"))
        with pytest.raises(UnknownRepository, match="repository 'nowhere' does not exist"):
            together(store, good, wanted("size", "nowhere"))
        with pytest.raises(InvalidRequest, match="read 1: a queue name"):
            together(store, wanted("queue", ""))

    @pytest.mark.parametrize(
        "reads",
        [
            None,
            (),
            [wanted("queues")] * 101,
            [b"\xc1"],
            [msgpack.packb(("queues",))],
            [("queues", "", {})],
            [wanted("together", "", reads=[])],
            [wanted("get", "t", key=b"a", pending=b"")],
            [wanted("dance")],
        ],
    )
    def test_reads_together_that_make_no_sense_are_refused(self, store: Store, reads: object) -> None:
        with pytest.raises(InvalidRequest):
            list(store.read("together", "", {"reads": reads}).pieces)

    def test_a_transaction_that_was_read_in_can_be_executed_after_all(self, store: Store, other: Store) -> None:
        operations: list[Operation] = [accept("tx.1"), publish(b"3"), ("delete", "t", b"a"), ("add", "main", quads(B))]
        run(other, [("put", "t", b"k", b"")])
        execute(other, "tx", publish(b"1"), publish(b"2"), ("add", "main", quads(A)), ("put", "t", b"a", b"a"))
        kinds = wanted("queue", "q"), wanted("queues"), wanted("range", "t"), wanted("size", "main")
        inside = together(other, *kinds, **opened(*operations, txid="later"))
        execute(other, "later", *operations)
        assert together(other, *kinds) == inside
