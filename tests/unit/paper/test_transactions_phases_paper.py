"""One test for each sentence of the design note about transactions: preparing, deciding, catching up, what it wants tested.

See test_transactions_paper.py for how to read it. Its guards and trackers belong to the feed of the journal here, which holds a
backup back until they are clear (replication); what they protect is shown at the end.
"""

from __future__ import annotations

import msgpack
import pytest

from brokerha.model.records import Accepted, TxDecided, TxPrepared
from brokerha.model.requests import TxReply
from brokerha.model.wire.process_messages import TxAnswer, TxEvents
from brokerha.transactions.config import ParticipantConfig
from brokerha.transactions.states import Part
from tests.unit.paper.test_transactions_paper import XID, events_to
from tests.unit.transactions.bench import TxBench, word_of
from tests.unit.transactions.queue_site import accept, publish
from tests.unit.transactions.test_crash_points import ABC, bench_of, check, joined_between, points_of


def prepared(bench: TxBench, *texts: str) -> str:
    """A prepared transaction that publishes these."""
    txid = bench.begun(publish("Q", *texts), xid=XID)
    assert bench.ask("prepare", txid).answer == {"state": "prepared"}
    return txid


def answers(bench: TxBench, txid: str) -> list[str]:
    """What participants said of a transaction."""
    said = [out.message for out in bench.sent if isinstance(out.message, TxAnswer)]
    return [message.answer for message in said if message.txid == txid]


# ---- prepare


def test_a_prepare_closes_the_transaction() -> None:
    """DTX Prepare: "“closes” the tx-queue": nothing is added any more."""
    bench = TxBench()
    txid = prepared(bench, "x")
    assert bench.ask("operations", txid, operations=publish("Q", "y")).error == "WrongState"


def test_nobody_joins_what_is_closed() -> None:
    """DTX Prepare: "A closed queue rejects any attempt to subscribe"."""
    bench = TxBench()
    bench.backups["b2"].is_ready = False
    txid = prepared(bench, "x")
    bench.backups["b2"].is_ready = True
    bench.settle()
    assert txid not in bench.backups["b2"].participant.joined


def test_whoever_took_part_before_the_close_is_in_the_transaction() -> None:
    """DTX Prepare: "Backups subscribed before the close are in the transaction"."""
    bench = TxBench()
    bench.backups["b2"].is_ready = False
    txid = bench.begun(publish("Q", "x"), xid=XID)
    bench.run(100)
    bench.backups["b2"].is_ready = True
    bench.run(100)
    bench.ask("prepare", txid)
    assert bench.journal.state().prepared[txid].participants == ("b1", "b2")


def test_the_prepare_event_follows_the_operations_and_the_primary_prepares_itself() -> None:
    """DTX Prepare: "Puts prepare event on tx-queue, and does local prepare"."""
    bench = TxBench()
    txid = prepared(bench, "x", "y")
    assert [kind for kind, _ in events_to(bench, "b1", txid)] == ["begin", "operation", "operation", "prepare"]
    assert txid in bench.journal.state().prepared


def test_it_is_prepared_when_all_are_and_fails_when_one_refuses() -> None:
    """DTX Prepare: "Returns ok if outcome of local and all backup prepares is ok, fail otherwise"."""
    bench = TxBench()
    bench.backups["b2"].participant.config = ParticipantConfig(bytes_limit=10)
    txid = bench.begun(publish("Q", "x"), xid=XID)
    reply = bench.ask("prepare", txid)
    assert (reply.error, "b2 refused" in reply.reason) == ("Aborted", True)
    bench.backups["b2"].participant.config = ParticipantConfig()
    assert answers(bench, prepared(bench, "y")).count("prepared") == 2


def test_a_prepare_is_answered_later_and_holds_nothing_up() -> None:
    """DTX Prepare: "we need asynchronous completion of the prepare control" until "all ... have responded (or time out.)"."""
    bench = TxBench(prepare_ms=2_000)
    bench.backups["b1"].is_paused = True
    txid = bench.begun(publish("Q", "x"), xid=XID)
    ticket = bench.do("prepare", txid)
    bench.run(1_000)
    assert ticket not in bench.replies
    assert bench.submit(publish("P", "plain")).status == "applied"
    bench.run(1_500)
    reply = bench.replies[ticket]
    assert isinstance(reply, TxReply)
    assert reply.answer == {"state": "prepared"}
    assert list(bench.core.transacting.coordinator.book.silent_backups) == ["b1"]


def test_a_backup_prepares_by_its_own_durable_record() -> None:
    """DTX Prepare: "Backups receiving prepare event do a local prepare"."""
    bench = TxBench()
    txid = prepared(bench, "x")
    for backup in bench.backups.values():
        assert backup.participant.joined[txid].part is Part.PREPARED
        assert backup.journal.state().prepared[txid].body == bench.journal.state().prepared[txid].body


def test_ok_is_a_message_of_the_backup() -> None:
    """DTX Prepare: "ok: Backup acknowledges prepare event message".

    Replaced: an acknowledgement would only say that a message was taken. The backup answers when the record is durable.
    """
    bench = TxBench()
    assert answers(bench, prepared(bench, "x")) == ["prepared", "prepared"]


