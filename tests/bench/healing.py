"""Speed of healing a worker while its site goes on writing: by a copy, and by replaying the log (``python -m tests.bench copy | replay``).

    copy      a worker of a site with many triples loses its directory: MB/s of the snapshot, compared with the broker
              alone in messages of the same size, and writes per second before and during the copy
    replay    a worker that was off lags by many transactions: transactions per second, compared with the rate at which
              they were written, and the memory of the worker

Each measurement is repeated and the median reported, with the load of the machine, which other programs can share. Ratios within
one run are meaningful; absolute figures are not.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from statistics import median
from typing import TYPE_CHECKING, Any

from brokerha.cli.common import exits
from brokerha.cli.common.command import Answer, columns
from brokerha.client import Client
from brokerha.model.operations import Operation
from brokerha.ports.copies import CHUNK_BYTES
from tests.bench import yardstick
from tests.bench.options import BenchOptions
from tests.bench.site import KINDS, Load, Make, Site, is_in_sync, put, running

if TYPE_CHECKING:
    from brokerha.ports.wire import Wire

Figures = dict[str, float]
HEALED_S = 900.0
WARM_UP_S = 2.0


def _median(rounds: Iterable[Figures]) -> Figures:
    found = list(rounds)
    return {key: median(each[key] for each in found) for key in found[0]}


def _told(figures: Figures) -> str:
    return ", ".join(f"{key} {value:,.2f}" for key, value in figures.items())


# ---- copy

COPY_COLUMNS = columns(
    "mb", "copy_mb_s=MB/S", "raw_mb_s=RAW MB/S", "raw_busy_mb_s=RAW, WRITING", "of_raw", "healed_s=SECONDS",
    "writes_before=WRITES/S", "writes_during=MEANWHILE", "load_average=LOAD",
)  # fmt: skip
TRIPLES_AT_ONCE = 1000
UNDER_WAY = 16
KEPT = 1000
"""Transactions in the master's log during the measurement of copies, so few that an empty worker cannot replay."""
COPY_SETTINGS = (
    f"min-replay-s = 0\ntx-log-max-size = {KEPT}\ntx-log-hard-limit = {100 * KEPT}\nscrub-every-s = 0\nmin-in-sync = 1\n"
)
RAW_CHUNKS = 192
CHUNKS_UNDER_WAY = 16
"""The same number as in a load."""
PHASES = {"snapshot_s": "asking", "fetch_s": "fetching", "open_s": "opening"}


def copy(options: BenchOptions) -> Answer:
    """Measure how an empty worker takes a snapshot."""
    window, rounds = options.windows_or("20")[0], []
    with running(options.broker, workers=3, settings=COPY_SETTINGS) as site, site.wire() as wire:
        site.until_in_sync()
        began_s = time.perf_counter()
        with Client(wire).pipeline(window=UNDER_WAY, ack="applied", timeout=HEALED_S) as pipeline:
            for operation in _triples(options.triples):
                pipeline.write([operation])
        exits.say(f"{options.triples:,} triples written in {time.perf_counter() - began_s:.0f} s")
        first = 1
        for number in range(1, options.rounds + 1):
            figures, first = _copied(site, wire, window, first)
            rounds.append(figures)
            exits.say(f"round {number}: {_told(figures)}")
    middle = _median(rounds)
    data = {"measured": "copy", "triples": options.triples, "window": window, "rounds": rounds, "median": middle}
    exits.say(
        f"copy of {middle['mb']:.0f} MB: {middle['copy_mb_s']:.0f} MB/s, {middle['of_raw']:.2f} of what the broker alone carries while "
        f"writes go on ({middle['raw_busy_mb_s']:.0f} MB/s; {middle['raw_mb_s']:.0f} MB/s without them); in sync again after "
        f"{middle['healed_s']:.1f} s; writes {middle['writes_before']:.0f}/s before, {middle['writes_during']:.0f}/s "
        f"meanwhile ({middle['writes_kept']:.2f})"
    )
    return Answer(data, rounds, COPY_COLUMNS)


def _triples(count: int) -> Iterator[Operation]:
    """Yield triples as N-Quads, `TRIPLES_AT_ONCE` in one operation; about 100 bytes each."""
    for start in range(0, count, TRIPLES_AT_ONCE):
        numbers = range(start, min(start + TRIPLES_AT_ONCE, count))
        text = "".join(
            f'<http://example.org/item/{n}> <http://example.org/property/{n % 20}> "value {n * 7919 % 1000003} of {n}" .\n'
            for n in numbers
        )
        yield ("add", "main", text)


