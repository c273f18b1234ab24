"""The two machines of a transaction: every pair of state and event does what the tables say, and the pictures are made from them."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from brokerha.transactions.states import COORDINATOR, PARTICIPANT, Part, Phase, Seen, Step, after, after_seen
from tests.support.machines import mermaid

PROTOCOL = Path(__file__).parents[3] / "brokerha" / "transactions" / "PROTOCOL.md"
ENDS = {Phase.COMMITTED, Phase.ABORTED, Phase.FORGOTTEN}


@pytest.mark.parametrize(("phase", "step"), list(product(Phase, Step)))
def test_each_pair_at_the_coordinator_has_one_consequence(phase: Phase, step: Step) -> None:
    assert after(phase, step) is COORDINATOR.get((phase, step), phase)


@pytest.mark.parametrize(("part", "seen"), list(product(Part, Seen)))
def test_each_pair_at_a_participant_has_one_consequence(part: Part, seen: Seen) -> None:
    assert after_seen(part, seen) is PARTICIPANT.get((part, seen), part)


def test_every_state_is_reached_and_only_the_last_ones_are_never_left() -> None:
    assert {Phase.OPEN, *COORDINATOR.values()} == set(Phase)
    assert set(Phase) - {source for source, _ in COORDINATOR} == ENDS
    assert {Part.COLLECTING, *PARTICIPANT.values()} == set(Part)
    assert set(Part) - {source for source, _ in PARTICIPANT} == {Part.DONE}


def test_each_event_means_something_somewhere() -> None:
    assert {step for _, step in COORDINATOR} == set(Step)
    assert {seen for _, seen in PARTICIPANT} == set(Seen)


def test_what_is_committed_is_never_rolled_back_by_anybody_but_the_probe() -> None:
    ways = {step: target for (phase, step), target in COORDINATOR.items() if phase is Phase.COMMITTING}
    assert ways == {Step.APPLIED: Phase.COMMITTED, Step.REJECTED: Phase.ABORTED, Step.OVERRULED: Phase.HEURISTIC}


def test_only_what_is_prepared_or_may_be_is_decided_by_hand() -> None:
    assert [phase for phase, step in COORDINATOR if step is Step.BY_HAND] == [Phase.PLACED, Phase.PREPARED]


def test_a_participant_leaves_every_state_when_another_primary_acts() -> None:
    for part in set(Part) - {Part.DONE}:
        assert after_seen(part, Seen.NEW_VIEW) is Part.DONE


def test_the_pictures_in_the_protocol_are_made_from_the_tables() -> None:
    text = PROTOCOL.read_text(encoding="utf-8")
    for diagram in (mermaid(COORDINATOR, Phase.OPEN), mermaid(PARTICIPANT, Part.COLLECTING)):
        assert f"```mermaid\n{diagram}\n```" in text
