"""Write keys at a steady rate, and report the applied writes per second, their latency, and their failures.

    python -m brokerha.programs.producers.load_generator --to http://127.0.0.1:7201,http://127.0.0.1:7202 --rate 500 --seconds 60

It writes a few thousand keys of its own table (`load`), again and again. The latency of a write counts from its due time, so a stalled
cluster gets no better figures because the generator waits for it. Exit code 1: a write failed, or the rate was not reached. SIGTERM
ends the run early and prints the figures so far.
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
"""Share of the wanted rate that counts as reached."""


@dataclass(slots=True)
class Figures:
    """Results of the writes so far; filled by the threads that receive answers."""

    seconds: list[float] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, due_s: float, future: Future[Any]) -> None:
        """Record a write that has ended."""
        error = future.exception()
        with self.lock:
            if error is None:
                self.seconds.append(time.monotonic() - due_s)
            else:
                self.failed[type(error).__name__] += 1

    def told(self, elapsed_s: float) -> dict[str, Any]:
        """Return the last line: rate per second, latencies in milliseconds (median, slowest), errors by name."""
        ordered = sorted(self.seconds) or [0.0]
        shares = {name: ordered[min(len(ordered) - 1, int(len(ordered) * share))] for name, share in (("p50", 0.5), ("p99", 0.99))}
        times_ms = {f"{name}_ms": round(1000 * each, 1) for name, each in {**shares, "max": ordered[-1]}.items()}
        rate = round(len(self.seconds) / max(elapsed_s, 0.001), 1)
        return {"applied": len(self.seconds), "per_s": rate, **times_ms, "failed": dict(self.failed)}


def generate(cluster: brokerha.Client, table: str, rate: float, seconds: float, stopping: threading.Event) -> dict[str, Any]:
    """Write for the given time; return the figures."""
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
    """Run; return the exit code."""
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
