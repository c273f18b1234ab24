"""MasterCore: what is let in, who is answered what and when, and that records come before what they allow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from brokerha.master.admission import Waiters
from brokerha.master.config import MasterConfig, RetentionConfig
from brokerha.master.core import MasterCore
from brokerha.model import states
from brokerha.model.epochs import FIRST
from brokerha.model.errors import Rejected
from brokerha.model.ids import Instant
from brokerha.model.operations import ExpectKey, Result, ResultRow, pack_operations
from brokerha.model.outside.authors import signed
from brokerha.model.ready import Ready
from brokerha.model.records import Accepted, Outcomes, Started
from brokerha.model.requests import Reply, Submit
from brokerha.model.wire.epoch_messages import Row
from brokerha.model.wire.messages import Envelope, Execute, Executed, Post, Progress, Read
from brokerha.replication.site.config import FeedConfig
from brokerha.stores.execution.last_changes import Before, judge_expectations
from brokerha.sync.config import SyncConfig
from tests.support.logs import memory_log
from tests.unit.replication.benches import content, results, text

APPLIED = ("applied", "", b"e", content(1))
REJECTED = ("rejected", "no such thing", b"", content(1))


class Bench:
    """One master (alone, or one of three) with a journal, a clock and its consequences."""

    def __init__(self, members: tuple[str, ...] = ("m1",), workers: tuple[str, ...] = ("w1",), **settings: Any) -> None:
        self.config = MasterConfig(SyncConfig("m1", members), FeedConfig(workers), **settings)
        self.journal = memory_log("m1", "journal-of-m1")
        self.core = MasterCore(self.config, self.journal.state(), self.journal)
        self.ms = 1000
        self.tickets = 0
        self.ready: list[Ready] = []

    def now(self) -> Instant:
        return Instant(self.ms, self.ms * 1000)

    def run(self) -> list[Reply]:
        """Carry everything out; return the replies."""
        self.core.wake(self.now())
        replies: list[Reply] = []
        self.ready = []
        while ready := self.core.take_ready(self.now()):
            self.ready.append(ready)
            if ready.records:
                self.journal.append(ready.records)
            replies.extend(ready.replies)
        return replies

    def submit(self, txid: str, body: bytes = b"body", **terms: object) -> None:
        self.tickets += 1
        self.core.step(Submit(self.tickets, txid, body, **terms), self.now())  # type: ignore[arg-type]

    def hear(self, sender: str, message: object) -> None:
        self.core.step(Envelope("c", sender, 1, message), self.now())  # type: ignore[arg-type]

    def worker_up(self, worker: str = "w1", applied: int = 0) -> None:
        journal = f"journal-of-{worker}"
        self.hear(worker, Progress(journal, applied, text(applied), applied, "on", follows="basic", view=1))

    def execute(self, first: int, *results: ResultRow, worker: str = "w1") -> None:
        last = first + len(results) - 1
        self.hear(worker, Executed(first, results, last, text(last), last, f"journal-of-{worker}"))


def test_a_start_is_written_before_anything_is_said() -> None:
    bench = Bench()
    bench.run()
    assert Started(1) in bench.ready[0].records


def test_accepted_is_said_with_the_record_that_holds_it() -> None:
    bench = Bench()
    bench.submit("t1", level="accepted")
    assert bench.run() == [Reply(1, "t1", "accepted")]
    with_reply = next(ready for ready in bench.ready if ready.replies)
    assert any(isinstance(record, Accepted) for record in with_reply.records)


def test_synchronised_is_said_with_its_lsn() -> None:
    bench = Bench()
    bench.submit("t1", level="synchronised")
    assert bench.run() == [Reply(1, "t1", "synchronised", 1)]


def test_applied_waits_for_the_worker_and_is_said_before_the_results_are_written() -> None:
    bench = Bench()
    bench.run()
    bench.submit("t1")
    bench.worker_up()
    assert bench.run() == []
    assert [type(out.message) for ready in bench.ready for out in ready.messages] == [Execute]
    bench.execute(1, APPLIED)
    assert bench.run() == [Reply(1, "t1", "applied", 1)]
    assert not any(ready.records for ready in bench.ready)
    bench.ms += bench.config.outcomes_wait_ms
    bench.run()
    assert [type(record) for ready in bench.ready for record in ready.records] == [Outcomes]


def test_results_are_written_at_once_when_another_worker_needs_them() -> None:
    bench = Bench(workers=("w1", "w2"))
    bench.submit("t1", copies=2)
    bench.worker_up("w1")
    bench.worker_up("w2")
    bench.run()
    bench.execute(1, APPLIED)
    assert bench.run() == []
    assert any(isinstance(record, Outcomes) for ready in bench.ready for record in ready.records)
    bench.worker_up("w2", applied=1)
    assert bench.run() == [Reply(1, "t1", "applied", 1)]


def test_a_rejection_by_a_failed_expectation_is_told_by_a_name_of_its_own() -> None:
    before = Before(lambda _row: None, lambda _kind, _name: 0, b"", lambda _low, _high: b"")
    with pytest.raises(Rejected) as failed:
        judge_expectations([ExpectKey("expect-key", "t", b"k", '"532f4bd209979d816d52ecfb3b2d26df"')], before)
    reason = str(failed.value)
    bench = Bench()
    bench.submit("t1")
    bench.worker_up()
    bench.run()
    bench.execute(1, (*REJECTED[:1], reason, *REJECTED[2:]))
    assert bench.run() == [Reply(1, "t1", "rejected", 1, "Conflict", reason)]


def test_a_rejection_is_told_with_its_reason() -> None:
    bench = Bench()
    bench.submit("t1")
    bench.worker_up()
    bench.run()
    bench.execute(1, REJECTED)
    assert bench.run() == [Reply(1, "t1", "rejected", 1, "Rejected", "no such thing")]
    # Asked again, before and after the results are written, the answer is the same.
    bench.submit("t1")
    assert bench.run()[0].reason == "no such thing"
    bench.ms += bench.config.outcomes_wait_ms
    bench.run()
    bench.submit("t1")
    assert bench.run()[0].reason == "no such thing"


def test_the_same_id_is_the_same_transaction_at_every_stage() -> None:
    bench = Bench(members=("m1", "m2", "m3"))
    bench.submit("t1")
    bench.submit("t1")
    bench.run()
    bench.submit("t1", level="accepted")
    assert bench.run() == [Reply(3, "t1", "accepted")]
    assert bench.core.sync.backlog() == 1


@pytest.mark.parametrize("is_written", [False, True])
def test_the_same_write_by_somebody_else_is_that_write(is_written: bool) -> None:
    bench, body = Bench(), pack_operations([("put", "t", b"k", b"v")])
    bench.submit("t1", signed(body, "anna"), level="accepted")
    replies = bench.run() if is_written else []
    bench.submit("t1", signed(body, "bert"), level="accepted")
    replies += bench.run()
    assert [reply.status for reply in replies] == ["accepted", "accepted"]
    assert (bench.core.history.lsn_of("t1"), bench.core.sync.lsn) == (1, 1)


@pytest.mark.parametrize("is_written", [False, True])
def test_the_same_id_with_other_operations_is_refused(is_written: bool) -> None:
    bench = Bench()
    bench.submit("t1", b"one", level="accepted")
    if is_written:
        bench.run()
    bench.submit("t1", b"two")
    reply = bench.run()[-1] if is_written else next(r for r in bench.run() if r.status == "refused")
    assert (reply.status, reply.error) == ("refused", "KeyReused")


def test_who_waits_for_an_id_is_refused_when_another_transaction_with_it_gets_its_place() -> None:
    waiters = Waiters("m1")
    waiters.add(Submit(1, "t1", b"one", "synchronised"), 0, 0, None)
    waiters.on_added(5, ((9, "t1", "m2"),), lambda _origin, _txid: True)
    assert [(reply.status, reply.error) for reply in waiters.ready_replies] == [("refused", "KeyReused")]


def test_more_than_the_limit_is_refused_until_there_is_room() -> None:
    bench = Bench(members=("m1", "m2", "m3"), accept_limit=2)
    for name in ("a", "b", "c"):
        bench.submit(name, level="accepted")
    refused = [reply for reply in bench.run() if reply.status == "refused"]
    assert [reply.txid for reply in refused] == ["c"]
    assert refused[0].error == "NotReady"


def test_who_does_not_wait_for_workers_is_refused_while_too_much_waits_for_them() -> None:
    bench = Bench(apply_limit=2)
    for name in ("a", "b"):
        bench.submit(name, level="synchronised")
        bench.run()
    bench.submit("c", level="synchronised")
    refused = bench.run()
    assert [(reply.txid, reply.error) for reply in refused] == [("c", "NotReady")]
    assert refused[0].reason == "2 transactions wait to be applied by the workers of this site: try again later"
    bench.worker_up()
    bench.run()
    bench.execute(1, APPLIED)
    bench.run()
    bench.submit("c", level="synchronised")
    assert [(reply.txid, reply.status) for reply in bench.run()] == [("c", "synchronised")]


def test_a_site_without_workers_has_nothing_that_waits_for_them() -> None:
    bench = Bench(apply_limit=1, workers=())
    for name in ("a", "b", "c"):
        bench.submit(name, level="synchronised")
        assert [reply.status for reply in bench.run()] == ["synchronised"]


def test_a_known_transaction_does_not_wait_for_more_copies_than_workers() -> None:
    bench = Bench()
    bench.submit("t1", level="accepted")
    bench.run()
    bench.submit("t1", copies=2, timeout_ms=60_000)
    (reply,) = bench.run()
    # Not refused: it may take effect.
    assert (reply.status, reply.error) == ("unknown", "OutcomeUnknown")
    assert reply.reason.startswith("applied=2 asks for more workers than this site has (1); the transaction is known already")


def test_more_copies_than_workers_are_refused() -> None:
    bench = Bench()
    bench.submit("t1", copies=2)
    reply = bench.run()[0]
    assert (reply.status, reply.error) == ("refused", "InvalidRequest")


def test_a_deadline_gives_unknown_and_the_transaction_goes_on() -> None:
    bench = Bench()
    bench.submit("t1", timeout_ms=500)
    bench.run()
    bench.ms += 500
    reply = bench.run()[0]
    assert (reply.status, reply.error, reply.lsn) == ("unknown", "OutcomeUnknown", 1)
    bench.worker_up()
    bench.run()
    bench.execute(1, APPLIED)
    assert bench.run() == []
    bench.submit("t1")
    assert bench.run() == [Reply(2, "t1", "applied", 1)]


def test_a_deadline_before_agreement_gives_unknown_too() -> None:
    bench = Bench(members=("m1", "m2", "m3"))
    bench.submit("t1", timeout_ms=500)
    bench.submit("t1", timeout_ms=900)
    bench.run()
    bench.ms += 500
    assert [reply.ticket for reply in bench.run()] == [1]
    bench.ms += 500
    assert [reply.ticket for reply in bench.run()] == [2]


def test_nobody_waits_for_ticket_zero() -> None:
    bench = Bench()
    bench.core.step(Submit(0, "t1", b"body"), bench.now())
    assert bench.run() == []
    assert bench.journal.lsn_of("t1") == 1


def test_a_write_that_is_known_already_is_answered_at_once() -> None:
    bench = Bench()
    bench.submit("t1", level="synchronised")
    bench.run()
    bench.submit("t1", level="synchronised")
    assert bench.run() == [Reply(2, "t1", "synchronised", 1)]


def test_results_are_found_before_and_after_they_are_written() -> None:
    bench = Bench()
    bench.submit("t1")
    bench.worker_up()
    bench.run()
    assert bench.core.result_of(1) is None
    bench.execute(1, APPLIED)
    bench.run()
    assert bench.core.result_of(1) == APPLIED
    bench.ms += bench.config.outcomes_wait_ms
    bench.run()
    assert bench.core.result_of(1) == Result(*APPLIED)
    assert bench.core.result_of(0) is None


def test_what_is_not_for_a_master_is_counted() -> None:
    bench = Bench()
    bench.hear("w1", Read("r", "get", "t", {}, 0, 1000))
    assert bench.core.ignored["not_for_a_master"] == 1


def test_state_words_say_what_is_missing() -> None:
    bench = Bench(members=("m1", "m2"), workers=("w1",))
    bench.run()
    not_yet = "not heard yet: m2; a new cluster begins once each of its masters has been heard"
    assert bench.core.state(bench.now()) == (states.WAITING_FOR_PEERS, not_yet)
    row = Row("m2", "journal-of-m2", 1, 1, FIRST, FIRST, 0, {"m1": 0, "m2": 0}, 0, 0, ())
    bench.hear("m2", Post(row, (), ()))
    bench.run()
    assert bench.core.state(bench.now())[0] == states.NO_WORKER
    bench.worker_up()
    bench.run()
    assert bench.core.state(bench.now()) == (states.OK, "")


def test_a_peer_that_came_back_with_another_journal_is_named() -> None:
    bench = Bench(members=("m1", "m2"))
    row = Row("m2", "journal-of-m2", 1, 1, FIRST, FIRST, 0, {"m1": 0, "m2": 0}, 0, 0, ())
    bench.hear("m2", Post(row, (), ()))
    bench.run()
    bench.ms += 60_000
    bench.hear("m2", Post(replace(row, journal="another", incarnation=2), (), ()))
    bench.run()
    assert bench.core.state(bench.now()) == (states.WAITING_FOR_PEERS, "not heard: m2 (its data directory is not the one it had)")


def test_an_emptied_disk_is_noticed_and_takes_no_writes() -> None:
    bench = Bench(members=("m1", "m2"))
    row = Row("m2", "journal-of-m2", 1, 1, FIRST, FIRST, 0, {"m1": 5, "m2": 0}, 0, 0, ("m1",))
    bench.hear("m2", Post(row, (), ()))
    bench.run()
    assert bench.core.state(bench.now())[0] == states.LOST_STATE
    bench.submit("t1")
    reply = bench.run()[0]
    assert (reply.status, reply.error) == ("refused", "ReadOnly")


def test_it_catches_up_says_the_state_when_workers_are_far_behind() -> None:
    bench = Bench()
    bench.worker_up()
    for number in range(5001):
        bench.submit(f"t{number}", level="accepted")
    bench.run()
    bench.run()
    assert bench.core.state(bench.now())[0] == states.CATCHING_UP


def test_it_wants_to_be_woken_for_what_waits() -> None:
    bench = Bench()
    bench.run()
    bench.submit("t1", timeout_ms=700)
    bench.run()
    assert bench.core.deadline_ms(bench.now()) == bench.ms + 700


def test_what_was_rejected_stays_rejected_after_its_result_was_trimmed():
    # Given two transactions, the second of which was rejected, and a log that has forgotten both
    bench = Bench()
    bench.worker_up()
    for txid in ("a", "b", "c"):
        bench.submit(txid)
    bench.run()
    bench.run()
    bench.execute(1, APPLIED, REJECTED, APPLIED)
    bench.ms += 1000
    bench.run()
    assert bench.journal.trim(below=4) == 3
    # When both ids are handed in again
    bench.submit("a")
    bench.submit("b")
    replies = {reply.txid: reply for reply in bench.run()}
    # Then each gets the outcome that it had
    assert replies["a"].status == "applied"
    assert (replies["b"].status, replies["b"].reason) == ("rejected", "no such thing")


def test_a_master_that_lost_its_disk_gives_its_workers_no_orders():
    # Given a master of three whose journal was emptied, and a worker that has more than that journal
    bench = Bench(("m1", "m2", "m3"))
    members = {"m1": 7, "m2": 0, "m3": 0}
    bench.hear("m2", Post(Row("m2", "journal-of-m2", 1, 1, FIRST, FIRST, 0, members, 0, 0, ("m1",)), (), ()))
    assert bench.core.sync.lost
    bench.worker_up(applied=7)
    bench.ms += 60_000
    bench.run()
    bench.worker_up(applied=7)
    bench.run()
    # Then it does not tell the worker to take another copy
    assert [out for ready in bench.ready for out in ready.messages if out.to == "w1"] == []


def test_the_log_is_kept_from_where_the_sources_stood_when_a_load_was_ordered():
    # Given a short log, two workers in sync, and another one that needs a snapshot
    bench = Bench(workers=("w1", "w2", "w3"), retention=RetentionConfig(max_size=10, slack=1))
    bench.worker_up("w1")
    bench.worker_up("w3")
    for number in range(20):
        bench.submit(f"a{number:02}")
    bench.run()
    bench.run()
    bench.execute(1, *results(1, 20))
    bench.run()
    bench.worker_up("w1", applied=20)
    bench.worker_up("w3", applied=20)
    lost = Progress("copy-of-w2", 0, "", 0, "out-of-sync", follows="idle", trouble="its files are gone")
    bench.hear("w2", lost)
    bench.run()
    # When the site writes on before the snapshot is offered, more than the log keeps
    for number in range(20):
        bench.submit(f"b{number:02}")
    bench.run()
    bench.run()
    bench.execute(21, *results(21, 40))
    bench.run()
    bench.worker_up("w1", applied=40)
    bench.worker_up("w3", applied=40)
    bench.hear("w2", replace(lost, state="replication-client", follows="load", view=1))
    bench.ms += 2000
    bench.run()
    step = bench.core.forgetting(bench.now())
    # Then what comes after any snapshot that it can be offered is still there
    assert step is not None
    assert step.below == 21
    # And it may go once the worker follows again
    bench.hear("w2", Progress("new-copy-of-w2", 40, text(40), 0, "on", follows="basic", view=1))
    bench.core.retention.done(more=False)
    bench.ms += 2000
    step = bench.core.forgetting(bench.now())
    assert step is not None
    assert step.below == 31
