"""Standby: what it follows, votes for, prepares and says; in which order; and what it leaves alone."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from brokerha.following.machine import State
from brokerha.master.standby import Standby, StandbyReady
from brokerha.model import states
from brokerha.model.ids import Instant
from brokerha.model.ready import FollowTxQueue, LoadFailed, LoadOpened
from brokerha.model.records import Record, Started, TxPrepared, ViewStarted
from brokerha.model.wire.codec import encode_record
from brokerha.model.wire.messages import Chunk, ChunksWanted, Envelope, Message, SnapshotOffered, SnapshotWanted, StatusRequest
from brokerha.model.wire.process_messages import Candidate, Confirmed, Promote, Replicate, TxAnswer, TxEvents, TxJoin, Vote
from brokerha.replication.role.config import RoleConfig
from brokerha.replication.role.role import Role
from brokerha.replication.role.table import RoleState
from tests.support.logs import memory_log

FAIL_OVER_MS = 1000


class Bench:
    """Backup b1 of m1, which hears its primary of view 10 whose first record it has."""

    def __init__(self, *, is_fed: bool = True) -> None:
        self.ms = 10_000
        self.journal = memory_log("m1", "j")
        self.journal.follow([(1, ViewStarted(10, "m1"))])
        role = Role(RoleConfig("b1", "m1", ("m1", "b1", "b2"), 1, FAIL_OVER_MS), "j", 10, (10, 1), self.now)
        self.standby = Standby(role, self.journal, self.journal.state())
        if is_fed:
            self.feed()
            self.turn()
            self.turn()

    @property
    def now(self) -> Instant:
        return Instant(self.ms, self.ms * 1000)

    def hear(self, message: Message, sender: str = "m1") -> None:
        self.standby.step(Envelope("orders", sender, 0, message), self.now)

    def feed(self, *records: Record, view: int = 10, sender: str = "m1", **fields: Any) -> None:
        first = self.journal.last_number + 1
        items = tuple((number, encode_record(record)) for number, record in enumerate(records, first))
        last = first + len(records) - 1
        values = {"view": view, "previous": (10, first - 1), "items": items, "last_number": last, "journal": "j"}
        self.hear(Replicate(**{**values, **fields}), sender)

    def take(self) -> StandbyReady:
        self.standby.wake(self.now)
        return self.standby.take(self.now)

    def turn(self) -> StandbyReady:
        """A turn with its disk."""
        ready = self.take()
        if ready.records:
            self.journal.follow(ready.records)
            self.standby.followed(ready.records)
        return ready

    def may_vote(self) -> bool:
        return self.standby.role.may_vote

    def said(self, ready: StandbyReady, kind: type[Message]) -> list[Any]:
        return [each.message for each in ready.messages if type(each.message) is kind]


def test_records_are_confirmed_after_they_are_durable() -> None:
    bench = Bench()
    bench.feed(Started(1))
    ready = bench.take()
    assert [number for number, _ in ready.records] == [2]
    assert bench.said(ready, Confirmed) == []
    bench.journal.follow(ready.records)
    bench.standby.followed(ready.records)
    assert bench.standby.role.last == (10, 2)
    assert [word.last for word in bench.said(bench.take(), Confirmed)] == [(10, 2)]


def test_a_vote_comes_with_the_promise_and_from_then_on_the_older_view_is_not_followed() -> None:
    bench = Bench()
    bench.ms += 2 * FAIL_OVER_MS
    for _ in range(10):
        bench.ms += 200
        bench.take()
    bench.hear(Candidate(102, "j", (10, 1)), "b2")
    ready = bench.take()
    assert ready.promise == 102
    assert [vote.is_granted for vote in bench.said(ready, Vote)] == [True]
    bench.feed(Started(1))
    ready = bench.take()
    assert ready.records == ()
    assert [vote.promised for vote in bench.said(ready, Vote)] == [102]


def test_a_transaction_is_prepared_once_its_record_is_durable() -> None:
    bench = Bench()
    bench.hear(TxJoin("t1", 10, "queue"))
    assert FollowTxQueue("queue") in bench.turn().tx_queues
    body = b"\x90"
    bench.hear(TxEvents("t1", 10, 0, (("begin", b""), ("prepare", hashlib.sha256(body).digest()))))
    assert bench.said(bench.turn(), TxAnswer) == []
    bench.feed(TxPrepared("t1", "", b"", ("b1",), 0))
    ready = bench.take()
    assert bench.said(ready, TxAnswer) == []
    assert [record for _, record in ready.records] == [TxPrepared("t1", "", body, ("b1",), 0)]
    bench.journal.follow(ready.records)
    bench.standby.followed(ready.records)
    assert [answer.answer for answer in bench.said(bench.take(), TxAnswer)] == ["prepared"]


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        (SnapshotWanted("s"), SnapshotOffered("s", "", 0, "", 0, 0, (), "b1 is not primary")),
        (ChunksWanted("s", (3, 4)), Chunk("s", 3, b"", is_gone=True)),
        (ChunksWanted("s", ()), Chunk("s", 0, b"", is_gone=True)),
    ],
)
def test_it_gives_no_snapshots(message: Message, answer: Message) -> None:
    bench = Bench()
    bench.hear(message, "b2")
    assert answer in [each.message for each in bench.take().messages]


def test_what_strangers_say_and_what_is_not_for_it_is_ignored() -> None:
    bench = Bench()
    bench.hear(Promote(is_forced=True), "m2")
    bench.hear(StatusRequest("r"))
    assert bench.take().change is None


def test_a_word_of_the_primary_makes_it_primary_by_the_votes_of_others_or_by_force() -> None:
    bench = Bench()
    bench.hear(Promote(is_forced=False))
    view = bench.said(bench.take(), Candidate)[0].view
    bench.hear(Vote(view, is_granted=True, promised=view, last=(10, 1)), "b2")
    ready = bench.take()
    assert (ready.promise, ready.change and ready.change.state) == (view, RoleState.PRIMARY)

    bench = Bench()
    bench.hear(Promote(is_forced=True))
    ready = bench.take()
    assert (ready.promise > 10, ready.change and ready.change.state) == (True, RoleState.PRIMARY)


def test_what_the_journal_may_forget_is_said_once() -> None:
    bench = Bench()
    bench.feed(floor=7)
    assert bench.take().floor == 7
    assert bench.take().floor is None
    bench.feed(floor=7)
    assert bench.take().floor is None
    bench.feed(floor=8)
    assert bench.take().floor == 8


def test_in_idle_mode_it_follows_nobody_until_a_primary_is_declared() -> None:
    bench = Bench()
    bench.standby.role.pause("lost its backups", until_declared=True)
    ready = bench.take()
    assert ready.change is not None
    assert ready.change.state is RoleState.IDLE
    bench.feed(Started(1))
    assert bench.take().records == ()
    assert bench.standby.state(bench.now) == (states.IDLE, "lost its backups")
    bench.feed(ViewStarted(22, "b2"), view=22, sender="b2")
    assert [number for number, _ in bench.turn().records] == [2]
    assert bench.standby.role.state is RoleState.STANDBY


def test_a_loaded_journal_is_the_one_that_counts_for_votes_and_for_following() -> None:
    bench = Bench()
    bench.feed(journal="k")
    bench.turn()
    assert bench.standby.state(bench.now)[0] == states.JOINING
    assert bench.standby.follower.loading is not None
    bench.standby.wake(bench.now)
    assert not bench.may_vote()
    other = memory_log("m1", "k")
    other.follow([(1, ViewStarted(10, "m1")), (2, Started(1))])
    bench.standby.answer(LoadOpened("k", 2, "", 0), other, other.state(), bench.now)
    bench.journal = other
    assert (bench.standby.role.last, bench.standby.role.journal) == ((10, 2), "k")
    bench.standby.wake(bench.now)
    assert bench.may_vote()
    bench.feed(Started(2), journal="k")
    assert [number for number, _ in bench.turn().records] == [3]


def test_an_answer_of_the_disk_that_nobody_waits_for_changes_nothing() -> None:
    bench = Bench()
    bench.standby.answer(LoadFailed("no space"), bench.journal, None, bench.now)
    bench.standby.answer(LoadOpened("j", 1, "", 0), bench.journal, None, bench.now)
    assert bench.standby.follower.state in (State.BASIC, State.REQUEST)


def test_its_state_says_what_it_waits_for() -> None:
    bench = Bench(is_fed=False)
    state, reason = bench.standby.state(bench.now)
    assert (state, "b1 needs 2 votes of 3 processes" in reason) == (states.WAITING_FOR_PRIMARY, True)
    bench = Bench()
    assert bench.standby.state(bench.now)[0] == states.CATCHING_UP
    bench.feed(is_ready=True)
    assert bench.standby.state(bench.now) == (states.READY, "")
    bench.ms += FAIL_OVER_MS
    assert bench.standby.state(bench.now)[0] == states.WAITING_FOR_PRIMARY


def test_it_wants_to_be_woken_in_its_time_and_not_at_once() -> None:
    bench = Bench()
    for _ in range(50):
        bench.turn()
        due_ms = bench.standby.deadline_ms()
        assert due_ms is not None
        assert due_ms > bench.ms
        bench.ms = due_ms
