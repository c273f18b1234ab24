"""What a write costs three masters, alone and with a hundred others, in counts: what grows is seen here before anybody measures time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.lone_write import counts_per_round

OF_A_ROUND = {
    "turns": 6.8,
    "turns of workers": 3.1,
    "turns without effect": 0.2,
    "take_ready": 14.5,
    "encodings": 7.2,
    "arrivals": 8.2,
    "publications": 6.2,
    "commits": 3.1,
}
LINGERING_LESS = {"turns of workers": 4.3, "encodings": 8.4, "arrivals": 9.4, "publications": 7.4}
"""So many at once are company enough: workers of other sites get them without waiting for more."""
CEILINGS = {1: {**OF_A_ROUND, "calls": 1_575}, 100: {**OF_A_ROUND, **LINGERING_LESS, "calls": 5_200}}
"""Of all three masters together for a round, one following the other, by the number of writes that come at once. Calls are those of Python functions of brokerha, but for the journal's; a busy machine makes a few more, as more turns find something to take."""


@pytest.fixture(scope="module", params=CEILINGS)
def counted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[str, float]]:
    folder: Path = tmp_path_factory.mktemp("lone-write")
    return request.param, counts_per_round(folder, request.param)


def test_a_round_of_writes_costs_no_more_than_it_did(counted: tuple[int, dict[str, float]]) -> None:
    together, counts = counted
    grown = {what: counts.get(what, 0) for what, most in CEILINGS[together].items() if counts.get(what, 0) > most}
    assert grown == {}
