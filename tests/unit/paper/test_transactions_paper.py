"""One test for each sentence of the design note about transactions: goals, identity, events, tx-queues.

Docstrings name the section and quote a few words. Where this design does something else on purpose, the test shows what
replaces it, and its docstring says why. Its "broker" is our process, its "store" our journal, its "queue position" has no
counterpart: messages have names. Preparing, deciding and catching up are in test_transactions_phases_paper.py.
"""

from __future__ import annotations

import msgpack
import pytest

from brokerha.model.operations import unpack_operations
from brokerha.model.records import Accepted, TxPrepared
from brokerha.model.wire.process_messages import TxEvents
from brokerha.transactions.coordinator import Coordinator
from tests.unit.transactions.bench import TxBench, word_of
from tests.unit.transactions.queue_site import accept, publish

XID = "1:aa:"


def events_to(bench: TxBench, backup: str, txid: str) -> list[tuple[str, bytes]]:
    """Events of a transaction that a backup was sent, by their numbers."""
    found: dict[int, tuple[str, bytes]] = {}
    for out in bench.sent:
        if out.to == backup and isinstance(out.message, TxEvents) and out.message.txid == txid:
            found.update(enumerate(out.message.events, out.message.first))
    return [found[number] for number in sorted(found)]


def accepted_at(journal: object) -> list[bytes]:
    """Bodies of everything that a journal has accepted."""
    records = [record for _, record in journal.records()]  # type: ignore[attr-defined]
    return [body for record in records if isinstance(record, Accepted) for _, body in record.items]


# ---- goals


def test_results_are_committed_atomically_on_the_backups() -> None:
    """Introduction: "the results are not guaranteed to be comitted atomically on the backups"; here they are: one record."""
    bench = TxBench()
    before = len(accepted_at(bench.journal))
    bench.ask("commit", bench.begun(publish("p", "x"), publish("q", "y")))
    for backup in bench.backups.values():
        bodies = accepted_at(backup.journal)[before:]
        assert [len(msgpack.unpackb(body)) for body in bodies] == [2]


def test_backups_record_the_transaction_for_recovery() -> None:
    """Introduction: "the backups do not record the transaction in the store for possible recovery"; here they do."""
    bench = TxBench()
    txid = bench.begun(publish("q", "x"), xid=XID)
    bench.ask("prepare", txid)
    for backup in bench.backups.values():
        prepared = backup.journal.state().prepared[txid]
        assert (prepared.xid, len(unpack_operations(prepared.body))) == (XID, 1)


def test_atomic_on_primary_and_backups() -> None:
    """Goals 1: "Transaction results must be atomic on primary and backups", at every moment."""
    bench = TxBench()
    txid = bench.begun(publish("q", "x", "y"), publish("p", "z"))
    ticket = bench.do("commit", txid)
    for _ in range(100):
        bench.run(10)
        for queues in bench.contents():
            assert (queues.texts("q"), queues.texts("p")) in (([], []), (["x", "y"], ["z"]))
    assert ticket in bench.replies


@pytest.mark.parametrize(("action", "texts"), [("commit", ["x"]), ("rollback", [])])
def test_backups_and_primary_agree_whether_it_committed(action: str, texts: list[str]) -> None:
    """Goals 2: "Backups and primary must agree on whether the transaction comitted"."""
    bench = TxBench()
    bench.ask(action, bench.begun(publish("q", "x")))
    bench.settle()
    assert [queues.texts("q") for queues in bench.contents()] == [texts] * 3


def test_concurrent_transactions_do_not_interfere() -> None:
    """Goals 3: "Concurrent transactions must not interfere with each other": neither sees, nor takes, what the other has."""
    bench = TxBench()
    bench.submit(publish("q", "x", "y"))
    ids = bench.content.ids("q")
    one, two = bench.begun(accept("q", ids[0])), bench.begun(accept("q", ids[1]))
    bench.ask("operations", one, operations=publish("q", "1"))
    bench.ask("operations", two, operations=publish("q", "2"))
    assert bench.content.texts("q") == ["x", "y"]
    assert len(msgpack.unpackb(bench.ask("pending", one).answer["body"])) == 2
    bench.ask("commit", two)
    assert bench.content.texts("q") == ["x", "2"]
    bench.ask("commit", one)
    assert bench.content.texts("q") == ["2", "1"]


def test_the_state_of_a_transaction_is_durable() -> None:
    """Goals 4: "Transactional state is written to the store": prepared and committed survive the end of all processes."""
    bench = TxBench()
    one, two = bench.begun(publish("q", "x"), xid=XID), bench.begun(publish("q", "y"))
    bench.ask("prepare", one)
    bench.ask("commit", two)
    bench.restart()
    assert [word_of(bench.outcome(txid)) for txid in (one, two)] == ["prepared", "committed"]


