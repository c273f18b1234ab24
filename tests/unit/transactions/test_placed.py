"""A prepare has its place in the order: what is told before it is judged there, and what becomes of it when somebody dies."""

from __future__ import annotations

from typing import Any

import pytest

from brokerha.model.operations import pack_operations
from brokerha.model.requests import TxReply
from brokerha.model.reserved import branches
from tests.unit.transactions.bench import TxBench, word_of
from tests.unit.transactions.queue_site import accept, publish

XID = "1:aa:"


@pytest.fixture(params=[(), ("b1", "b2")], ids=["alone", "two backups"])
def bench(request: pytest.FixtureRequest) -> TxBench:
    return TxBench(request.param)


def state(bench: TxBench) -> list[str]:
    """States of all transactions that are not over."""
    return [row["state"] for row in bench.core.transacting.coordinator.rows(bench.now())]


def placed(bench: TxBench) -> str:
    """One whose prepare is not judged, because the worker does nothing."""
    txid = bench.begun(publish("q", "x"), xid=XID)
    bench.worker.is_stopped = True
    ticket = bench.do("prepare", txid, 60_000)
    bench.run(1_000)
    assert (state(bench), ticket in bench.replies) == (["placed"], False)
    return txid


def ended(bench: TxBench) -> list[str]:
    """What the queue holds once everything has come to its end."""
    bench.settle()
    bench.check_clean()
    return bench.worker.queues.texts("q")


def test_what_the_probe_rejects_is_not_prepared(bench: TxBench) -> None:
    txid = bench.begun(accept("q", "not-there"), xid=XID)
    reply = bench.ask("prepare", txid)
    assert (reply.error, "not-there" in reply.reason) == ("Conflict", True)
    assert (word_of(bench.outcome(txid)), state(bench)) == ("aborted", [])
    assert bench.ask("commit", txid, one_phase=False).error == "Conflict"
    assert ended(bench) == []


def test_prepared_is_told_when_it_was_judged_and_a_commit_that_comes_before_waits(bench: TxBench) -> None:
    txid = placed(bench)
    again, commit = bench.do("prepare", txid, 60_000), bench.do("commit", txid, 60_000, one_phase=False)
    bench.run(1_000)
    assert word_of(bench.outcome(txid)) == "open"
    assert not {again, commit} & bench.replies.keys()
    bench.worker.is_stopped = False
    bench.run(2_000)
    told: list[Any] = [bench.replies[ticket] for ticket in (again, commit)]
    assert [reply.answer for reply in told] == [{"state": "prepared"}, {"state": "committed", "lsn": 2}]
    assert ended(bench) == ["x"]


def test_a_commit_that_waits_for_a_prepare_that_is_rejected_is_told_so(bench: TxBench) -> None:
    txid = placed(bench)
    commit = bench.do("commit", txid, 60_000, one_phase=False)
    bench.worker.rejects[branches.prepare_id(txid)] = "a check does not hold"
    bench.worker.is_stopped = False
    bench.run(2_000)
    reply = bench.replies[commit]
    assert isinstance(reply, TxReply)
    assert (reply.error, reply.reason) == ("Aborted", "a check does not hold")
    assert ended(bench) == []


def test_the_phase_may_be_left_to_the_state(bench: TxBench) -> None:
    txid = placed(bench)
    commit = bench.do("commit", txid, 60_000, one_phase=None)
    bench.worker.is_stopped = False
    bench.run(2_000)
    assert commit in bench.replies
    one = bench.begun(publish("q", "y"), xid=XID)
    assert bench.ask("commit", one, one_phase=None).answer["state"] == "committed"
    assert ended(bench) == ["x", "y"]


@pytest.mark.parametrize("arguments", [{}, {"by_hand": True}], ids=["client", "by hand"])
def test_what_is_not_judged_can_be_rolled_back(bench: TxBench, arguments: dict[str, Any]) -> None:
    txid = placed(bench)
    assert bench.ask("rollback", txid, **arguments).answer == {"state": "aborted"}
    bench.worker.is_stopped = False
    bench.run(1_000)
    if arguments:
        assert bench.ask("forget", txid).answer == {"state": "forgotten"}
    assert word_of(bench.outcome(txid)) == "aborted"
    assert ended(bench) == []


