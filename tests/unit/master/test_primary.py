"""Primary: what it takes in, what it lets out, when it says that it takes no writes, and when it is over."""

from __future__ import annotations

from typing import Any

import pytest

from brokerha.master.primary import IDLE_AFTER, Primary
from brokerha.model.ids import Instant
from brokerha.model.ready import MakeSnapshot, Ready, SnapshotMade
from brokerha.model.records import Record, Started, TxPrepared, ViewStarted
from brokerha.model.requests import REFUSED, UNKNOWN, Reply
from brokerha.model.wire.messages import Chunk, Envelope, Message, Outgoing, SnapshotOffered, SnapshotWanted, StatusRequest
from brokerha.model.wire.process_messages import Candidate, Confirmed, Promote, RecordsMissing, Replicate, TxJoin, Vote
from brokerha.replication.role.config import RoleConfig
from brokerha.replication.role.role import Role
from brokerha.replication.role.table import RoleState
from tests.support.logs import memory_log

TIMEOUT_MS = 2000
FAIL_OVER_MS = 1000


class Bench:
    """A primary m1 of view 10 with backups b1 and b2, whose journal has its `ViewStarted`."""

    def __init__(self, *, goes_idle: bool = False, sync_n: int = 1) -> None:
        self.ms = 10_000
        self.journal = memory_log("m1", "j")
        config = RoleConfig("m1", "m1", ("m1", "b1", "b2"), sync_n, FAIL_OVER_MS)
        role = Role(config, "j", 0, (1, 0), self.now)
        role.wake(self.now)
        for sender in ("b1", "b2"):
            role.on_vote(sender, Vote(10, is_granted=True, promised=10, last=(1, 0)), self.now)
        assert role.take(self.now).change is not None
        self.journal.append([ViewStarted(10, "m1")])
        self.primary = Primary(role, self.journal, self.journal.state(), sync_timeout_ms=TIMEOUT_MS, goes_idle=goes_idle)
        self.primary.role.moved((10, 1))

    @property
    def now(self) -> Instant:
        return Instant(self.ms, self.ms * 1000)

    def write(self, *records: Record, ready: Ready | None = None, messages: tuple[Outgoing, ...] = ()) -> None:
        """A turn of the core."""
        self.journal.append(records)
        self.primary.note(self.journal.last_number - len(records) + 1, records)
        self.primary.hold(self.journal.last_number, ready or Ready(), messages, self.now)

    def hear(self, message: Message, sender: str = "b1") -> None:
        self.primary.step(Envelope("orders", sender, 0, message), self.now)

    def confirm(self, number: int | None = None, sender: str = "b1", **fields: Any) -> None:
        number = self.journal.last_number if number is None else number
        word = {"view": 10, "journal": "j", "last": (10, number), "follows": "basic", **fields}
        self.hear(Confirmed(**word), sender)

    def is_over(self) -> bool:
        return self.primary.change is not None

    def pass_ms(self, ms: int) -> None:
        self.ms += ms
        self.primary.wake(self.now)


def accepted(ticket: int) -> Reply:
    return Reply(ticket, f"t{ticket}", "accepted")


def test_it_takes_what_the_other_processes_of_its_master_say_and_nothing_else() -> None:
    primary = Bench().primary
    ours = Confirmed(10, "j", (10, 1), "basic")
    assert primary.takes(Envelope("orders", "b1", 0, ours))
    for sender, message in (
        ("m2", ours),
        ("w1", SnapshotWanted("s")),
        ("m1", ours),
        ("b1", StatusRequest("r")),
        ("b1", TxJoin("t", 10, "q")),
    ):
        assert not primary.takes(Envelope("orders", sender, 0, message)), (sender, message)


def test_what_a_turn_tells_leaves_once_a_backup_holds_its_last_record() -> None:
    bench = Bench()
    told = Outgoing("m2", StatusRequest("r"))
    bench.write(Started(1), ready=Ready(replies=(accepted(1),)), messages=(told,))
    assert bench.primary.role.last == (10, 2)
    assert bench.primary.take(bench.now).replies == ()
    bench.confirm(1)
    assert bench.primary.take(bench.now).replies == ()
    bench.confirm(2)
    out = bench.primary.take(bench.now)
    assert (out.replies, out.released) == ((accepted(1),), (told,))
    assert bench.primary.take(bench.now).replies == ()


