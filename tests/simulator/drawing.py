"""Options by seed: even seeds give a world of masters without backups, odd ones a world of backups and transactions.

    draw(6)             options.draw_plain: sync, workers, copies
    draw(7)             draw_with_backups: primaries, backups, fail-over, transactions with and without a coordinator
    draw(10_000_000)    draw_split: masters that are excluded from an epoch, and come back
    draw(20_000_000)    draw_members: masters that are added, removed and replaced while the world splits
    draw(30_000_000)    draw_mode: every side of a split goes on; from 30, 40 and 50 million on: none, simple and smart
    draw(60_000_000)    draw_chosen: the same while operators sometimes choose another strategy, also quorum
    draw(1_000_000)     as 0, with large transactions; among the later nine million seeds of each kind every fifth has some,
                        and in two of five, processors are sometimes slow
    draw(9_000_000)     as those, a third as long: the last million seeds of each kind are short
    draw(1)             forgets ids within seconds, as every fifth seed of all kinds (`forgetful`)

The second kind has fewer masters and workers and fewer other faults, so that its runs stay short.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from brokerha.following.asking import AskConfig
from brokerha.following.loading import LoadConfig
from brokerha.master.config import RetentionConfig
from brokerha.replication.journal.log import AnswerLimits
from tests.simulator.options import (
    FAULTS,
    KEEP_RESULTS,
    SECOND_US,
    Load,
    Options,
    TxLoad,
    disk_of,
    draw_plain,
    faults_of,
    feed_settings,
    settings_of,
    sync_settings,
    wire_of,
    worker_settings,
)

SPLITS_FROM = 10_000_000
"""Seeds from here on draw worlds in which masters are excluded and come back."""
MEMBERS_FROM = 20_000_000
"""Seeds from here on draw worlds in which masters are added, removed and replaced."""
MODES_FROM = {"none": 30_000_000, "simple": 40_000_000, "smart": 50_000_000}
"""Seeds from here on, ten million each, draw worlds with a strategy in which every side of a split goes on."""
CHOSEN_FROM = 60_000_000
"""Seeds from here on draw worlds in which operators choose among several strategies."""
LARGE_FROM = 1_000_000
"""In each ten million seeds, every `LARGE_EVERY`th from here on has `LARGE` large transactions; this includes fresh seeds."""
LARGE_EVERY = 5
LARGE = 6
SHORT_FROM = 9_000_000
"""In each ten million seeds, those from here on are short: a third of the steps with faults, of the writes and of the transactions."""
SHORT = 1 / 3
SLOW_PROCESSORS = 0.4
"""Share of these later seeds in which nodes sometimes take few turns, and find much work in each."""
FORGETFUL = 0.2
"""Share of all seeds in which masters forget ids within seconds, and clients use theirs again."""
OF_COPIES = ("empty worker", "damage worker", "spoil worker", "copy worker", "remove worker", "wipe", "store failure")
"""Faults after which a copy has to be made anew."""
MOST_MASTERS = 6
FAULTS_OF_MEMBERS = {
    "add master": 3 * SECOND_US,
    "remove master": 4 * SECOND_US,
    "replace master": 6 * SECOND_US,
    "add again": 5 * SECOND_US,
}
"""Operators' actions on masters, with the usual mean time between two of a kind."""
ROTS = 0.5
"""Share of these worlds in which bits of a disk flip."""
WITH_BACKUPS = 0.2
"""Share of these worlds in which masters also have backups."""
SPLITTING = ("isolate", "partition", "bridge", "cut link", "cut one way", "crash master", "crash all", "aimed crash")
"""Faults that separate masters."""

