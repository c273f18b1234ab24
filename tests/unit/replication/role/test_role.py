"""The role of one process: when it stands, when it is elected, and what a stop of the process changes."""

from __future__ import annotations

import pytest

from brokerha.model.wire.messages import Outgoing
from brokerha.model.wire.process_messages import Candidate, Vote
from brokerha.replication.role.config import RoleChange, RoleReady
from brokerha.replication.role.role import Role
from brokerha.replication.role.table import RoleState
from tests.unit.replication.role_steps import (
    a_role,
    at,
    candidate,
    elected,
    granted,
    pass_time,
    refused,
    said_meanwhile,
    state_of,
    vote_of,
)

# ---- standing


def test_the_only_process_is_primary_at_once_in_the_same_view_and_says_nothing() -> None:
    for last, view in (((0, 0), 1), ((1, 7), 1), ((10, 7), 10)):
        role = a_role("m1", processes=("m1",), sync_n=0, promised=0, last=last)
        ready = role.take(at(0))
        assert (ready.promise, ready.messages) == (0, ())
        assert ready.change == RoleChange(RoleState.PRIMARY, view, "the only process of its master")
        assert not role.take(at(10**6))


def test_the_only_process_starts_a_new_view_when_it_promised_to_another_one_before() -> None:
    ready = a_role("m1", processes=("m1",), sync_n=0, promised=21).take(at(0))
    assert (ready.promise, ready.change and ready.change.view) == (30, 30)


@pytest.mark.parametrize("last", [(0, 0), (1, 50)])
def test_place_0_asks_at_once_when_it_starts_for_the_first_time(last: tuple[int, int]) -> None:
    ready = a_role("m1", promised=0, last=last).take(at(0))
    asked = Candidate(10, "journal", last)
    assert ready == RoleReady(0, (Outgoing("b1", asked), Outgoing("b2", asked)))


@pytest.mark.parametrize(("process", "wait_ms"), [("b1", 4500), ("b2", 6000)])
def test_a_backup_that_starts_waits_for_a_primary_longer_at_each_place(process: str, wait_ms: int) -> None:
    role = a_role(process)
    assert not said_meanwhile(role, wait_ms - 100)
    assert role.take(at(wait_ms)).messages
    assert state_of(role) is RoleState.CANDIDATE


@pytest.mark.parametrize(("process", "wait_ms"), [("b1", 3300), ("b2", 3600)])
def test_a_process_stands_when_no_primary_was_heard_for_long_enough(process: str, wait_ms: int) -> None:
    role = a_role(process)
    role.heard("m1", 10, at(0))
    assert not said_meanwhile(role, wait_ms - 100)
    assert role.take(at(wait_ms)).messages


def test_a_primary_that_is_heard_is_not_disturbed() -> None:
    role = a_role()
    for milliseconds in range(0, 60_000, 1000):
        role.heard("m1", 10, at(milliseconds))
        assert not role.take(at(milliseconds))


def test_asking_promises_nothing_and_being_elected_does_before_it_is_told() -> None:
    role = a_role()
    assert pass_time(role, 5000).promise == 0
    assert role.promised == 10
    role.on_vote("b2", granted(21), at(4600))
    ready = role.take(at(4600))
    assert (ready.promise, ready.change and ready.change.state) == (21, RoleState.PRIMARY)
    assert not role.take(at(4600))


@pytest.mark.parametrize(("count", "sync_n", "needed"), [(2, 1, 1), (3, 1, 2), (3, 2, 1), (4, 1, 3), (4, 2, 2), (3, 0, 3)])
def test_it_takes_as_many_votes_as_meet_every_sync_n(count: int, sync_n: int, needed: int) -> None:
    names = ("m1", "b1", "b2", "b3")[:count]
    role = a_role(processes=names, sync_n=sync_n)
    pass_time(role, 4500)
    votes = 1
    for name in names:
        assert (role.state is RoleState.PRIMARY) == (votes >= needed)
        if name != "b1" and votes < needed:
            role.on_vote(name, granted(21), at(4500))
            votes += 1
    assert state_of(role) is RoleState.PRIMARY


