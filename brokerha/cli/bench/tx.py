"""What a transaction over transaction queues costs (``brokerha bench tx``), beside what its queue alone costs on the same broker.

Transactions of three operations, step by step as a client makes them, acknowledged as `accepted`: with one client and with several, at a
master with a backup (so that each has a queue of its own to the backup) and at one without. The yardstick does in plain py-amqp what
the broker has to do for one: declare a queue, three messages through it, delete it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from brokerha.cli.bench.group import group
from brokerha.cli.bench.run import VALUE
from brokerha.client import Client
from brokerha.model.errors import NotReady
from brokerha.transports.client.wire import AmqpWire
from brokerha.transports.tools import yardstick

Report = Callable[[str], None]
CLIENTS: Final = (1, 8)
OPERATIONS: Final = 3
BACKUPS: Final = (1, 0)
RAW_COUNT: Final = 200
TIMEOUT_S: Final = 60.0
WARM_UP: Final = 5


def transactions(broker: str, seconds: float, report: Report) -> dict[str, Any]:
    """Measure all; returns plain data."""
    raw: dict[int, yardstick.Rate] = {}
    rows: list[dict[str, Any]] = []
    for backups in BACKUPS:
        with group(broker, backups) as site:
            for clients in CLIENTS:
                # While the site is idle but up: processors and broker are shared with it as in the measurement.
                if clients not in raw:
                    raw[clients] = yardstick.tx_queue_cost(broker, RAW_COUNT, clients)
                    report(
                        f"a queue, {OPERATIONS} messages and its end alone, {clients} at once: "
                        f"{raw[clients].per_second:,.0f}/s, p50 {raw[clients].p50_ms:.2f} ms"
                    )
                per_s, latencies = run(partial(_connect, site.broker), clients, seconds)
                rows.append(_row(backups, clients, per_s, latencies, raw[clients]))
                report(
                    f"transactions, {backups} backups, {clients} clients: {per_s:,.0f}/s, p50 {rows[-1]['p50_ms']:.2f} ms"
                )
    return {"operations": OPERATIONS, "transactions": rows}


def run(connect: Callable[[], Client], clients: int, seconds: float) -> tuple[float, list[float]]:
    """Transactions per second of so many clients side by side, and the seconds of each, sorted."""
    latencies: list[float] = []
    faults: list[BaseException] = []
    ready = threading.Barrier(clients + 1)

    def work(name: int) -> None:
        try:
            with connect() as db:
                for number in range(WARM_UP):
                    one(db, f"warm-{name}-{number}")
                ready.wait(TIMEOUT_S)
                end = time.perf_counter() + seconds
                number = 0
                while (began := time.perf_counter()) < end:
                    number += 1
                    one(db, f"{name}-{number}")
                    latencies.append(time.perf_counter() - began)
        except BaseException as fault:  # noqa: BLE001  (told below)
            faults.append(fault)
            ready.abort()

    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(clients)]
    for thread in threads:
        thread.start()
    try:
        ready.wait(TIMEOUT_S)
    except threading.BrokenBarrierError:
        if not faults:
            message = f"{clients} clients could not begin in {TIMEOUT_S:g} s"
            raise NotReady(message) from None
    for thread in threads:
        thread.join(seconds + TIMEOUT_S)
    if faults:
        raise faults[0]
    return len(latencies) / seconds, sorted(latencies)


def one(db: Client, name: str) -> None:
    """One transaction with three operations."""
    with db.transaction() as tx:
        for number in range(OPERATIONS):
            tx.put("bench", f"{name}-{number}", VALUE)


def _connect(broker: str) -> Client:
    return Client(AmqpWire(broker), TIMEOUT_S, "accepted")


def _row(backups: int, clients: int, per_s: float, latencies: list[float], raw: yardstick.Rate) -> dict[str, Any]:
    p50_ms = latencies[len(latencies) // 2] * 1000
    return {
        "backups": backups,
        "clients": clients,
        "per_s": per_s,
        "p50_ms": p50_ms,
        "p99_ms": latencies[int(len(latencies) * 0.99)] * 1000,
        "raw_per_s": raw.per_second,
        "raw_p50_ms": raw.p50_ms,
        "of_raw": per_s / raw.per_second,
        "times_raw": p50_ms / raw.p50_ms,
    }
