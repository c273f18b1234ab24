"""Transactions inside a master's core: what they share with plain writes, with the log, and with a master that cannot write."""

from __future__ import annotations

from brokerha.master.config import HOUR_US, MasterConfig
from brokerha.master.core import MasterCore
from brokerha.model.forgetting import BODY, forgetting_id
from brokerha.model.ids import Instant
from brokerha.model.records import Accepted, TxDecided, TxPrepared
from brokerha.model.requests import REFUSED, Reply, Submit, TxCommand, TxReply
from brokerha.replication.site.config import FeedConfig
from brokerha.sync.config import SyncConfig
from tests.support.logs import memory_log
from tests.unit.transactions.bench import TxBench, word_of
from tests.unit.transactions.queue_site import publish


def test_a_plain_write_under_the_id_of_an_open_transaction_is_refused() -> None:
    bench = TxBench(())
    txid = bench.begun(publish("q", "x"))
    reply = bench.submit(publish("q", "y"), txid)
    assert (reply.status, reply.error) == (REFUSED, "KeyReused")
    assert bench.ask("commit", txid).answer["state"] == "committed"


def test_a_plain_write_that_comes_first_under_the_same_key_ends_the_transaction() -> None:
    bench = TxBench(())
    bench.submit(publish("q", "x"), "my-key")
    assert bench.ask("begin", "my-key").error == "KeyReused"
    assert bench.ask("commit", "my-key").answer == {"state": "committed", "lsn": 1}


def test_too_many_that_wait_for_their_order_refuse_a_commit_and_undo_it() -> None:
    bench = TxBench(())
    txid = bench.begun(publish("q", "x"))
    object.__setattr__(bench.config, "accept_limit", 0)
    reply = bench.ask("commit", txid)
    assert (reply.error, "wait to be synchronised" in reply.reason) == ("Aborted", True)
    object.__setattr__(bench.config, "accept_limit", 10)
    bench.check_clean()


def test_without_a_worker_that_is_needed_a_transaction_is_read_only_from_its_begin() -> None:
    bench = TxBench(())
    txid = bench.begun(publish("q", "x"))
    bench.worker.progress = lambda view: None  # type: ignore[assignment,method-assign,return-value]
    bench.heard_ms = 10**9
    bench.run(60_000)
    replies = [bench.ask("begin", f"{bench.prefix}77.t"), bench.ask("commit", txid)]
    assert replies[0].error == "ReadOnly"
    assert replies[1].error == "Aborted"


def test_the_decision_and_the_body_are_in_one_turn() -> None:
    bench = TxBench(())
    txid = bench.begun(publish("q", "x"), xid="1:aa:")
    bench.ask("prepare", txid)
    bench.do("commit", txid, one_phase=False)
    kinds: list[type] = []
    while not kinds:
        ready = bench.core.take_ready(bench.now())
        kinds = [type(record) for record in ready.records if isinstance(record, TxDecided | Accepted)]
        bench.journal.append(ready.records)
    assert kinds == [TxDecided, Accepted]


def test_a_master_that_lost_its_disk_decides_nothing() -> None:
    bench = TxBench(())
    txid = bench.begun(publish("q", "x"), xid="1:aa:")
    bench.ask("prepare", txid)
    ticket = bench.do("commit", txid, one_phase=False)
    bench.core.sync.lost = "somebody knows more of this master"
    bench.run(1_000)
    assert not [record for _, record in bench.journal.records() if isinstance(record, TxDecided)]
    assert ticket not in bench.replies
    assert bench.ask("begin", f"{bench.prefix}77.t").error == "ReadOnly"


