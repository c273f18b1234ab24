"""Sites that are far from each other: how long a commit takes, and how many writes there are in a second, with 40 ms each way.

Given three sites whose links deliver everything 40 ms later; when one write at a time is made at one site, then a thousand at once; then
nothing is lost or applied twice and nobody is left out. Times are told beside those without a delay, taken before and after in the
same run.

How long each figure is taken is BROKERHA_FAR_S (10 seconds), how often all of them BROKERHA_FAR_ROUNDS (3), and the delay BROKERHA_FAR_MS (40).
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.broker_source import BrokerSource
from tests.system.split_rounds import Ledger, Load, LoadedSites, table
from tests.system.split_sites import MASTERS

SECONDS = float(os.environ.get("BROKERHA_FAR_S", "10"))
ROUNDS = int(os.environ.get("BROKERHA_FAR_ROUNDS", "3"))
DELAY_MS = float(os.environ.get("BROKERHA_FAR_MS", "40"))
WINDOW = 1000
TRIPS_AIM, KEPT_AIM = 1.5, 0.5
CASES: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    ("synchronised", 1, ("m1",)),
    ("applied", 1, ("m1",)),
    ("applied", WINDOW, ("m1",)),
    # Not aimed for: whether it is the window that limits, or the sites.
    ("applied", 4 * WINDOW, ("m1",)),
    ("applied", WINDOW, MASTERS),
)
"""Level, writes in flight at each site, and the sites with a load."""
HEAD = ("level", "in flight", "loads", "near: writes/s", "p50 ms", "idle", "far: writes/s", "p50 ms", "idle", "aim")


@pytest.fixture(scope="module")
def sites(broker: BrokerSource, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedSites]:
    with LoadedSites(tmp_path_factory.mktemp("far"), broker) as started:
        yield started


class Figure(NamedTuple):
    """One measurement: writes per second, the median latency in ms, and which share of the machine was idle meanwhile."""

    rate: float
    p50_ms: float
    idle: float


def processor_times() -> tuple[int, int]:
    """(idle, all) of the machine's processors so far, in ticks; what waits for a disk is idle."""
    times = [int(word) for word in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
    return times[3] + times[4], sum(times)


def measure(sites: LoadedSites, name: str, level: str, window: int, masters: tuple[str, ...]) -> tuple[list[Load], Figure]:
    """Loads for a while; returns them when all is answered, and what was measured."""
    loads = [Load(sites.door(master), f"load-{name}-{master}", window, level) for master in masters]
    for load in loads:
        load.start()
    time.sleep(SECONDS / 4)
    begin, idle_before, all_before = time.monotonic(), *processor_times()
    time.sleep(SECONDS)
    end, idle_after, all_after = time.monotonic(), *processor_times()
    for load in loads:
        load.stop()
    for load in loads:
        load.finish()
    rate = sum(load.count(begin, end) for load in loads) / (end - begin)
    taken = [took for load in loads for at, took in zip(load.times, load.latencies, strict=True) if begin <= at < end]
    idle = (idle_after - idle_before) / (all_after - all_before)
    return loads, Figure(rate, statistics.median(taken) * 1000, idle)


def delay_all(sites: LoadedSites, delay_ms: float) -> None:
    for link in sites.links.of.values():
        link.delay(delay_ms)


@pytest.mark.campaign
def test_sites_that_are_far_from_each_other(sites: LoadedSites, covered: Callable[[str], None]) -> None:
    ledger = Ledger(sites)
    before = sites.await_epoch(MASTERS)
    figures: dict[tuple[int, bool], list[Figure]] = {}
    acknowledged = 0
    for turn in range(2 * ROUNDS):
        is_far = bool(turn % 2)
        delay_all(sites, DELAY_MS if is_far else 0)
        for case, (level, window, masters) in enumerate(CASES):
            loads, found = measure(sites, f"{turn}x{case}", level, window, masters)
            figures.setdefault((case, is_far), []).append(found)
            print("far" if is_far else "near", level, f"window {window} at {len(masters)}:", found, flush=True)
            sites.await_equal(60.0)
            counts = ledger.check(loads, [])
            counts.check("quorum")
            acknowledged += counts.acknowledged
    delay_all(sites, 0)
    assert {master: sites.epoch(master) for master in MASTERS} == dict.fromkeys(MASTERS, before), "somebody was left out"
    covered(
        f"sites {DELAY_MS:g} ms from each other: {acknowledged} acknowledged, 0 lost, 0 twice, 0 re-ordered, nobody left out\n"
        + table(HEAD, [_row(case, *(_medians(figures[case, far]) for far in (False, True))) for case in range(len(CASES))])
    )


def _medians(found: list[Figure]) -> Figure:
    return Figure(*(statistics.median(column) for column in zip(*found, strict=True)))


def _row(case: int, near: Figure, far: Figure) -> list[object]:
    level, window, masters = CASES[case]
    if window == 1:
        most_ms = near.p50_ms + TRIPS_AIM * 2 * DELAY_MS
        aim = f"p50 under {most_ms:.0f} ms: {'reached' if far.p50_ms < most_ms else 'missed'}"
    else:
        share = far.rate / near.rate
        aim = f"{share:.2f} of near: {'reached' if share >= KEPT_AIM else 'missed'} ({KEPT_AIM})"
    cells = [[f"{each.rate:.0f}", f"{each.p50_ms:.1f}", f"{each.idle:.0%}"] for each in (near, far)]
    return [level, window, len(masters), *cells[0], *cells[1], aim]
