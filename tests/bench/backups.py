"""Cost of backups and transactions, and pauses of writes when a process is lost (``python -m tests.bench sync | tx | fail-over``).

**sync**: a master with two backups and no worker, three processes on this machine, 100-byte values, acknowledged as `accepted`:
durable at the primary and at N backups. Each figure is compared with that of the seed, the system on which this design is based.

**tx**: transactions of three operations, step by step as a client makes them, acknowledged as `accepted`: with one client and with
several, at a master with a backup (so each has its own queue to the backup) and at one without. For comparison, plain py-amqp
repeats the broker's part of one transaction: declare a queue, send three messages through it, delete it.

**fail-over**: three clusters with default settings: three masters, three workers, or two backups; a few clients over the broker,
each with 20 concurrent writes. A process is stopped in order or killed. The figure of a client is its longest time without an
answer after that. Unanswered writes are sent again under their keys.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from brokerha.cli.common import exits
from brokerha.cli.common.command import Answer, columns
from brokerha.client import Client
from brokerha.model.errors import NotReady
from brokerha.transports.client.wire import AmqpWire
from tests.bench import yardstick
from tests.bench.options import BenchOptions
from tests.bench.site import VALUE, Load, Site, measure, put, running, share_ms

BACKUPS: Final = 2
SYNC_COLUMNS = columns(
    "sync_n=N", "window", "writes_per_s=WRITES/S", "p50_ms", "p99_ms", "seed_per_s=SEED'S OWN", "to_seed=TIMES",
)  # fmt: skip
SEED_PER_S: Final = {1: 235, 20: 500, 100: 840, 1000: 1000}
"""Writes per second of the seed's own system by window, N = 1; window 1 is a client that waits for each write."""
SYNC_WARM_UP_S: Final = 1.0
SYNC_SETTINGS: Final = "sync-n = {}\nmin-in-sync = 0\n"
"""No worker, because it would take processor time from the measured processes."""


def sync(options: BenchOptions) -> Answer:
    """Measure N = 1 and N = 2 at all windows."""
    rows: list[dict[str, Any]] = []
    for sync_n in range(1, BACKUPS + 1):
        settings = SYNC_SETTINGS.format(sync_n)
        with running(options.broker, workers=0, backups=BACKUPS, settings=settings) as site, site.wire() as wire:
            first = time.time_ns() // 1000
            for window in options.windows_or("1,20,100,1000"):
                first += measure(wire, put, window, min(SYNC_WARM_UP_S, options.seconds), first, "accepted").writes
                found = measure(wire, put, window, options.seconds, first, "accepted")
                first += found.writes
                seed = SEED_PER_S.get(window)
                rows.append({
                    "sync_n": sync_n, "window": window, "writes_per_s": found.per_s, "p50_ms": found.p50_ms,
                    "p99_ms": found.p99_ms, "seed_per_s": seed, "to_seed": found.per_s / seed if seed else None,
                })  # fmt: skip
                beside = f", the seed's own system {seed:,}" if seed else ""
                exits.say(f"N = {sync_n}, window {window}: {found.per_s:,.0f} writes/s, p50 {found.p50_ms:.2f} ms{beside}")
    return Answer({"backups": BACKUPS, "writes": rows}, rows, SYNC_COLUMNS)


# ---- tx

TX_COLUMNS = columns(
    "backups", "clients", "per_s=TX/S", "p50_ms", "p99_ms", "raw_per_s=RAW/S", "raw_p50_ms", "of_raw", "times_raw",
)  # fmt: skip
TX_CLIENTS: Final = (1, 8)
TX_OPERATIONS: Final = 3
TX_BACKUPS: Final = (1, 0)
TX_WARM_UP: Final = 5
TX_TIMEOUT_S: Final = 60.0
RAW_COUNT: Final = 200


def transactions(options: BenchOptions) -> Answer:
    """Measure with and without a backup, with one client and with several."""
    raw: dict[int, yardstick.Rate] = {}
    rows: list[dict[str, Any]] = []
    for backups in TX_BACKUPS:
        with running(options.broker, backups=backups) as site:
            for clients in TX_CLIENTS:
                # While the site is idle but up, so that processors and broker are shared as in the measurement.
                if clients not in raw:
                    raw[clients] = yardstick.tx_queue_cost(site.broker, RAW_COUNT, clients)
                alone = raw[clients]
                exits.say(
                    f"a queue, {TX_OPERATIONS} messages and its end alone, {clients} at once: "
                    f"{alone.per_second:,.0f}/s, p50 {alone.p50_ms:.2f} ms"
                )
                latencies = _transact(site.broker, clients, options.seconds)
                per_s, p50_ms = len(latencies) / options.seconds, share_ms(latencies, 0.5)
                rows.append({
                    "backups": backups, "clients": clients, "per_s": per_s, "p50_ms": p50_ms, "p99_ms": share_ms(latencies, 0.99),
                    "raw_per_s": alone.per_second, "raw_p50_ms": alone.p50_ms, "of_raw": per_s / alone.per_second,
                    "times_raw": p50_ms / alone.p50_ms,
                })  # fmt: skip
                exits.say(f"transactions, {backups} backups, {clients} clients: {per_s:,.0f}/s, p50 {p50_ms:.2f} ms")
    return Answer({"operations": TX_OPERATIONS, "transactions": rows}, rows, TX_COLUMNS)