FAULTS_OF_BACKUPS = {
    "kill process": 2 * SECOND_US,
    "kill primary": 3 * SECOND_US,
    "kill all processes": 5 * SECOND_US,
    "freeze process": 3 * SECOND_US,
    "freeze primary": 4 * SECOND_US,
    "cut processes": 2 * SECOND_US,
    "isolate primary": 4 * SECOND_US,
    "clog processes": 3 * SECOND_US,
    "empty process": 4 * SECOND_US,
    "full disk of process": 3 * SECOND_US,
    "hand over": 3 * SECOND_US,
    "purge tx-queues": 2 * SECOND_US,
    "delete tx-queue": 2 * SECOND_US,
    "restart broker": 4 * SECOND_US,
    "trim process": 2 * SECOND_US,
}
"""Faults of masters with backups and of their queues, with the usual mean time between two of a kind."""

BESIDE = frozenset({"aimed crash", "crash worker", "cut link", "cut one way", "clog", "slow disk", "clock jump", "partition"})
"""Faults of other worlds that happen here too."""


LEAST_RESERVE_US = 200_000
"""A clock that is reserved in smaller steps makes a record in each turn, too many for a backup with small windows."""


def _sync(rng: Random) -> dict[str, Any]:
    settings = sync_settings(rng)
    return {**settings, "clock_reserve_us": max(LEAST_RESERVE_US, settings["clock_reserve_us"])}