def test_a_cluster_that_crashed_takes_part_in_recovery() -> None:
    """Goals 5: "can be re-started and participate in DTX recovery with a transaction co-ordinater"."""
    bench = TxBench()
    txid = bench.begun(publish("q", "x"), xid=XID)
    bench.ask("prepare", txid)
    bench.restart()
    rows = bench.core.transacting.coordinator.rows(bench.now())
    assert [(row["txid"], row["xid"], row["state"]) for row in rows] == [(txid, XID, "prepared")]
    assert bench.ask("commit", txid, one_phase=False).answer["state"] == "committed"
    assert [queues.texts("q") for queues in bench.contents()] == [["x"]] * 3


# ---- TX and DTX


def test_both_kinds_are_prepared_before_they_are_committed() -> None:
    """TX and DTX: "Both TX and DTX transactions require a DTX-like prepare phase"; one without backups needs none."""
    bench = TxBench()
    one, two = bench.begun(publish("q", "x")), bench.begun(publish("q", "y"), xid=XID)
    bench.ask("commit", one)
    bench.ask("prepare", two)
    bench.ask("commit", two, one_phase=False)
    prepared = [record.txid for _, record in bench.journal.records() if isinstance(record, TxPrepared)]
    assert prepared == [one, two]


def test_both_kinds_send_backups_the_same_events() -> None:
    """TX and DTX: "This design note applies to both"."""
    bench = TxBench()
    kinds = []
    for xid in ("", XID):
        txid = bench.begun(publish("q", "x"), xid=xid)
        if xid:
            bench.ask("prepare", txid)
        bench.ask("commit", txid, one_phase=not xid)
        bench.settle()
        kinds.append([kind for kind, _ in events_to(bench, "b1", txid)])
    assert kinds == [["begin", "operation", "prepare", "commit"]] * 2


def test_a_dtx_is_identified_by_its_xid_and_a_tx_by_an_id_of_its_own() -> None:
    """TX and DTX: "identified by the xid. For TX the HA module generates a unique identifier"; a DTX has both here."""
    bench = TxBench()
    one, two, three = bench.begin(), bench.begin(), bench.begin(xid=XID)
    assert len({one, two, three}) == 3
    assert bench.core.transacting.coordinator.book.xids == {XID: three}


# ---- events


def test_there_is_one_observer_of_each_transaction_from_its_begin() -> None:
    """Intercepting: "TransactionObserverFactory" makes one for each; here it is the entry in the coordinator's table."""
    bench = TxBench()
    txids = [bench.begin(), bench.begin()]
    assert list(bench.core.transacting.coordinator.book.table) == txids


def test_publishing_passes_queue_and_message_on() -> None:
    """Intercepting: "publish(queue, msg)"; Replicating: "push enqueue event onto tx-queue"."""
    bench = TxBench()
    txid = bench.begun(publish("q", "x"))
    bench.run(100)
    kind, data = events_to(bench, "b1", txid)[1]
    assert (kind, msgpack.unpackb(data)) == ("operation", ["publish", "q", "text/plain", b"x"])


def test_accepting_names_messages_by_replication_ids_never_by_positions() -> None:
    """Intercepting: "accept ... NOTE: translate queue positions to replication ids"; Replicating: "push dequeue event"."""
    bench = TxBench()
    bench.submit(publish("q", "x"))
    (message_id,) = bench.content.ids("q")
    txid = bench.begin()
    bench.ask("take", txid, first=0, queue="q", candidates=[message_id], count=1)
    bench.run(100)
    kind, data = events_to(bench, "b1", txid)[1]
    assert (kind, msgpack.unpackb(data)) == ("operation", ["accept", "q", message_id])


def test_every_step_of_a_transaction_goes_through_the_coordinator() -> None:
    """Intercepting: "register a TransactionObserverFactory with the broker to hook into transactions"; nothing to hook into here."""
    bench = TxBench()
    assert isinstance(bench.core.transacting.coordinator, Coordinator)
    reply = bench.ask("dance", bench.begin())
    for action in ("begin", "operations", "take", "pending", "ping", "prepare", "commit", "rollback", "forget"):
        assert action in reply.reason


def test_events_are_kept_at_the_primary_and_passed_to_the_backups() -> None:
    """Intercepting: "processed as normal and additionally ... passed to the TransactionObserver which replicates"."""
    bench = TxBench()
    txid = bench.begun(publish("q", "x"))
    bench.run(100)
    assert bench.ask("pending", txid).answer["count"] == 1
    for backup in ("b1", "b2"):
        assert [kind for kind, _ in events_to(bench, backup, txid)] == ["begin", "operation"]


# ---- the tx-queue


