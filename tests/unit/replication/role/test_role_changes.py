"""When a process steps down, whom it obeys, and what an operator can make of it."""

from __future__ import annotations

import pytest

from brokerha.model.wire.messages import Outgoing
from brokerha.model.wire.process_messages import Vote
from brokerha.replication.role.config import RoleChange
from brokerha.replication.role.table import RoleState
from tests.unit.replication.role_steps import LAST, a_role, at, candidate, elected, granted, pass_time, refused, state_of, vote_of

# ---- stepping down, and whom it obeys


def test_a_primary_steps_down_as_soon_as_it_sees_a_higher_view_and_says_so_once() -> None:
    for see in (
        lambda role: role.on_view(22, at(5100)),
        lambda role: role.heard("b2", 22, at(5100)),
        lambda role: role.on_confirmed("b2", 22, at(5100)),
        lambda role: role.on_vote("b2", refused(21, promised=22), at(5100)),
    ):
        role = elected()
        see(role)
        change = role.take(at(5100)).change
        assert change is not None
        assert (change.state, change.view) == (RoleState.STANDBY, 22)
        assert role.take(at(5100)).change is None
        assert not pass_time(role, 8300, since_ms=5100).messages


def test_the_view_stays_that_of_the_primary_until_the_change_is_told() -> None:
    role = elected()
    role.heard("b2", 22, at(5100))
    assert role.view == 21
    role.take(at(5100))
    assert role.view == 22


def test_being_asked_alone_is_no_reason_to_step_down() -> None:
    role = elected()
    role.on_candidate("b2", candidate(32), at(5100))
    ready = role.take(at(5100))
    assert (ready.change, vote_of(ready).reason) == (None, "it hears b1 as primary")


def test_a_primary_that_nobody_confirms_votes_for_another_one() -> None:
    role = elected()
    role.moved((21, 101))
    role.on_candidate("b2", candidate(32, (21, 101)), at(8000))
    ready = role.take(at(8000))
    assert (ready.promise, vote_of(ready).is_granted) == (32, True)
    assert ready.change == RoleChange(RoleState.STANDBY, 32, "voted for b2 in view 32")


def test_a_primary_is_confirmed_while_enough_backups_say_so() -> None:
    role = elected()
    assert not a_role().is_confirmed(at(0))
    assert role.is_confirmed(at(7999))
    assert not role.is_confirmed(at(8000))
    role.on_confirmed("b2", 10, at(8000))
    assert not role.is_confirmed(at(8000))
    role.on_confirmed("b2", 21, at(8000))
    assert role.is_confirmed(at(10_999))
    assert not role.is_confirmed(at(11_000))


def test_a_lower_view_than_promised_is_not_obeyed_and_its_primary_is_told_now_and_then() -> None:
    role = a_role()
    role.on_candidate("b2", candidate(22), at(100))
    role.take(at(100))
    assert (role.obeys(10), role.obeys(22), role.obeys(30)) == (False, True, True)
    said: list[Outgoing] = []
    for milliseconds in range(200, 2200, 100):
        role.heard("m1", 10, at(milliseconds))
        said += role.take(at(milliseconds)).messages
    assert len(said) == 3
    assert said[0] == Outgoing("m1", Vote(10, is_granted=False, promised=22, last=LAST, reason="promised to view 22"))
    assert role.primary == ""


def test_records_of_a_view_count_as_a_promise_to_it() -> None:
    role = a_role(promised=0)
    role.moved((22, 101))
    assert (role.promised, role.obeys(10)) == (22, False)
    assert a_role(promised=0, last=(22, 5)).promised == 22


def test_what_it_follows_is_heard_only_from_the_process_that_the_view_names() -> None:
    role = a_role()
    for sender, view in (("b2", 10), ("b1", 21), ("m1", 22)):
        role.heard(sender, view, at(100))
    assert role.primary == ""
    role.heard("b2", 22, at(100))
    assert (role.primary, role.view) == ("b2", 22)


def test_a_journal_that_was_replaced_goes_by_its_new_name() -> None:
    role = a_role(promised=10, last=(0, 0))
    role.moved((10, 5), "other")
    role.on_candidate("b2", candidate(22, (10, 5), "other"), at(100))
    assert vote_of(role.take(at(100))).is_granted


