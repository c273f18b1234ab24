"""Where nothing goes wrong, nobody is left out: no epoch begins, and no side of a split, however far the masters are from each other.

Seeds have faults nearly always, so that a master which is left out for nothing looks like one that is left out for something.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count, islice

import pytest

from tests.simulator.drawing import MODES_FROM, SPLITS_FROM, draw
from tests.simulator.options import Options
from tests.simulator.runs import simulate

KINDS = {"quorum": SPLITS_FROM, **MODES_FROM}
SEEDS = 6
NEAR_US, FAR_US = 1_000, 50_000
TIMES = {"round_timeout_ms": 500, "idle_round_ms": 1_000, "retransmit_ms": 250, "max_peer_lag_ms": 10_000}
"""As they are by default."""


def quiet(seed: int, delay_us: int) -> Options:
    """The world of a seed with default times, whose wire and disks do what they should."""
    drawn = draw(seed)
    return replace(
        drawn,
        faults={},
        broken_link=False,
        sync={**drawn.sync, **TIMES},
        wire=replace(drawn.wire, delay_us=(delay_us, delay_us * 6 // 5), loss=0.0, duplication=0.0, spike=0.0),
        disk=replace(drawn.disk, sync_fails=0.0),
    )


@pytest.mark.parametrize("delay_us", [NEAR_US, FAR_US])
@pytest.mark.parametrize("kind", KINDS)
def test_nobody_is_left_out_where_nothing_goes_wrong(kind: str, delay_us: int) -> None:
    # Elections of backups have times of their own, which a seed draws for its wire.
    alone = (seed for seed in count(KINDS[kind] + 1) if not any(draw(seed).backups))
    for seed in islice(alone, SEEDS):
        report = simulate(seed, options=quiet(seed, delay_us))
        assert report.violation is None, report.words()
        assert not {what for what in report.faults if "epoch" in what or "lineage" in what}, report.words()
