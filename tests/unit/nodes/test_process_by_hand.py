"""ProcessRunner: what an operator does by hand, what it shows, and what it costs to stand by."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from brokerha.model.errors import NotReady
from brokerha.model.requests import REFUSED, UNKNOWN
from brokerha.model.wire.messages import Bodies, Envelope, Post
from brokerha.model.wire.process_messages import Promote
from brokerha.replication.role.table import RoleState
from tests.unit.master.one_of_three import ROW
from tests.unit.nodes.process_group import BODY, FAIL_OVER_MS, Group

# ---- by hand


def test_a_primary_hands_over_to_a_ready_backup_and_loses_nothing() -> None:
    group = Group(2).elected()
    group.write(1)
    group.run()
    answer = group["m1"].runner.promote("b2", is_forced=False)
    assert answer == {"node": "b2", "forced": False, "primary": "m1", "view": 10}
    group.write(2, group["m1"])
    assert [(reply.ticket, reply.status) for reply in group["m1"].replies] == [(1, "accepted"), (2, UNKNOWN)]
    group.run(FAIL_OVER_MS // 2)
    assert group.primary is group["b2"]
    assert group["b2"].master.core.transacting.outcome("t1", group.now()) is not None
    assert group["b2"].master.core.transacting.outcome("t2", group.now()) is None
    assert [word.is_forced for word, _, _ in group["m1"].sent(Promote)] == [False]


def test_a_primary_hands_over_although_other_masters_write_all_the_time() -> None:
    group = Group(1).elected()
    primary = group["m1"]
    row = replace(ROW, node="m2", journal="journal-of-m2", known={"m1": primary.journal.state().journal})
    numbers = itertools.count(1)

    def write_elsewhere(turns: int) -> None:
        for number in itertools.islice(numbers, turns):
            told = replace(row, number=number, have={"m2": number}, promise=group.now().wall_us)
            entry = (group.now().wall_us, f"x{number}")
            for message in (Bodies((("m2", f"x{number}", BODY),)), Post(told, (), (("m2", number - 1, (entry,)),))):
                primary.wire.arrived.append(Envelope("orders", "m2", 1, message))
            group.turn(5)

    write_elsewhere(20)
    last = primary.journal.last_number
    write_elsewhere(20)
    assert primary.journal.last_number >= last + 20
    primary.runner.promote("b1", is_forced=False)
    write_elsewhere(FAIL_OVER_MS // 10)
    assert group.primary is group["b1"]


def test_a_hand_over_that_takes_too_long_is_given_up_and_writes_go_on() -> None:
    group = Group(2).elected()
    group.run()
    primary = group["m1"]
    group.cut = {"b2"}
    group.write(1)
    primary.runner.promote("b2", is_forced=False)
    group.write(2)
    assert [reply.status for reply in primary.replies][-1] == REFUSED
    assert "b2 is about to become primary" in primary.replies[-1].reason
    group.run(2 * FAIL_OVER_MS)
    group.write(3)
    group.run()
    assert primary.acts()
    assert [(reply.ticket, reply.status) for reply in primary.replies][-1] == (3, "accepted")


def test_nothing_is_handed_over_to_a_backup_that_is_not_ready() -> None:
    group = Group(2).elected()
    group["b2"].is_up = False
    group.run(10 * FAIL_OVER_MS, 50)
    with pytest.raises(NotReady, match=r"b2 is not ready \(joining, not heard any more\)"):
        group["m1"].runner.promote("b2", is_forced=False)
    with pytest.raises(NotReady, match=r"b9 is not ready \(no backup\)"):
        group["m1"].runner.promote("b9", is_forced=False)
    assert group["m1"].runner.promote("m1", is_forced=False)["primary"] == "m1"


def test_force_makes_a_process_primary_by_its_own_vote_alone() -> None:
    group = Group(2, sync_n=0).elected()
    group["m1"].is_up = group["b2"].is_up = False
    group.run(5 * FAIL_OVER_MS)
    assert not group["b1"].acts()
    assert "brokerha promote b1 --force" in group["b1"].runner.state()[1]
    group["b1"].runner.promote("b1", is_forced=True)
    group.run()
    assert group["b1"].acts()
    assert "without votes" in group["b1"].runner.role.reason


def test_with_fail_over_by_hand_nobody_takes_over_by_itself() -> None:
    group = Group(1, is_automatic=False)
    group["m1"].runner.promote("m1", is_forced=False)
    group.elected()
    group["m1"].is_up = False
    group.run(10 * FAIL_OVER_MS, 50)
    assert not group["b1"].acts()
    group["b1"].runner.promote("b1", is_forced=False)
    group.run()
    assert group["b1"].acts()


# ---- what it shows, and what it costs


def test_the_masters_own_process_has_a_row_as_a_backup_while_it_stands_by() -> None:
    group = Group(1).elected()
    group["m1"].runner.promote("b1", is_forced=False)
    group.run(2 * FAIL_OVER_MS)
    (row,) = group["m1"].runner.rows()
    view = group["b1"].runner.role.view
    assert (row["id"], row["role"], row["master"], row["state"]) == ("m1", "backup", "m1", "ready")
    assert (row["primary"], row["view"]) == ("b1", view)
    assert group["m1"].runner.metrics() == {"is_primary": False, "role_changes_total": 2, "promised_view": view}
    assert group["b1"].runner.metrics()["is_primary"]


@pytest.mark.parametrize("backups", [1, 2])
def test_nobody_who_has_nothing_to_do_wants_to_be_woken_at_once(backups: int) -> None:
    group = Group(backups).elected()
    group.run()
    for _ in range(200):
        group.turn(7)
    waits = [each.runner.wait_ms() for each in group.processes.values()]
    for _ in range(50):
        group.turn(0)
        waits += [each.runner.wait_ms() for each in group.processes.values()]
    assert min(waits) > 0


def test_a_lost_primary_does_not_keep_its_backups_awake() -> None:
    group = Group(1, is_automatic=False)
    group["m1"].runner.promote("m1", is_forced=False)
    group.elected()
    group["m1"].is_up = False
    waits = []
    for _ in range(100):
        group.turn(50)
        waits.append(group["b1"].runner.wait_ms())
    assert group["b1"].runner.role.state is RoleState.STANDBY
    assert sum(wait == 0 for wait in waits) <= 1