def test_fail_is_a_message_of_the_backup_with_its_reason() -> None:
    """DTX Prepare: "fail: Backup cancels tx-queue subscription".

    Replaced: a lost connection looks like that too. Refusing is said, with the reason; silence means lost, not refused.
    """
    bench = TxBench(part=ParticipantConfig(bytes_limit=10))
    reply = bench.ask("prepare", bench.begun(publish("Q", "x"), xid=XID))
    assert "more than 10 bytes" in reply.reason


# ---- commit and rollback


@pytest.mark.parametrize(("action", "texts"), [("commit", ["x"]), ("rollback", [])])
def test_the_decision_is_taken_at_the_primary_and_put_on_the_queue(action: str, texts: list[str]) -> None:
    """DTX Commit/Rollback: "Primary puts commit/rollback event on the tx-queue and does local commit/rollback"."""
    bench = TxBench()
    txid = prepared(bench, "x")
    bench.ask(action, txid, one_phase=False)
    bench.settle()
    assert events_to(bench, "b1", txid)[-1][0] == action
    assert bench.content.texts("Q") == texts


@pytest.mark.parametrize("action", ["commit", "rollback"])
def test_backups_do_as_they_are_told_and_leave_the_queue(action: str) -> None:
    """DTX Commit/Rollback: "Backups commit/rollback as instructed and unsubscribe from tx-queue"; told by the journal, too."""
    bench = TxBench()
    txid = prepared(bench, "x")
    bench.ask(action, txid, one_phase=False)
    bench.settle()
    assert answers(bench, txid).count("done") == 2
    assert not bench.followed
    assert [queues.texts("Q") for queues in bench.contents()] == [["x"] if action == "commit" else []] * 3


def test_the_queue_goes_when_its_backup_has_left_it() -> None:
    """DTX Commit/Rollback: "tx-queue auto deletes when last backup unsubscribes"; nobody else deletes it."""
    bench = TxBench()
    txid = prepared(bench, "x")
    bench.backups["b2"].is_paused = True
    bench.do("commit", txid, one_phase=False)
    bench.run(2_000)
    assert {queue.partition("+")[0] for queue in bench.queues} == {f"brokerha.tx.m1.{txid}.b2"}
    bench.backups["b2"].is_paused = False
    bench.settle()
    assert not bench.queues


def test_a_tx_commit_prepares_and_then_commits() -> None:
    """TX Commit/Rollback: "Do prepare phase as for DTX. Do commit/rollback phase as for DTX."""
    bench = TxBench()
    txid = bench.begun(publish("Q", "x"))
    assert bench.ask("commit", txid).answer["state"] == "committed"
    kinds = [type(r) for _, r in bench.journal.records() if isinstance(r, TxPrepared | TxDecided | Accepted)]
    assert kinds == [TxPrepared, TxDecided, Accepted]
    assert answers(bench, txid)[:2] == ["prepared", "prepared"]


def test_a_tx_rollback_needs_no_phases() -> None:
    """TX Commit/Rollback: "Do commit/rollback phase as for DTX"; what was not prepared is dropped, and nothing is written."""
    bench = TxBench()
    txid = bench.begun(publish("Q", "x"))
    bench.ask("rollback", txid)
    bench.settle()
    assert not [r for _, r in bench.journal.records() if isinstance(r, TxPrepared | TxDecided)]
    assert events_to(bench, "b1", txid)[-1] == ("rollback", b"rolled back by its client")


def test_every_process_brings_the_messages_into_its_own_queues() -> None:
    """Skip set: "each broker (backup & primary) pushes tx messages to the local queue"; here in the one order of the log."""
    bench = TxBench()
    one, two = bench.begun(publish("Q", "x")), bench.begun(publish("Q", "y"))
    bench.ask("commit", two)
    bench.ask("commit", one)
    bench.settle()
    assert [queues.texts("Q") for queues in bench.contents()] == [["y", "x"]] * 3


def test_bodies_are_not_sent_again_to_backups_that_have_them() -> None:
    """Skip set: "Need to avoid re-sending to backups that already have the messages from the transaction"."""
    bench = TxBench()
    bench.ask("commit", bench.begun(publish("Q", *"abcdef")))
    bench.settle()
    assert [backup.fetched for backup in bench.backups.values()] == [0, 0]


def test_what_a_backup_has_is_known_before_the_commit() -> None:
    """Skip set: "add tx messages to the skip set before Primary commits": the prepare record names who has them."""
    bench = TxBench()
    bench.ask("commit", bench.begun(publish("Q", "x")))
    numbers = {type(record): number for number, record in bench.journal.records()}
    assert numbers[TxPrepared] < numbers[TxDecided] < numbers[Accepted]


def test_backups_drop_open_transactions_when_the_primary_fails() -> None:
    """Primary fails: "Backups abort all open tx if the primary fails"; prepared ones of a DTX are kept by the journal."""
    bench = TxBench()
    open_one, kept = bench.begun(publish("Q", "x")), prepared(bench, "y")
    bench.fail_over()
    assert not any(backup.participant.joined for backup in bench.backups.values())
    assert [word_of(bench.outcome(txid)) for txid in (open_one, kept)] == ["aborted", "prepared"]


