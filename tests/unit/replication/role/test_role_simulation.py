"""A small simulated master under faults: what was shown is never lost, no view starts twice, and afterwards one primary acts.

And the other way round: with mistakes planted into the program, the same runs find them.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from brokerha.replication.role.table import RoleState
from tests.unit.replication.role_bench import FAIL_OVER_MS, Mistakes, Violated, World

SIZES = ((2, 1), (3, 1), (3, 2), (4, 1), (4, 2), (4, 3))
FAULTS_MS = 15_000


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("processes", "sync_n"), [*SIZES, (3, 0)])
def test_nothing_shown_is_lost_and_in_the_end_one_primary_acts(processes: int, sync_n: int, seed: int) -> None:
    world = World(seed, processes, sync_n)
    world.run(FAULTS_MS)
    world.calm()
    shown = max((number for _, number, _ in world.shown), default=0)
    world.until(lambda: all(len(disk.records) > shown for disk in world.disks.values()), 20 * FAIL_OVER_MS)
    journals = {tuple(disk.records[:shown]) for disk in world.disks.values()}
    assert len(journals) == 1


@pytest.mark.parametrize(("processes", "sync_n"), SIZES)
def test_promises_of_a_process_only_grow(processes: int, sync_n: int) -> None:
    world = World(100, processes, sync_n)
    promised: dict[str, list[int]] = {name: [0] for name in world.names}
    for _ in range(500):
        world.step()
        for name, disk in world.disks.items():
            promised[name].append(disk.promised)
    assert any(values[-1] for values in promised.values())
    assert all(before <= later for values in promised.values() for before, later in pairwise(values))


@pytest.mark.parametrize(("processes", "sync_n"), SIZES)
def test_without_faults_the_first_process_acts_and_nobody_ever_disturbs_it(processes: int, sync_n: int) -> None:
    world = World(0, processes, sync_n)
    world.calm(within_ms=2 * FAIL_OVER_MS)
    for _ in range(2000):
        world.step()
    assert list(world.views) == [10]
    assert world.primaries() == ["m1"]


@pytest.mark.parametrize(("processes", "sync_n"), [(3, 1), (4, 1), (4, 2)])
def test_when_the_primary_dies_another_one_acts_soon_and_the_old_one_follows_it(processes: int, sync_n: int) -> None:
    world = World(1, processes, sync_n)
    world.calm()
    world.crash("m1")
    took_ms = world.until(lambda: world.primaries() != [], 4 * FAIL_OVER_MS)
    assert took_ms >= FAIL_OVER_MS
    (acting,) = world.primaries()
    world.start("m1")
    world.until(world.is_settled, 4 * FAIL_OVER_MS)
    assert world.primaries() == [acting]
    assert world.running["m1"].role.state is RoleState.STANDBY


@pytest.mark.parametrize(("processes", "sync_n"), [(3, 1), (4, 2)])
def test_a_backup_that_was_stopped_for_long_disturbs_nobody_when_it_goes_on(processes: int, sync_n: int) -> None:
    world = World(2, processes, sync_n)
    world.calm()
    world.stopped_until["b1"] = 10**9
    for _ in range(1000):
        world.step()
    world.stopped_until.clear()
    for _ in range(500):
        world.step()
    assert list(world.views) == [10]


def test_a_primary_that_is_cut_off_shows_nothing_that_the_next_one_lacks_and_nothing_at_all_in_the_end() -> None:
    world = World(3, 3, 1)
    world.calm()
    world.cut = {(a, b) for a in world.names for b in world.names if "m1" in (a, b)}
    world.has_faults, world.lost_share = True, 0.0
    world._disturb = lambda: None  # type: ignore[method-assign]
    world.until(lambda: len(world.views) == 2, 5 * FAIL_OVER_MS)
    since = len(world.shown)
    for _ in range(500):
        world.step()
    assert len(world.primaries()) == 2
    assert {view for view, _, _ in world.shown[since:]} == {max(world.views)}
    world.calm()
    assert world.primaries() != ["m1"]


def found_by(mistakes: Mistakes, processes: int, sync_n: int) -> str:
    """What the first run that finds a mistake says; empty when none of a hundred does."""
    for seed in range(100):
        world = World(seed, processes, sync_n, mistakes)
        try:
            world.run(FAULTS_MS)
        except Violated as found:
            return str(found)
    return ""


@pytest.mark.parametrize(
    ("mistakes", "processes", "sync_n"),
    [
        (Mistakes(forgets_promise=True), 3, 1),
        (Mistakes(votes_too_few=1), 3, 1),
        (Mistakes(votes_too_few=1), 4, 2),
        (Mistakes(obeys_anybody=True), 3, 1),
    ],
)
def test_a_mistake_that_is_planted_is_found(mistakes: Mistakes, processes: int, sync_n: int) -> None:
    assert "which was shown" in found_by(mistakes, processes, sync_n)


def test_the_same_seed_gives_the_same_story() -> None:
    stories = []
    for _ in range(2):
        world = World(7, 4, 2)
        world.run(FAULTS_MS)
        stories.append((world.story(), world.shown, world.views))
    assert stories[0] == stories[1]
