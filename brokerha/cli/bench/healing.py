"""How fast a worker is healed while its site goes on writing: by a copy, and by replaying the log (``brokerha bench copy|replay``).

    copy      a worker of a site with many triples loses its directory: MB/s of the snapshot beside what the broker carries
              alone in messages of the same size, and writes per second before and meanwhile
    replay    a worker that was switched off is many transactions behind: transactions per second beside the rate at which
              they had been written, and the memory of the worker

Everything is repeated and the median is told, as the machine may be busy with other things; so is its load. Ratios of one run mean
something, single figures do not.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from itertools import islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from brokerha.cli.bench.run import KINDS, put
from brokerha.cli.bench.site import WRITE_TIMEOUT_MS, Site, Writing, is_in_sync
from brokerha.model.errors import NotReady
from brokerha.model.operations import Operation, pack_operations
from brokerha.ports.copies import CHUNK_BYTES
from brokerha.transports.tools import yardstick

if TYPE_CHECKING:
    from brokerha.model.requests import Reply
    from brokerha.ports.wire import Wire

Report = Callable[[str], None]
Figures = dict[str, float]
TRIPLES_AT_ONCE = 1000
UNDER_WAY = 16
KEPT = 1000
"""Transactions that the master's log keeps while copies are measured, so that a worker without anything cannot replay."""
HEALED_S = 900.0
WARM_UP_S = 2.0
RAW_CHUNKS = 192
PHASES = ("asking", "fetching", "opening")
CHUNKS_UNDER_WAY = 16
"""As in a load."""


def lines(triples: int) -> Iterator[Operation]:
    """Triples as N-Quads, so many in one operation; about 100 bytes each."""
    for start in range(0, triples, TRIPLES_AT_ONCE):
        numbers = range(start, min(start + TRIPLES_AT_ONCE, triples))
        text = "".join(
            f'<http://example.org/item/{n}> <http://example.org/property/{n % 20}> "value {n * 7919 % 1000003} of {n}" .\n'
            for n in numbers
        )
        yield ("add", "main", text)


def fill(wire: Wire, operations: Iterator[Operation]) -> int:
    """Write all of them, some under way at once; returns how many transactions it took."""
    count = 0
    waiting: list[Future[Reply]] = []
    while True:
        for operation in islice(operations, UNDER_WAY - len(waiting)):
            count += 1
            waiting += wire.submit([(f"fill-{count}", pack_operations([operation]))], "applied", 1, WRITE_TIMEOUT_MS)
        if not waiting:
            return count
        reply = waiting.pop(0).result(WRITE_TIMEOUT_MS / 1000 + 10)
        if reply.status != "applied":
            message = f"a write of the bench was {reply.status}: {reply.reason}"
            raise NotReady(message)


@contextlib.contextmanager
def _site(broker: str, workers: int, settings: str) -> Iterator[Site]:
    with (
        tempfile.TemporaryDirectory(prefix="brokerha-bench-") as name,
        Site(broker, Path(name), workers, settings) as site,
    ):
        yield site


def _load_average() -> float:
    return os.getloadavg()[0]


# ---- copy


def copy(broker: str, triples: int, window: int, rounds: int, report: Report) -> dict[str, Any]:
    """Measure how a wiped worker takes a snapshot; returns plain data."""
    settings = f"min-replay-s = 0\ntx-log-max-size = {KEPT}\ntx-log-hard-limit = {100 * KEPT}\nscrub-every-s = 0\nmin-in-sync = 1\n"
    found = []
    with _site(broker, 3, settings) as site, site.wire() as wire:
        began = time.perf_counter()
        fill(wire, lines(triples))
        report(f"{triples:,} triples written in {time.perf_counter() - began:.0f} s")
        first = 1
        for number in range(1, rounds + 1):
            figures, first = _copied(site, wire, window, first)
            found.append(figures)
            report(f"round {number}: {_told(figures)}")
    middle = {key: median(each[key] for each in found) for key in found[0]}
    answer = {"measured": "copy", "triples": triples, "window": window, "rounds": found, "median": middle}
    report(
        f"copy of {middle['mb']:.0f} MB: {middle['copy_mb_s']:.0f} MB/s, {middle['of_raw']:.2f} of what the broker alone carries while "
        f"writes go on ({middle['raw_busy_mb_s']:.0f} MB/s; {middle['raw_mb_s']:.0f} MB/s without them); in sync again after "
        f"{middle['healed_s']:.1f} s; writes {middle['writes_before']:.0f}/s before, {middle['writes_during']:.0f}/s "
        f"meanwhile ({middle['writes_kept']:.2f})"
    )
    return answer


def _raw(broker: str) -> float:
    return yardstick.transfer(broker, RAW_CHUNKS, CHUNK_BYTES, CHUNKS_UNDER_WAY) / 1e6


