"""Whom a process votes for, and what an empty journal counts."""

from __future__ import annotations

import pytest

from brokerha.model.wire.process_messages import Candidate, Vote
from brokerha.replication.role.config import RoleReady
from brokerha.replication.role.table import RoleState
from tests.unit.replication.role_steps import a_role, at, candidate, granted, pass_time, state_of, vote_of

# ---- voting


def test_a_vote_is_promised_before_it_is_sent() -> None:
    role = a_role()
    role.on_candidate("b2", candidate(22), at(100))
    ready = role.take(at(100))
    assert (ready.promise, vote_of(ready)) == (22, granted(22))
    assert role.promised == 22


def test_asking_twice_gives_the_same_vote() -> None:
    role = a_role()
    for milliseconds in (100, 200):
        role.on_candidate("b2", candidate(22), at(milliseconds))
        assert vote_of(role.take(at(milliseconds))).is_granted


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (candidate(12), "promised to view 20"),
        (candidate(22, (10, 99)), "its journal ends with record 100 of view 10"),
        (candidate(22, (1, 1000)), "its journal ends with record 100 of view 10"),
        (candidate(22, (0, 0)), "its journal ends with record 100 of view 10"),
        (candidate(22, (20, 1000), "other"), "its journal is journal, not other"),
    ],
)
def test_a_vote_is_refused_with_the_reason(message: Candidate, reason: str) -> None:
    role = a_role(promised=20)
    role.on_candidate("b2", message, at(100))
    ready = role.take(at(100))
    assert ready.promise == 0
    assert isinstance(ready.messages[0].message, Vote)
    assert (ready.messages[0].message.is_granted, ready.messages[0].message.reason) == (False, reason)


def test_nobody_votes_against_a_primary_that_it_hears_unless_an_operator_wants_it() -> None:
    role = a_role()
    role.heard("m1", 10, at(100))
    role.on_candidate("b2", candidate(22), at(3099))
    assert vote_of(role.take(at(3099))).reason == "it hears m1 as primary"
    role.on_candidate("b2", candidate(22, by_hand=True), at(3099))
    assert vote_of(role.take(at(3099))).is_granted


def test_once_the_primary_is_silent_for_long_enough_it_votes() -> None:
    role = a_role()
    role.heard("m1", 10, at(100))
    role.take(at(1600))
    role.on_candidate("b2", candidate(22), at(3100))
    assert vote_of(role.take(at(3100))).is_granted


@pytest.mark.parametrize(("sender", "view"), [("b2", 21), ("b1", 21), ("stranger", 22), ("b2", 25)])
def test_a_candidate_whose_name_does_not_fit_its_view_is_ignored(sender: str, view: int) -> None:
    role = a_role()
    role.on_candidate(sender, candidate(view), at(100))
    assert not role.take(at(100))


def test_a_process_whose_journal_is_being_replaced_neither_votes_nor_stands() -> None:
    role = a_role()
    role.may_vote = False
    role.on_candidate("b2", candidate(22), at(100))
    assert vote_of(role.take(at(100))).reason == "its journal is not whole"
    assert not pass_time(role, 20_000, since_ms=100)
    assert "not whole" in role.promoted_by_hand(at(20_000), force=True)
    role.may_vote = True
    assert role.take(at(20_100)).messages


def test_a_candidate_whose_journal_is_being_replaced_is_not_elected() -> None:
    role = a_role()
    pass_time(role, 4500)
    role.may_vote = False
    role.on_vote("b2", granted(21), at(4500))
    role.take(at(4500))
    assert state_of(role) is RoleState.STANDBY


def test_who_voted_for_another_one_does_not_stand_against_it_at_once() -> None:
    role = a_role()
    pass_time(role, 4500)
    role.on_candidate("b2", candidate(22), at(4500))
    assert vote_of(role.take(at(4500))).is_granted
    assert state_of(role) is RoleState.STANDBY
    assert not pass_time(role, 7700, since_ms=4500)


# ---- empty journals


def test_an_empty_journal_votes_for_the_first_view_of_place_0_only() -> None:
    for message, sender, is_granted in (
        (candidate(10, (0, 0), "other"), "m1", True),
        (candidate(20, (1, 500), "other"), "m1", True),
        (candidate(20, (10, 500), "other"), "m1", False),
        (candidate(12, (0, 0), "other"), "b2", False),
        (candidate(22, (10, 500), "other"), "b2", False),
    ):
        role = a_role(promised=0, last=(0, 0))
        role.on_candidate(sender, message, at(100))
        assert vote_of(role.take(at(100))).is_granted is is_granted, message


