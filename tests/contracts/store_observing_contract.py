"""What every store must do with reads of an isolated transaction (stores/reads/observing.py); test_stores.py runs it on each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgpack
import pytest

from brokerha.model.errors import Conflict, InvalidRequest
from brokerha.model.etags import etag_of
from brokerha.model.operations import APPLIED, REJECTED, Operation, pack_operations
from brokerha.ports.store import Store
from tests.contracts.store_contract import A, B, quads
from tests.contracts.store_pending_contract import opened, wanted
from tests.contracts.store_queue_contract import execute, publish


class Seen(NamedTuple):
    """The answer to an isolated read."""

    error: str
    answers: list[tuple[str, bytes]]
    demands: list[Operation]


def observe(store: Store, *reads: bytes, seen: Sequence[Operation] = (), **arguments: Any) -> Seen:
    packed = pack_operations(list(seen)) if seen else b""
    answer = store.read("together", "", {"reads": reads, "seen": packed, **arguments})
    error, _, answers, demands = msgpack.unpackb(b"".join(answer.pieces), use_list=False)
    return Seen(error, list(answers), list(msgpack.unpackb(demands, use_list=False)))


class StoreObservingContract:
    """Each read says what it demands: that holds as long as the read would find the same, and no longer than it must."""

    @pytest.fixture(autouse=True)
    def _filled(self, store: Store) -> None:
        operations = [("put", "t", key, key) for key in (b"a", b"b", b"c", b"d")]
        execute(store, "first", publish(b"1"), ("add", "main", quads(A)), *operations, ("create-repository", "other"))

    def test_what_a_key_demands(self, store: Store) -> None:
        found = observe(store, wanted("get", "t", key=b"a"))
        assert found.answers[0][1] == b"a"
        assert found.demands == [("expect-key", "t", b"a", etag_of(b"a"))]

    def test_that_there_is_no_key_is_demanded_as_well(self, store: Store) -> None:
        found = observe(store, wanted("get", "t", key=b"x"))
        assert (found.error, found.demands) == ("NotFound", [("expect-key", "t", b"x", "")])
        execute(store, "second", ("put", "t", b"x", b""))
        with pytest.raises(Conflict):
            observe(store, wanted("get", "t", key=b"a"), seen=found.demands)

    def test_that_there_is_no_repository_is_demanded_as_well(self, store: Store) -> None:
        found = observe(store, wanted("size", "new"))
        assert found.error == "UnknownRepository"
        assert holds(store, found)
        execute(store, "second", ("create-repository", "new"))
        assert not holds(store, found)

    def test_what_the_transaction_wrote_itself_demands_nothing(self, store: Store) -> None:
        found = observe(store, wanted("get", "t", key=b"a"), **opened(("put", "t", b"a", b"own")))
        assert (found.answers[0][1], found.demands) == (b"own", [])

    @pytest.mark.parametrize(
        ("arguments", "inside", "outside"),
        [
            ({"prefix": b""}, b"e", None),
            ({"from": b"b", "to": b"d"}, b"bb", b"d"),
            ({"from": b"b", "to": b"d"}, b"c", b"a"),
            ({"limit": 2}, b"ab", b"bb"),
            ({"limit": 2}, b"b", b"c"),
            ({"limit": 2, "reverse": True}, b"cc", b"b"),
            ({"prefix": b"z"}, b"za", b"y"),
        ],
    )
    def test_a_range_demands_what_it_showed_and_no_more(
        self, store: Store, arguments: dict[str, Any], inside: bytes, outside: bytes | None
    ) -> None:
        found = observe(store, wanted("range", "t", **arguments))
        if outside is not None:
            execute(store, "outside", ("put", "t", outside, b"changed"))
        execute(store, "elsewhere", ("put", "u", inside, b"changed"))
        assert holds(store, found)
        execute(store, "inside", ("put", "t", inside, b"changed"))
        assert not holds(store, found)

    def test_a_key_that_leaves_a_range_is_a_change(self, store: Store) -> None:
        found = observe(store, wanted("range", "t"))
        execute(store, "second", ("delete", "t", b"c"))
        assert not holds(store, found)
        execute(store, "third", ("put", "t", b"c", b"c"))
        assert holds(store, found)

    def test_a_long_range_demands_the_whole_table(self, store: Store) -> None:
        found = observe(store, wanted("range", "t", to=b"b", limit=10_001))
        execute(store, "elsewhere", ("put", "u", b"a", b""))
        assert holds(store, found)
        execute(store, "second", ("put", "t", b"z", b""))
        assert not holds(store, found)

    @pytest.mark.parametrize(
        ("kind", "name", "same", "other"),
        [
            ("statements", "main", ("add", "main", quads(B)), ("create-repository", "third")),
            ("size", "main", ("add", "main", quads(B)), ("put", "t", b"a", b"")),
            ("queue", "q", ("publish", "q", "text/plain", b"2"), ("publish", "p", "text/plain", b"")),
            ("queues", "", ("publish", "p", "text/plain", b"2"), None),
            ("repositories", "", ("create-repository", "third"), None),
            ("tables", "", ("put", "v", b"", b""), None),
        ],
    )
    def test_other_reads_demand_their_store(
        self, store: Store, kind: str, name: str, same: Operation, other: Operation | None
    ) -> None:
        found = observe(store, wanted(kind, name))
        if other is not None:
            execute(store, "other", other)
        assert holds(store, found)
        execute(store, "same", same if same[0] != "put" else ("put", "v", b"k", b""))
        assert not holds(store, found)

    def test_reads_of_several_moments_are_of_the_last_one(self, store: Store) -> None:
        first = observe(store, wanted("get", "t", key=b"a"))
        execute(store, "second", ("put", "t", b"b", b"2"))
        # What the first read found has not changed: both are of now.
        second = observe(store, wanted("get", "t", key=b"b"), seen=first.demands)
        assert second.answers[0][1] == b"2"
        execute(store, "third", ("put", "t", b"a", b"3"), ("put", "t", b"b", b"3"))
        with pytest.raises(Conflict, match=r"^conflict: key 'a' of table 't'"):
            observe(store, wanted("get", "t", key=b"b"), seen=[*first.demands, *second.demands])

    def test_demands_are_judged_at_the_commit(self, store: Store) -> None:
        found = observe(store, wanted("range", "t", prefix=b"a"), wanted("get", "t", key=b"b"))
        assert [demand[0] for demand in found.demands] == ["expect-range", "expect-key"]
        assert execute(store, "mine", *found.demands, ("put", "t", b"b", b"mine")).outcome == APPLIED
        late = execute(store, "late", *found.demands, ("put", "t", b"b", b"late"))
        assert (late.outcome, late.reason[:21]) == (REJECTED, "conflict: key 'b' of ")

    def test_what_is_no_read_of_a_transaction_is_refused(self, store: Store) -> None:
        with pytest.raises(InvalidRequest, match="looks at the whole content"):
            observe(store, wanted("digests"))
        with pytest.raises(InvalidRequest):
            store.read("together", "", {"reads": [wanted("queues")], "seen": b"\xc1"})


def holds(store: Store, found: Seen) -> bool:
    """Whether what was demanded holds now; asked twice, by a read and by a transaction."""
    try:
        observe(store, wanted("queues"), seen=found.demands)
        answer = True
    except Conflict:
        answer = False
    before = store.applied().fingerprint
    judged = execute(store, f"judge{store.applied().lsn}", *found.demands).outcome == APPLIED
    assert judged is answer
    assert store.applied().fingerprint == before
    return answer