def _copied(site: Site, wire: Wire, window: int, first: int) -> tuple[Figures, int]:
    """Run one round: broker alone, writes alone, both, and a copy with writes. Also return the number of the next write."""

    def raw_mb_s() -> float:
        return yardstick.transfer(site.broker, RAW_CHUNKS, CHUNK_BYTES, CHUNKS_UNDER_WAY) / 1e6

    worker = site.workers[-1]
    raw = raw_mb_s()
    with Load(wire, put, window, first) as load:
        time.sleep(WARM_UP_S)
        since_s = time.perf_counter()
        while load.next - first < 2 * KEPT or time.perf_counter() - since_s < 4:
            time.sleep(0.1)
            load.check()
        until_s = time.perf_counter()
        raw_busy = raw_mb_s()
        site.stop(worker)
        site.wipe(worker)
        site.until(lambda rows: not is_in_sync(rows[worker]), 60)
        site.start(worker)
        loading_s = site.until(lambda rows: rows[worker]["state"] == "replication-client", 60)
        healed_s = site.until(lambda rows: is_in_sync(rows[worker]), HEALED_S)
        time.sleep(0.5)
    metrics = site.metrics(worker)
    phases = {name: metrics.get(("load_last_seconds", phase), 0.0) for name, phase in PHASES.items()}
    size_mb = metrics["load_last_bytes"] / 1e6
    copy_mb_s = size_mb / max(phases["fetch_s"], 0.001)
    before, during = load.rate(since_s, until_s), load.rate(loading_s, healed_s)
    figures = {
        "raw_mb_s": raw,
        "raw_busy_mb_s": raw_busy,
        "mb": size_mb,
        "copy_mb_s": copy_mb_s,
        "of_raw": copy_mb_s / raw_busy,
        "healed_s": healed_s - loading_s,
        **phases,
        "writes_before": before,
        "writes_during": during,
        "writes_kept": during / max(before, 1e-9),
        "p99_before_ms": load.p99_ms(since_s, until_s),
        "p99_during_ms": load.p99_ms(loading_s, healed_s),
        "load_average": os.getloadavg()[0],
    }
    return figures, load.next


# ---- replay

REPLAY_COLUMNS = columns(
    "what=WRITE", "behind", "live_per_s=WRITTEN/S", "replay_per_s=REPLAYED/S", "to_live=TIMES", "before_mb=MB BEFORE",
    "peak_mb=MB MOST", "load_average=LOAD",
)  # fmt: skip


def replay(options: BenchOptions) -> Answer:
    """Measure how a worker replays the writes since it was off."""
    behind, window = options.transactions, options.windows_or("100")[0]
    settings = f"tx-log-max-size = {2 * behind + 10_000}\nscrub-every-s = 0\nmin-in-sync = 1\n"
    found: dict[str, list[Figures]] = {what: [] for what, _ in KINDS}
    with running(options.broker, workers=2, settings=settings) as site, site.wire() as wire:
        site.until_in_sync()
        first = 1
        for what, make in KINDS:
            for number in range(1, options.rounds + 1):
                found[what].append(_replayed(site, wire, make, behind, window, first))
                first += 2 * behind + 100_000
                exits.say(f"{what}, round {number}: {_told(found[what][-1])}")
    medians = {what: _median(rounds) for what, rounds in found.items()}
    for what, middle in medians.items():
        exits.say(
            f"{what}: {behind:,} transactions behind, replayed at {middle['replay_per_s']:,.0f}/s, "
            f"{middle['to_live']:.1f} times the rate at which they were written ({middle['live_per_s']:,.0f}/s); "
            f"memory of the worker {middle['before_mb']:.0f} MB before, {middle['after_mb']:.0f} MB after, "
            f"at most {middle['peak_mb']:.0f} MB"
        )
    rows: list[dict[str, Any]] = [{"what": what, **each} for what, rounds in found.items() for each in rounds]
    middles = [{"what": what, **middle} for what, middle in medians.items()]
    data = {"measured": "replay", "transactions": behind, "window": window, "rounds": rows, "median": middles}
    return Answer(data, rows, REPLAY_COLUMNS)


def _replayed(site: Site, wire: Wire, make: Make, behind: int, window: int, first: int) -> Figures:
    """Run one round: off, write, stop the process too (so that its memory is that of the replay), on."""
    other, worker = site.workers
    site.switch(worker, "off")
    site.until(lambda rows: rows[worker]["state"] == "off", 30)
    began_s = time.perf_counter()
    with Load(wire, make, window, first) as load:
        while len(load.done) < behind and load.fault is None:
            time.sleep(0.02)
        live = len(load.done) / (time.perf_counter() - began_s)
    site.stop(worker)
    site.start(worker)
    site.until_answering(worker)
    time.sleep(WARM_UP_S)
    rows = site.rows()
    before_lsn, goal = rows[worker]["applied_lsn"], rows[other]["applied_lsn"]
    before_mb, _ = site.resident_mb(worker)
    began_s = time.perf_counter()
    site.switch(worker, "on")
    ended_s = site.until(lambda rows: rows[worker]["applied_lsn"] >= goal, HEALED_S)
    after_mb, peak_mb = site.resident_mb(worker)
    per_s = (goal - before_lsn) / (ended_s - began_s)
    site.until_in_sync(60)
    return {
        "behind": goal - before_lsn,
        "live_per_s": live,
        "replay_per_s": per_s,
        "to_live": per_s / live,
        "before_mb": before_mb,
        "after_mb": after_mb,
        "peak_mb": peak_mb,
        "load_average": os.getloadavg()[0],
    }