def draw(seed: int) -> Options:
    """Return the options of a seed."""
    drawn = _drawn(seed)
    if (rng := Random(13 * seed + 5)).random() < FORGETFUL:
        drawn = forgetful(drawn, rng)
    if seed % SPLITS_FROM < LARGE_FROM:
        return drawn
    if Random(seed * 19 + 1).random() < SLOW_PROCESSORS:
        drawn = replace(drawn, faults={**drawn.faults, "slow processor": SECOND_US // 2})
    if seed % LARGE_EVERY == 0:
        drawn = replace(drawn, load=replace(drawn.load, large=LARGE))
    return _shortened(drawn) if seed % SPLITS_FROM >= SHORT_FROM else drawn


def forgetful(options: Options, rng: Random) -> Options:
    """Return the same world with masters that forget ids within seconds, and clients that use theirs again."""
    # Where sides of a split go on, they need what they have to go back to.
    is_parting = options.seed >= MEMBERS_FROM
    depths: tuple[int, ...] = (SECOND_US, 2 * SECOND_US) if is_parting else (1_000, 100_000, 500_000)
    sizes = (100_000,) if is_parting else (1, 3)
    if options.tx.runs:
        # Its coordinator asks for the outcome of a transaction for a while.
        depths = (10 * SECOND_US,)
    retention = replace(options.retention, max_size=rng.choice(sizes), hard_limit=0, slack=1, max_depth_us=rng.choice(depths))
    retention = replace(retention, known_ids=rng.choice((0, 0, 5)), ids_at_once=rng.choice((2, 4)))
    # No log reaches back to its start, so the content survives in copies only.
    faults = {name: every_us for name, every_us in options.faults.items() if name not in OF_COPIES}
    load = replace(options.load, again=rng.choice((0.3, 0.8)))
    if options.tx.runs:
        # A clock that runs ahead by more than the depth gives up what clients ask for.
        faults.pop("clock jump", None)
        options = replace(options, skew_us=0, drift=0.0)
    if is_parting:
        # Without a worker that executes, a master has no state to give.
        workers, spares = (tuple(max(1, count) for count in counts) for counts in (options.workers, options.spares))
        options = replace(options, workers=workers, spares=spares)
    # Masters that are idle forget what they wrote last, and that is work.
    return replace(options, retention=retention, load=load, faults=faults, forgets=True, looks_on=False)


def _shortened(drawn: Options) -> Options:
    load = replace(drawn.load, writes=max(4, round(drawn.load.writes * SHORT)), large=round(drawn.load.large * SHORT))
    tx = replace(drawn.tx, runs=round(drawn.tx.runs * SHORT))
    return replace(drawn, safety_steps=round(drawn.safety_steps * SHORT), load=load, tx=tx)


def _drawn(seed: int) -> Options:
    if seed >= CHOSEN_FROM:
        return draw_chosen(seed)
    if seed >= min(MODES_FROM.values()):
        return draw_mode(seed)
    if seed >= MEMBERS_FROM:
        return draw_members(seed)
    if seed >= SPLITS_FROM:
        return draw_split(seed)
    return draw_with_backups(seed) if seed % 2 else draw_plain(seed)


def _suspects(seed: int) -> dict[str, int]:
    """Return when a silent master is suspected: at once, or late."""
    return {"suspect_after_ms": Random(seed * 17 + 11).choice((1, 1, 2_000))}


def draw_split(seed: int) -> Options:
    """Return options of a world in which masters are soon suspected and excluded; some of them have backups."""
    rng = Random(-seed)
    has_backups = Random(seed * 7 + 1).random() < WITH_BACKUPS
    masters = 3 if has_backups else rng.choices((2, 3, 4, 5), (1, 14, 1, 4))[0]
    most = 2 if masters <= 3 and not has_backups else 1
    drawn = draw_with_backups(seed) if has_backups else draw_plain(seed)
    least_ms = 2 * drawn.sync["idle_round_ms"] + drawn.sync["round_timeout_ms"]
    splitting = {kind: int(FAULTS[kind] * rng.choice((0.3, 1.0))) for kind in SPLITTING if rng.random() < 0.5}
    split = replace(
        drawn,
        workers=tuple(rng.randint(0, most) for _ in range(masters)),
        sync={**drawn.sync, "max_peer_lag_ms": least_ms + rng.choice((0, 500, 2_000)), **_suspects(seed)},
        faults={**drawn.faults, **splitting},
        # A site that is away for long must find a node with the results that it missed.
        disk=replace(drawn.disk, keep_results=KEEP_RESULTS),
        broken_link=masters >= 3 and not has_backups and rng.random() < 0.05,
        safety_us=rng.randint(4, 12) * SECOND_US,
        safety_steps=900 if has_backups else 1_500,
    )
    if not has_backups:
        return split
    backups = (rng.choice((1, 2)), rng.choice((0, 1)), rng.choice((0, 0, 1)))
    return replace(split, backups=backups, sync_n=tuple(rng.choice((0, count)) for count in backups))


def draw_members(seed: int) -> Options:
    """Return options of a world whose masters change, without backups."""
    rng = Random(seed * 5 + 3)
    drawn = draw_plain(seed)
    masters = rng.choices((1, 2, 3, 4, 5), (2, 3, 10, 3, 2))[0]
    spares = rng.randint(1, max(1, MOST_MASTERS - masters))
    least_ms = 2 * drawn.sync["idle_round_ms"] + drawn.sync["round_timeout_ms"]
    # Half of the worlds have few other faults, so that operators' actions succeed often.
    part = rng.choice((0.0, 0.3, 0.5))
    trouble = {kind: mean_us for kind, mean_us in drawn.faults.items() if kind not in {"wipe", "trim"}}
    splitting = {kind: int(FAULTS[kind] * rng.choice((0.5, 1.0, 2.0))) for kind in SPLITTING if rng.random() < part}
    changing = {kind: int(us * rng.choice((0.5, 1.0))) for kind, us in FAULTS_OF_MEMBERS.items() if rng.random() < 0.8}
    workers = tuple(rng.randint(0, 1) for _ in range(masters))
    rots = Random(seed * 11 + 7)
    if rots.random() < ROTS:
        changing["rot"] = int(4 * SECOND_US * rots.choice((0.5, 1.0)))
    return replace(
        drawn,
        workers=workers,
        # One site from the beginning has the copy from which all others can be repaired.
        spares=tuple(rng.randint(0, int(any(workers))) for _ in range(spares)),
        sync={**drawn.sync, "max_peer_lag_ms": least_ms + rng.choice((0, 500, 2_000)), **_suspects(seed)},
        faults={**(trouble if part else {}), **splitting, **changing},
        retention=RetentionConfig(),
        disk=replace(drawn.disk, keep_results=KEEP_RESULTS),
        # If one id has two bodies and one was lost with a disk, no node can tell them apart.
        load=replace(drawn.load, conflict=0.0, writes=min(20, drawn.load.writes)),
        broken_link=False,
        safety_us=rng.randint(6, 14) * SECOND_US,
        safety_steps=1_200,
        liveness_us=240 * SECOND_US,
    )


def draw_mode(seed: int) -> Options:
    """Return options of a world in which every side of a split goes on, without backups and with the whole log."""
    rng = Random(seed * 7 + 5)
    mode = next(name for name, first in reversed(MODES_FROM.items()) if seed >= first)
    drawn = draw_plain(seed)
    masters = rng.choices((2, 3, 4, 5), (3, 10, 3, 3))[0]
    most = 2 if masters <= 3 else 1
    least_ms = 2 * drawn.sync["idle_round_ms"] + drawn.sync["round_timeout_ms"]
    trouble = {kind: us for kind, us in drawn.faults.items() if kind in {"slow disk", "crash worker"}}
    splitting = {kind: int(FAULTS[kind] * rng.choice((0.3, 1.0))) for kind in SPLITTING if rng.random() < 0.6}
    return replace(
        drawn,
        # A site that lost its copy takes that of another site.
        workers=tuple(rng.randint(1, most) for _ in range(masters)),
        sync={
            **drawn.sync,
            "acknowledge": "all",
            "split_recovery": mode,
            "max_peer_lag_ms": least_ms + rng.choice((0, 500, 2_000)),
        },
        faults={**trouble, **splitting},
        retention=RetentionConfig(),
        disk=replace(drawn.disk, keep_results=KEEP_RESULTS),
        load=replace(drawn.load, conflict=0.0),
        broken_link=False,
        looks_on=False,
        safety_us=rng.randint(4, 12) * SECOND_US,
        safety_steps=1_500,
        liveness_us=120 * SECOND_US,
    )


def draw_chosen(seed: int) -> Options:
    """Return options of a world in which operators sometimes change the strategy; with ``none``, sites' contents stay different."""
    rng = Random(seed * 13 + 7)
    drawn = draw_mode(MODES_FROM["smart"] + seed)
    modes = rng.choice((("quorum", "smart"), ("quorum", "simple"), ("quorum", "simple", "smart"), ("quorum", "none")))
    first = rng.choice(modes)
    acknowledge = rng.choice(("all", "majority", "present")) if first == "quorum" else "all"
    # Half of the worlds have few other faults, so that operators' actions succeed often.
    part = rng.choice((0.2, 0.4, 1.0, 1.0))
    trouble = {kind: mean_us for kind, mean_us in drawn.faults.items() if rng.random() < part}
    return replace(
        drawn,
        sync={**drawn.sync, **_suspects(seed), "split_recovery": first, "acknowledge": acknowledge},
        modes=modes,
        faults={**trouble, "choose mode": rng.choice((SECOND_US // 8, SECOND_US // 2, SECOND_US))},
        safety_us=rng.randint(6, 14) * SECOND_US,
    )


def draw_with_backups(seed: int) -> Options:
    """Return options of a world in which masters have backups and clients run transactions."""
    rng = Random(seed)
    masters = rng.choices((1, 2, 3), (55, 35, 10))[0]
    backups = [rng.choices((0, 1, 2, 3), (2, 9, 8, 1))[0] for _ in range(masters)]
    backups[rng.randrange(masters)] = rng.choices((1, 2, 3), (9, 9, 2))[0]
    sync_n = tuple(rng.choice((0, *range(1, count + 1), 1)) if count else 0 for count in backups)
    feed, worker = feed_settings(rng), worker_settings(rng)
    feed["window"] = min(feed["window"], worker["backlog"])
    disk, wire = disk_of(rng, feed["window"], seed), wire_of(rng)
    return Options(
        seed=seed,
        workers=tuple(rng.choices((0, 1, 2), (3, 8, 1))[0] for _ in range(masters)),
        backups=tuple(backups),
        sync_n=sync_n,
        # A candidate waits a third of this for votes, which must travel both ways in that time.
        fail_over_ms=max(rng.choice((300, 600, 1_500)), wire.delay_us[1] // 100),
        sync_timeout_ms=rng.choice((300, 1_000, 3_000)),
        tx_config={
            "retry_ms": rng.choice((50, 200, 500)),
            "prepare_ms": rng.choice((500, 2_000, 5_000)),
            "lost_backup": rng.choice(("continue", "continue", "abort")),
            "end_tries": rng.choice((3, 20)),
            "event_bytes": rng.choice((1, 200, 1_048_576)),
        },
        tx=_tx(rng),
        journal_feed=_journal_feed(rng),
        journal_follower=_journal_follower(rng),
        sync=_sync(rng),
        feed=feed,
        worker=worker,
        retention=RetentionConfig(),
        wire=wire,
        disk=replace(disk, journal_chunk_bytes=rng.choice((512, 4_096, 65_536))),
        load=_load(rng),
        skew_us=rng.choice((0, 1_000, SECOND_US)),
        faults={**_faults(rng), **settings_of(seed)},
        safety_us=rng.randint(3, 8) * SECOND_US,
        safety_steps=900,
        liveness_us=120 * SECOND_US,
        looks_on=rng.random() < 0.05,
    )


def _tx(rng: Random) -> TxLoad:
    return TxLoad(
        runs=rng.choice((4, 8, 16)),
        gap_us=rng.choice((20_000, 200_000, 500_000)),
        tokens=rng.choice((2, 5)),
        two_phase=rng.choice((0.0, 0.3, 0.8)),
        again=rng.choice((0.0, 0.3)),
        coordinator_dies=rng.choice((0.1, 0.6)),
        by_hand=rng.choice((0.0, 0.0, 0.3)),
        timeout_ms=rng.choice((500, 2_000)),
    )


def _journal_feed(rng: Random) -> dict[str, Any]:
    return {
        "window_records": rng.choice((5, 50_000)),
        "window_bytes": rng.choice((2_000, 1_000_000)),
        "message_bytes": rng.choice((1, 200, 1_000_000)),
        "memory_bytes": rng.choice((100, 1_000_000)),
        "resend_ms": rng.choice((100, 500, 2_000)),
        "answer": AnswerLimits(*rng.choice(((200, 600), (1_000_000, 1_000_000)))),
    }


def _journal_follower(rng: Random) -> dict[str, Any]:
    return {
        "fill_wait_ms": rng.choice((20, 500)),
        "bodies_bytes": rng.choice((2_000, 1_000_000)),
        "coin_again_ms": rng.choice((300, 5_000)),
        "ask": AskConfig(patience_ms=rng.choice((500, 10_000))),
        "batch_bytes": rng.choice((2_000, 1_000_000)),
        "line_bytes": rng.choice((16_000, 1_000_000)),
        "load": LoadConfig(
            window=rng.choice((1, 8)), ask_ms=200, chunk_wait_ms=rng.choice((200, 1_000)), patience_ms=rng.choice((1_500, 5_000))
        ),
    }


def _load(rng: Random) -> Load:
    return Load(
        writes=rng.choice((2, 8, 16)),
        gap_us=rng.choice((50_000, 300_000)),
        twice=rng.choice((0.0, 0.2)),
        timeout_ms=rng.choice(((200, 1_000), (500, 3_000))),
        keys=5,
    )


def _faults(rng: Random) -> dict[str, int]:
    part = rng.choice((0.15, 0.35, 0.6))
    strength = rng.choice((0.3, 1.0, 2.0))
    own = {kind: int(mean_us * strength) for kind, mean_us in FAULTS_OF_BACKUPS.items() if rng.random() < part}
    beside = {kind: mean_us for kind, mean_us in faults_of(rng).items() if kind in BESIDE}
    return {**own, **beside}
