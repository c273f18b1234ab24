"""Isolated transactions at their coordinator: what they have read is a part of what they commit."""

from __future__ import annotations

import msgpack
import pytest

from brokerha.model.errors import CONFLICT, InvalidRequest, TooLarge
from brokerha.model.ids import TxId
from brokerha.model.operations import BODY_LIMIT_BYTES, Checked, Operation, pack_operations, unpack_operations
from brokerha.model.outside.isolation import ISOLATIONS, SERIALIZABLE, SNAPSHOT
from brokerha.transactions import transaction
from brokerha.transactions.transaction import ReadSet
from tests.unit.transactions.bench import TxBench

KEY: Operation = ("expect-key", "t", b"a", "")
OTHER: Operation = ("expect-key", "t", b"b", "")
RANGE: Operation = ("expect-range", "t", b"m", b"p", bytes(16))
TO_THE_END: Operation = ("expect-range", "u", b"m", b"", bytes(16))
GRAPH: Operation = ("expect-since", "graph", "main", 7)
TABLE: Operation = ("expect-since", "table", "v", 7)
QUEUE: Operation = ("expect-since", "queue", "q", 7)
ALL: Operation = ("expect-fingerprint", f"1:{'0' * 32}")
FOUND = [KEY, OTHER, RANGE, TO_THE_END, GRAPH, TABLE, QUEUE, ALL]


def demanded(level: str, *operations: Operation) -> list[Operation]:
    reads = ReadSet(level)
    reads.add(FOUND)
    return [msgpack.unpackb(piece, use_list=False) for piece in reads.demands([msgpack.packb(each) for each in operations])]


def test_serializable_demands_all_that_was_read() -> None:
    assert demanded(SERIALIZABLE) == demanded(SERIALIZABLE, ("put", "t", b"a", b"")) == FOUND


@pytest.mark.parametrize(
    ("operation", "wanted"),
    [
        (("put", "t", b"a", b""), [KEY]),
        (("delete", "t", b"b"), [OTHER]),
        (("put", "t", b"m", b""), [RANGE]),
        (("put", "t", b"p", b""), []),
        (("put", "u", b"z", b""), [TO_THE_END]),
        (("put", "v", b"z", b""), [TABLE]),
        (("update", "main", "INSERT DATA { <urn:a> <urn:b> 1 }"), [GRAPH]),
        (("add", "other", "<urn:a> <urn:b> <urn:c> ."), []),
        (("publish", "q", "text/plain", b""), []),
        (("expect-key", "t", b"a", ""), []),
    ],
)
def test_a_snapshot_demands_what_is_written_as_well(operation: Operation, wanted: list[Operation]) -> None:
    assert demanded(SNAPSHOT, operation) == wanted


def test_the_first_of_two_findings_about_the_same_counts() -> None:
    reads = ReadSet(SERIALIZABLE)
    reads.add([GRAPH])
    reads.add([("expect-since", "graph", "main", 9), KEY])
    assert [msgpack.unpackb(piece, use_list=False) for piece in reads.pieces()] == [GRAPH, KEY]
    assert reads.size == sum(map(len, reads.pieces()))


def test_findings_are_expectations_and_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = ReadSet(SERIALIZABLE)
    with pytest.raises(InvalidRequest, match="demands nothing of the kind 'put'"):
        reads.add([("put", "t", b"a", b"")])
    monkeypatch.setattr(transaction, "READS_LIMIT", 1)
    reads.add([KEY, KEY])
    with pytest.raises(TooLarge):
        reads.add([OTHER])


