"""A backup that an operator pauses, coins and has continue: what it leaves alone, what it goes on doing, what its disk remembers.

Quoted is the paper's explanation of pauses(), coin() and continues().
"""

from __future__ import annotations

import pytest

from brokerha.master.standby import Standby
from brokerha.model import states
from brokerha.model.ready import FollowTxQueue, LeaveTxQueue
from brokerha.model.records import Rest, Started, ViewStarted
from brokerha.model.wire.messages import Chunk
from brokerha.model.wire.process_messages import (
    Candidate,
    Confirmed,
    Promote,
    RecordsMissing,
    RecordsWanted,
    TxAnswer,
    TxEvents,
    TxJoin,
    Vote,
)
from brokerha.replication.journal.backups import PAUSED
from brokerha.replication.role.config import RoleConfig
from brokerha.replication.role.role import Role
from brokerha.replication.role.table import RoleState
from tests.unit.master.test_standby import FAIL_OVER_MS, Bench

COINED = Rest(is_on=True, primary="m1", view=10)


def order(bench: Bench, command: str, *, is_forced: bool = False) -> str:
    return bench.standby.order(command, bench.now, is_forced=is_forced)


def paused() -> Bench:
    bench = Bench()
    assert order(bench, "pause") == ""
    assert bench.turn().rest == Rest(is_on=True)
    return bench


def restarted(bench: Bench, rest: Rest) -> Bench:
    """The same process after kill -9, with what its disk remembers."""
    state = bench.journal.state()
    state.rest = rest
    config = RoleConfig("b1", "m1", ("m1", "b1", "b2"), 1, FAIL_OVER_MS)
    bench.standby = Standby(Role(config, "j", 10, (10, bench.journal.last_number), bench.now), bench.journal, state)
    return bench