def test_a_vote_counts_once_and_only_for_the_view_that_was_asked_for() -> None:
    role = a_role(processes=("m1", "b1", "b2", "b3"))
    pass_time(role, 4500)
    for vote in (granted(21), granted(21)):
        role.on_vote("b2", vote, at(4500))
    role.on_vote("m1", granted(11), at(4500))
    role.on_vote("stranger", granted(21), at(4500))
    assert state_of(role) is RoleState.CANDIDATE
    role.on_vote("m1", granted(21), at(4500))
    assert state_of(role) is RoleState.PRIMARY


def test_a_question_is_repeated_to_those_that_have_not_answered() -> None:
    role = a_role(processes=("m1", "b1", "b2", "b3"))
    assert len(pass_time(role, 4500).messages) == 3
    role.on_vote("b2", granted(21), at(4550))
    assert role.deadline_ms() == 4833
    assert [out.to for out in role.take(at(4833)).messages] == ["m1", "b3"]


def test_pauses_between_tries_grow_and_are_bounded_and_differ_by_place() -> None:
    pauses: dict[str, list[int]] = {}
    for process in ("b1", "b2"):
        role, stood_ms = a_role(process), 0
        found = pauses.setdefault(process, [])
        for milliseconds in range(0, 100_000, 50):
            before = role.state
            role.take(at(milliseconds))
            if (before, role.state) == (RoleState.STANDBY, RoleState.CANDIDATE):
                found.append(milliseconds - stood_ms)
                stood_ms = milliseconds
    for found in pauses.values():
        assert found[1:5] == sorted(found[1:5])
        assert found[1] < found[4]
        assert len(set(found[5:])) == 1
    assert pauses["b1"][-1] != pauses["b2"][-1]


def test_a_candidate_whose_journal_ends_earlier_leaves_the_other_one_the_first_turn_but_not_for_ever() -> None:
    role = a_role()
    pass_time(role, 4500)
    role.on_vote("b2", refused(21, last=(10, 101)), at(4500))
    assert state_of(role) is RoleState.STANDBY
    assert not pass_time(role, 7900, since_ms=4500)
    tries = 1
    for milliseconds in range(8000, 60_000, 100):
        before = role.state
        role.take(at(milliseconds))
        if (before, role.state) == (RoleState.STANDBY, RoleState.CANDIDATE):
            tries += 1
            role.on_vote("b2", refused(21, last=(10, 101)), at(milliseconds))
        if state_of(role) is RoleState.CANDIDATE:
            break
    assert tries == 3
    role.on_vote("m1", granted(21), at(milliseconds))
    assert state_of(role) is RoleState.PRIMARY


@pytest.mark.parametrize(("process", "turn_ms"), [("m1", 0), ("b1", 300)])
def test_voters_whose_journal_reaches_further_stand_soon_and_one_after_the_other(process: str, turn_ms: int) -> None:
    """All at once they would take the votes from each other, and do so again after each time-out."""
    role = a_role(process, last=(10, 101))
    role.on_candidate("b2", candidate(22), at(100))
    out = role.take(at(100 + turn_ms)).messages
    assert [type(o.message) for o in out] == [Vote, Candidate, Candidate]
    assert out[0].message == Vote(
        22, is_granted=False, promised=10, last=(10, 101), reason="its journal ends with record 101 of view 10"
    )


def test_a_candidate_that_learns_of_a_higher_view_tries_above_it() -> None:
    role = a_role()
    pass_time(role, 4500)
    role.on_vote("b2", refused(21, promised=52), at(4500))
    assert state_of(role) is RoleState.STANDBY
    out = pass_time(role, 20_000, since_ms=4500).messages
    assert isinstance(out[0].message, Candidate)
    assert out[0].message.view == 61


