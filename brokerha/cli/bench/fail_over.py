"""How long writes wait when a primary is lost (``brokerha bench fail-over``): SIGKILL under load, again and again.

A master with two backups and a worker; a few clients over the broker, each with 20 writes under way all the time. The figure of a
client is the time from the kill to the end of the longest pause between its answers after it: so an answer that was on
its way already when the primary was killed does not count. What has no answer is sent again under its key.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from statistics import median
from typing import TYPE_CHECKING, Any, Final, Self

from brokerha.cli.bench.group import Group, group
from brokerha.cli.bench.run import put
from brokerha.model.errors import NotReady
from brokerha.model.operations import pack_operations

if TYPE_CHECKING:
    from brokerha.model.requests import Reply
    from brokerha.ports.wire import Wire

Report = Callable[[str], None]
BACKUPS: Final = 2
CLIENTS: Final = 3
WINDOW: Final = 20
FAIL_OVER_AFTER_MS: Final = 1000
WRITE_TIMEOUT_MS: Final = 10_000
BEFORE_S: Final = 1.5
AFTER_S: Final = 3.0
PATIENCE_S: Final = 60.0


class Load:
    """One client with a window of writes under way; times of its answers."""

    def __init__(self, wire: Wire, name: str) -> None:
        self.answers: deque[float] = deque(maxlen=200_000)
        """When writes were acknowledged, of the performance counter."""
        self.again = 0
        """Writes that were sent again."""
        self._wire = wire
        self._name = name
        self._number = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"load {name}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(2 * WRITE_TIMEOUT_MS / 1000)

    def _run(self) -> None:
        under_way: dict[Future[Reply], int] = {}
        while not self._stopping.is_set():
            fresh = list(range(self._number, self._number + WINDOW - len(under_way)))
            self._number += len(fresh)
            under_way |= self._send(fresh)
            done, _ = wait(under_way, timeout=1.0, return_when=FIRST_COMPLETED)
            lost = []
            for future in done:
                number = under_way.pop(future)
                if future.result().status == "applied":
                    self.answers.append(time.perf_counter())
                else:
                    lost.append(number)
            self.again += len(lost)
            if lost:
                time.sleep(0.01)
                under_way |= self._send(lost)

    def _send(self, numbers: Sequence[int]) -> dict[Future[Reply], int]:
        writes = [(f"{self._name}-{n}", pack_operations([put(n)])) for n in numbers]
        return dict(zip(self._wire.submit(writes, "applied", 1, WRITE_TIMEOUT_MS), numbers, strict=True))


def fail_over(broker: str, runs: int, report: Report) -> dict[str, Any]:
    """Kill the primary so many times; returns plain data."""
    rows: list[dict[str, Any]] = []
    settings = f"fail-over-after-ms = {FAIL_OVER_AFTER_MS}\n"
    with group(broker, BACKUPS, settings=settings) as site, contextlib.ExitStack() as stack:
        name = f"bench-{time.time_ns()}"
        loads = [stack.enter_context(Load(stack.enter_context(site.wire()), f"{name}-{n}")) for n in range(CLIENTS)]
        for number in range(1, runs + 1):
            rows.append(_one(site, loads, number))
            row = rows[-1]
            report(
                f"run {number}: {row['killed']} killed, {row['primary']} is primary, writes go on after "
                f"{row['median_s']:.2f} s, at the last client after {row['worst_s']:.2f} s"
            )
    times = [seconds for row in rows for seconds in row["clients_s"]]
    return {
        "fail_over_after_ms": FAIL_OVER_AFTER_MS,
        "runs": rows,
        "median_s": median(times),
        "worst_s": max(times),
    }


def _one(site: Group, loads: Sequence[Load], number: int) -> dict[str, Any]:
    """One kill; the process is started again and ready when this returns."""
    victim = site.primary()
    _await_answers(loads, BEFORE_S)
    again = sum(load.again for load in loads)
    killed_s = site.kill(victim)
    _await_answers(loads, AFTER_S)
    seconds = [pause_end(list(load.answers), killed_s) - killed_s for load in loads]
    now = site.primary()
    site.start(victim)
    site.until_ready((*site.processes, *site.workers))
    return {
        "run": number,
        "killed": victim,
        "primary": now,
        "clients_s": seconds,
        "median_s": median(seconds),
        "worst_s": max(seconds),
        "sent_again": sum(load.again for load in loads) - again,
    }


def _await_answers(loads: Sequence[Load], seconds: float) -> None:
    """Wait until each client was answered some time after so many seconds from now. Raises NotReady."""
    since = time.perf_counter() + seconds
    while not all(load.answers and load.answers[-1] > since for load in loads):
        if time.perf_counter() > since + PATIENCE_S:
            message = f"a client got no answer for {PATIENCE_S:g} s"
            raise NotReady(message)
        time.sleep(0.01)


def pause_end(answers: Sequence[float], since: float) -> float:
    """When the longest pause between answers from this time on ended.

    >>> pause_end([1.0, 2.1, 5.0, 5.5], 2.0)
    5.0
    """
    times = [since, *(at for at in answers if at > since)]
    if len(times) < 2:
        message = "no write was acknowledged after that"
        raise NotReady(message)
    return max(itertools.pairwise(times), key=lambda pair: pair[1] - pair[0])[1]
