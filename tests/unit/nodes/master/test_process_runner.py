"""ProcessRunner: what the runner of a primary does while its journal fails, and when it shows what its journal holds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from brokerha.master.config import MasterConfig
from brokerha.model import states
from brokerha.model.errors import JournalFull
from brokerha.model.ids import Instant
from brokerha.model.operations import pack_operations
from brokerha.model.ready import FollowTxQueue, LeaveTxQueue, TxQueueDecision
from brokerha.model.requests import ACCEPTED, SYNCHRONISED, Reply, Submit, TxCommand, TxReply
from brokerha.model.wire.epoch_messages import Leave
from brokerha.model.wire.messages import Envelope, Outgoing
from brokerha.model.wire.process_messages import Candidate, Confirmed, Replicate, TxJoin, Vote
from brokerha.nodes.master.address_book import AddressBook, AddressedTransport
from brokerha.nodes.master.process_runner import ProcessConfig, ProcessRunner
from brokerha.nodes.master.runner import RETRY_MS, MasterRunner
from brokerha.replication.journal.backups import READY, BackupRow
from brokerha.replication.role.config import RoleConfig
from brokerha.sync.config import SyncConfig
from tests.support.logs import disk_of, memory_copy, memory_log

BODY = pack_operations([("put", "t", b"k", b"v")])


class Wire:
    """Takes what is sent, gives what a test puts into it."""

    def __init__(self) -> None:
        self.sent: list[Outgoing] = []
        self.arrived: list[Envelope] = []
        self.queues: list[TxQueueDecision] = []

    def tx_queue(self, decision: TxQueueDecision) -> None:
        self.queues.append(decision)

    def send(self, outgoing: list[Outgoing]) -> None:
        self.sent += outgoing

    def receive(self, _limit: int, _timeout_ms: int) -> list[Envelope]:
        arrived, self.arrived = self.arrived, []
        return arrived


class Door:
    """Nothing is loaded here."""

    def begin(self, decision: object) -> None:
        raise AssertionError(decision)

    def finished(self) -> list[Any]:
        return []


class Bench:
    """The first process of a master with one backup, which a test plays."""

    def __init__(self, *members: str) -> None:
        """``members``: other masters, which say nothing."""
        self.ms = 1_000
        self.replies: list[Reply] = []
        self.wire = Wire()
        copy = memory_copy("m1", "journal-of-m1")
        self.journal = copy.journal
        wire: Any = self.wire
        self.runner = ProcessRunner(
            ProcessConfig(MasterConfig(SyncConfig("m1", ("m1", *members))), RoleConfig("m1", "m1", ("m1", "m1-b"), 1)),
            copy,
            AddressedTransport(wire, AddressBook(["m1", *members])),
            self,
            Door(),
            on_reply=self.replies.append,
        )
        self.turn()
        view = next(each.message.view for each in self.wire.sent if isinstance(each.message, Candidate))
        self.hear(Vote(view, is_granted=True, promised=view, last=(1, 0)))
        self.turn()

    def now(self) -> Instant:
        return Instant(self.ms, self.ms * 1_000)

    @property
    def master(self) -> MasterRunner:
        assert self.runner.master is not None
        return self.runner.master

    def hear(self, message: Any) -> None:
        self.wire.arrived.append(Envelope("orders", "m1-b", 0, message))
        self.turn()

    def turn(self, *submits: Submit | TxCommand) -> None:
        self.ms += 1
        self.runner.turn(submits)

    def row(self) -> BackupRow:
        """What the primary says of the backup."""
        assert self.master.primary is not None
        return self.master.primary.feed.rows()[0]

    def confirm(self) -> None:
        """The backup holds everything."""
        view, journal = self.runner.role.view, self.journal.state().journal
        self.hear(Confirmed(view, journal, (view, self.journal.last_number), "basic"))


def test_what_the_journal_holds_is_shown_once_the_backup_holds_it() -> None:
    bench = Bench()
    bench.confirm()
    shown: list[str] = []
    bench.master.when_safe(lambda: shown.append("before"))
    bench.turn(Submit(1, "t1", BODY, ACCEPTED))
    bench.master.when_safe(lambda: shown.append("after"))
    bench.turn()
    assert shown == ["before"]

    bench.confirm()
    assert shown == ["before", "after"]


def test_what_was_not_held_by_a_backup_is_never_shown_by_a_former_primary() -> None:
    bench = Bench()
    bench.confirm()
    shown: list[str] = []
    bench.turn(Submit(1, "t1", BODY, ACCEPTED))
    bench.master.when_safe(lambda: shown.append("after"))

    bench.hear(Replicate(1001, (0, 0), (), 0, "journal-of-m1"))
    assert bench.runner.master is None
    assert shown == []


def test_a_backup_that_begins_anew_after_a_full_disk_leaves_the_queues_that_it_followed() -> None:
    # Given a backup that takes part in a transaction
    bench = Bench()
    bench.hear(Replicate(1001, (0, 0), (), 0, "journal-of-m1"))
    bench.turn()
    bench.hear(TxJoin("t1", 1001, "q1"))
    assert bench.wire.queues == [FollowTxQueue("q1")]

    # When it cannot write a promise, and later can
    disk_of(bench.journal).is_full = True
    bench.hear(Candidate(2001, "journal-of-m1", (1001, 99), is_by_hand=True))
    assert bench.runner.state()[0] == states.DISK_FULL
    disk_of(bench.journal).is_full = False
    bench.ms += 2_000
    bench.turn()

    # Then it follows no queue that it knows nothing of any more
    assert bench.runner.failure is None
    assert bench.wire.queues == [FollowTxQueue("q1"), LeaveTxQueue("q1")]


def test_a_backup_tells_its_primary_what_its_disk_failed_with() -> None:
    # Given a backup that cannot write
    bench = Bench()
    bench.hear(Replicate(1001, (0, 0), (), 0, "journal-of-m1"))
    disk_of(bench.journal).is_full = True
    bench.hear(Candidate(2001, "journal-of-m1", (1001, 99), is_by_hand=True))
    # When it begins anew and hears its primary
    bench.ms += 2_000
    bench.turn()
    bench.wire.sent.clear()
    bench.hear(Replicate(2001, (0, 0), (), 0, "journal-of-m1"))
    # Then its primary can say why
    said = [each.message.reason for each in bench.wire.sent if isinstance(each.message, Confirmed)]
    assert said
    assert all(reason.startswith("disk-full: ") for reason in said)


@pytest.mark.parametrize("stands_by", [False, True])
def test_a_journal_that_fails_slowly_is_left_alone_as_long_as_one_that_fails_at_once(
    monkeypatch: pytest.MonkeyPatch, stands_by: bool
) -> None:
    # Given a primary, or a backup, whose disk is full and whose journal takes five seconds to be read back
    bench = Bench()
    if stands_by:
        bench.hear(Replicate(1001, (0, 0), (), 0, "journal-of-m1"))
    tried: list[int] = []
    told: list[str] = []
    (bench.runner.master or bench.runner).on_failure = told.append

    def fail(_what: object) -> None:
        tried.append(bench.ms)
        bench.ms += 5_000
        raise JournalFull("no space")

    monkeypatch.setattr(type(bench.journal), "promise" if stands_by else "append", lambda _self, what: fail(what))
    # When it has tried to write
    if stands_by:
        bench.hear(Candidate(2001, "journal-of-m1", (1001, 99), is_by_hand=True))
    else:
        bench.turn(Submit(1, "t1", BODY, ACCEPTED))
    # Then in the turn after it says so, instead of trying again
    bench.turn()
    assert bench.runner.state() == ("disk-full", "no space")
    assert len(tried) == 1
    # And it was told once
    assert told == ["disk-full: no space"]


def test_a_backup_tells_its_primary_how_much_space_it_has() -> None:
    bench = Bench()
    bench.wire.sent.clear()
    bench.hear(Replicate(2001, (0, 0), (), 0, "journal-of-m1"))
    bench.turn()
    bench.hear(Replicate(2001, (0, 0), (), 0, "journal-of-m1"))
    said = [each.message.free_bytes for each in bench.wire.sent if isinstance(each.message, Confirmed)]
    assert said[-1] == disk_of(bench.journal).free_bytes() > 0


def test_a_primary_with_a_full_disk_waits_instead_of_turning_round_and_round() -> None:
    bench = Bench()
    bench.confirm()
    disk_of(bench.journal).is_full = True
    bench.turn(Submit(1, "t1", BODY, ACCEPTED))
    assert bench.master.failure
    bench.ms += 900
    bench.runner.turn()

    # A heartbeat to the backup is due; but a primary that cannot write is silent.
    primary = bench.master.primary
    assert primary is not None
    due_ms = primary.deadline_ms()
    assert due_ms is not None
    assert due_ms <= bench.ms
    assert bench.runner.wait_ms() > 0


def test_a_write_that_waits_for_another_master_is_unknown_once_no_backup_has_confirmed_it_in_time() -> None:
    bench = Bench("m2")
    bench.confirm()
    bench.turn(Submit(1, "t1", BODY, SYNCHRONISED, timeout_ms=60_000))
    bench.ms += bench.runner.config.sync_timeout_ms - 100
    bench.turn()
    assert bench.replies == []

    bench.ms += 100
    bench.turn()
    assert [(reply.ticket, reply.error) for reply in bench.replies] == [(1, "OutcomeUnknown")]
    assert "missing: m1-b" in bench.replies[0].reason
    # And when a backup is back nothing is told twice
    bench.confirm()
    bench.turn()
    assert len(bench.replies) == 1


def test_a_backup_that_does_not_answer_a_prepare_is_not_ready_before_it_has_joined_anew() -> None:
    bench = Bench()
    told: list[TxReply] = []
    bench.master.on_tx_reply = told.append
    bench.confirm()
    bench.turn(TxCommand(1, "begin", "1.t"))
    bench.turn(TxCommand(2, "operations", "1.t", {"operations": [["publish", "q", "text/plain", b"x"]]}))
    bench.turn(TxCommand(3, "commit", "1.t", {"level": ACCEPTED}))
    states = []
    for _ in range(12):
        bench.ms += 1_000
        bench.confirm()
        states.append((bench.row().state, bench.row().reason))
    assert (told[-1].ticket, told[-1].error) == (3, "")
    lost = ("joining", "no answer to the prepare of 1.t for 10000 ms")
    assert (states.count(lost), states.count((READY, ""))) == (1, 11)
    assert states[-1] == (READY, "")


def test_a_master_without_backups_that_is_stopped_after_a_full_disk_names_its_present_incarnation() -> None:
    # Given a master whose journal failed, and was read again
    wire: Any = Wire()
    journal, ms = memory_log("m1", "journal-of-m1"), 1_000
    clock: Any = SimpleNamespace(now=lambda: Instant(ms, ms * 1_000))
    runner = MasterRunner(MasterConfig(SyncConfig("m1", ("m1", "m2"))), journal, wire, clock, lambda _reply: None)
    runner.turn()
    before = runner.core.sync.incarnation
    disk_of(journal).is_full = True
    runner.turn([Submit(1, "t1", BODY, ACCEPTED)])
    assert runner.failure is not None
    disk_of(journal).is_full = False
    ms += RETRY_MS
    runner.turn()
    # When it is stopped
    wire.sent.clear()
    runner.leave()
    # Then the others take it for the process that they know: they ignore the end of an earlier one
    assert [(each.to, each.message, each.sender, each.incarnation) for each in wire.sent] == [("m2", Leave(), "m1", before + 1)]