def test_a_primary_that_hands_over_leaves_the_other_one_time() -> None:
    role = elected()
    role.step_down("handed over to b2", at(6000))
    assert role.take(at(6000)).change == RoleChange(RoleState.STANDBY, 21, "handed over to b2")
    assert not pass_time(role, 12_500, since_ms=6000)
    assert role.take(at(12_600)).messages


# ---- by hand, and idle mode


def test_by_force_its_own_vote_is_enough_and_the_reason_names_what_may_be_lost() -> None:
    role = a_role()
    role.heard("m1", 10, at(100))
    assert role.promoted_by_hand(at(200), force=True) == ""
    ready = role.take(at(200))
    assert (ready.promise, ready.messages) == (21, ())
    assert ready.change == RoleChange(
        RoleState.PRIMARY,
        21,
        "primary of view 21: by hand, without votes: what only m1, b2 wrote after record 100 of view 10 is lost",
    )
    assert role.promoted_by_hand(at(300), force=True) == ""
    assert not role.take(at(300))


def test_by_hand_it_asks_although_a_primary_lives_and_follows_that_meanwhile() -> None:
    role = a_role()
    role.heard("m1", 10, at(100))
    assert role.promoted_by_hand(at(200)) == ""
    asked = role.take(at(200)).messages
    assert {out.message for out in asked} == {candidate(21, by_hand=True)}
    role.heard("m1", 10, at(300))
    role.moved((10, 101))
    assert role.obeys(10)
    assert role.take(at(600)).messages[0].message == candidate(21, (10, 101), by_hand=True)
    role.on_vote("m1", granted(21), at(700))
    assert state_of(role) is RoleState.PRIMARY


def test_by_hand_it_tries_for_a_bounded_time() -> None:
    role = a_role(is_automatic=False)
    role.promoted_by_hand(at(200))
    pass_time(role, 3200, since_ms=200)
    for milliseconds in range(300, 3300, 100):
        role.take(at(milliseconds))
    assert state_of(role) is RoleState.STANDBY
    assert not pass_time(role, 60_000, since_ms=3300)


def test_an_idle_process_votes_and_never_stands_until_it_is_resumed() -> None:
    role = a_role()
    role.pause("for maintenance")
    assert role.take(at(0)).change == RoleChange(RoleState.IDLE, 10, "for maintenance")
    assert not pass_time(role, 20_000)
    role.on_candidate("b2", candidate(22), at(20_000))
    assert vote_of(role.take(at(20_000))).is_granted
    role.heard("b2", 22, at(20_100))
    assert not role.take(at(20_100))
    role.resume(at(20_200))
    assert role.take(at(20_200)).change == RoleChange(RoleState.STANDBY, 22, "resumed")


def test_a_primary_that_lost_sync_n_is_idle_until_a_new_primary_is_declared() -> None:
    role = elected()
    role.pause("sync-n is lost", until_declared=True)
    assert role.take(at(5100)).change == RoleChange(RoleState.IDLE, 21, "sync-n is lost")
    role.heard("m1", 10, at(5200))
    assert not role.take(at(5200)).change
    role.heard("b2", 32, at(5300))
    assert role.take(at(5300)).change == RoleChange(RoleState.STANDBY, 32, "b2 is primary of view 32")


@pytest.mark.parametrize("force", [False, True])
def test_an_idle_process_can_be_declared_primary(force: bool) -> None:
    role = a_role(processes=("m1", "b1"))
    role.pause("for maintenance")
    role.take(at(0))
    assert role.promoted_by_hand(at(100), force=force) == ""
    change = role.take(at(100)).change
    assert change is not None
    assert (change.state, change.view) == (RoleState.PRIMARY, 21)


def test_the_only_process_is_primary_again_when_it_is_resumed() -> None:
    role = a_role("m1", processes=("m1",), sync_n=0)
    role.take(at(0))
    role.pause("for maintenance")
    assert role.take(at(10)).change == RoleChange(RoleState.IDLE, 10, "for maintenance")
    role.resume(at(20))
    change = role.take(at(20)).change
    assert change is not None
    assert (change.state, change.view) == (RoleState.PRIMARY, 10)


def test_two_changes_between_two_looks_are_told_as_what_came_of_them() -> None:
    role = elected()
    role.on_view(22, at(5100))
    role.promoted_by_hand(at(5100), force=True)
    ready = role.take(at(5100))
    assert ready.change is not None
    assert (ready.promise, ready.change.state, ready.change.view) == (31, RoleState.PRIMARY, 31)