def test_a_candidate_that_hears_a_primary_follows_it() -> None:
    role = a_role()
    pass_time(role, 4500)
    role.heard("m1", 10, at(4600))
    assert state_of(role) is RoleState.STANDBY
    role.on_vote("b2", granted(21), at(4700))
    assert state_of(role) is RoleState.STANDBY


def test_votes_for_a_journal_that_was_cut_since_do_not_count() -> None:
    role = a_role()
    pass_time(role, 4500)
    role.moved((10, 90))
    assert state_of(role) is RoleState.STANDBY
    out = pass_time(role, 20_000, since_ms=4600).messages
    assert out[0].message == Candidate(31, "journal", (10, 90))
    role.on_vote("b2", granted(21), at(role.deadline_ms() or 0))
    assert state_of(role) is not RoleState.PRIMARY


def test_without_enough_processes_nobody_is_elected_and_the_reason_says_what_to_do() -> None:
    role = a_role()
    pass_time(role, 4500)
    role.on_vote("b2", refused(21, reason="its journal is empty"), at(4500))
    assert role.explain(at(4600)) == (
        "no primary: b1 needs 2 votes of 3 processes, or brokerha promote b1 --force (b2: its journal is empty)"
    )


def test_with_sync_n_of_zero_every_vote_is_needed_and_the_reason_says_why() -> None:
    role = a_role(sync_n=0)
    pass_time(role, 4500)
    role.on_vote("b2", granted(21), at(4500))
    assert state_of(role) is RoleState.CANDIDATE
    assert "with sync-n 0 nobody takes over by itself" in role.explain(at(4600))
    assert "brokerha promote b1 --force" in role.explain(at(4600))


def test_nothing_happens_by_itself_where_fail_over_is_by_hand() -> None:
    role = a_role(is_automatic=False)
    assert not pass_time(role, 60_000, step_ms=500)
    assert role.explain(at(60_000)) == "no primary: fail-over is by hand: brokerha promote b1"
    assert role.promoted_by_hand(at(60_000)) == ""
    assert role.take(at(60_000)).messages


# ---- a process that was stopped


def test_time_in_which_it_was_stopped_is_no_silence_of_others() -> None:
    role = a_role(processes=("m1", "b1"))
    role.heard("m1", 10, at(1000))
    role.take(at(1000))
    assert not role.take(at(60_000))
    role.heard("m1", 10, at(60_100))
    assert not said_meanwhile(role, 63_000, since_ms=60_100)
    assert role.take(at(63_400)).change is not None


def test_a_voter_that_was_stopped_still_stands_by_its_primary() -> None:
    role = a_role()
    role.heard("m1", 10, at(1000))
    role.on_candidate("b2", candidate(), at(60_000))
    assert vote_of(role.take(at(60_000))).reason == "it hears m1 as primary"


def test_a_candidate_that_was_stopped_asks_anew() -> None:
    role = a_role()
    assert pass_time(role, 5000).messages
    assert state_of(role) is RoleState.CANDIDATE
    # What was granted meanwhile does not count
    role.on_vote("b2", granted(21), at(60_000))
    assert state_of(role) is RoleState.STANDBY
    assert (role.take(at(60_000)).change, role.promised) == (None, 10)
    assert pass_time(role, 130_000, since_ms=60_000).messages


def test_a_vote_that_was_granted_is_not_taken_back_by_a_refusal_that_comes_late() -> None:
    role = a_role(processes=("m1", "b1", "b2", "b3"))
    pass_time(role, 5000)
    role.on_vote("b2", granted(21), at(5000))
    role.on_vote("b2", refused(21), at(5000))
    assert role.take(at(5000)).change is None
    role.on_vote("b3", granted(21), at(5000))
    assert state_of(role) is RoleState.PRIMARY


