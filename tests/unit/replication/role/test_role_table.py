"""The machine of roles: every pair of state and event does what the table says, and the picture is made from it."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from brokerha.model.errors import ConfigurationError
from brokerha.replication.role.config import RoleConfig, place_of, term_of, view_of
from brokerha.replication.role.table import TRANSITIONS, RoleEvent, RoleState, after
from tests.support.machines import mermaid

PROTOCOL = Path(__file__).parents[4] / "brokerha" / "replication" / "PROTOCOL.md"


@pytest.mark.parametrize(("state", "event"), list(product(RoleState, RoleEvent)))
def test_each_pair_of_state_and_event_has_one_consequence(state: RoleState, event: RoleEvent) -> None:
    assert after(state, event) is TRANSITIONS.get((state, event), state)


def test_each_state_is_reached_and_left() -> None:
    assert set(TRANSITIONS.values()) == set(RoleState)
    assert {source for source, _ in TRANSITIONS} == set(RoleState)


def test_each_event_means_something_somewhere() -> None:
    assert {event for _, event in TRANSITIONS} == set(RoleEvent)


def test_no_transition_leads_to_where_it_began() -> None:
    assert not [pair for pair, target in TRANSITIONS.items() if pair[0] is target]


def test_every_state_but_idle_can_be_paused() -> None:
    for state in RoleState:
        assert after(state, RoleEvent.PAUSED) is RoleState.IDLE


def test_only_votes_an_order_or_being_alone_make_a_primary() -> None:
    ways = {event for (_, event), target in TRANSITIONS.items() if target is RoleState.PRIMARY}
    assert ways == {RoleEvent.ELECTED, RoleEvent.FORCED, RoleEvent.ALONE}


def test_an_idle_process_never_stands() -> None:
    assert after(RoleState.IDLE, RoleEvent.STANDS) is RoleState.IDLE


def test_the_picture_in_the_protocol_is_made_from_the_table() -> None:
    text = PROTOCOL.read_text(encoding="utf-8")
    assert f"```mermaid\n{mermaid(TRANSITIONS, RoleState.STANDBY)}\n```" in text


@pytest.mark.parametrize(("view", "place", "term"), [(1, 0, 0), (10, 0, 1), (21, 1, 2), (139, 9, 13)])
def test_a_view_says_who_acts(view: int, place: int, term: int) -> None:
    assert (place_of(view), term_of(view)) == (place, term)


def test_views_of_two_processes_are_never_equal() -> None:
    views = [view_of(term, place) for term in range(1, 5) for place in range(10)]
    assert len(set(views)) == len(views)


@pytest.mark.parametrize(
    ("processes", "sync_n", "words"),
    [
        (("m1", "b1"), 2, "sync-n of master m1 is 2 with 1 backups; write 0 to 1"),
        (("m1", "b1"), -1, "sync-n of master m1 is -1"),
        (("b1", "b2"), 1, "contain m1; they are b1, b2"),
        (("m1", "b1", "b1"), 1, "must be different from each other"),
        (("m1", *(f"b{n}" for n in range(10))), 1, "has 10 backups; at most 9 are possible"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(processes: tuple[str, ...], sync_n: int, words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        RoleConfig("m1", "m1", processes, sync_n)
    assert words in str(caught.value)


def test_a_fail_over_time_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least 1"):
        RoleConfig("m1", "m1", ("m1",), 0, fail_over_after_ms=0)


def test_votes_meet_every_primary_with_its_confirming_backups() -> None:
    for count in range(1, 11):
        for sync_n in range(count):
            names = tuple(f"p{n}" for n in range(count))
            config = RoleConfig("p0", "p0", names, sync_n)
            assert config.votes_needed + (sync_n + 1) == count + 1
