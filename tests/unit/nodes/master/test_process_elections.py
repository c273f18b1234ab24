"""ProcessRunner: who becomes primary, who steps down, what is durable before anybody hears of it."""

from __future__ import annotations

import pytest

from brokerha.log.copies import LogCopy
from brokerha.log.log import Log
from brokerha.model.errors import JournalError
from brokerha.model.records import MasterState, Started, ViewStarted
from brokerha.model.requests import ACCEPTED, REFUSED, UNKNOWN, Submit, TxCommand
from brokerha.model.wire.messages import Envelope, Post
from brokerha.model.wire.process_messages import Candidate, Confirmed, Replicate, Vote
from brokerha.nodes.master.runner import RETRY_MS
from tests.support.logs import disk_of
from tests.unit.nodes.process_group import BODY, FAIL_OVER_MS, SYNC_TIMEOUT_MS, Group, Process


def views(process: Process) -> list[int]:
    return [record.view for _, record in process.journal.records() if isinstance(record, ViewStarted)]


# ---- elections


@pytest.mark.parametrize("backups", [1, 2, 3])
def test_at_the_first_start_the_masters_own_process_is_elected_by_all(backups: int) -> None:
    group = Group(backups).elected()
    assert [each.name for each in group.processes.values() if each.acts()] == ["m1"]
    assert group["m1"].changes == [("primary", 10, True)]
    assert {each.journal.state().journal for each in group.processes.values()} == {"journal-of-m1"}
    assert {each.journal.state().promised_view for each in group.processes.values()} == {10}


def test_nobody_is_elected_for_the_first_time_while_one_process_is_missing() -> None:
    group = Group(2)
    group["b2"].is_up = False
    group.run(10 * FAIL_OVER_MS, 50)
    assert not any(each.acts() for each in group.processes.values())
    assert group["m1"].runner.state()[0] == "waiting-for-primary"
    assert "m1 needs 3 votes of 3 processes" in group["m1"].runner.state()[1]


def test_after_all_were_stopped_they_elect_one_again_in_a_higher_view_and_incarnation() -> None:
    group = Group(2).elected()
    group.write(1)
    group.run()
    before = group.primary.master.core.sync.incarnation
    for process in group.processes.values():
        process.start()
    group.elected()
    assert group.primary.master.core.sync.incarnation > before
    assert group.primary.runner.role.view > 10
    assert group.primary.master.core.transacting.outcome("t1", group.now()) is not None


def test_a_backup_takes_over_with_everything_that_was_told_and_the_former_primary_follows_it() -> None:
    group = Group(2).elected()
    group.write(1)
    group.run()
    assert [reply.status for reply in group["m1"].replies] == ["accepted"]
    group["m1"].is_up = False
    group.run(4 * FAIL_OVER_MS)
    new = group.primary
    assert new.name in ("b1", "b2")
    assert new.master.core.transacting.outcome("t1", group.now()) is not None

    group["m1"].start()
    group.run(2 * FAIL_OVER_MS)
    assert not group["m1"].acts()
    assert group["m1"].runner.state() == ("ready", "")
    assert list(group["m1"].journal.records()) == list(new.journal.records())


def test_a_promise_is_durable_before_the_vote_that_reveals_it() -> None:
    group = Group(2).elected()
    group["m1"].is_up = False
    group.run(4 * FAIL_OVER_MS)
    votes = [found for each in group.processes.values() for found in each.sent(Vote) if found[0].is_granted]
    assert len(votes) >= 3
    assert all(promised >= vote.view for vote, promised, _ in votes)


def test_records_are_durable_before_they_are_confirmed() -> None:
    group = Group(2).elected()
    for ticket in range(1, 20):
        group.write(ticket)
    group.run()
    for name in ("b1", "b2"):
        confirmed = group[name].sent(Confirmed)
        assert confirmed[-1][0].last[1] == group["m1"].journal.last_number
        assert all(word.last[1] <= number for word, _, number in confirmed)


def test_a_view_is_durable_before_anything_of_it_is_said() -> None:
    group = Group(1).elected()
    primary = group["m1"]
    records = [record for _, record in primary.journal.records()]
    assert [type(record) for record in records[:2]] == [ViewStarted, Started]
    replicates = primary.sent(Replicate)
    assert replicates[0][2] >= 1
    assert all(promised >= message.view for message, promised, _ in replicates)
    assert primary.points.index("view started") < primary.points.index("written, nothing sent")


# ---- the gate


