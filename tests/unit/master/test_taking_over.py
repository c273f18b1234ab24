"""A master takes over the state of another one: what it says meanwhile, and what becomes of those who wait at it and of its workers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from brokerha.model import states
from brokerha.model.epochs import FIRST, EpochId
from brokerha.model.ids import Lsn, NodeId
from brokerha.model.requests import APPLIED_LEVEL, REJECTED_STATUS, SYNCHRONISED, Submit
from brokerha.model.wire.epoch_messages import State, StateWanted, Tail
from brokerha.model.wire.messages import LoadFrom, Progress
from brokerha.replication.site.config import FeedConfig, Standing
from tests.unit.master.one_of_three import OTHERS, OneOfThree

LAST = (99, "t45", "m2")
FIRST_PAGE = State(45, b"", LAST, b"fingerprint", 7, (("waits", 41),), (), b"next")
LAST_PAGE = replace(FIRST_PAGE, cursor=b"next", ids=(("fails", 42),), rejections=((42, "no place"),), next_cursor=b"")


class Bench(OneOfThree):
    """It, with one worker at LSN 0; the others are in a later epoch and hold LSN 40 to 50."""

    def __init__(self) -> None:
        feed = FeedConfig(("w1",), others=("w2", "w3"))
        super().__init__(feed=feed)
        self.ms += feed.dead_after_ms
        self.hear_worker()
        self.say_where_they_are(FIRST, 0)

    def hear_worker(self) -> None:
        self.say("w1", Progress("copy-of-w1", 0, "", 0, "on", "", 0, "basic", 1))

    def say_where_they_are(self, epoch: EpochId = (2, "m2"), lsn: Lsn = 50) -> None:
        """Both others do."""
        self.post(*OTHERS, epoch=epoch, promised=epoch, lsn=lsn, heard=OTHERS)

    def leave_behind(self) -> NodeId:
        """Both others say that they hold what comes next no more; returns who is asked for its state."""
        for _ in range(2):
            for sender in ("m2", "m3"):
                self.say_where_they_are()
                self.say(sender, Tail(1, (), 40))
        return next(out.to for out in reversed(self.sent) if isinstance(out.message, StateWanted))

    def submit(self, ticket: int, txid: str, level: str) -> None:
        self.core.step(Submit(ticket, txid, b"body", level, 1, 10**6), self.now())
        self.run()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_it_says_whose_state_it_reads_and_how_far_it_is(bench: Bench) -> None:
    source = bench.leave_behind()
    assert bench.core.state(bench.now())[0] == states.LEFT_BEHIND
    bench.say(source, FIRST_PAGE)
    reason = f"the state of {source} at LSN 45 is taken over, as nobody holds LSN 1 any more: 1 transactions are known"
    assert bench.core.state(bench.now()) == (states.CATCHING_UP, reason)
    bench.say(source, LAST_PAGE)
    assert bench.core.sync.lsn == bench.core.feed.executed == bench.journal.state().executed_lsn == 45


def test_who_waits_for_what_is_known_now_is_answered_when_it_is_durable(bench: Bench) -> None:
    # Given clients that wait for transactions of which the others know
    bench.submit(1, "waits", SYNCHRONISED)
    bench.submit(2, "fails", APPLIED_LEVEL)
    bench.submit(3, "open", SYNCHRONISED)
    # When the state comes, then the first one is told its LSN
    source = bench.leave_behind()
    bench.say(source, FIRST_PAGE)
    assert not bench.replies
    bench.say(source, LAST_PAGE)
    assert [(reply.ticket, reply.status, reply.lsn) for reply in bench.replies] == [(1, SYNCHRONISED, 41)]
    # And the one that was rejected is told so as soon as a worker stands there
    bench.core.feed.workers["w1"].applied, bench.core.feed.workers["w1"].condemned = 45, ""
    bench.run()
    (reply,) = bench.replies[1:]
    assert (reply.ticket, reply.status, reply.lsn, reply.reason) == (2, REJECTED_STATUS, 42, "no place")
    # And the last one waits on
    assert len(bench.core.waiters) == 1
    assert bench.core.sync.pending == {"open"}


def test_a_transaction_that_came_with_the_state_is_answered_with_its_lsn(bench: Bench) -> None:
    source = bench.leave_behind()
    bench.say(source, FIRST_PAGE)
    bench.say(source, LAST_PAGE)
    bench.submit(7, "waits", SYNCHRONISED)
    assert [(reply.ticket, reply.lsn) for reply in bench.replies] == [(7, 41)]


def test_plans_for_the_results_from_before_are_given_up(bench: Bench) -> None:
    source = bench.leave_behind()
    bench.say(source, FIRST_PAGE)
    site = bench.core.site
    site.fill(site.workers["w1"], 3)
    site.adopt(site.workers["w1"], "an operator chose it")
    bench.say(source, LAST_PAGE)
    assert (bench.core.feed.executed, site.filling) == (45, None)


def test_workers_that_are_behind_take_a_copy_of_another_site(bench: Bench) -> None:
    source = bench.leave_behind()
    bench.say(source, FIRST_PAGE)
    assert bench.core.site.workers["w1"].standing is Standing.ON
    bench.sent.clear()
    bench.say(source, LAST_PAGE)
    bench.hear_worker()
    worker = bench.core.site.workers["w1"]
    assert (worker.standing, worker.condemned) == (Standing.OUT_OF_SYNC, "it is at LSN 0, the log begins after 45")
    (order,) = [out.message for out in bench.sent if isinstance(out.message, LoadFrom)]
    assert order.sources == ("w2", "w3")
