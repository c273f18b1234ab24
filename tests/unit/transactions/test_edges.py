"""What happens seldom: steps that come again at a bad moment, full tables, participants that leave or never answer."""

from __future__ import annotations

import pytest

from brokerha.model.records import TxDecided
from brokerha.model.requests import TxReply
from brokerha.model.wire.messages import Envelope
from brokerha.model.wire.process_messages import TxAnswer, TxEvents
from tests.unit.transactions.bench import TxBench, word_of
from tests.unit.transactions.queue_site import accept, publish

XID = "1:aa:"


def paused(bench: TxBench) -> TxBench:
    """Backups that are ready and do not answer."""
    for backup in bench.backups.values():
        backup.is_paused = True
    return bench


def awake(bench: TxBench) -> TxBench:
    """Backups that answer again."""
    for backup in bench.backups.values():
        backup.is_paused = False
    return bench


def told(bench: TxBench, ticket: int) -> TxReply:
    """The answer to a step."""
    reply = bench.replies[ticket]
    assert isinstance(reply, TxReply)
    return reply


def test_a_begin_that_comes_again_is_the_same_begin() -> None:
    bench = TxBench(())
    txid = bench.begin(xid=XID, timeout_ms=3_000)
    assert bench.ask("begin", txid, xid=XID).answer == {"txid": txid, "timeout_ms": 3_000}
    bench.ask("operations", txid, operations=publish("q", "x"))
    assert bench.ask("begin", txid, xid=XID).error == "WrongState"


def test_a_prepare_that_comes_again_while_it_is_under_way_waits_for_the_same_votes() -> None:
    bench = TxBench(sync_n=0)
    txid = bench.begun(publish("q", "x"), xid=XID)
    bench.run(50)
    paused(bench)
    tickets = [bench.do("prepare", txid), bench.do("prepare", txid)]
    assert bench.ask("commit", txid, one_phase=True).error == "WrongState"
    awake(bench).run(2_000)
    assert [told(bench, ticket).answer for ticket in tickets] == [{"state": "prepared"}] * 2


def test_a_commit_that_comes_again_while_it_is_under_way_is_one_commit() -> None:
    bench = TxBench(sync_n=0)
    txid = bench.begun(publish("q", "x"), xid=XID)
    bench.run(50)
    paused(bench)
    tickets = [bench.do("commit", txid, one_phase=True), bench.do("commit", txid, one_phase=True)]
    assert bench.ask("prepare", txid).error == "WrongState"
    awake(bench).run(2_000)
    assert [told(bench, ticket).answer for ticket in tickets] == [{"state": "committed", "lsn": 1}] * 2
    assert bench.content.texts("q") == ["x"]


def test_a_rollback_overtakes_a_commit_that_is_not_decided() -> None:
    bench = TxBench()
    txid = bench.begun(publish("q", "x"))
    bench.run(50)
    paused(bench)
    ticket = bench.do("commit", txid)
    bench.run(100)
    bench.do("rollback", txid)
    awake(bench).settle()
    assert told(bench, ticket).error == "Aborted"
    assert [queues.texts("q") for queues in bench.contents()] == [[]] * 3
    bench.check_clean()


def test_what_can_no_longer_be_taken_in_after_the_votes_is_rolled_back() -> None:
    bench = TxBench()
    txid = bench.begun(publish("q", "x"))
    bench.run(50)
    paused(bench)
    ticket = bench.do("commit", txid)
    bench.run(100)
    bench.core.withheld = "too few backups"
    awake(bench).run(2_000)
    bench.core.withheld = ""
    bench.settle()
    reply = told(bench, ticket)
    assert (reply.error, reply.reason) == ("Aborted", "too few backups")
    decided = [record for _, record in bench.journal.records() if isinstance(record, TxDecided)]
    assert [record.is_commit for record in decided] == [False]
    bench.check_clean()


def test_another_transaction_with_the_same_key_that_came_first_ends_this_one() -> None:
    bench = TxBench()
    txid = "my-key"
    bench.ask("begin", txid)
    bench.ask("operations", txid, operations=publish("q", "mine"))
    # The same key, handed in at another master, was synchronised meanwhile; here it is as if it had been accepted.
    bench.core.admit(txid, b"\x91\x94\xa7publish\xa1q\xa1t\xc4\x05other")
    reply = bench.ask("commit", txid)
    assert (reply.error, "other operations" in reply.reason) == ("Aborted", True)
    bench.settle()
    assert [queues.texts("q") for queues in bench.contents()] == [["other"]] * 3
    bench.check_clean()


def test_another_transaction_with_the_key_of_one_that_is_being_prepared_ends_that_one() -> None:
    bench = TxBench()
    txid = "my-key"
    bench.ask("begin", txid, xid=XID)
    bench.ask("operations", txid, operations=publish("q", "mine"))
    bench.worker.is_stopped = True
    ticket = bench.do("prepare", txid)
    bench.run(500)
    bench.core.admit(txid, b"\x91\x94\xa7publish\xa1q\xa1t\xc4\x05other")
    bench.run(500)
    bench.worker.is_stopped = False
    bench.settle()
    assert (told(bench, ticket).error, told(bench, ticket).reason) == ("Aborted", "its id came first with another transaction")
    decided = [record for _, record in bench.journal.records() if isinstance(record, TxDecided)]
    assert [record.is_commit for record in decided] == [False]
    assert [queues.texts("q") for queues in bench.contents()] == [["other"]] * 3
    bench.check_clean()


