"""The seeds of `make test`: worlds with every kind of bad luck, and not one violation. Half of the first have backups; the others split,
or have masters that come and go.

The seeds are fixed, so that a failure on one machine is a failure on all of them. They are short ones: for the same processor time
these catch as many planted mistakes as long ones. BROKERHA_SIMULATION_FIRST_SEED chooses others (0 the long ones; for the other kinds it is added
to their first), BROKERHA_SIMULATION_SEEDS, BROKERHA_SIMULATION_SPLITS, BROKERHA_SIMULATION_MODE (for each of none, simple and smart),
BROKERHA_SIMULATION_CHOSEN and BROKERHA_SIMULATION_MEMBERS how many.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from brokerha.sync import catching_up
from brokerha.sync.epochs import epochs
from tests.simulator import Summary, campaign, simulate
from tests.simulator.drawing import (
    BESIDE,
    CHOSEN_FROM,
    FAULTS_OF_BACKUPS,
    FAULTS_OF_MEMBERS,
    LARGE_FROM,
    MEMBERS_FROM,
    MODES_FROM,
    OF_COPIES,
    SHORT_FROM,
    SPLITS_FROM,
    SPLITTING,
    draw,
    draw_chosen,
    draw_members,
    draw_mode,
    draw_split,
    draw_with_backups,
)
from tests.simulator.options import FAULTS, SECOND_US, Options, draw_plain

FIRST_SEED = int(os.environ.get("BROKERHA_SIMULATION_FIRST_SEED", str(SHORT_FROM)))
SEEDS = int(os.environ.get("BROKERHA_SIMULATION_SEEDS", "990"))
SPLITS = int(os.environ.get("BROKERHA_SIMULATION_SPLITS", "600"))
OF_EACH_MODE = int(os.environ.get("BROKERHA_SIMULATION_MODE", "162"))
CHOSEN = int(os.environ.get("BROKERHA_SIMULATION_CHOSEN", "162"))
MEMBERS = int(os.environ.get("BROKERHA_SIMULATION_MEMBERS", "162"))
FEW = 8
PARTS = 3
DRAWERS = {
    0: lambda seed: draw_with_backups(seed) if seed % 2 else draw_plain(seed),
    SPLITS_FROM: draw_split,
    MEMBERS_FROM: draw_members,
    **dict.fromkeys(MODES_FROM.values(), draw_mode),
    CHOSEN_FROM: draw_chosen,
}


def _told(summary: Summary) -> str:
    return "\n\n".join(failure.words() for failure in summary.failures)


@pytest.mark.parametrize("kind", [0, SPLITS_FROM, MEMBERS_FROM, *MODES_FROM.values(), CHOSEN_FROM])
def test_a_few_seeds_pass(kind: int):
    # These run in this process, so that the coverage of the cores counts them; large transactions and slow processors are among them.
    first = kind + SHORT_FROM
    for seed in range(first, first + FEW):
        report = simulate(seed)
        assert report.violation is None, report.words()


@pytest.mark.parametrize("first", MODES_FROM.values())
def test_a_few_seeds_pass_when_each_entry_of_a_tail_is_a_message_of_its_own(first: int, monkeypatch: pytest.MonkeyPatch):
    # So that epochs are proposed while masters have read a part of what others have.
    for module in (catching_up, epochs):
        monkeypatch.setattr(module, "TAIL_LIMIT", 1)
    for seed in range(first + SHORT_FROM, first + SHORT_FROM + FEW):
        report = simulate(seed)
        assert report.violation is None, report.words()


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_the_first_seeds_pass(part: int, covered: Callable[[str], None]):
    # In parts, because a test that takes a quarter of an hour is taken for one that hangs.
    seeds = range(FIRST_SEED + part, FIRST_SEED + SEEDS, PARTS)
    summary = campaign(seeds, processes=2)

    covered(f"simulator: {summary.words()}; {summary.seconds:.0f} s")
    assert not summary.failures, _told(summary)
    assert summary.seeds == len(seeds)
    assert summary.acknowledged > summary.seeds


@pytest.mark.slow
def test_seeds_that_split_pass(covered: Callable[[str], None]):
    first = SPLITS_FROM + FIRST_SEED
    summary = campaign(range(first, first + SPLITS), processes=2)

    begun, left_out, taken_back = (summary.faults[kind] for kind in ("epoch begun", "member left out", "member taken back"))
    covered(
        f"simulator, splits: {begun:,} epochs, {left_out:,} times a member left out, {taken_back:,} times one taken back; "
        f"{summary.words()}; {summary.seconds:.0f} s"
    )
    assert not summary.failures, _told(summary)
    assert summary.seeds == SPLITS
    # Whoever is left out comes back, at the end of the run at the latest, and that takes an epoch.
    assert begun > SPLITS // 3
    assert left_out > SPLITS // 6
    assert taken_back > SPLITS // 8


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES_FROM)
def test_seeds_in_which_every_side_of_a_split_goes_on_pass(mode: str, covered: Callable[[str], None]):
    first = MODES_FROM[mode] + FIRST_SEED
    summary = campaign(range(first, first + OF_EACH_MODE), processes=2)

    faults = summary.faults
    begun, lineages, back = (faults[kind] for kind in ("epoch begun", "lineage begun", "queue went back"))
    covered(
        f"simulator, {mode}: {begun:,} epochs, the queue went back {back:,} times, {lineages:,} times sides came together "
        f"with nothing to give up; {summary.words()}; {summary.seconds:.0f} s"
    )
    assert not summary.failures, _told(summary)
    assert summary.seeds == OF_EACH_MODE
    assert begun > OF_EACH_MODE
    assert back > OF_EACH_MODE // 20
    assert lineages > OF_EACH_MODE // 3


@pytest.mark.slow
def test_seeds_in_which_operators_choose_a_strategy_pass(covered: Callable[[str], None]):
    first = CHOSEN_FROM + FIRST_SEED
    summary = campaign(range(first, first + CHOSEN), processes=2)

    chosen, back = summary.faults["mode chosen"], summary.faults["queue went back"]
    covered(
        f"simulator, strategies chosen: {chosen:,} times, the queue went back {back:,} times; {summary.words()}; {summary.seconds:.0f} s"
    )
    assert not summary.failures, _told(summary)
    assert summary.seeds == CHOSEN
    assert chosen > CHOSEN
    assert back > CHOSEN // 12


@pytest.mark.slow
def test_seeds_whose_masters_come_and_go_pass(covered: Callable[[str], None]):
    first = MEMBERS_FROM + FIRST_SEED
    summary = campaign(range(first, first + MEMBERS), processes=2)

    faults = summary.faults
    added, gone, back = (faults[kind] for kind in ("master added", "master gone", "master came back"))
    covered(
        f"simulator, masters that come and go: {added:,} added, {gone:,} taken out, {back:,} back with an empty disk; "
        f"{summary.words()}; {summary.seconds:.0f} s"
    )
    assert not summary.failures, _told(summary)
    assert summary.seeds == MEMBERS
    assert added > MEMBERS // 2
    assert gone > MEMBERS // 5
    assert back > MEMBERS // 5


def test_even_seeds_draw_every_kind_of_cluster_and_fault_without_backups():
    drawn = [draw_plain(seed) for seed in range(300)]

    assert all(each.forgets or each == drawn[each.seed] for each in map(draw, range(0, 10, 2)))
    assert not any(any(options.backups) or options.tx.runs for options in drawn)

    assert {len(options.workers) for options in drawn} == {1, 2, 3, 5}
    assert {options.sync["acknowledge"] for options in drawn} == {"all", "majority", "present"}
    assert any(options.wipes for options in drawn)
    assert any(options.broken_link for options in drawn)
    assert any(options.wire.is_encoded for options in drawn)
    assert any(options.sync["post_window"] == 1 for options in drawn)
    assert any(options.wire.bad_chunk for options in drawn)
    assert any(options.dedicated_probe for options in drawn)
    assert {options.disk.chunk_bytes for options in drawn} == {8_192, 16_384, 65_536}
    assert max(workers for options in drawn for workers in options.workers) == 3
    assert {kind for options in drawn for kind in options.faults} == {
        *FAULTS,
        "wipe",
        "late worker",
        "lose power",
        "change setting",
    }


def are_drawn(first: int, drawn: list[Options]) -> bool:
    """Tell whether seeds from one on have these options; forgetful ones have some of their own."""
    return all(each.forgets or each == drawn[place] for place, each in enumerate(map(draw, range(first, first + 9))))


@pytest.mark.parametrize("kind", [0, *DRAWERS])
def test_a_fifth_of_the_seeds_of_each_kind_forgets_ids(kind: int):
    drawn = [draw(seed) for seed in range(kind, kind + 200)]
    forgetful = [options for options in drawn if options.forgets]
    assert 20 <= len(forgetful) <= 60
    assert all(options.load.again and options.retention.ids_at_once < 5 for options in forgetful)
    assert not any(OF_COPIES[0] in options.faults for options in forgetful)


def test_odd_seeds_draw_every_kind_of_master_with_backups():
    drawn = [draw(seed) for seed in range(1, 600, 2)]

    assert {backups for options in drawn for backups in options.backups} == {0, 1, 2, 3}
    assert {sync_n for options in drawn for sync_n in options.sync_n} == {0, 1, 2, 3}
    assert {len(options.workers) for options in drawn} == {1, 2, 3}
    assert all(any(options.backups) and options.tx.runs for options in drawn)
    assert any(options.tx.by_hand and options.tx.two_phase for options in drawn)
    assert any(options.wire.is_encoded for options in drawn)
    assert {kind for options in drawn for kind in options.faults} == {*FAULTS_OF_BACKUPS, *BESIDE, "change setting"}


def test_seeds_that_split_draw_every_kind_of_cluster_in_which_masters_are_missed():
    drawn = [draw_split(seed) for seed in range(SPLITS_FROM, SPLITS_FROM + 400)]

    assert are_drawn(SPLITS_FROM, drawn)
    assert {len(options.workers) for options in drawn} == {2, 3, 4, 5}
    assert {options.sync["acknowledge"] for options in drawn} == {"all", "majority", "present"}
    with_backups = [options for options in drawn if any(options.backups)]
    assert 0.1 < len(with_backups) / len(drawn) < 0.4
    assert {kind for options in drawn for kind in options.faults} >= {*SPLITTING, *FAULTS, *FAULTS_OF_BACKUPS, "wipe"}
    assert any(options.broken_link for options in drawn)
    assert any(options.sync["post_window"] == 1 for options in drawn)
    # Masters are missed as soon as their silence means anything, and well within a run.
    for options in drawn:
        least_ms = 2 * options.sync["idle_round_ms"] + options.sync["round_timeout_ms"]
        assert options.sync["max_peer_lag_ms"] >= least_ms
        assert options.sync["max_peer_lag_ms"] * 1_000 < options.safety_us + 2 * SECOND_US


def test_later_seeds_of_each_kind_have_large_transactions_and_slow_processors():
    for kind in (0, SPLITS_FROM, MEMBERS_FROM, *MODES_FROM.values(), CHOSEN_FROM):
        later = [draw(seed) for seed in range(kind + LARGE_FROM, kind + LARGE_FROM + 100)]
        assert sum(options.load.large > 0 for options in later) == 20
        assert 20 < sum("slow processor" in options.faults for options in later) < 60
        assert not any("slow processor" in draw(seed).faults for seed in range(kind, kind + 100))


def test_the_last_million_of_each_kind_is_short():
    for kind in (0, SPLITS_FROM, MEMBERS_FROM, *MODES_FROM.values(), CHOSEN_FROM):
        for seed in range(kind + SHORT_FROM, kind + SHORT_FROM + 20):
            # What is drawn is the same, but for how much of it there is.
            drawn, long = draw(seed), DRAWERS[kind](seed)
            if drawn.forgets:
                continue
            assert drawn.safety_steps == round(long.safety_steps / 3)
            assert drawn.load.writes <= max(4, long.load.writes / 2)
            assert (drawn.workers, drawn.sync) == (long.workers, long.sync)


@pytest.mark.parametrize("mode", MODES_FROM)
def test_seeds_of_a_strategy_draw_every_kind_of_cluster_without_backups(mode: str):
    first = MODES_FROM[mode]
    drawn = [draw_mode(seed) for seed in range(first, first + 200)]

    assert are_drawn(first, drawn)
    assert {options.sync["split_recovery"] for options in drawn} == {mode}
    assert {options.sync["acknowledge"] for options in drawn} == {"all"}
    assert {len(options.workers) for options in drawn} == {2, 3, 4, 5}
    assert {kind for options in drawn for kind in options.faults} >= {*SPLITTING, "crash worker", "slow disk"}
    assert not any(any(options.backups) or options.wipes or options.broken_link for options in drawn)


def test_seeds_of_choices_draw_every_two_strategies_of_which_one_is_quorum():
    drawn = [draw_chosen(seed) for seed in range(CHOSEN_FROM, CHOSEN_FROM + 200)]

    assert are_drawn(CHOSEN_FROM, drawn)
    assert {mode for options in drawn for mode in options.modes} == {"none", "simple", "smart", "quorum"}
    assert all("quorum" in options.modes and options.sync["split_recovery"] in options.modes for options in drawn)
    assert {options.sync["acknowledge"] for options in drawn if options.sync["split_recovery"] == "quorum"} == {
        "all",
        "majority",
        "present",
    }
    assert {kind for options in drawn for kind in options.faults} >= {*SPLITTING, "choose mode"}
    assert all("choose mode" in options.faults for options in drawn)


def test_seeds_of_members_draw_every_kind_of_cluster_whose_masters_change():
    drawn = [draw_members(seed) for seed in range(MEMBERS_FROM, MEMBERS_FROM + 300)]

    assert are_drawn(MEMBERS_FROM, drawn)
    assert {len(options.workers) for options in drawn} == {1, 2, 3, 4, 5}
    assert {len(options.spares) for options in drawn} >= {1, 2, 3}
    assert {kind for options in drawn for kind in options.faults} >= {*FAULTS_OF_MEMBERS, *SPLITTING}
    # Half of them have time for what operators do.
    assert sum(set(options.faults) <= {*FAULTS_OF_MEMBERS, "rot"} for options in drawn) > 60