@pytest.mark.parametrize(
    "word",
    [{"view": 9}, {"journal": "k"}, {"last": (9, 2)}, {"follows": "load"}],
    ids=["another view", "another journal", "another record", "it loads"],
)
def test_only_a_confirmation_of_these_very_records_in_this_view_lets_anything_out(word: dict[str, Any]) -> None:
    bench = Bench()
    bench.write(Started(1), ready=Ready(replies=(accepted(1),)))
    bench.confirm(sender="b1", **word)
    released = bench.primary.take(bench.now).replies
    assert released == (() if "follows" not in word else (accepted(1),))


def test_what_a_backup_confirmed_counts_no_longer_when_it_has_lost_its_journal() -> None:
    bench = Bench(sync_n=1)
    bench.confirm(1)
    bench.write(Started(1), ready=Ready(replies=(accepted(1),)))
    for _ in range(2):
        bench.confirm(0, journal="new", last=(1, 0))
    bench.primary.take(bench.now)
    assert bench.primary.gate.missing(1) == ("b1", "b2")
    assert bench.primary.metrics(bench.now)["held_replies"] == 1


def test_refusals_do_not_wait_for_backups() -> None:
    bench = Bench()
    refused = Reply(1, "t1", REFUSED, 0, "ReadOnly", "no")
    bench.write(Started(1), ready=Ready(replies=(refused, accepted(2))))
    assert bench.primary.take(bench.now).replies == (refused,)


def test_after_the_timeout_replies_become_unknown_and_it_says_who_is_missing_until_they_are_back() -> None:
    bench = Bench()
    bench.write(Started(1), ready=Ready(replies=(accepted(1),)))
    assert bench.primary.withheld(bench.now) == ""
    bench.pass_ms(TIMEOUT_MS)
    (reply,) = bench.primary.take(bench.now).replies
    assert (reply.ticket, reply.status) == (1, UNKNOWN)
    assert "missing: b1, b2" in bench.primary.withheld(bench.now)
    bench.confirm(sender="b2")
    assert bench.primary.withheld(bench.now) == ""


def test_one_that_goes_idle_steps_down_after_twice_the_timeout() -> None:
    bench = Bench(goes_idle=True)
    bench.write(Started(1))
    bench.pass_ms(IDLE_AFTER * TIMEOUT_MS - 1)
    bench.primary.take(bench.now)
    assert not bench.is_over()
    bench.pass_ms(1)
    bench.primary.take(bench.now)
    assert bench.primary.change is not None
    assert bench.primary.change.state is RoleState.IDLE
    assert "missing: b1, b2" in bench.primary.change.reason


def test_a_higher_view_ends_it_and_nothing_is_told_any_more() -> None:
    bench = Bench()
    bench.write(Started(1), ready=Ready(replies=(accepted(1),)))
    bench.confirm()
    bench.hear(Candidate(21, "j", (10, 2)), "b1")
    bench.hear(Replicate(21, (0, 0), (), 0, "j"), "b1")
    out = bench.primary.take(bench.now)
    assert bench.primary.change is not None
    assert bench.primary.change.state is RoleState.STANDBY
    assert (out.replies, out.released) == ((), ())


def test_a_vote_comes_with_the_promise_that_has_to_be_durable_first() -> None:
    bench = Bench()
    bench.pass_ms(10 * FAIL_OVER_MS)
    bench.hear(Candidate(21, "j", (10, 1), is_by_hand=True), "b1")
    out = bench.primary.take(bench.now)
    assert out.promise == 21
    assert [each.message.is_granted for each in out.messages if isinstance(each.message, Vote)] == [True]


def test_a_silent_one_sends_no_heartbeat_releases_nothing_and_votes() -> None:
    bench = Bench()
    bench.write(Started(1), ready=Ready(replies=(accepted(1),)))
    bench.confirm()
    bench.hear(Candidate(22, "j", (1, 0)), "b2")
    out = bench.primary.take(bench.now, is_silent=True)
    assert {type(each.message) for each in out.messages} == {Vote}
    assert (out.replies, out.released, out.decisions) == ((), (), ())
    assert bench.primary.take(bench.now).replies == (accepted(1),)


# ---- hand over


