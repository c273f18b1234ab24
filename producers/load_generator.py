"""Writes keys at a steady rate, and says how many writes a second were applied, how long they took, and what failed.

    python -m brokerha.programs.producers.load_generator --to http://127.0.0.1:7201,http://127.0.0.1:7202 --rate 500 --seconds 60

It writes to a table of its own (`load`), a few thousand keys again and again. The time of a write counts from when it was due, so a
cluster that stalls is not flattered by a generator that waits for it. Exit code 1 when a write failed, or the rate was not reached;
SIGTERM ends it early, with what there is so far.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import time
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import brokerha
from brokerha.errors import ConfigurationError

KEYS = 5000
REACHED = 0.95
"""Of the rate that was asked for."""


@dataclass(slots=True)
class Figures:
    """What came of the writes so far; filled from the threads that bring answers."""

    seconds: list[float] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, due_s: float, future: Future[Any]) -> None:
        """A write that was due at a moment has ended."""
        error = future.exception()
        with self.lock:
            if error is None:
                self.seconds.append(time.monotonic() - due_s)
            else:
                self.failed[type(error).__name__] += 1

    def told(self, elapsed_s: float) -> dict[str, Any]:
        """For the last line: rate per second, milliseconds of the middle and of the slowest writes, errors by name."""
        ordered = sorted(self.seconds) or [0.0]
        shares = {name: ordered[min(len(ordered) - 1, int(len(ordered) * share))] for name, share in (("p50", 0.5), ("p99", 0.99))}
        times_ms = {f"{name}_ms": round(1000 * each, 1) for name, each in {**shares, "max": ordered[-1]}.items()}
        rate = round(len(self.seconds) / max(elapsed_s, 0.001), 1)
        return {"applied": len(self.seconds), "per_s": rate, **times_ms, "failed": dict(self.failed)}


def generate(cluster: brokerha.Client, table: str, rate: float, seconds: float, stopping: threading.Event) -> dict[str, Any]:
    """Write for so long; returns the figures."""
    figures, value = Figures(), b"x" * 100
    began_s, number = time.monotonic(), 0
    with cluster.pipeline(timeout=30.0) as pipeline:
        while number < rate * seconds and not stopping.wait(max(0.0, began_s + number / rate - time.monotonic())):
            due_s = began_s + number / rate
            future = pipeline.put(table, f"key-{number % KEYS}", value)
            future.add_done_callback(lambda done, due_s=due_s: figures.note(due_s, done))  # type: ignore[misc]
            number += 1
    return figures.told(time.monotonic() - began_s)


def main() -> int:
    """Run; returns the exit code."""
    parser = argparse.ArgumentParser(prog="load_generator", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--to", required=True, help="address of the cluster: http://… or amqp://…")
    parser.add_argument("--rate", type=float, default=100.0, help="writes per second")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--table", default="load")
    options = parser.parse_args()
    if options.rate <= 0 or options.seconds <= 0:
        parser.error("--rate and --seconds are above 0")
    try:
        cluster = brokerha.connect(options.to)
    except ConfigurationError as error:
        parser.error(f"--to: {error}")
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    with cluster:
        told = generate(cluster, options.table, options.rate, options.seconds, stopping)
    print(json.dumps(told))
    is_slow = not stopping.is_set() and told["per_s"] < REACHED * options.rate
    return 1 if told["failed"] or is_slow else 0


if __name__ == "__main__":
    sys.exit(main())
