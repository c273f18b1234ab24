"""What a write costs three masters, alone and with a hundred others, in counts: what grows is seen here before anybody measures time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.lone_write import counts_per_round

OF_A_ROUND = {
    "turns": 8.2,
    "turns of workers": 6.2,
    "turns without effect": 0.1,
    "take_ready": 17.5,
    "encodings": 10.3,
    "arrivals": 12.3,
    "publications": 9.3,
    "commits": 3.1,
}
CEILINGS = {1: {**OF_A_ROUND, "calls": 1_850}, 100: {**OF_A_ROUND, "calls": 6_000}}
"""Of all three masters together for a round, one following the other, by the number of writes that come at once. Calls are those of Python functions of brokerha, but for the journal's."""


@pytest.fixture(scope="module", params=CEILINGS)
def counted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[str, float]]:
    folder: Path = tmp_path_factory.mktemp("lone-write")
    return request.param, counts_per_round(folder, request.param)


def test_a_round_of_writes_costs_no_more_than_it_did(counted: tuple[int, dict[str, float]]) -> None:
    together, counts = counted
    grown = {what: counts.get(what, 0) for what, most in CEILINGS[together].items() if counts.get(what, 0) > most}
    assert grown == {}
