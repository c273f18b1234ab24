"""The seeds of `make test`: worlds with every kind of bad luck, and not one violation. Half of them have backups.

The first seed is fixed, so that a failure on one machine is a failure on all of them; BROKERHA_SIMULATION_FIRST_SEED and
BROKERHA_SIMULATION_SEEDS choose others.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from brokerha.simulator import Summary, campaign, simulate
from brokerha.simulator.drawing import BESIDE, FAULTS_OF_BACKUPS, draw
from brokerha.simulator.options import FAULTS, draw_plain

FIRST_SEED = int(os.environ.get("BROKERHA_SIMULATION_FIRST_SEED", "0"))
SEEDS = int(os.environ.get("BROKERHA_SIMULATION_SEEDS", "4000"))
FEW = 12


def _told(summary: Summary) -> str:
    return "\n\n".join(failure.words() for failure in summary.failures)


def test_a_few_seeds_pass():
    # These run in this process, so that the coverage of the cores counts them.
    for seed in range(1_000_000, 1_000_000 + FEW):
        report = simulate(seed)
        assert report.violation is None, report.words()


@pytest.mark.slow
def test_four_thousand_seeds_pass(covered: Callable[[str], None]):
    summary = campaign(range(FIRST_SEED, FIRST_SEED + SEEDS), processes=2)

    covered(f"simulator: {summary.words()}; {summary.seconds:.0f} s")
    assert not summary.failures, _told(summary)
    assert summary.seeds == SEEDS
    assert summary.acknowledged > SEEDS


def test_even_seeds_draw_every_kind_of_cluster_and_fault_without_backups():
    drawn = [draw_plain(seed) for seed in range(300)]

    assert [draw(seed) for seed in range(0, 10, 2)] == drawn[0:10:2]
    assert not any(any(options.backups) or options.tx.runs for options in drawn)

    assert {len(options.workers) for options in drawn} == {1, 2, 3, 5}
    assert {options.sync["acknowledge"] for options in drawn} == {"all", "majority", "present"}
    assert any(options.wipes for options in drawn)
    assert any(options.broken_link for options in drawn)
    assert any(options.wire.is_encoded for options in drawn)
    assert any(options.sync["post_window"] == 1 for options in drawn)
    assert any(options.wire.bad_chunk for options in drawn)
    assert any(options.dedicated_probe for options in drawn)
    assert {options.disk.chunk_bytes for options in drawn} == {64, 1_024, 4_096}
    assert max(workers for options in drawn for workers in options.workers) == 3
    assert {kind for options in drawn for kind in options.faults} == {*FAULTS, "wipe"}


def test_odd_seeds_draw_every_kind_of_master_with_backups():
    drawn = [draw(seed) for seed in range(1, 600, 2)]

    assert {backups for options in drawn for backups in options.backups} == {0, 1, 2, 3}
    assert {sync_n for options in drawn for sync_n in options.sync_n} == {0, 1, 2, 3}
    assert {len(options.workers) for options in drawn} == {1, 2, 3}
    assert all(any(options.backups) and options.tx.runs for options in drawn)
    assert any(options.tx.by_hand and options.tx.two_phase for options in drawn)
    assert any(options.wire.is_encoded for options in drawn)
    assert {kind for options in drawn for kind in options.faults} == {*FAULTS_OF_BACKUPS, *BESIDE}
