"""The follower's machine: every pair of state and event does what the table says, and the picture is made from it."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from brokerha.following.machine import FOLLOWING, TRANSITIONS, Event, State, after
from tests.support.machines import mermaid

PROTOCOL = Path(__file__).parents[3] / "brokerha" / "following" / "PROTOCOL.md"


@pytest.mark.parametrize(("state", "event"), list(product(State, Event)))
def test_each_pair_of_state_and_event_has_one_consequence(state: State, event: Event) -> None:
    assert after(state, event) is TRANSITIONS.get((state, event), state)


def test_each_state_is_reached_and_left() -> None:
    assert set(TRANSITIONS.values()) == set(State)
    assert {source for source, _ in TRANSITIONS} == set(State)


def test_each_event_means_something_somewhere() -> None:
    assert {event for _, event in TRANSITIONS} == set(Event)


def test_no_transition_leads_to_where_it_began() -> None:
    assert not [pair for pair, target in TRANSITIONS.items() if pair[0] is target]


def test_every_state_but_idle_can_be_paused() -> None:
    for state in State:
        assert after(state, Event.PAUSED) is State.IDLE


def test_only_a_load_that_failed_or_was_paused_leaves_load_without_a_new_copy() -> None:
    ways = {event: target for (source, event), target in TRANSITIONS.items() if source is State.LOAD}
    assert ways == {Event.LOADED: State.BASIC, Event.FAILED: State.IDLE, Event.PAUSED: State.IDLE}


def test_records_are_taken_in_basic_and_request_only() -> None:
    assert frozenset({State.BASIC, State.REQUEST}) == FOLLOWING


def test_the_picture_in_the_protocol_is_made_from_the_table() -> None:
    text = PROTOCOL.read_text(encoding="utf-8")
    assert f"```mermaid\n{mermaid(TRANSITIONS, State.IDLE)}\n```" in text