def test_who_does_not_rest_is_not_resumed() -> None:
    role = elected()
    role.resume(at(5000))
    assert role.take(at(5000)).change is None
    assert state_of(role) is RoleState.PRIMARY


def test_a_process_that_acts_or_rests_says_why() -> None:
    role = elected()
    assert role.explain(at(5000)) == "primary of view 21: elected by b1, b2"
    role.pause("by an operator")
    assert "by an operator" in role.explain(at(5000))


def test_a_process_that_is_not_primary_wants_to_be_woken_often_enough_to_notice() -> None:
    role = a_role()
    role.heard("m1", 10, at(1000))
    assert role.deadline_ms() == 1750
    assert elected().deadline_ms() is None


# ---- the broker says that a primary has ended


def missed(process: str = "b1") -> Role:
    """It has not heard its primary for more than a heartbeat, and asks for it."""
    role = a_role(process)
    role.heard("m1", 10, at(0))
    assert pass_time(role, 1000).look == "m1"
    return role


def test_a_silent_primary_is_asked_for_now_and_then() -> None:
    role = a_role()
    role.heard("m1", 10, at(0))
    asked = [ms for ms in range(0, 3000, 100) if role.take(at(ms)).look]
    assert asked == [1000, 2000]


@pytest.mark.parametrize(("process", "turn_ms"), [("b1", 0), ("b2", 300)])
def test_one_whose_process_has_ended_is_followed_by_another_in_their_order(process: str, turn_ms: int) -> None:
    role = missed(process)
    role.on_absence("m1", at(1000))
    assert role.live_primary(at(1000)) == ""
    if turn_ms:
        assert not said_meanwhile(role, 1000 + turn_ms - 100, since_ms=1000)
    assert role.take(at(1000 + turn_ms)).messages


def test_one_that_was_refused_a_moment_before_the_broker_answered_gets_the_vote_then() -> None:
    role = missed("b2")
    role.on_candidate("b1", candidate(21), at(1000))
    assert not vote_of(role.take(at(1000))).is_granted
    role.on_absence("m1", at(1001))
    assert vote_of(role.take(at(1001))).is_granted
    assert not said_meanwhile(role, 2000, since_ms=1001), "it leaves it to that one"


def test_one_that_was_refused_while_the_primary_lives_gets_no_vote_by_its_later_end() -> None:
    role = missed("b2")
    role.on_candidate("b1", candidate(21), at(1000))
    role.take(at(1000))
    role.heard("m1", 10, at(1100))
    pass_time(role, 2100)
    role.on_absence("m1", at(2200))
    assert not said_meanwhile(role, 2400, since_ms=2200)
    assert role.take(at(2500)).messages


def test_one_that_is_refused_again_leaves_the_others_their_turn() -> None:
    role = missed("b2")
    role.on_candidate("b1", candidate(21, last=(1, 1)), at(1000))
    role.take(at(1000))
    role.on_absence("m1", at(1001))
    assert not vote_of(role.take(at(1001))).is_granted
    assert role.take(at(1301)).messages


def test_an_answer_that_is_older_than_its_last_word_is_nothing() -> None:
    role = missed()
    role.heard("m1", 10, at(1100))
    role.on_absence("m1", at(1200))
    assert role.live_primary(at(1200)) == "m1"


def test_that_another_process_has_ended_is_no_reason_to_stand() -> None:
    role = missed()
    role.on_absence("b2", at(1000))
    assert role.live_primary(at(1000)) == "m1"
    assert not said_meanwhile(role, 3200, since_ms=1000)


def test_who_does_not_stand_by_itself_still_votes_for_another_one() -> None:
    role = a_role(is_automatic=False)
    role.heard("m1", 10, at(0))
    pass_time(role, 1000)
    role.on_absence("m1", at(1000))
    assert not said_meanwhile(role, 20_000, since_ms=1000)
    role.on_candidate("b2", candidate(), at(20_100))
    assert vote_of(role.take(at(20_100))).is_granted
