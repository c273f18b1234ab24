"""What every store must do with claims of queues; test_stores.py runs it on each. Fixtures as in store_contract.py."""

from __future__ import annotations

import json
from typing import Any

import msgpack
import pytest

from brokerha.model.errors import InvalidRequest
from brokerha.model.etags import etag_of
from brokerha.model.operations import APPLIED, REJECTED, Operation
from brokerha.model.reserved.claims import EMPTY, TABLE, Claims, claimed, packed
from brokerha.ports.store import Store
from brokerha.stores.reads.tables import CLAIMED_BYTES
from tests.contracts.store_contract import logged, read, run
from tests.contracts.store_prepared_contract import prepared, rollback
from tests.contracts.store_queue_contract import queue


def claim(before: Claims, master: str, *ids: str, lsn: int = 7) -> tuple[Claims, list[Operation]]:
    """The row as a master changes it, and the transaction that does."""
    value, after = packed(before), claimed(before, master, ids, lsn)
    return after, [
        ("expect-key", TABLE, b"q", "" if value is None else etag_of(value)),
        ("delete", TABLE, b"q") if packed(after) is None else ("put", TABLE, b"q", packed(after)),
    ]


def look(store: Store, holder: str = "m1", **arguments: Any) -> tuple[list[str], list[str], list[str]]:
    """What a master has claimed, of which of these it gets the message, and the first ones that nobody has."""
    _, ids, found, _ = msgpack.unpackb(read(store, "queue", "q", holder=holder, **arguments))
    return ids, [each[0] for each in found if each[3]], [each[0] for each in found if not each[3]]


class StoreClaimsContract:
    """Tests of the reserved table and of what a master reads of it."""

    def test_who_has_which_message(self, store: Store) -> None:
        ids = [f"tx.{number}" for number in range(1, 9)]
        run(store, [("publish", "q", "text/plain", b"m")] * 8)
        assert look(store) == ([], [], ids)
        row, first = claim(EMPTY, "m1", *ids[:2])
        row, second = claim(row, "m2", *ids[2:4])
        run(store, first, second)
        assert look(store) == (ids[:2], ids[:2], ids[4:])
        assert look(store, "m2", limit=1) == (ids[2:4], ids[2:4], ids[4:5])
        assert look(store, "m3", expired=["m1"], limit=3) == ([], [], [*ids[:2], ids[4]])
        # What was taken, or is prepared to be, is there for nobody.
        run(store, [("accept", "q", ids[0])])
        prepared(store, ("accept", "q", ids[1]), ("accept", "q", ids[4]))
        assert look(store) == ([], [], ids[5:])
        rollback(store)
        assert look(store) == (ids[1:2], ids[1:2], ids[4:])
        assert [each[0] for each in queue(store, "q")] == ids[1:]

    def test_messages_come_in_the_order_of_the_queue_with_the_masters_that_have_others(self, store: Store) -> None:
        run(store, [("publish", "q", "text/plain", b"m")] * 5)
        row, first = claim(EMPTY, "m1", "tx.4", "tx.2")
        row, second = claim(row, "m2", "tx.3")
        run(store, first, second, claim(row, "m3", "tx.9")[1])
        value, ids, found, others = msgpack.unpackb(read(store, "queue", "q", holder="m1"), use_list=False)
        assert (ids, others) == (("tx.2", "tx.4"), ("m2",))
        assert [(each[0], each[3]) for each in found] == [("tx.1", False), ("tx.2", True), ("tx.4", True), ("tx.5", False)]
        assert value == packed(claimed(row, "m3", ["tx.9"], 7))
        assert msgpack.unpackb(read(store, "queue", "q", holder="m1", expired=["m2"]))[3] == []

    def test_large_messages_come_a_few_at_a_time(self, store: Store) -> None:
        body = bytes(CLAIMED_BYTES // 3)
        run(store, [("publish", "q", "text/plain", body), ("publish", "q", "text/plain", body)])
        store.execute(2, [("more", 1, msgpack.packb([("publish", "q", "text/plain", body)] * 3))])
        assert look(store) == ([], [], ["tx.1", "tx.2", "more.1"])
        run(store, claim(EMPTY, "m1", "tx.1", "tx.2", "more.1", "more.2")[1])
        assert look(store) == (["tx.1", "tx.2", "more.1", "more.2"], ["tx.1", "tx.2", "more.1"], ["more.3"])

    def test_of_two_that_claim_upon_the_same_row_the_second_is_rejected(self, store: Store) -> None:
        run(store, [("publish", "q", "text/plain", b"m")])
        results = run(store, claim(EMPTY, "m1", "tx.1")[1], claim(EMPTY, "m2", "tx.1")[1])
        assert [each.outcome for each in results] == [APPLIED, REJECTED]
        assert results[1].reason.startswith("conflict: ")
        assert look(store, "m2") == ([], [], [])

    @pytest.mark.parametrize(
        ("operation", "reason"),
        [
            (("put", TABLE, b"q", b"\xc1"), "map of masters"),
            (("put", TABLE, b"q", msgpack.packb([1])), "map of masters"),
            (("put", TABLE, b"q", msgpack.packb({"m1": 3})), "map of masters"),
            (("put", TABLE, b"q", msgpack.packb({"m1": ("x", ["a.1"])})), "beat"),
            (("put", TABLE, b"q", msgpack.packb({"m1": (1, [2])})), "message ids"),
            (("put", TABLE, b"q", msgpack.packb({"m1": (1, ["a.1"] * 1001)})), "at most 1000"),
            (("put", TABLE, b"\xff", msgpack.packb({})), "name of a queue"),
        ],
    )
    def test_what_no_node_writes_is_rejected(self, store: Store, operation: Operation, reason: str) -> None:
        # No client packs such a body.
        (result,) = store.execute(1, [("tx", 1_000_000, msgpack.packb([operation]))])
        assert result.outcome == REJECTED
        assert reason in result.reason

    def test_another_store_that_applies_the_log_has_the_same(self, store: Store, other: Store) -> None:
        row, first = claim(EMPTY, "m1", "tx.1")
        other.apply(1, logged(run(store, [("publish", "q", "text/plain", b"m")] * 2, first, claim(row, "m2", "tx.2")[1])))
        assert look(other, "m2") == look(store, "m2") == (["tx.2"], ["tx.2"], [])
        assert other.applied() == store.applied() == other.recompute()

    def test_their_table_is_no_table_of_a_user(self, store: Store) -> None:
        run(store, claim(EMPTY, "m1", "tx.1")[1])
        for kind, arguments in (("get", {"key": b"q"}), ("range", {})):
            with pytest.raises(InvalidRequest, match="brokerha's own"):
                read(store, kind, TABLE, **arguments)
        assert json.loads(read(store, "tables")) == []