def test_neither_an_answer_nor_a_message_leaves_before_a_backup_holds_the_record() -> None:
    group = Group(1).elected()
    primary = group["m1"]
    group.run()
    group.lost = {Confirmed}
    said = len([each for each in primary.told() if isinstance(each, Post)])
    group.write(1)
    group.run(SYNC_TIMEOUT_MS // 2)
    assert primary.replies == []
    assert len([each for each in primary.told() if isinstance(each, Post)]) == said

    group.lost.clear()
    group.run()
    assert [(reply.ticket, reply.status) for reply in primary.replies] == [(1, "accepted")]
    assert len([each for each in primary.told() if isinstance(each, Post)]) > said


def test_without_backups_clients_get_unknown_new_writes_are_refused_and_all_goes_on_by_itself() -> None:
    group = Group(1).elected()
    primary = group["m1"]
    group["b1"].is_up = False
    group.write(1)
    group.run(SYNC_TIMEOUT_MS + 200)
    assert [(reply.ticket, reply.status) for reply in primary.replies] == [(1, UNKNOWN)]
    group.write(2)
    assert [(reply.ticket, reply.status) for reply in primary.replies[1:]] == [(2, REFUSED)]
    assert primary.runner.state()[0] == "waiting-for-backups"
    assert "b1" in primary.runner.state()[1]

    group["b1"].start()
    group.run(2 * FAIL_OVER_MS)
    group.write(3)
    group.run()
    assert [(reply.ticket, reply.status) for reply in primary.replies[2:]] == [(3, "accepted")]
    assert primary.master.core.transacting.outcome("t1", group.now()) is not None


def test_what_waits_at_the_gate_is_bounded_however_long_it_takes() -> None:
    group = Group(1).elected()
    primary = group["m1"]
    group.run()
    group["b1"].is_up = False
    for ticket in range(1, 400):
        group.write(ticket)
    group.run(50 * SYNC_TIMEOUT_MS, 200)
    gate = primary.master.primary
    assert gate is not None
    messages, replies = gate.gate.held
    assert (messages <= gate.gate.config.messages_limit, replies) == (True, 0)
    assert len(primary.replies) == 399
    grown = (messages, primary.journal.last_number)
    group.run(50 * SYNC_TIMEOUT_MS, 200)
    assert (gate.gate.held[0] - grown[0], primary.journal.last_number - grown[1]) < (1000, 200)

    group["b1"].start()
    group.run(3 * FAIL_OVER_MS)
    assert gate.gate.held == (0, 0)
    assert gate.withheld(group.now()) == ""


def test_a_primary_that_goes_idle_waits_until_one_is_declared_and_follows_it() -> None:
    group = Group(1, goes_idle=True).elected()
    group["b1"].is_up = False
    group.write(1)
    group.run(3 * SYNC_TIMEOUT_MS, 50)
    assert group["m1"].changes[-1] == ("idle", 10, False)
    assert group["m1"].runner.state()[0] == "idle"

    group["b1"].start()
    group.run(10 * FAIL_OVER_MS, 50)
    assert not group["m1"].acts()
    group["b1"].runner.promote("b1", is_forced=True)
    group.run(3 * FAIL_OVER_MS)
    assert group["b1"].acts()
    assert group["m1"].runner.state() == ("ready", "")
    assert group["m1"].changes[-1][0] == "backup"


# ---- deposed


def test_a_deposed_primary_answers_who_waits_with_unknown_and_follows() -> None:
    group = Group(2).elected()
    group.run()
    old = group["m1"]
    group.cut = {"m1"}
    group.turn(1, m1=[Submit(1, "t1", BODY, ACCEPTED), TxCommand(2, "begin", "", {"xid": "", "timeout_ms": 0, "session": ""}, 0)])
    group.run(4 * FAIL_OVER_MS)
    assert old.acts()
    assert group.primary is not old
    group.cut.clear()
    group.run(3 * FAIL_OVER_MS)
    assert not old.acts()
    assert [(reply.ticket, reply.status) for reply in old.replies] == [(1, UNKNOWN)]
    assert old.runner.state() == ("ready", "")
    # What nobody confirmed is gone, and nobody was told of it.
    assert group.primary.master.core.transacting.outcome("t1", group.now()) is None
    assert list(old.journal.records()) == list(group.primary.journal.records())


def test_a_journal_that_was_loaded_while_standing_by_is_the_one_that_is_written_from_then_on() -> None:
    group = Group(2).elected()
    group.run()
    old = group["m1"]
    before = old.journal
    group.cut = {"m1"}
    group.write(1, old)
    group.run(4 * FAIL_OVER_MS)
    group.cut.clear()
    group.run(3 * FAIL_OVER_MS)
    assert old.journal is not before
    with pytest.raises(JournalError, match="closed"):
        before.append([ViewStarted(99, "m1")])
    # It is primary again, on the journal that it loaded.
    group.primary.runner.promote("m1", is_forced=False)
    group.run(2 * FAIL_OVER_MS)
    assert group.primary is old
    assert old.master.journal is old.journal
    group.write(2)
    group.run()
    assert [reply.status for reply in old.replies] == [UNKNOWN, "accepted"]


# ---- journals that fail


def test_a_standby_whose_disk_is_full_confirms_and_promises_nothing_until_it_is_mended() -> None:
    group = Group(2).elected()
    group.run()
    backup = group["b1"]
    disk_of(backup.journal).is_full = True
    confirmed = backup.sent(Confirmed)[-1][0].last
    group.write(1)
    group.run()
    assert backup.runner.state()[0] == "disk-full"
    assert max(word.last for word, _, _ in backup.sent(Confirmed)) == confirmed
    assert [reply.status for reply in group["m1"].replies] == ["accepted"]

    disk_of(backup.journal).is_full = False
    group.run(3 * FAIL_OVER_MS)
    assert backup.runner.state() == ("ready", "")
    assert list(backup.journal.records()) == list(group["m1"].journal.records())


def test_a_primary_whose_journal_fails_is_silent_so_that_another_takes_over_and_follows_when_it_is_mended() -> None:
    group = Group(2).elected()
    group.run()
    old = group["m1"]
    disk_of(old.journal).is_full = True
    group.write(1)
    assert [(reply.ticket, reply.status) for reply in old.replies] == [(1, UNKNOWN)]
    beats = len(old.sent(Replicate))
    group.run(4 * FAIL_OVER_MS)
    assert len(old.sent(Replicate)) == beats
    assert group.primary is not old
    assert not old.acts()
    assert old.runner.state()[0] == "disk-full"

    disk_of(old.journal).is_full = False
    group.run(4 * FAIL_OVER_MS)
    assert old.runner.state() == ("ready", "")
    assert list(old.journal.records()) == list(group.primary.journal.records())


def test_a_promise_that_was_not_written_is_given_to_nobody_the_second_time_either() -> None:
    group = Group(2).elected()
    group.run()
    old = group["m1"]
    group["b1"].is_up = group["b2"].is_up = False
    disk_of(old.journal).is_full = True
    group.write(1)
    assert old.master.failure
    group.run(2 * FAIL_OVER_MS)
    asked = Candidate(21, "journal-of-m1", (10, 10_000))
    for _ in range(10):
        old.wire.arrived.append(Envelope("orders", "b1", 0, asked, "b1"))
        group.run(RETRY_MS // 2, 50)
    assert [vote for vote, _, _ in old.sent(Vote) if vote.is_granted] == []
    assert old.journal.state().promised_view == 10


class BadJournal(Log):
    """Its state cannot be read any more."""

    is_bad = False

    def state(self) -> MasterState:
        if self.is_bad:
            raise JournalError("record 3 cannot be read")
        return super().state()


class BadCopy(LogCopy):
    """Has a `BadJournal`."""

    make = BadJournal


def test_a_journal_that_cannot_be_read_when_it_is_tried_again_is_tried_once_more() -> None:
    group = Group(1).elected()
    group.run()
    backup = group["b1"]
    backup.copy = BadCopy(disk_of(backup.journal).copy(), "orders", "m1")
    journal = backup.copy.journal
    assert isinstance(journal, BadJournal)
    backup.runner.copy = backup.copy
    disk_of(journal).is_full = True
    group.write(1)
    group.turn()
    assert backup.runner.failure
    disk_of(journal).is_full = False
    journal.is_bad = True
    group.run(3 * RETRY_MS)
    assert backup.runner.state() == ("halted", "record 3 cannot be read")
    journal.is_bad = False
    group.run(3 * RETRY_MS)
    assert backup.runner.state() == ("ready", "")


# ---- names that are used once


def test_two_processes_that_begin_from_the_same_record_never_begin_under_the_same_incarnation() -> None:
    group = Group(1).elected()
    group.write(1)
    group.run()
    before = group["m1"].master.core.sync.incarnation
    group.cut = {"m1"}
    for process in group.processes.values():
        process.start()
    group.run(6 * FAIL_OVER_MS)
    assert all(process.acts() for process in group.processes.values())
    incarnations = [process.master.core.sync.incarnation for process in group.processes.values()]
    assert min(incarnations) > before
    # Both make names of transactions and of reads from it, and workers tell the two apart by it: whoever stays has the higher one.
    views = [process.runner.role.view for process in group.processes.values()]
    assert sorted(range(2), key=lambda place: views[place]) == sorted(range(2), key=lambda place: incarnations[place])
    assert len(set(incarnations)) == 2
