"""What the simulator would find: every planted mistake is caught within a few seeds, and without it those seeds pass.

Some mistakes need a world in which they matter (a link that stays cut, a lost disk); the seeds then keep everything else that they
drew.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from brokerha.master.config import RetentionConfig
from brokerha.sync.peers import PeerTable
from tests.simulation.mistakes.backups import BACKUP_MISTAKES
from tests.simulation.mistakes.catalogue import MISTAKES, planted
from tests.simulation.mistakes.epochs import EPOCH_MISTAKES, MEMBER_MISTAKES
from tests.simulation.mistakes.first_seeds import FIRST_SEEDS
from tests.simulation.mistakes.forgetting import FORGETTING_MISTAKES
from tests.simulation.mistakes.log import DEFERRING_MISTAKES, LOG_MISTAKES
from tests.simulation.mistakes.modes import CHOOSING_MISTAKES, MODE_MISTAKES, mode_of
from tests.simulation.mistakes.transactions import ISOLATION_MISTAKES, LARGE_MISTAKES, PREPARE_MISTAKES
from tests.simulation.mistakes.workers import STORE_MISTAKES, WORKER_MISTAKES
from tests.simulator import simulate
from tests.simulator.drawing import (
    CHOSEN_FROM,
    MEMBERS_FROM,
    MODES_FROM,
    draw_chosen,
    draw_members,
    draw_mode,
    draw_with_backups,
    forgetful,
)
from tests.simulator.options import SECOND_US, Options, draw_plain

MOST_SEEDS = 25
"""Each mistake is caught within so many seeds from where the search begins."""


def _majority(options: Options) -> Options:
    return replace(options, sync={**options.sync, "acknowledge": "majority"})


def _three(options: Options) -> Options:
    return replace(options, workers=(1, 1, 1))


def _broken_link(options: Options) -> Options:
    return replace(_three(options), broken_link=True)


def _lost_disk(options: Options) -> Options:
    return replace(_three(options), faults={**options.faults, "wipe": SECOND_US})


def _with(kind: str) -> Callable[[Options], Options]:
    def aim(options: Options) -> Options:
        return replace(options, faults={**options.faults, kind: SECOND_US})

    return aim


def _workers(**settings: object) -> Callable[[Options], Options]:
    """Sites of several workers, whose copies are lost while the log is trimmed under them."""
    kinds = ("empty worker", "trim", "crash worker", "switch worker", "freeze worker")

    def aim(options: Options) -> Options:
        faults = {**options.faults, **dict.fromkeys(kinds, SECOND_US)}
        for kind in ("damage worker", "lose power", "wipe"):
            faults.pop(kind, None)
        return replace(options, workers=(1, 2, 2), broken_link=False, faults=faults, **settings)  # type: ignore[arg-type]

    return aim


def _late(options: Options) -> Options:
    """A site whose first worker comes when the beginning of its log is forgotten."""
    faults = {**options.faults, "late worker": SECOND_US}
    faults.pop("wipe", None)
    retention = RetentionConfig(max_size=4, slack=1)
    return replace(options, workers=(1, 1, 1), late=True, retention=retention, broken_link=False, faults=faults)


def _good_copies(options: Options) -> Options:
    return replace(_workers()(options), workers=(3, 1, 1))


def _lone_workers(options: Options) -> Options:
    """Sites of one worker each, whose copy is ahead of the results that its master has once it came from elsewhere."""
    aimed = _workers()(options)
    faults = {**aimed.faults, "empty worker": SECOND_US // 2, "cut link": SECOND_US}
    return replace(aimed, workers=(1, 1, 1), faults=faults)


def _damages(options: Options) -> Options:
    kinds = ("damage worker", "crash worker", "crash master", "copy worker")
    faults = {**options.faults, **dict.fromkeys(kinds, SECOND_US // 2)}
    return replace(options, workers=(1, 2, 2), scrub_us=300_000, faults=faults)


def _only_damages(options: Options) -> Options:
    kinds = ("damage worker", "crash worker", "freeze worker", "crash master")
    faults = dict.fromkeys(kinds, SECOND_US // 2)
    aimed = replace(options, workers=(3, 2), broken_link=False, faults=faults)
    return replace(aimed, scrub_us=300_000, safety_us=8 * SECOND_US)


def _bad_chunks(options: Options) -> Options:
    aimed = _workers(safety_us=8 * SECOND_US, safety_steps=2_500)(options)
    faults = {**aimed.faults, "copy worker": SECOND_US}
    return replace(aimed, wire=replace(aimed.wire, bad_chunk=0.2), faults=faults)


def _without_power(options: Options) -> Options:
    """Masters that die with places in the order that they have told and not written."""
    return replace(options, workers=(1, 1, 1), faults={**options.faults, "lose power": SECOND_US // 3})


def _busy_backups(*kinds: str, sync_n: int = 2) -> Callable[[Options], Options]:
    """One master with two backups that clients keep busy with transactions, while its processes come and go."""

    def aim(options: Options) -> Options:
        drawn = draw_with_backups(2 * options.seed + 1)
        tx = replace(drawn.tx, runs=20, gap_us=100_000, tokens=5, two_phase=0.5, again=0.5, coordinator_dies=0.6)
        faults = dict.fromkeys(kinds, SECOND_US // 2)
        return replace(drawn, workers=(1,), backups=(2,), sync_n=(sync_n,), tx=tx, faults=faults, safety_us=6 * SECOND_US)

    return aim


def _impatient(options: Options) -> Options:
    """Backups that are silent are given up before sync-N counts as lost."""
    busy = _busy_backups("cut processes", "freeze process")(options)
    return replace(busy, sync_timeout_ms=5_000, tx_config={**busy.tx_config, "prepare_ms": 200})


def _given_up(options: Options) -> Options:
    """Prepares that are given up because a backup is silent; then their primary dies."""
    busy = _busy_backups("kill primary", "freeze process", "cut processes", sync_n=1)(options)
    return replace(
        busy, tx=replace(busy.tx, two_phase=0.9), tx_config={**busy.tx_config, "prepare_ms": 150, "lost_backup": "abort"}
    )


def _busy_splits(seed: int) -> Options:
    """Masters that are soon missed, and away now and then, while clients keep them busy: many epochs in a short time."""
    drawn = draw_plain(seed)
    masters = (3, 3, 5)[seed % 3]
    soon = {"round_timeout_ms": 100, "idle_round_ms": 300, "max_peer_lag_ms": 800, "retransmit_ms": 50}
    return replace(
        drawn,
        workers=(0,) * masters,
        sync={**drawn.sync, **soon},
        wire=replace(drawn.wire, loss=min(drawn.wire.loss, 0.02), spike=min(drawn.wire.spike, 0.02)),
        load=replace(drawn.load, writes=40, burst=1 + seed % 3, gap_us=(1 + seed % 3) * SECOND_US // 5, twice=0.1),
        faults={"isolate": 3 * SECOND_US, "crash master": 4 * SECOND_US, "aimed crash": 2 * SECOND_US},
        broken_link=False,
        safety_us=12 * SECOND_US,
        safety_steps=2_500,
    )


AIMED: dict[str, Callable[[Options], Options]] = {
    "minority may add": _majority,
    "nothing relayed": _broken_link,
    "emptied disk accepted": _lost_disk,
    "full disk ignored": _with("full disk"),
    "fsync skipped": _with("crash master"),
    "high-water mark forgotten": _with("crash master"),
    "parked forgotten at a restart": _with("crash master"),
    "results taken with a gap": _with("crash worker"),
    "chunks not checked": _bad_chunks,
    "opened with a chunk missing": _workers(),
    "old copy deleted before the new one is open": _workers(),
    "snapshot of two moments": _workers(),
    "source in trouble gives its copy": _damages,
    "lost chunks not asked for again": _bad_chunks,
    "window of chunks ignored": _workers(),
    "records taken while loading": _workers(),
    "order to stop ignored": _workers(),
    "gap taken as next": _workers(),
    "damaged copy read": _damages,
    "damage forgotten at a restart": _damages,
    "condemned copy forgiven": _only_damages,
    "confirmed LSN of the old copy kept": _workers(),
    "read-only rule ignored": _workers(),
    "good copy replaced": _good_copies,
    "log trimmed under a copy that is not replaced": _workers(),
    "first worker of a site taken as it is": _late,
    "results not begun with the first worker": _late,
    "no copy taken from other sites": _workers(),
    "missing results not fetched": _lone_workers,
    "next probe has no turn": _workers(),
    "former primary goes on": _busy_backups("freeze primary", "isolate primary", sync_n=1),
    "lost backup counts as prepared": _impatient,
    "rollback of a prepared one not written": _given_up,
    "vote without looking at the last record": _busy_backups("kill primary", "cut processes", "freeze process", sync_n=1),
    "prepared transactions lost at fail-over": _busy_backups("kill primary", "kill all processes", sync_n=1),
    "two votes for one view": _busy_backups("kill primary", "isolate primary", "kill all processes", sync_n=1),
    "locks released at fail-over": _busy_backups("kill primary", sync_n=1),
    "second commit answered blindly": _busy_backups("kill primary", "isolate primary", sync_n=1),
}
"""Worlds in which a mistake matters."""

BY_SCENARIO = {
    "emptied disk stamps at once",
    "masters before a change not counted",
    "differing copy kept",
    "lowest epoch first",
    "recovered list sorted again",
    "recovered list not reported",
    "recovered list reported without bodies",
    "own report alone",
    "entries of others dropped",
    "epoch installed that was not promised",
    "a copy ahead of the log is condemned",
    "second head stays",
    "queue of another side read as the own one",
    "what was read is forgotten at a restart",
    "the step is left before all have what came before it",
    "held by a majority where sides may part",
    "strategy of the first reporter",
}
"""Caught by scenarios, which need events in the right order, or copies that differ, which no seed has."""


def _busy_operators(seed: int) -> Options:
    """Masters that come and go all the time, with little else that goes wrong."""
    drawn = draw_members(MEMBERS_FROM + seed)
    changing = dict.fromkeys(("add master", "remove master", "replace master", "add again"), 2 * SECOND_US)
    quiet = {"isolate": 4 * SECOND_US, "crash master": 4 * SECOND_US}
    return replace(
        drawn,
        workers=(0,) * (3 + seed % 2),
        spares=(0, 0),
        sync={**drawn.sync, "queue_window": (1, 3, 20_000)[seed % 3]},
        load=replace(drawn.load, writes=30, burst=3, gap_us=SECOND_US),
        faults={**changing, **quiet},
        liveness_us=100 * SECOND_US,
    )


def _crashing(mistake: str, seed: int) -> Options:
    """Masters that crash all the time and forget what they may; of mistakes about going back, with sides that went on."""
    drawn = draw_mode(MODES_FROM["simple"] + seed) if "given up" in mistake else draw_plain(seed)
    faults = {**drawn.faults, "crash master": SECOND_US, "trim": SECOND_US}
    fails = 0.02 if "sync that failed" in mistake else 0.0
    return replace(drawn, faults=faults, disk=replace(drawn.disk, sync_fails=fails))


def _rotting(seed: int) -> Options:
    """Masters on disks of which bits flip."""
    busy = _busy_operators(seed)
    return replace(
        busy,
        faults={"rot": 2 * SECOND_US, "crash master": 2 * SECOND_US},
        load=replace(busy.load, writes=60, gap_us=SECOND_US // 3),
    )


def _branches(seed: int) -> Options:
    """Two masters whose coordinators prepare the same tokens, while primaries die."""
    drawn = draw_with_backups(2 * seed + 1)
    tx = replace(drawn.tx, runs=40, gap_us=60_000, tokens=4, two_phase=0.8, coordinator_dies=0.5, by_hand=0.0)
    faults = {"kill primary": SECOND_US // 2, "kill all processes": SECOND_US}
    return replace(drawn, workers=(1, 1), backups=(1, 1), sync_n=(1, 1), tx=tx, faults=faults, safety_us=6 * SECOND_US)


def _isolated(seed: int) -> Options:
    """Transactions that read a few keys that everybody writes."""
    drawn = draw_with_backups(2 * seed + 1)
    tx = replace(drawn.tx, runs=40, gap_us=30_000, tokens=3, two_phase=0.0, rolled_back=0.0, abandoned=0.0, timeout_ms=2_000)
    load = replace(drawn.load, writes=120, gap_us=10_000, keys=3)
    return replace(drawn, workers=(1, 1), backups=(1, 0), sync_n=(1, 0), tx=tx, load=load, faults={}, safety_us=6 * SECOND_US)


def _large(seed: int) -> Options:
    """Large transactions that others write between, about the same few quads and keys."""
    drawn = draw_plain(seed)
    load = replace(drawn.load, writes=120, gap_us=20_000, keys=3, large=8)
    return replace(
        drawn, workers=(1, 1), load=load, faults={"crash worker": 2 * SECOND_US}, broken_link=False, safety_us=6 * SECOND_US
    )


def _choosing(seed: int) -> Options:
    """Operators who choose between quorum and another strategy all the time, while clients keep the masters busy."""
    drawn = draw_chosen(CHOSEN_FROM + seed)
    modes = ("quorum", ("smart", "simple")[seed % 2])
    return replace(
        drawn,
        workers=(1,) * (3 + 2 * (seed % 3 == 0)),
        modes=modes,
        sync={**drawn.sync, "split_recovery": "quorum", "acknowledge": "majority"},
        load=replace(drawn.load, writes=60, gap_us=SECOND_US // 5),
        faults={"choose mode": SECOND_US // 4, "isolate": 4 * SECOND_US, "crash master": 4 * SECOND_US},
        safety_us=12 * SECOND_US,
    )


def _forgetting(mistake: str, seed: int) -> Options:
    """Masters that forget ids within seconds; of mistakes about going back, with sides that went on."""
    are_sides = "sides" in mistake or "before" in mistake
    drawn = draw_mode(MODES_FROM["simple"] + seed) if are_sides else draw_plain(seed)
    forgetting = forgetful(drawn, Random(seed))
    if are_sides:
        forgetting = replace(forgetting, skew_us=0, drift=0.0)
    depth_us = SECOND_US // 2 if are_sides else 1_000
    return replace(
        forgetting,
        workers=(1,) * 3,
        sync={**forgetting.sync, "queue_window": (1, 20_000)[seed % 2]},
        retention=replace(forgetting.retention, max_depth_us=depth_us, known_ids=0, ids_at_once=2),
        load=replace(forgetting.load, again=0.8, twice=0.5, conflict=0.0, writes=40, burst=1 + seed % 3, gap_us=SECOND_US // 5),
        faults={"isolate": 2 * SECOND_US, "crash master": 2 * SECOND_US, "cut link": SECOND_US},
        broken_link=False,
        safety_us=12 * SECOND_US,
        safety_steps=2_500,
    )


def _options(mistake: str, seed: int) -> Options:
    """The world in which a mistake is searched for; its settings stay as they are, so that the first seeds do, too."""
    drawn = _drawn(mistake, seed)
    return replace(drawn, faults={kind: mean_us for kind, mean_us in drawn.faults.items() if kind != "change setting"})


def _drawn(mistake: str, seed: int) -> Options:
    aims = (
        (PREPARE_MISTAKES, _branches),
        (ISOLATION_MISTAKES, _isolated),
        (LARGE_MISTAKES, _large),
        (MEMBER_MISTAKES, _busy_operators),
        (EPOCH_MISTAKES, _busy_splits),
    )
    for mistakes, aimed in aims:
        if mistake in mistakes:
            return aimed(seed)
    if mistake in FORGETTING_MISTAKES:
        return _forgetting(mistake, seed)
    if mistake in LOG_MISTAKES and mistake.startswith("damage"):
        return _rotting(seed)
    if mistake in LOG_MISTAKES:
        return _crashing(mistake, seed)
    if mistake in DEFERRING_MISTAKES:
        return _without_power(_busy_splits(seed) if "epoch" in mistake else draw_plain(2 * seed))
    if mistake in CHOOSING_MISTAKES:
        return draw_chosen(CHOSEN_FROM + seed) if "is read" in mistake else _choosing(seed)
    if mistake in MODE_MISTAKES:
        # What has not come together soon after the healing would be waited for with all that the simulator does in two minutes.
        drawn = replace(draw_mode(MODES_FROM[mode_of(mistake)] + seed), liveness_us=6 * SECOND_US)
        # A master that runs knows it; one that begins anew reads it.
        return _with("crash master")(drawn) if mistake == "executed again after many splits" else drawn
    if mistake in STORE_MISTAKES:
        if mistake == "pointer not replaced":
            return _workers()(draw_plain(seed))
        return _with("crash worker")(draw_plain(seed))
    if mistake in BACKUP_MISTAKES and mistake not in AIMED:
        return draw_with_backups(2 * seed + 1)
    return AIMED[mistake](draw_plain(seed)) if mistake in AIMED else draw_plain(seed)


@pytest.mark.parametrize("mistake", sorted(MISTAKES))
def test_a_planted_mistake_is_called_as_what_it_stands_for(mistake: str):
    """Else it breaks by how it is put in, and nobody knows whether it would be caught by what it does."""
    for place, name, planted_one in MISTAKES[mistake]():
        shipped = inspect.getattr_static(place, name)
        if not inspect.isfunction(shipped) or not inspect.isfunction(planted_one):
            continue
        takes = inspect.signature(shipped).parameters.values()
        positional = [each for each in takes if each.kind is each.POSITIONAL_OR_KEYWORD]
        named = {each.name: None for each in takes if each.kind is each.KEYWORD_ONLY}
        inspect.signature(planted_one).bind(*(None for _ in positional), **named)


@pytest.mark.parametrize("mistake", sorted(set(MISTAKES) - BY_SCENARIO))
def test_a_planted_mistake_is_caught(mistake: str):
    seed = _caught_by(mistake, FIRST_SEEDS.get(mistake, 0))
    assert seed is not None, f"{mistake}: not caught by {MOST_SEEDS} seeds"
    # Without the mistake that seed passes
    assert simulate(seed, options=_options(mistake, seed)).violation is None


def _caught_by(mistake: str, first: int) -> int | None:
    """The first seed from there on that breaks with the mistake; None when none of so many does."""
    for seed in range(first, first + MOST_SEEDS):
        with planted(mistake):
            report = simulate(seed, options=_options(mistake, seed))
        if report.violation:
            return seed
    return None


def test_there_are_enough_mistakes_about_masters_workers_backups_and_epochs():
    others = (
        PREPARE_MISTAKES,
        ISOLATION_MISTAKES,
        LARGE_MISTAKES,
        WORKER_MISTAKES,
        STORE_MISTAKES,
        BACKUP_MISTAKES,
        EPOCH_MISTAKES,
        MEMBER_MISTAKES,
        MODE_MISTAKES,
        DEFERRING_MISTAKES,
        LOG_MISTAKES,
        FORGETTING_MISTAKES,
        CHOOSING_MISTAKES,
    )
    assert len(MISTAKES) - sum(map(len, others)) >= 12
    assert len(LOG_MISTAKES) >= 18
    assert len(FORGETTING_MISTAKES) >= 8
    assert len(MODE_MISTAKES) >= 9
    assert len(CHOOSING_MISTAKES) >= 7
    assert len(ISOLATION_MISTAKES) >= 6
    assert len(PREPARE_MISTAKES) >= 7
    assert len(LARGE_MISTAKES) >= 4
    assert len(DEFERRING_MISTAKES) >= 9
    assert len(EPOCH_MISTAKES) >= 25
    assert len(MEMBER_MISTAKES) >= 9
    assert len(WORKER_MISTAKES) >= 15
    assert len(STORE_MISTAKES) >= 5
    assert len(BACKUP_MISTAKES) >= 15


def test_a_mistake_is_gone_after_its_run():
    before = PeerTable.least_promise

    with planted("no counter check"):
        assert PeerTable.least_promise is not before

    assert PeerTable.least_promise is before


def test_an_unknown_mistake_is_an_error():
    with pytest.raises(KeyError), planted("no such thing"):
        pass


if __name__ == "__main__":
    for each in sorted(set(MISTAKES) - BY_SCENARIO):
        # What seldom does harm is looked for from where it was found last.
        found = next((seed for first in (0, FIRST_SEEDS.get(each, 0)) if (seed := _caught_by(each, first)) is not None), None)
        if found:
            print(f'    "{each}": {found},', flush=True)