def pass_time(bench: Bench, ms: int) -> list[object]:
    """Everything that it says meanwhile."""
    said: list[object] = []
    for _ in range(ms // 100):
        bench.ms += 100
        said += [out.message for out in bench.turn().messages]
    return said


def test_it_follows_nobody_and_says_where_it_stands() -> None:
    """pauses(): "the replication can be suspended"; it "rejects any operation except those which can ... get its on disk LSN"."""
    bench = paused()
    bench.feed(Started(1))
    bench.feed(Started(1))
    assert bench.turn().records == ()
    (word, *_) = [each for each in pass_time(bench, FAIL_OVER_MS) if isinstance(each, Confirmed)]
    assert (word.follows, word.last, word.view) == (PAUSED, (10, 1), 10)
    assert bench.standby.state(bench.now) == (states.PAUSED, "by an operator, at record 1 of view 10; not coined")


def test_it_asks_for_nothing_loads_nothing_and_gives_nothing_away() -> None:
    bench = paused()
    bench.feed(Started(1), previous=(10, 7), last_number=8)
    bench.feed(journal="another")
    bench.hear(RecordsWanted(10, 1, 1), "b2")
    bench.hear(Chunk("s", 0, b"x"))
    ready = bench.turn()
    assert bench.said(ready, RecordsWanted) == []
    assert ready.decisions == ()
    assert [type(each) for each in (out.message for out in ready.messages) if type(each) is not Confirmed] == [RecordsMissing]


def test_it_votes_and_never_stands() -> None:
    bench = paused()
    said = pass_time(bench, 20 * FAIL_OVER_MS)
    assert not [each for each in said if isinstance(each, Candidate)]
    bench.hear(Candidate(102, "j", (10, 1)), "b2")
    ready = bench.take()
    assert (ready.promise, [vote.is_granted for vote in bench.said(ready, Vote)]) == (102, [True])
    bench.feed(ViewStarted(102, "b2"), view=102, sender="b2")
    assert bench.turn().records == ()
    assert bench.standby.role.state is RoleState.IDLE


def test_it_leaves_its_transactions_and_joins_no_other() -> None:
    bench = Bench()
    bench.hear(TxJoin("t1", 10, "queue"))
    assert FollowTxQueue("queue") in bench.turn().tx_queues
    order(bench, "pause")
    assert LeaveTxQueue("queue") in bench.turn().tx_queues
    bench.feed()
    bench.hear(TxJoin("t2", 10, "other"))
    bench.hear(TxEvents("t1", 10, 0, (("begin", b""),)))
    ready = bench.turn()
    assert (ready.tx_queues, bench.said(ready, TxAnswer)) == ((), [])


def test_after_a_restart_it_is_paused_where_it_was() -> None:
    bench = restarted(paused(), COINED)
    bench.feed(Started(1))
    ready = bench.turn()
    assert (ready.records, ready.rest) == ((), None)
    (word,) = bench.said(ready, Confirmed)
    assert (word.follows, word.last) == (PAUSED, (10, 1))
    assert not [each for each in pass_time(bench, 20 * FAIL_OVER_MS) if isinstance(each, Candidate)]


def test_without_a_coin_it_does_not_continue() -> None:
    """coin(): it "has necessarily to be executed, before the slave is continued. Otherwise the continuation will fail"."""
    bench = paused()
    assert order(bench, "continue") == "b1 was not coined since it was paused: first brokerha node coin b1"
    assert bench.turn().rest is None
    assert bench.standby.state(bench.now)[0] == states.PAUSED


@pytest.mark.parametrize("is_restarted", [False, True])
def test_with_a_coin_it_continues_and_takes_what_it_missed(is_restarted: bool) -> None:
    """continues() "must be parameterized with SLAVE or MASTER": this is the former."""
    bench = paused()
    assert order(bench, "coin") == ""
    assert bench.turn().rest == COINED
    if is_restarted:
        restarted(bench, COINED).feed()
    assert bench.standby.state(bench.now)[1].endswith("; coined on m1 in view 10")
    assert order(bench, "continue") == ""
    assert bench.turn().rest == Rest()
    bench.feed(Started(1))
    assert [number for number, _ in bench.turn().records] == [2]
    assert [word.follows for word in bench.said(bench.turn(), Confirmed)] == ["basic"]
    bench.feed(is_ready=True)
    assert bench.standby.state(bench.now) == (states.READY, "")
    bench.hear(TxJoin("t1", 10, "queue"))
    assert FollowTxQueue("queue") in bench.turn().tx_queues


def test_one_that_is_paused_again_before_it_heard_its_primary_follows_nobody() -> None:
    bench = paused()
    for command in ("coin", "continue", "pause"):
        assert order(bench, command) == ""
        bench.turn()
    bench.feed(Started(1))
    assert bench.turn().records == ()


def test_a_coin_on_a_former_primary_is_stale() -> None:
    """coin() names "the new master": the one of now."""
    bench = paused()
    order(bench, "coin")
    bench.turn()
    bench.feed(view=22, sender="b2")
    assert order(bench, "continue") == (
        "b1 was coined on m1 in view 10, and b2 is primary in view 22 now: first brokerha node coin b1"
    )
    assert bench.turn().rest is None
    assert order(bench, "coin") == ""
    assert bench.turn().rest == Rest(is_on=True, primary="b2", view=22)
    assert order(bench, "continue") == ""
    bench.feed(ViewStarted(22, "b2"), view=22, sender="b2")
    assert [number for number, _ in bench.turn().records] == [2]


def test_the_same_primary_in_another_view_needs_another_coin() -> None:
    bench = paused()
    order(bench, "coin")
    bench.feed(view=20)
    assert "coined on m1 in view 10, and m1 is primary in view 20 now" in order(bench, "continue")


def test_who_hears_no_primary_is_neither_coined_nor_continued() -> None:
    bench = restarted(paused(), COINED)
    for command in ("coin", "continue"):
        assert order(bench, command) == "b1 hears no primary at present: wait until it does"
    assert bench.turn().rest is None
    bench.feed()
    assert order(bench, "continue") == ""


def test_each_order_twice_is_the_same_as_once() -> None:
    bench = paused()
    order(bench, "coin")
    bench.turn()
    for command in ("pause", "coin"):
        assert order(bench, command) == ""
        assert bench.turn().rest is None
    assert bench.standby.resting.rest == COINED
    order(bench, "continue")
    bench.turn()
    assert order(bench, "continue") == ""
    assert bench.turn().rest is None
    assert order(bench, "coin") == "b1 is not paused: only a paused process is coined"


def test_a_backup_that_writes_wait_for_is_paused_by_force_only() -> None:
    bench = Bench()
    config = RoleConfig("b1", "m1", ("m1", "b1"), 1, FAIL_OVER_MS)
    bench.standby = Standby(Role(config, "j", 10, (10, 1), bench.now), bench.journal, bench.journal.state())
    assert order(bench, "pause").startswith("sync-n of m1 is 1: without b1 no write is acknowledged")
    assert bench.turn().rest is None
    assert order(bench, "pause", is_forced=True) == ""
    assert bench.turn().rest == Rest(is_on=True)


def test_a_load_is_not_paused() -> None:
    bench = Bench()
    bench.feed(journal="k")
    bench.turn()
    assert order(bench, "pause") == "b1 takes a snapshot of its primary: pause it when that is over"
    assert bench.turn().rest is None


def test_idle_until_a_primary_is_declared_becomes_paused_until_it_continues() -> None:
    bench = Bench()
    bench.standby.role.pause("lost its backups", until_declared=True)
    bench.turn()
    order(bench, "pause")
    bench.turn()
    bench.feed(ViewStarted(22, "b2"), view=22, sender="b2")
    assert bench.turn().records == ()
    assert bench.standby.role.state is RoleState.IDLE


@pytest.mark.parametrize("is_forced", [False, True])
def test_to_be_promoted_is_to_continue_as_primary(is_forced: bool) -> None:
    """continues() with MASTER."""
    bench = paused()
    bench.hear(Promote(is_forced), "b2")
    ready = bench.take()
    assert ready.rest == Rest()
    if is_forced:
        assert ready.change is not None
        assert ready.change.state is RoleState.PRIMARY
    else:
        assert [each.is_by_hand for each in bench.said(ready, Candidate)] == [True, True]
        bench.feed(Started(1))
        assert [number for number, _ in bench.turn().records] == [2]


def test_who_is_paused_again_as_soon_as_it_was_promoted_is_paused() -> None:
    bench = paused()
    order(bench, "coin")
    bench.turn()
    bench.hear(Promote(is_forced=False), "b2")
    assert order(bench, "pause") == ""
    assert bench.turn().rest == Rest(is_on=True)
    assert bench.standby.role.state is RoleState.IDLE