def _transact(broker: str, clients: int, seconds: float) -> list[float]:
    """Run transactions with concurrent clients, and return the seconds of each."""

    def one(db: Client, name: str) -> None:
        with db.transaction() as tx:
            for number in range(TX_OPERATIONS):
                tx.put("bench", f"{name}-{number}", VALUE)

    def work(client: int, db: Client) -> list[float]:
        found: list[float] = []
        end_s = time.perf_counter() + seconds
        while (began_s := time.perf_counter()) < end_s:
            one(db, f"{client}-{len(found)}")
            found.append(time.perf_counter() - began_s)
        return found

    with contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(Client(AmqpWire(broker), TX_TIMEOUT_S, "accepted")) for _ in range(clients)]
        for client, db in enumerate(sessions):
            for number in range(TX_WARM_UP):
                one(db, f"warm-{client}-{number}")
        with ThreadPoolExecutor(clients) as threads:
            return [latency for found in threads.map(work, range(clients), sessions) for latency in found]


# ---- fail-over

FAIL_OVER_COLUMNS = columns("what", "how", "runs", "median_s", "worst_s", "sent_again")
CLIENTS: Final = 3
WINDOW: Final = 20
WRITE_TIMEOUT_MS: Final = 10_000
BEFORE_S: Final = 1.5
AFTER_S: Final = 3.0
PATIENCE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Case:
    """A cluster, and its process to end."""

    what: str
    victim: Callable[[Site, int], str]
    """Takes the number of the run."""
    masters: int = 1
    workers: int = 1
    backups: int = 0


def _executing(site: Site, _number: int) -> str:
    return next(worker for worker, row in site.rows().items() if row["probe"])


CASES: Final = (
    Case("a master of three", lambda site, number: site.masters[-number % 3], masters=3),
    Case("the worker that executes, of three", _executing, workers=3),
    Case("a primary with two backups", lambda site, _number: site.primary(), backups=BACKUPS),
)


def fail_over(options: BenchOptions, cases: Sequence[Case] = CASES) -> Answer:
    """End each process several times in each way."""
    runs: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    for case in cases:
        shape = case.masters, case.workers, case.backups
        with running(options.broker, *shape) as site, contextlib.ExitStack() as stack:
            name = f"bench-{time.time_ns()}"
            loads = []
            for number in range(CLIENTS):
                wire = stack.enter_context(site.wire())
                load = Load(wire, put, WINDOW, name=f"{name}-{number}", repeats=True, timeout_ms=WRITE_TIMEOUT_MS)
                loads.append(stack.enter_context(load))
            for how in ("stopped", "killed"):
                found = [_ended(site, loads, case, how, number) for number in range(1, options.runs + 1)]
                times = [seconds for run in found for seconds in run["clients_s"]]
                sent_again = sum(run["sent_again"] for run in found)
                rows.append({
                    "what": case.what, "how": how, "runs": len(found), "median_s": median(times), "worst_s": max(times),
                    "sent_again": sent_again,
                })  # fmt: skip
                runs += found
    return Answer({"cases": rows, "runs": runs}, rows, FAIL_OVER_COLUMNS)


def _ended(site: Site, loads: Sequence[Load], case: Case, how: str, number: int) -> dict[str, Any]:
    """End a process once; start it again, and return when it is ready."""
    victim = case.victim(site, number)
    _await_answers(loads, BEFORE_S)
    repeated = sum(load.repeated for load in loads)
    ended_s = site.kill(victim) if how == "killed" else site.stop(victim)
    _await_answers(loads, AFTER_S)
    seconds = [longest_pause_s([each.at_s for each in list(load.done)], ended_s) for load in loads]
    site.start(victim)
    site.until_ready()
    exits.say(f"{case.what}: {victim} {how}, longest pause {median(seconds):.2f} s, of the last client {max(seconds):.2f} s")
    return {
        "what": case.what, "how": how, "node": victim, "clients_s": seconds, "median_s": median(seconds), "worst_s": max(seconds),
        "sent_again": sum(load.repeated for load in loads) - repeated,
    }  # fmt: skip


def _await_answers(loads: Sequence[Load], seconds: float) -> None:
    """Wait until each client gets an answer later than ``seconds`` from now. Raises NotReady, and the error of a client."""
    since_s = time.perf_counter() + seconds
    while not all(load.done and load.done[-1].at_s > since_s for load in loads):
        for load in loads:
            load.check()
        if time.perf_counter() > since_s + PATIENCE_S:
            raise NotReady(f"a client got no answer for {PATIENCE_S:g} s")
        time.sleep(0.01)


def longest_pause_s(answers: Sequence[float], since_s: float) -> float:
    """Return the longest time without an answer since ``since_s``. Raises NotReady without any answer.

    >>> longest_pause_s([1.0, 2.5, 5.0, 5.5], 2.0)
    2.5
    """
    times = [since_s, *(at for at in answers if at > since_s)]
    if len(times) < 2:
        raise NotReady("no write was acknowledged after that")
    return max(after - before for before, after in itertools.pairwise(times))