@pytest.mark.parametrize("backups", [(), ("b1", "b2")])
def test_demands_follow_the_operations_and_participants_have_them(
    backups: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = TxBench(backups=backups, sync_n=len(backups) and 1, seed=3)
    txid = bench.begin(isolation=SERIALIZABLE)
    bench.ask("operations", txid, operations=[("put", "t", b"a", b"1")])
    assert bench.ask("pending", txid).answer["seen"] == b""
    bench.ask("saw", txid, found=[KEY])
    bench.ask("saw", txid, found=[KEY, GRAPH])
    assert unpack_operations(bench.ask("pending", txid).answer["seen"]) == [KEY, GRAPH]
    bench.ask("operations", txid, first=1, operations=[("put", "t", b"b", b"2")])
    bodies: dict[str, list[Checked]] = {}

    def execute(name: TxId, body: bytes) -> str:
        bodies[name] = unpack_operations(body)
        return ""

    monkeypatch.setattr(bench.worker.queues, "execute", execute)
    commit = bench.ask("commit", txid, level="accepted")
    assert (commit.error, commit.answer.get("state")) == ("", "committed")
    # Answered when it was judged, whatever level was asked for.
    assert commit.answer["lsn"] > 0
    assert bodies == {txid: [("put", "t", b"a", b"1"), ("put", "t", b"b", b"2"), KEY, GRAPH]}


def test_findings_for_which_there_is_no_room_are_refused_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a transaction that is nearly as large as one may be
    bench = TxBench(backups=(), sync_n=0, seed=3)
    value = bytes(BODY_LIMIT_BYTES - 2_000)
    txid = bench.begun([("put", "t", b"a", value)], isolation=SERIALIZABLE)
    bench.ask("saw", txid, found=[KEY])
    # When it reads more than fits beside
    for letter in (b"b", b"c"):
        found = [("expect-key", "t", letter + bytes([n]) * 300, "") for n in range(10)]
        assert bench.ask("saw", txid, found=found).error == "TooLarge"
    # Then it goes on as it was: a larger body could not travel to the other masters, and would hold up their writes
    assert unpack_operations(bench.ask("pending", txid).answer["seen"]) == [KEY]
    monkeypatch.setattr(bench.worker.queues, "execute", lambda _name, _body: "")
    assert bench.ask("commit", txid).answer["state"] == "committed"
    assert bench.journal.body("m1", txid) == pack_operations([("put", "t", b"a", value), KEY])


@pytest.mark.parametrize("backups", [(), ("b1", "b2")])
def test_findings_count_among_the_bytes_of_open_transactions(backups: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a transaction that has read more than half of what all together may hold
    bench = TxBench(backups=backups, sync_n=len(backups) and 1, seed=3, bytes_limit=1_000)
    monkeypatch.setattr(bench.worker.queues, "execute", lambda _name, _body: "")
    found: list[Operation] = [("expect-key", "t", bytes([letter]) * 300, "") for letter in b"bc"]
    first, second = bench.begin(isolation=SNAPSHOT), bench.begin(isolation=SERIALIZABLE)
    bench.ask("saw", first, found=found)
    # When another one reads as much, it is refused
    assert bench.ask("saw", second, found=found).error == "NotReady"
    assert bench.ask("pending", second).answer["seen"] == b""
    # Until the first one is over, also when its commit carries none of its findings, or a client rolls back
    bench.ask("operations", first, operations=[("put", "t", b"a", b"1")])
    assert bench.ask("commit", first).answer["state"] == "committed"
    assert not bench.ask("saw", second, found=found).error
    bench.ask("rollback", second)
    third = bench.begin(isolation=SNAPSHOT)
    assert not bench.ask("saw", third, found=[*found, KEY]).error


def test_a_commit_that_comes_too_late_is_a_conflict() -> None:
    bench = TxBench(backups=(), sync_n=0, seed=3)
    txid = bench.begun([("put", "t", b"a", b"1")], isolation=SERIALIZABLE)
    bench.ask("saw", txid, found=[KEY])
    bench.worker.rejects[txid] = f"{CONFLICT}key 'a' of table 't' was changed"
    reply = bench.ask("commit", txid)
    assert (reply.error, reply.reason) == ("Conflict", bench.worker.rejects[txid])
    again = bench.ask("commit", txid)
    assert again.error == "Conflict"


def test_what_only_read_is_over_at_once() -> None:
    bench = TxBench(backups=(), sync_n=0, seed=3)
    txid = bench.begin(isolation=SERIALIZABLE)
    bench.ask("saw", txid, found=[KEY])
    assert bench.ask("commit", txid).answer == {"state": "committed", "lsn": 0}


def test_a_transaction_that_is_not_isolated_has_seen_nothing() -> None:
    bench = TxBench(backups=(), sync_n=0, seed=3)
    txid = bench.begin()
    assert "seen" not in bench.ask("pending", txid).answer
    assert bench.ask("saw", txid, found=[KEY]).error == "InvalidRequest"


def test_a_level_that_is_none_is_refused() -> None:
    bench = TxBench(backups=(), sync_n=0, seed=3)
    reply = bench.ask("begin", "x", isolation="dirty")
    assert reply.error == "InvalidRequest"
    assert all(level in reply.reason for level in ISOLATIONS)