def test_it_hands_over_once_the_successor_holds_everything_and_takes_no_writes_until_then() -> None:
    bench = Bench()
    bench.confirm()
    assert bench.primary.hand_over("b1", bench.now) == ""
    bench.write(Started(1))
    assert bench.primary.withheld(bench.now) == "b1 is about to become primary"
    bench.pass_ms(1)
    bench.primary.take(bench.now)
    assert not bench.is_over()
    bench.confirm()
    bench.pass_ms(1)
    out = bench.primary.take(bench.now)
    assert bench.primary.change is not None
    assert bench.primary.change.reason == "handed over to b1"
    assert out.messages[-1] == Outgoing("b1", Promote(is_forced=False))


def test_a_successor_that_does_not_get_there_is_given_up() -> None:
    bench = Bench()
    bench.confirm()
    bench.primary.hand_over("b1", bench.now)
    bench.write(Started(1))
    bench.pass_ms(FAIL_OVER_MS)
    bench.primary.take(bench.now)
    assert (bench.primary.change, bench.primary.withheld(bench.now)) == (None, "")


@pytest.mark.parametrize(
    ("successor", "text"),
    [("b2", "b2 is not ready (joining, not heard yet)"), ("b9", "b9 is not ready (no backup)"), ("m1", "(no backup)")],
)
def test_nothing_is_handed_over_to_one_that_is_not_ready(successor: str, text: str) -> None:
    bench = Bench()
    bench.confirm()
    assert text in bench.primary.hand_over(successor, bench.now)
    assert bench.primary.withheld(bench.now) == ""


# ---- transactions, snapshots, numbers


def test_a_backup_that_joins_takes_part_in_what_is_open_and_waits_for_what_is_closed() -> None:
    bench = Bench()
    bench.primary.on_transactions(["t1", "t2"])
    bench.write(TxPrepared("t1", "", b"body", (), 0))
    assert bench.primary.feed.take_part() == ()
    bench.confirm()
    assert bench.primary.feed.ready() == ()
    assert bench.primary.feed.take_part() == ("b1",)
    assert bench.primary.feed.ready() == ("b1",)


def test_a_backup_waits_for_the_record_of_what_was_closed_without_it_also_when_that_is_decided() -> None:
    bench = Bench()
    bench.primary.on_transactions(["t1"])
    bench.confirm()
    bench.write(TxPrepared("t1", "", b"body", (), 0))
    bench.primary.on_transactions([])
    assert bench.primary.feed.ready() == ()
    bench.confirm()
    assert bench.primary.feed.ready() == ("b1",)


def test_a_backup_gets_a_snapshot_of_the_journal_when_it_asks_for_one() -> None:
    bench = Bench()
    bench.hear(SnapshotWanted("s"))
    out = bench.primary.take(bench.now)
    assert out.decisions == (MakeSnapshot("s"),)
    bench.primary.answer(SnapshotMade("s", 1, "", 0, 64, (("journal", 1, b"x" * 32),), ""), bench.now)
    offers = [each.message for each in bench.primary.take(bench.now).messages if isinstance(each.message, SnapshotOffered)]
    assert [(offer.snapshot, offer.lsn) for offer in offers] == [("s", 1)]


def test_what_only_a_standby_understands_is_left_alone() -> None:
    bench = Bench()
    bench.primary.take(bench.now)
    for message in (RecordsMissing(1, 2, 1), Chunk("s", 0, b""), Promote(is_forced=True)):
        bench.hear(message)
    assert bench.primary.take(bench.now).messages == ()


def test_backups_are_shown_with_their_state_lag_and_reason() -> None:
    bench = Bench()
    bench.confirm(free_bytes=7)
    bench.write(Started(1))
    rows = [(row.node, row.state, row.reason, row.lag_records, row.free_bytes) for row in bench.primary.feed.rows()]
    assert rows == [("b1", "ready", "", 1, 7), ("b2", "joining", "not heard yet", 2, 0)]
    numbers = bench.primary.metrics(bench.now)
    assert (numbers["view"], numbers["sync_n"], numbers["backups_ready"], numbers["journal_last_number"]) == (10, 1, 1, 2)
    assert (numbers["backup_lag_records", "b1"], numbers["backup_ready", "b2"]) == (1, False)


def test_it_wants_to_be_woken_in_its_time_and_not_at_once() -> None:
    bench = Bench()
    for _ in range(20):
        bench.confirm()
        bench.primary.wake(bench.now)
        bench.primary.take(bench.now)
        due_ms = bench.primary.deadline_ms()
        assert due_ms is not None
        assert due_ms > bench.ms
        bench.ms = due_ms
