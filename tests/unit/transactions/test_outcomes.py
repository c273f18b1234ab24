"""What is remembered and presumed of transactions that are over, and locks on messages."""

from __future__ import annotations

import msgpack
import pytest

from brokerha.model.errors import ConfigurationError
from brokerha.model.operations import pack_operations
from brokerha.model.records import MasterState
from brokerha.transactions.book import ABORTED, COMMITTED, Finished, Presumption
from brokerha.transactions.config import TxConfig
from brokerha.transactions.locks import Locks, accepted_in_body
from brokerha.transactions.transaction import body_of, digest_of, packed_each


def presumption() -> Presumption:
    """Of a master in its third incarnation, which began at LSN 50; the first began at 0, the second at 20."""
    state = MasterState("0123456789abcdef", incarnation=3, lsn=50, starts=((1, 0), (2, 20)))
    found = Presumption("m1", state)
    found.on_begin("m1.01234567.3.f.t")
    return found


@pytest.mark.parametrize(
    ("txid", "ids_from", "is_over"),
    [
        ("m1.01234567.2.7.t", 21, True),
        ("m1.01234567.2.7.t", 22, False),
        ("m1.01234567.1.7.t", 1, True),
        ("m1.01234567.1.7.t", 2, False),
        ("m1.01234567.3.f.t", 51, True),
        ("m1.01234567.3.10.t", 1, False),
        ("m1.01234567.4.1.t", 1, False),
        ("m1.01234567.2.7", 21, False),
        ("m1.aaaaaaaa.2.7.t", 1, False),
        ("m2.01234567.2.7", 1, False),
        ("my-own-key", 1, False),
        ("m1.01234567.2.t", 1, False),
        ("m1.01234567.x.y.t", 1, False),
    ],
)
def test_a_rollback_is_presumed_only_where_nothing_can_speak_against_it(txid: str, ids_from: int, is_over: bool) -> None:
    assert presumption().is_over(txid, ids_from) is is_over


def test_the_oldest_ends_are_forgotten_first() -> None:
    finished = Finished(2)
    for txid in ("t1", "t2", "t1", "t3"):
        finished.add(txid, ABORTED, txid)
    finished.add("t3", COMMITTED, "again")
    assert (finished.get("t2"), len(finished)) == (None, 2)
    assert [finished.get(txid) for txid in ("t1", "t3")] == [(ABORTED, "t1"), (COMMITTED, "again")]


@pytest.mark.parametrize("count", [1, 15, 16, 65_535, 65_536])
def test_pieces_together_are_the_body_to_the_byte(count: int) -> None:
    operations = [("put", "t", b"k", b"%d" % number) for number in range(count)]
    assert body_of(packed_each(operations)) == pack_operations(list(operations))


def test_digests_tell_bodies_apart() -> None:
    assert digest_of(b"a") != digest_of(b"b")
    assert len(digest_of(b"")) == 32


def test_locks_follow_what_a_body_accepts() -> None:
    body = msgpack.packb([("accept", "q", "m1"), ("publish", "q", "text/plain", b"accept"), ("accept", "p", "m2")])
    assert accepted_in_body(body) == [("q", "m1"), ("p", "m2")]
    assert accepted_in_body(msgpack.packb([("put", "t", b"k", b"v")])) == []


def test_a_lock_is_held_by_one_and_released_with_all_others_of_it() -> None:
    locks = Locks()
    locks.lock("t1", [("q", "a"), ("q", "a"), ("p", "b")])
    assert locks.conflict("t1", [("q", "a")]) is None
    assert locks.conflict("t2", [("q", "x"), ("p", "b")]) == ("p", "b", "t1")
    assert (locks.take("t1", "q", ["a", "c"], 5), locks.has("t1")) == (["c"], True)
    locks.release("t1")
    locks.release("t1")
    assert (len(locks), locks.holder("q", "a"), locks.has("t1"), locks.number_in("q")) == (0, None, False, 0)


def test_a_message_that_was_removed_is_not_given_out_by_a_read_from_before() -> None:
    locks = Locks()
    locks.lock("t1", [("q", "a"), ("q", "b")])
    locks.release("t1", gone_lsn=7)
    assert [list(locks.free("q", ["a", "b", "c"], lsn)) for lsn in (6, 7)] == [["c"], ["a", "b", "c"]]
    locks.lock("t2", [("q", "b")])
    locks.release("t2", gone_lsn=8)
    locks.go_back(7)
    assert list(locks.free("q", ["a", "b"], 6)) == ["b"]


@pytest.mark.parametrize("wrong", [{"lost_backup": "ignore"}, {"timeout_ms": 0}, {"timeout_ms": 3_600_001}, {"open_limit": 0}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError):
        TxConfig(**wrong)  # type: ignore[arg-type]
