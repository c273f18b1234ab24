"""What the simulator would find: every planted mistake is caught within a few seeds, and without it those seeds pass.

Some mistakes need a world in which they matter (a link that stays cut, a lost disk); the seeds then keep everything else that they
drew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from brokerha.simulator import simulate
from brokerha.simulator.mistakes import MISTAKES, planted
from brokerha.simulator.options import SECOND_US, Options, draw
from brokerha.sync.peers import PeerTable

MOST_SEEDS = 25
"""Each mistake is caught within so many seeds; most within three."""


def _majority(options: Options) -> Options:
    return replace(options, sync={**options.sync, "acknowledge": "majority"})


def _three(options: Options) -> Options:
    return replace(options, workers=(1, 1, 1))


def _broken_link(options: Options) -> Options:
    return replace(_three(options), broken_link=True)


def _lost_disk(options: Options) -> Options:
    return replace(_three(options), wipes=True, faults={**options.faults, "wipe": SECOND_US})


def _with(kind: str) -> Callable[[Options], Options]:
    def aim(options: Options) -> Options:
        return replace(options, faults={**options.faults, kind: SECOND_US})

    return aim


AIMED: dict[str, Callable[[Options], Options]] = {
    "minority may add": _majority,
    "nothing relayed": _broken_link,
    "emptied disk accepted": _lost_disk,
    "full disk ignored": _with("full disk"),
    "fsync skipped": _with("crash master"),
    "high-water mark forgotten": _with("crash master"),
    "parked forgotten at a restart": _with("crash master"),
    "results taken with a gap": _with("crash worker"),
}
"""Worlds in which a mistake matters."""

BY_SCENARIO = {"emptied disk stamps at once"}
"""Caught by a scenario of test_scenarios_of_the_protocol.py, which needs three events in the right order."""


def _options(mistake: str, seed: int) -> Options:
    return AIMED[mistake](draw(seed)) if mistake in AIMED else draw(seed)


@pytest.mark.parametrize("mistake", sorted(set(MISTAKES) - BY_SCENARIO))
def test_a_planted_mistake_is_caught(mistake: str):
    for seed in range(MOST_SEEDS):
        # When a seed runs with the mistake
        if simulate(seed, mistake=mistake, options=_options(mistake, seed)).violation:
            # Then it breaks, and without the mistake it does not
            assert simulate(seed, options=_options(mistake, seed)).violation is None
            return
    pytest.fail(f"{mistake}: not caught by {MOST_SEEDS} seeds")


def test_there_are_at_least_twelve_mistakes():
    assert len(MISTAKES) >= 12


def test_a_mistake_is_gone_after_its_run():
    before = PeerTable.least_promise

    with planted("no counter check"):
        assert PeerTable.least_promise is not before

    assert PeerTable.least_promise is before


def test_an_unknown_mistake_is_an_error():
    with pytest.raises(KeyError), planted("no such thing"):
        pass