def test_what_is_not_judged_is_not_committed_by_hand(bench: TxBench) -> None:
    assert bench.ask("commit", placed(bench), one_phase=False, by_hand=True).error == "WrongState"


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("how", ["fail_over", "restart"])
def test_what_was_placed_when_everybody_died_is_judged_and_ends(end: str, how: str) -> None:
    bench = TxBench()
    txid = placed(bench)
    getattr(bench, how)()
    assert state(bench) == ["placed"]
    bench.worker.is_stopped = False
    bench.run(2_000)
    assert state(bench) == ["prepared"]
    assert not bench.ask(end, txid, one_phase=False).error
    assert ended(bench) == (["x"] if end == "commit" else [])


@pytest.mark.parametrize("how", ["fail_over", "restart"])
def test_what_was_prepared_is_prepared_at_once_after_a_start(how: str) -> None:
    bench = TxBench()
    txid = bench.begun(publish("q", "x"), xid=XID)
    bench.ask("prepare", txid)
    bench.run(1_000)
    bench.worker.is_stopped = True
    getattr(bench, how)()
    assert state(bench) == ["prepared"]
    bench.worker.is_stopped = False
    assert not bench.ask("commit", txid, one_phase=False).error
    assert ended(bench) == ["x"]


def test_a_place_that_was_lost_with_its_primary_is_taken_again() -> None:
    bench = TxBench(("b1",), sync_n=1)
    txid = bench.begun(publish("q", "x"), xid=XID)
    # The record that it is prepared reaches the backup, and nothing that follows from it.
    bench.do("prepare", txid)
    while not bench.journal.state().prepared:
        bench.run(10)
    bench.tick()
    bench.backups["b1"].is_paused = True
    bench.run(500)
    bench.backups["b1"].is_paused = False
    known = bench.backups["b1"].journal.lsn_of(branches.prepare_id(txid))
    bench.fail_over()
    bench.run(2_000)
    assert (known, state(bench)) == (None, ["prepared"])
    assert not bench.ask("commit", txid, one_phase=False).error
    assert ended(bench) == ["x"]


def test_a_second_one_that_takes_the_same_message_is_rejected_wherever_it_comes_from(bench: TxBench) -> None:
    message = f"{bench.submit(publish('q', 'x')).txid}.1"
    txid = bench.begun(accept("q", message), xid=XID)
    bench.ask("prepare", txid)
    # Without its lock it is as if it came from another master.
    bench.core.transacting.coordinator.book.locks.release(txid)
    reply = bench.ask("commit", bench.begun(accept("q", message)))
    assert (reply.error, f"held by {txid}" in reply.reason) == ("Conflict", True)
    assert not bench.ask("commit", txid, one_phase=False).error
    assert ended(bench) == []


def test_ids_of_its_steps_are_not_used_by_others(bench: TxBench) -> None:
    txid = bench.begun(publish("q", "x"), xid=XID)
    for used in (txid, branches.prepare_id(txid), branches.rollback_id(txid)):
        assert bench.submit(publish("q", "y"), used).error == "KeyReused"
    assert bench.ask("begin", "x" * 127, xid="1:bb:").error == "InvalidRequest"


def test_what_a_master_that_is_gone_has_prepared_is_rolled_back_by_hand(bench: TxBench) -> None:
    gone, body = "m9.0a1b2c3d.1.1.t", publish("q", "x")
    bench.worker.queues.execute("", branches.packed(branches.PREPARE, gone, pack_operations(body)))
    assert bench.ask("rollback", gone).error == "UnknownTransaction"
    assert bench.ask("rollback", gone, by_hand=True).answer == {"state": "aborted"}
    assert bench.ask("rollback", gone, by_hand=True).answer == {"state": "aborted"}
    assert bench.ask("rollback", "nobody-made-this", by_hand=True).error == "NotFound"
    assert ended(bench) == []
