"""Probes and numbers that all kinds of nodes share: lines of a probe, processor time, the connection to the broker.

A probe has one line for each check, ``[+]journal ok`` or ``[-]broker waiting: connection refused``.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from brokerha.model.numbers import Numbers
from brokerha.ports.transport import TransportStatus
from brokerha.transports.rabbitmq.rejecting import OF_NODES

NO_WORKER = "this site has none: it orders writes, and serves no reads"
"""Line of `/readyz` of a master without workers: there is nothing to wait for."""
NO_WORKER_LINE = f"[-]worker {NO_WORKER}"


def check_lines(checks: Mapping[str, str]) -> tuple[bool, list[str]]:
    """Return whether all is well, and the lines; ``checks`` has the problem of each check, or an empty string."""
    wrong = {name: " ".join(text.split()) for name, text in checks.items()}
    return not any(wrong.values()), [f"[-]{name} {text}" if text else f"[+]{name} ok" for name, text in wrong.items()]


def loop_check(is_running: bool) -> str:
    """Return the problem of the thread that does a node's work, or an empty string."""
    return "" if is_running else "has ended: restart the node"


def broker_check(status: TransportStatus) -> str:
    """Return the problem of the connection to the broker, or an empty string."""
    return "" if status.state == "connected" else ": ".join(filter(None, (status.state, status.reason)))


def lag_check(lag: int, lag_s: float | None, max_lag: int | None, max_lag_s: float | None) -> str:
    """Return the problem of a copy that lags by ``lag`` transactions and ``lag_s`` seconds (None: unknown), or an empty string."""
    if max_lag is not None and lag > max_lag:
        return f"{lag} transactions behind, more than {max_lag}"
    if max_lag_s is None or (lag_s is not None and lag_s <= max_lag_s):
        return ""
    return "nobody knows how old it is" if lag_s is None else f"{lag_s:g} s behind, more than {max_lag_s:g}"


# ---- Processor time of this process by the purpose of its threads, for /metrics: it shows which part of a write costs time.
#
#     m1 loop, m1 http_3, http 7201, w1 read, …   ->   loop, http, http, read, …        other: the rest of the process, such as threads
#                                                                                      of the storage engines and threads that have ended
# With ``embedded://`` all nodes are one process, and every node reports the times of all.

_NUMBER = re.compile(r"[ _-]?\d+$")
OTHER = "other"


def layer_of(name: str) -> str:
    """Return the purpose of a thread, by its name.

    >>> [layer_of(name) for name in ("m1 loop", "w1 near reads", "m1 http_3", "http 7201", "MainThread")]
    ['loop', 'near reads', 'http', 'http', 'main']
    """
    if name == "MainThread":
        return "main"
    words = _NUMBER.sub("", name).split(" ")
    return " ".join(words[1:]) if len(words) > 1 else words[0]


def cpu_times() -> dict[str, float]:
    """Return seconds of processor time by the purpose of threads; `OTHER` has the rest: everything, on a system without /proc."""
    found: defaultdict[str, float] = defaultdict(float)
    for thread in threading.enumerate():
        # Not the clock of the thread: asking for that of a thread that has just ended can end the process.
        with contextlib.suppress(OSError, ValueError, IndexError):
            on_cpu_ns = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text(encoding="ascii").split()[0]
            found[layer_of(thread.name)] += int(on_cpu_ns) / 1e9
    found[OTHER] = max(0.0, time.process_time() - sum(found.values()))
    return dict(found)


def cpu_metrics() -> Numbers:
    """Return the same numbers for /metrics."""
    return {("cpu_seconds_total", layer): seconds for layer, seconds in cpu_times().items()}


# ---- Metrics of a node's connection to its broker, the same for masters, workers and standby processes.


def wire_metrics(status: TransportStatus) -> Numbers:
    """Return numbers by name. Messages between nodes that were set aside have the same metric as those of apps.

    Each reason is there from the start: for Prometheus, a counter that first appears as 1 has not increased.

    >>> numbers = wire_metrics(TransportStatus("connected", "", 3, {"sent": 7, "undecodable": 2}))
    >>> numbers["outbox_messages"], numbers["transport_total", "sent"], numbers["rejected_messages_total", "undecodable"]
    (3, 7, 2)
    """
    counters = status.counters
    return {
        "outbox_messages": status.outbox,
        **{("rejected_messages_total", reason): counters.get(reason, 0) for reason in OF_NODES},
        **{("transport_total", what): count for what, count in counters.items() if what not in OF_NODES},
    }
