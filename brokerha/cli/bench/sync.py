"""How fast a primary is whose writes backups must hold before anybody hears of them (``brokerha bench sync``).

A master with two backups and no worker, three processes on this machine, 100-byte values, acknowledged as `accepted`: durable at the primary and
at N backups. Beside each figure stands what the system that the design of this one began with reached for the same work.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from brokerha.cli.bench.group import group
from brokerha.cli.bench.run import measure, put

Report = Callable[[str], None]
BACKUPS: Final = 2
SEED_PER_S: Final = {1: 235, 20: 500, 100: 840, 1000: 1000}
"""Writes per second of the seed's own system at a window, N = 1; 1 is a client that waits for each write."""
WARM_UP_S: Final = 1.0
SETTINGS: Final = "sync-n = {}\nmin-in-sync = 0\n"
"""No worker: it would execute what is measured here at the cost of the same processors."""


def sync(broker: str, windows: tuple[int, ...], seconds: float, report: Report) -> dict[str, Any]:
    """Measure N = 1 and N = 2 at all windows; returns plain data."""
    rows: list[dict[str, Any]] = []
    for sync_n in range(1, BACKUPS + 1):
        with group(broker, BACKUPS, 0, SETTINGS.format(sync_n)) as site, site.wire() as wire:
            first = time.time_ns() // 1000
            for window in windows:
                _, warm = measure(wire, put, window, min(WARM_UP_S, seconds), first, "accepted")
                first += len(warm)
                count, latencies = measure(wire, put, window, seconds, first, "accepted")
                first += len(latencies)
                rows.append(_row(sync_n, window, count / seconds, sorted(latencies)))
                report(_sentence(rows[-1]))
    return {"backups": BACKUPS, "writes": rows}


def _row(sync_n: int, window: int, per_s: float, latencies: list[float]) -> dict[str, Any]:
    seed = SEED_PER_S.get(window)
    return {
        "sync_n": sync_n,
        "window": window,
        "writes_per_s": per_s,
        "p50_ms": latencies[len(latencies) // 2] * 1000,
        "p99_ms": latencies[int(len(latencies) * 0.99)] * 1000,
        "seed_per_s": seed,
        "to_seed": per_s / seed if seed else None,
    }


def _sentence(row: dict[str, Any]) -> str:
    text = (
        f"N = {row['sync_n']}, window {row['window']}: {row['writes_per_s']:,.0f} writes/s, p50 {row['p50_ms']:.2f} ms"
    )
    return f"{text}, the seed's own system {row['seed_per_s']:,}" if row["seed_per_s"] else text