def test_each_transaction_has_queues_with_names_that_say_what_they_are() -> None:
    """Replicating: "creates a specially-named queue for each transaction"; one for each backup, so that each has its own pace."""
    bench = TxBench()
    txid = bench.begun(publish("q", "x"))
    bench.run(100)
    assert set(bench.queues) == {f"brokerha.tx.m1.{txid}.b1", f"brokerha.tx.m1.{txid}.b2"}


def test_a_queue_is_made_by_the_first_operation_only() -> None:
    """Replicating: "The primary creates ... queue for each transaction"; an empty one needs none, so it makes no noise."""
    bench = TxBench()
    bench.begin()
    bench.run(100)
    assert not bench.queues


def test_the_queue_is_followed_like_any_other_and_what_is_lost_is_asked_for() -> None:
    """Replicating: "replicated like a normal queue with some extensions": its messages may be lost, and come again."""
    bench = TxBench(retry_ms=100)
    txid = bench.begun(publish("q", "x"))
    bench.run(100)
    for queue in list(bench.queues):
        del bench.queues[queue]
    bench.ask("operations", txid, operations=publish("q", "y"))
    assert bench.ask("commit", txid).answer["state"] == "committed"
    bench.settle()
    bench.check_clean()


def test_a_backup_builds_up_the_events_in_a_buffer() -> None:
    """Replicating: "QueueReplicator builds up a TxBuffer or DtxBuffer of transaction events"."""
    bench = TxBench()
    txid = bench.begun(publish("q", "x"), publish("p", "y"))
    bench.run(100)
    joined = bench.backups["b1"].participant.joined[txid]
    assert (joined.next, len(joined.pieces)) == (3, 2)


def test_the_primary_keeps_for_each_backup_how_far_it_is() -> None:
    """Replicating: "Primary has TxReplicatingSubscription": here a lane for each participant."""
    bench = TxBench()
    txid = bench.begun(publish("q", "x"))
    feed = bench.core.transacting.coordinator.book.table[txid].feed
    assert feed is not None
    assert {backup: lane.sent for backup, lane in feed._lanes.items()} == {"b1": 2, "b2": 2}


def test_the_tools_that_replicate_the_journal_carry_the_outcome() -> None:
    """Benefits: "Already have the tools to replicate it": what is prepared and decided travels with the journal."""
    bench = TxBench()
    bench.ask("commit", bench.begun(publish("q", "x")))
    records = [record for _, record in bench.journal.records()]
    assert [record for _, record in bench.backups["b1"].journal.records()] == records[: bench.backups["b1"].number]
    assert any(isinstance(record, TxPrepared) for record in records)


def test_events_fan_out_to_backups_without_waiting_for_any() -> None:
    """Benefits: "Handles async fan-out of transactions to multiple Backups": one that is slow holds nobody else up."""
    bench = TxBench()
    bench.backups["b1"].is_paused = True
    txid = bench.begun(publish("q", "x"), publish("q", "y"))
    bench.run(100)
    assert bench.backups["b2"].participant.joined[txid].next == 3
    assert bench.ask("pending", txid).answer["count"] == 2


def test_events_keep_their_order_over_several_queues() -> None:
    """Benefits: "keeps the tx events in linear order even if the tx spans multiple queues"."""
    bench = TxBench(seed=3, loss=0.3, retry_ms=50)
    texts = [str(number) for number in range(12)]
    txid = bench.begin()
    for number, text in enumerate(texts):
        bench.ask("operations", txid, first=number, operations=publish("pq"[number % 2], text))
    bench.do("prepare", txid)
    assert bench.ask("commit", txid, 30_000).answer["state"] == "committed"
    bench.settle()
    for queues in bench.contents():
        assert (queues.texts("p"), queues.texts("q")) == (texts[::2], texts[1::2])


def test_who_joins_later_gets_what_was_done_before() -> None:
    """Benefits: "Keeps tx data available for new backups until the tx is closed"."""
    bench = TxBench()
    bench.backups["b2"].is_ready = False
    txid = bench.begun(publish("q", "x"))
    bench.run(100)
    bench.backups["b2"].is_ready = True
    bench.run(100)
    (joined,) = bench.backups["b2"].participant.joined.values()
    assert (joined.txid, joined.next) == (txid, 2), "its begin, and the operation of before"
    bench.ask("operations", txid, operations=publish("q", "y"))
    bench.ask("commit", txid)
    bench.settle()
    assert bench.contents()[2].texts("q") == ["x", "y"]


def test_closing_says_who_is_in_and_who_is_out() -> None:
    """Benefits: "By closing the queue ... easy to establish what backups are in/out": they stand in the prepare record."""
    bench = TxBench(("b1", "b2", "b3"))
    bench.backups["b3"].is_ready = False
    txid = bench.begun(publish("q", "x"), xid=XID)
    bench.ask("prepare", txid)
    bench.backups["b3"].is_ready = True
    bench.run(100)
    assert bench.journal.state().prepared[txid].participants == ("b1", "b2")