def _copied(site: Site, wire: Wire, window: int, first: int) -> tuple[Figures, int]:
    """One round: the broker alone, writes alone, the broker with writes, and a copy with writes."""
    worker = site.workers[-1]
    raw = _raw(site.broker)
    with Writing(wire, put, window, first) as writing:
        time.sleep(WARM_UP_S)
        at = time.perf_counter()
        while writing.sent - first < 2 * KEPT or time.perf_counter() - at < 4:
            time.sleep(0.1)
            writing.check()
        before_until = time.perf_counter()
        raw_busy = _raw(site.broker)
        site.stop(worker)
        site.wipe(worker)
        site.until(lambda rows: not is_in_sync(rows[worker]), 60)
        site.start(worker)
        loading = site.until(lambda rows: rows[worker]["state"] == "replication-client", 60)
        healed = site.until(lambda rows: is_in_sync(rows[worker]), HEALED_S)
        time.sleep(0.5)
    metrics = site.metrics(worker)
    seconds = {name: metrics.get(("load_last_seconds", name), 0.0) for name in PHASES}
    size_mb = metrics["load_last_bytes"] / 1e6
    copy_mb_s = size_mb / max(seconds["fetching"], 0.001)
    before, during = writing.rate(at, before_until), writing.rate(loading, healed)
    figures = {
        "raw_mb_s": raw,
        "raw_busy_mb_s": raw_busy,
        "mb": size_mb,
        "copy_mb_s": copy_mb_s,
        "of_raw": copy_mb_s / raw_busy,
        "healed_s": healed - loading,
        "snapshot_s": seconds["asking"],
        "fetch_s": seconds["fetching"],
        "open_s": seconds["opening"],
        "writes_before": before,
        "writes_during": during,
        "writes_kept": during / max(before, 1e-9),
        "p99_before_ms": writing.p99_ms(at, before_until),
        "p99_during_ms": writing.p99_ms(loading, healed),
        "load_average": _load_average(),
    }
    return figures, writing.sent


def _told(figures: Figures) -> str:
    return ", ".join(f"{key} {value:,.2f}" for key, value in figures.items())


# ---- replay


def replay(broker: str, transactions: int, window: int, rounds: int, report: Report) -> dict[str, Any]:
    """Measure how a worker replays what was written while it was off; returns plain data."""
    settings = f"tx-log-max-size = {2 * transactions + 10_000}\nscrub-every-s = 0\nmin-in-sync = 1\n"
    found: list[dict[str, Any]] = []
    with _site(broker, 2, settings) as site, site.wire() as wire:
        first = 1
        for what, make in KINDS:
            for number in range(1, rounds + 1):
                figures = _replayed(site, wire, make, transactions, window, first)
                first += 2 * transactions + 100_000
                found.append({"what": what, **figures})
                report(f"{what}, round {number}: {_told(figures)}")
    middles: list[dict[str, Any]] = []
    for what in dict.fromkeys(each["what"] for each in found):
        own = [{k: v for k, v in each.items() if k != "what"} for each in found if each["what"] == what]
        middle = {key: median(each[key] for each in own) for key in own[0]}
        middles.append({"what": what, **middle})
        report(
            f"{what}: {transactions:,} transactions behind, replayed at {middle['replay_per_s']:,.0f}/s, "
            f"{middle['to_live']:.1f} times the rate at which they were written ({middle['live_per_s']:,.0f}/s); "
            f"memory of the worker {middle['before_mb']:.0f} MB before, {middle['after_mb']:.0f} MB after, "
            f"at most {middle['peak_mb']:.0f} MB"
        )
    return {"measured": "replay", "transactions": transactions, "window": window, "rounds": found, "median": middles}


def _replayed(
    site: Site, wire: Wire, make: Callable[[int], Operation], transactions: int, window: int, first: int
) -> Figures:
    """One round: off, write, off with its process too (so that its memory is that of the replay), on."""
    worker = site.workers[-1]
    site.command(worker, "off")
    site.until(lambda rows: rows[worker]["state"] == "off", 30)
    began = time.perf_counter()
    with Writing(wire, make, window, first) as writing:
        while len(writing.done) < transactions and writing.fault is None:
            time.sleep(0.02)
        live = len(writing.done) / (time.perf_counter() - began)
    site.stop(worker)
    site.start(worker)
    site.until_up(worker, 60)
    time.sleep(WARM_UP_S)
    before_lsn = site.rows()[worker]["applied_lsn"]
    goal = site.rows()[site.workers[0]]["applied_lsn"]
    before, _ = site.resident_bytes(worker)
    began = time.perf_counter()
    site.command(worker, "on")
    ended = site.until(lambda rows: rows[worker]["applied_lsn"] >= goal, HEALED_S)
    after, peak = site.resident_bytes(worker)
    per_s = (goal - before_lsn) / (ended - began)
    site.until(lambda rows: is_in_sync(rows[worker]), 60)
    return {
        "behind": goal - before_lsn,
        "live_per_s": live,
        "replay_per_s": per_s,
        "to_live": per_s / live,
        "before_mb": before / 1e6,
        "after_mb": after / 1e6,
        "peak_mb": peak / 1e6,
        "load_average": _load_average(),
    }