def test_an_outcome_is_presumed_as_long_as_the_log_knows_every_id_of_that_time() -> None:
    bench = TxBench(())
    lost = bench.begun(publish("q", "x"))
    bench.submit(publish("q", "y"))
    bench.restart()
    unborn = f"{bench.prefix}ffff.t"
    assert [word_of(bench.outcome(txid)) for txid in (lost, unborn, "my-key")] == ["aborted", "unknown", "unknown"]
    for number in range(5):
        bench.submit(publish("q", str(number)))
    bench.ms += 200 * HOUR_US // 1000
    bench.submit(publish("q", "a week later"))
    assert bench.journal.trim(6) > 0
    assert word_of(bench.outcome(lost)) == "aborted"
    bench.core.admit(forgetting_id(6), BODY)
    bench.settle()
    assert word_of(bench.outcome(lost)) == "unknown"
    assert bench.ask("commit", lost).error == "UnknownTransaction"


def test_what_is_known_by_its_lsn_is_told_by_the_log() -> None:
    bench = TxBench(())
    txid = bench.begun(publish("q", "x"))
    assert bench.outcome(txid) == {"txid": txid, "state": "open", "lsn": None, "outcome": None, "reason": ""}
    bench.worker.is_stopped = True
    bench.ask("commit", txid, level="synchronised")
    assert bench.outcome(txid) == {"txid": txid, "state": "synchronised", "lsn": 1, "outcome": None, "reason": ""}
    bench.worker.is_stopped = False
    bench.settle()
    assert bench.outcome(txid) == {"txid": txid, "state": "applied", "lsn": 1, "outcome": "applied", "reason": ""}


def test_a_core_without_workers_commits_at_the_levels_that_need_none() -> None:

    journal = memory_log("m1", "journal-of-m1")
    core = MasterCore(MasterConfig(SyncConfig("m1", ("m1",)), FeedConfig(())), journal.state(), journal)
    now = Instant(1_000, 1_000_000)
    replies: list[TxReply | Reply] = []
    steps: list[tuple[str, dict[str, object]]] = [
        ("begin", {}), ("operations", {"operations": publish("q", "x")}), ("commit", {"level": "applied"}), ("commit", {"level": "synchronised"}),
    ]  # fmt: skip
    for ticket, (action, arguments) in enumerate(steps, 1):
        core.step(TxCommand(ticket, action, "t1", dict(arguments)), now)
        while ready := core.take_ready(now):
            journal.append(ready.records)
            replies += ready.tx_replies
        now = Instant(now.mono_ms + 10, now.wall_us + 10_000)
    core.wake(now)
    assert [type(reply) for reply in replies] == [TxReply] * len(replies)
    assert [reply.error for reply in replies] == ["", "", "InvalidRequest", ""]
    assert replies[-1].answer == {"state": "committed", "lsn": 1}  # type: ignore[union-attr]


def test_without_workers_what_was_accepted_is_unlocked_once_it_has_its_place() -> None:

    journal = memory_log("m1", "journal-of-m1")
    core = MasterCore(MasterConfig(SyncConfig("m1", ("m1",)), FeedConfig(())), journal.state(), journal)
    now = Instant(1_000, 1_000_000)
    steps: list[tuple[str, dict[str, object]]] = [
        ("begin", {}), ("operations", {"operations": [("accept", "q", "x.1")]}), ("commit", {"level": "synchronised"}),
    ]  # fmt: skip
    for ticket, (action, arguments) in enumerate(steps, 1):
        core.step(TxCommand(ticket, action, "t1", dict(arguments)), now)
        while ready := core.take_ready(now):
            journal.append(ready.records)
        now = Instant(now.mono_ms + 10, now.wall_us + 10_000)
    core.wake(now)
    core.take_ready(now)
    book = core.transacting.coordinator.book
    assert (len(book.locks), len(book.executing), journal.lsn_of("t1")) == (0, 0, 1)


def test_plain_writes_and_commits_are_answered_each_in_its_way() -> None:
    bench = TxBench(())
    txid = bench.begun(publish("q", "x"))
    ticket = bench.do("commit", txid)
    bench.core.step(Submit(99, "plain", b"\x91\x94\xa7publish\xa1q\xa1t\xc4\x01y"), bench.now())
    bench.run(200)
    assert isinstance(bench.replies[ticket], TxReply)
    assert isinstance(bench.replies[99], Reply)
    assert not [record for _, record in bench.journal.records() if isinstance(record, TxPrepared)]
