"""ProcessRunner and Orders: pausing one process of a master, over kill -9, elections and a journal that fails."""

from __future__ import annotations

from typing import Any

import pytest

from brokerha.log.log import Log
from brokerha.model import states
from brokerha.model.errors import JournalError, NotReady, WrongState
from brokerha.model.records import Rest
from brokerha.model.requests import ACCEPTED
from brokerha.model.wire.process_messages import Candidate
from brokerha.replication.role.resting import COIN, CONTINUE, PAUSE
from tests.unit.nodes.process_group import FAIL_OVER_MS, Group, Process


def order(process: Process, command: str, *, is_forced: bool = False) -> dict[str, Any]:
    return process.runner.order(command, is_forced=is_forced)


def row_of(group: Group, node: str) -> tuple[str, int]:
    """State and confirmed record of a backup, as its primary sees it."""
    primary = group.primary.master.primary
    assert primary is not None
    return next((row.state, row.confirmed) for row in primary.feed.rows() if row.node == node)


def test_it_stays_where_it_was_over_kill_9_and_catches_up_once_it_is_coined() -> None:
    group = Group(2).elected()
    group.write(1)
    group.run()
    answer = order(group["b2"], PAUSE)
    last = group["b2"].journal.last_number
    assert (answer["node"], answer["changed"], answer["state"]) == ("b2", True, states.PAUSED)
    assert f"at record {last} of view" in answer["reason"]
    group.write(2)
    group.run()
    group["b2"].start()
    group.write(3)
    group.run(5 * FAIL_OVER_MS, 50)
    assert [(reply.ticket, reply.status) for reply in group["m1"].replies] == [(n, ACCEPTED) for n in (1, 2, 3)]
    assert group["b2"].journal.last_number == last
    assert row_of(group, "b2") == ("paused", last)
    assert group["b2"].runner.state()[0] == states.PAUSED
    with pytest.raises(WrongState, match="b2 was not coined since it was paused"):
        order(group["b2"], CONTINUE)
    order(group["b2"], COIN)
    group["b2"].start()
    group.run()
    assert order(group["b2"], CONTINUE)["changed"]
    group.run(2 * FAIL_OVER_MS)
    assert group["b2"].journal.last_number == group["m1"].journal.last_number
    assert row_of(group, "b2")[0] == "ready"
    group["b2"].start()
    assert group["b2"].journal.state().rest == Rest()
    group.run(2 * FAIL_OVER_MS)
    assert group["b2"].runner.state()[0] == states.READY


def test_its_vote_makes_another_one_primary_and_its_coin_stale() -> None:
    group = Group(2).elected()
    group.write(1)
    group.run()
    order(group["b2"], PAUSE)
    order(group["b2"], COIN)
    group["m1"].is_up = False
    group.run(10 * FAIL_OVER_MS, 50)
    assert group.primary is group["b1"]
    assert group["b2"].sent(Candidate) == []
    with pytest.raises(WrongState, match="b2 was coined on m1 in view 10, and b1 is primary in view"):
        order(group["b2"], CONTINUE)
    order(group["b2"], COIN)
    order(group["b2"], CONTINUE)
    group.run(2 * FAIL_OVER_MS)
    group.write(2)
    group.run()
    assert [(reply.ticket, reply.status) for reply in group["b1"].replies] == [(2, ACCEPTED)]


def test_it_does_not_stand_even_alone_until_it_is_promoted() -> None:
    group = Group(1).elected()
    group.run()
    order(group["b1"], PAUSE, is_forced=True)
    group["m1"].is_up = False
    group.run(20 * FAIL_OVER_MS, 50)
    assert not group["b1"].acts()
    group["b1"].runner.promote("b1", is_forced=False)
    group.run(2 * FAIL_OVER_MS)
    assert group["b1"].acts()
    assert group["b1"].journal.state().rest == Rest()


def test_a_primary_is_not_paused() -> None:
    group = Group(1).elected()
    for command in (PAUSE, COIN, CONTINUE):
        with pytest.raises(WrongState, match="m1 is primary of m1: first brokerha promote another process of it"):
            order(group["m1"], command)


def test_what_is_not_durable_is_not_answered_and_not_there_later(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group(2).elected()
    group.run()
    with monkeypatch.context() as patched:

        def fail(_log: Log, _rest: Rest) -> None:
            raise JournalError("the disk is gone")

        patched.setattr(Log, "rest", fail)
        with pytest.raises(NotReady, match="nothing is known to have changed: halted: the disk is gone"):
            order(group["b2"], PAUSE)
        with pytest.raises(NotReady, match="the disk is gone"):
            order(group["b2"], PAUSE)
    group.run(5 * FAIL_OVER_MS, 50)
    assert group["b2"].runner.state()[0] == states.READY
    assert group["b2"].journal.state().rest == Rest()