def test_an_empty_journal_whose_process_voted_in_the_first_election_goes_on_voting() -> None:
    role = a_role(promised=0, last=(0, 0))
    role.on_candidate("m1", candidate(10, (1, 500), "other"), at(100))
    role.take(at(100))
    role.on_candidate("m1", candidate(20, (10, 501), "other"), at(200))
    assert vote_of(role.take(at(200))).is_granted
    again = a_role(promised=20, last=(0, 0))
    again.on_candidate("m1", candidate(30, (10, 501), "other"), at(100))
    assert vote_of(again.take(at(100))).is_granted


def test_an_empty_backup_never_stands_by_itself() -> None:
    role = a_role(promised=0, last=(0, 0))
    assert not pass_time(role, 60_000, step_ms=500)
    assert (
        role.promoted_by_hand(at(60_000))
        == "the journal of b1 is empty: promote another process, or use --force (over HTTP: force=true)"
    )


def test_a_master_that_begins_with_nothing_needs_all_of_its_processes() -> None:
    role = a_role("m1", processes=("m1", "b1"), promised=0, last=(0, 0))
    assert role.take(at(0)).messages
    assert state_of(role) is RoleState.CANDIDATE
    role.on_vote("b1", granted(10, (0, 0)), at(10))
    assert state_of(role) is RoleState.PRIMARY


def test_a_place_0_that_lost_its_disk_gets_no_vote_of_those_that_did_not() -> None:
    voter = a_role("b1", processes=("m1", "b1"), promised=0)
    voter.on_candidate("m1", candidate(10, (0, 0), "other"), at(100))
    assert not vote_of(RoleReady(messages=voter.take(at(100)).messages[:1])).is_granted


def test_a_place_0_with_an_old_journal_whose_own_vote_is_enough_listens_first() -> None:
    role = a_role("m1", processes=("m1", "b1"))
    assert not pass_time(role, 2900)
    assert role.take(at(3000)).change is not None
    assert a_role("m1", processes=("m1", "b1"), promised=0, last=(1, 5)).take(at(0)).change is not None


def test_where_every_vote_is_needed_an_empty_journal_does_not_stand_in_the_way() -> None:
    role = a_role(sync_n=0, promised=0, last=(0, 0))
    role.on_candidate("b2", candidate(22, (10, 5), "other"), at(100))
    assert vote_of(role.take(at(100))).is_granted


def test_of_two_candidates_with_equal_journals_the_one_of_the_lower_view_steps_back() -> None:
    role = a_role()
    asked = pass_time(role, 10_000)
    own = asked.messages[0].message
    assert isinstance(own, Candidate)
    assert own.view % 10 == 1
    role.on_candidate("m1", candidate(own.view - 1), at(role.deadline_ms() or 0))
    vote = role.take(at(role.deadline_ms() or 0)).messages[0].message
    assert isinstance(vote, Vote)
    assert vote.reason == f"it stands for view {own.view} itself"
    assert state_of(role) is RoleState.CANDIDATE

    role.on_candidate("b2", candidate(own.view + 1), at(role.deadline_ms() or 0))
    assert vote_of(role.take(at(role.deadline_ms() or 0))).is_granted
    assert state_of(role) is RoleState.STANDBY


def test_a_candidate_that_gave_up_votes_for_a_lower_view_than_it_stood_for() -> None:
    role = a_role()
    pass_time(role, 4500)
    while state_of(role) is RoleState.CANDIDATE:
        role.take(at(role.deadline_ms() or 0))
    assert role.on_candidate("m1", candidate(20), at(role.deadline_ms() or 0))


def test_a_candidate_gives_its_vote_to_a_better_journal_whatever_the_view() -> None:
    role = a_role()
    own = pass_time(role, 10_000).messages[0].message
    assert isinstance(own, Candidate)
    role.on_candidate("m1", candidate(own.view - 1, (10, 101)), at(role.deadline_ms() or 0))
    assert vote_of(role.take(at(role.deadline_ms() or 0))).is_granted


def test_the_better_journal_asks_above_what_the_worse_one_asked_for() -> None:
    # Given a voter that refuses a candidate whose journal ends before its own
    role = a_role()
    role.on_candidate("b2", candidate(92, (10, 99)), at(4_000))
    ready = role.take(at(4_300))

    # Then it stands soon, for a view that whoever voted for the other one may still promise to
    asked = [each.message for each in ready.messages if isinstance(each.message, Candidate)]
    asked += [each.message for each in role.take(at(4_300)).messages if isinstance(each.message, Candidate)]
    assert {each.view for each in asked} == {101}