def test_a_commit_by_hand_whose_key_another_transaction_had_first_is_no_commit() -> None:
    bench = TxBench()
    txid = "my-key"
    bench.ask("begin", txid, xid=XID)
    bench.ask("operations", txid, operations=publish("q", "mine"))
    bench.ask("prepare", txid)
    bench.core.admit(txid, b"\x91\x94\xa7publish\xa1q\xa1t\xc4\x05other")
    reply = bench.ask("commit", txid, by_hand=True, one_phase=False)
    assert (reply.error, "other operations" in reply.reason) == ("Aborted", True)
    bench.settle()
    assert [queues.texts("q") for queues in bench.contents()] == [["other"]] * 3
    (row,) = bench.core.transacting.coordinator.rows(bench.now())
    assert (row["state"], row["outcome"]) == ("heuristic", "aborted")
    assert row["reason"] == "heuristic rollback: its id came first with another transaction"
    decided = [record for _, record in bench.journal.records() if isinstance(record, TxDecided)]
    assert [(record.is_commit, record.is_heuristic) for record in decided] == [(False, True)]
    bench.ask("forget", txid)
    bench.settle()
    bench.check_clean()


def test_locks_of_commits_that_no_worker_executes_are_bounded() -> None:
    bench = TxBench((), finished_limit=3)
    bench.submit(publish("q", *"abcdef"))
    ids = bench.content.ids("q")
    bench.worker.is_stopped = True
    for message_id in ids:
        bench.ask("commit", bench.begun(accept("q", message_id)), level="synchronised")
    book = bench.core.transacting.coordinator.book
    assert [book.locks.holder("q", message_id) is not None for message_id in ids] == [False] * 3 + [True] * 3
    bench.worker.is_stopped = False
    bench.settle()
    bench.check_clean()


def test_a_participant_that_leaves_before_the_end_is_lost() -> None:
    bench = TxBench()
    txid = bench.begun(publish("q", "x"))
    bench.core.step(Envelope("c", "b1", 1, TxAnswer(txid, 1, "done", 1)), bench.now())
    feed = bench.core.transacting.coordinator.book.table[txid].feed
    assert feed is not None
    assert feed.backups == ("b2",)
    assert bench.ask("commit", txid).answer["state"] == "committed"


def test_a_participant_that_is_lost_after_the_decision_is_waited_for_no_longer() -> None:
    bench = TxBench()
    txid = bench.begun(publish("q", "x"))
    bench.run(50)
    paused(bench)
    bench.do("rollback", txid)
    bench.run(100)
    assert bench.core.transacting.coordinator.book.ending
    for backup in bench.backups.values():
        backup.is_ready = False
    bench.run(100)
    assert not bench.core.transacting.coordinator.book.ending


@pytest.mark.parametrize("answer", ["missing", "refused"])
def test_a_backup_that_asks_about_one_that_is_over_is_told_so(answer: str) -> None:
    bench = TxBench()
    txid = bench.begun(publish("q", "x"))
    bench.ask("rollback", txid)
    bench.run(500)
    bench.core.step(Envelope("c", "b1", 1, TxAnswer(txid, 1, answer, 2)), bench.now())
    told = [each.message for each in bench.core.take_ready(bench.now()).messages if each.to == "b1"]
    assert [(each.txid, each.events[-1][0]) for each in told if isinstance(each, TxEvents)] == [(txid, "rollback")]


def test_the_end_is_told_a_bounded_number_of_times() -> None:
    bench = TxBench(retry_ms=50, end_tries=3)
    txid = bench.begun(publish("q", "x"))
    bench.run(50)
    paused(bench)
    bench.do("rollback", txid)
    bench.run(3_000)
    assert not bench.core.transacting.coordinator.book.ending
    assert len(bench.queues) == 2 * (1 + 2), "each participant was told again, then invited again, until it was enough"
    assert bench.core.transacting.coordinator.deadline_ms() is None


def test_long_transactions_travel_in_messages_of_bounded_size() -> None:
    bench = TxBench(event_bytes=1_000)
    txid = bench.begin()
    bench.ask("operations", txid, operations=publish("q", *("x" * 300 for _ in range(20))))
    assert bench.ask("commit", txid).answer["state"] == "committed"
    sent = [out.message for out in bench.sent if out.to == "b1" and isinstance(out.message, TxEvents)]
    parts = [message for message in sent if len(message.events) > 1]
    assert len(parts) > 4
    assert next(len(queues.texts("q")) for queues in bench.contents()) == 20


def test_the_queues_of_what_a_new_primary_finds_prepared_go_with_their_readers() -> None:
    bench = TxBench()
    txid = bench.begun(publish("q", "x"), xid=XID)
    bench.ask("prepare", txid)
    assert len(bench.queues) == 2
    bench.fail_over()
    assert not bench.queues


def test_a_decision_by_hand_that_the_probe_rejects_says_so() -> None:
    bench = TxBench()
    txid = bench.begun(publish("q", "x"), xid=XID)
    bench.ask("prepare", txid)
    # A person ended it at another master.
    bench.worker.queues.prepared.clear()
    reply = bench.ask("commit", txid, by_hand=True, one_phase=False)
    assert (reply.error, "is not prepared" in reply.reason) == ("Aborted", True)
    rows = bench.core.transacting.coordinator.rows(bench.now())
    assert [(row["state"], row["outcome"]) for row in rows] == [("heuristic", "aborted")]
    bench.ask("forget", txid)
    assert word_of(bench.outcome(txid)) == "aborted"
    bench.settle()
    bench.check_clean()