# ---- atomic while backups catch up


@pytest.mark.parametrize("seed", range(4))
def test_a_ready_backup_never_has_a_proper_subset_of_a_transaction(seed: int) -> None:
    """Catching up: "A ready backup should never contain a proper subset of messages in a transaction"."""
    bench = TxBench(seed=seed, loss=0.3, retry_ms=100)
    for _ in range(4):
        ticket = bench.do("commit", bench.begun(publish("Q", *ABC)), 30_000)
        while ticket not in bench.replies:
            bench.run(10)
            assert all(len(queues.texts("Q")) % 3 == 0 for queues in bench.contents())
    assert all(queues.texts("Q") == ABC * 4 for queues in bench.contents()[:1])


def test_an_expected_backup_that_joins_between_prepare_and_commit_is_never_promoted_with_a_part() -> None:
    """Catching up, the crash: prepared and closed; a backup connects, is declared ready; "publishes A, B to Q and crashes"."""
    first, last = points_of(joined_between)
    for point in range(first, last + 1, 7):
        bench = bench_of(joined_between)
        bench.crash_at = point
        told = joined_between(bench)
        bench.run(300)
        bench.crash_at = None
        bench.fail_over()
        assert bench.content.texts("Q") in ([], ABC)
        check(told)


def test_what_blocks_a_joining_backup_is_known_to_the_feed() -> None:
    """Solution: "delays ready status till full tx is replicated", "considered ‘blocked’ by any TX in progress".

    Kept: the feed asks for what is open and prepared, and a backup that joins is not ready before it is settled.
    """
    bench = TxBench()
    open_one, kept = bench.begun(publish("Q", "x")), prepared(bench, "y")
    assert bench.core.transacting.open_transactions() == [open_one, kept]
    bench.ask("rollback", open_one)
    bench.ask("commit", kept, one_phase=False)
    assert bench.core.transacting.open_transactions() == []


def test_one_record_takes_the_place_of_a_tracker_for_each_queue() -> None:
    """Solution: "TxTracker holds set of enqueues & dequeues", "per queue, per backup"; "multiple queues per tx".

    Replaced: all operations are one record, so that a follower has all of them or none, whatever queues they are about.
    """
    bench = TxBench()
    bench.submit(publish("P", "old"))
    txid = bench.begun(publish("P", "1"), publish("Q", "2"), accept("P", *bench.content.ids("P")), xid=XID)
    bench.ask("prepare", txid)
    body = bench.backups["b1"].journal.state().prepared[txid].body
    assert [(operation[0], operation[1]) for operation in msgpack.unpackb(body)] == [
        ("publish", "P"),
        ("publish", "Q"),
        ("accept", "P"),
    ]


def test_several_transactions_on_one_queue_are_settled_each_by_itself() -> None:
    """Solution, note: "multiple tx per queue", "multiple TxTrackers per queue per per backup"."""
    bench = TxBench()
    txids = [bench.begun(publish("Q", text), xid=f"1:{place:02x}:") for place, text in enumerate("abc")]
    for txid in txids:
        bench.ask("prepare", txid)
    bench.ask("rollback", txids[1])
    bench.ask("commit", txids[2], one_phase=False)
    assert bench.core.transacting.open_transactions() == [txids[0]]
    bench.settle()
    assert [queues.texts("Q") for queues in bench.contents()] == [["c"]] * 3


def test_whether_a_backup_is_in_or_out_is_decided_once() -> None:
    """Solution, note: "synchronize backups in/out of transaction wrt setting trackers": with the close, once."""
    bench = TxBench()
    bench.backups["b1"].is_ready = False
    txid = prepared(bench, "x")
    bench.backups["b1"].is_ready = True
    bench.run(500)
    feed = bench.core.transacting.coordinator.book.table[txid].feed
    assert feed is not None
    assert feed.backups == ("b2",)


def test_a_blocking_transaction_delays_nobody_for_longer_than_its_own_end() -> None:
    """Open point: "A blocking TX eliminates the benefit of the queue guard"; one that is idle is rolled back after its time-out."""
    bench = TxBench()
    bench.begun(publish("Q", "x"), timeout_ms=1_000)
    bench.run(1_500)
    assert bench.core.transacting.open_transactions() == []


def test_events_of_one_view_mean_nothing_in_the_next() -> None:
    """Not in the note: an old primary that wakes up cannot commit, because its events are of another view."""
    bench = TxBench()
    txid = prepared(bench, "x")
    old = [out for out in bench.sent if isinstance(out.message, TxEvents) and out.message.txid == txid]
    bench.fail_over()
    from brokerha.model.wire.messages import Envelope

    for backup in bench.backups.values():
        ignored = backup.participant.counts["other_view"]
        backup.participant.step(Envelope("c", "m1", 1, old[-1].message), bench.now())
        assert backup.participant.counts["other_view"] == ignored + 1
