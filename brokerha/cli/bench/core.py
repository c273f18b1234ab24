"""Does the cost of a write grow with the log, or with the backlog? Measured on the shipped core and journal, without a broker.

- **log length**: one master writes turns of 200 transactions into its journal on disk; the last 10,000 before the log has
  10,000 entries and before it has 500,000 are timed.
- **backlog**: three masters agree while the third withholds its promises, so no entry can be added; 5,000 writes are timed with
  100 and with 50,000 transactions in the incoming queues, and then the addition of all of them.

Ratios within one run are meaningful; absolute figures of a shared machine are not.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from brokerha.log.disks import FileDisk, MemoryDisk
from brokerha.log.log import Log
from brokerha.master.config import MasterConfig
from brokerha.master.core import MasterCore
from brokerha.model.ids import Instant
from brokerha.model.records import Started
from brokerha.model.requests import Submit
from brokerha.model.wire.messages import Bodies, Outgoing, Post
from brokerha.sync.config import SyncConfig
from brokerha.sync.core import SyncCore

TURN = 200
BODY = b"x" * 130


class Cost(NamedTuple):
    """Time for one write, in microseconds, in two situations."""

    what: str
    small: float
    large: float

    @property
    def ratio(self) -> float:
        """Large divided by small; 1 means that the size does not matter."""
        return self.large / self.small


def log_length(goals: tuple[int, int, int] = (10_000, 100_000, 500_000), window: int = 10_000) -> tuple[Cost, Cost]:
    """Return the cost of a write after a short, a longer and a long log: first against last, and second against last.

    Every 16,384 transaction ids become a sorted file; a longer log pays for that once for each id.
    """
    figures = []
    with tempfile.TemporaryDirectory(prefix="brokerha-bench-") as folder:
        journal = Log(FileDisk(Path(folder)), "bench", "m1")
        core = MasterCore(MasterConfig(SyncConfig("m1", ("m1",), queue_window=10 * TURN)), journal.state(), journal)
        written = 0
        for goal in goals:
            while written < goal - window:
                written += _turn(core, journal, written)
            started = time.perf_counter()
            while written < goal:
                written += _turn(core, journal, written)
            figures.append((time.perf_counter() - started) / window * 1e6)
        journal.close()
    first, second, last = figures
    return (
        Cost(f"log of {goals[0]:,} and of {goals[2]:,}", first, last),
        Cost(f"log of {goals[1]:,} and of {goals[2]:,}", second, last),
    )


def _turn(core: MasterCore, journal: Log, start: int) -> int:
    now = Instant(start, 1_000_000 + start)
    for number in range(start, start + TURN):
        core.step(Submit(0, f"bench-{number:09d}", BODY), now)
    while ready := core.take_ready(now):
        journal.append(ready.records)
    return TURN


class _Trio:
    """Three masters in memory; the third one's promises can be withheld."""

    def __init__(self) -> None:
        names = ("m1", "m2", "m3")
        self.now = Instant(1000, 10**9)
        self.journals = {name: Log(MemoryDisk(), "bench", name) for name in names}
        self.cores: dict[str, SyncCore] = {}
        for name in names:
            state = self.journals[name].state()
            state.incarnation += 1
            self.journals[name].append([Started(state.incarnation)])
            config = SyncConfig(name, names, queue_window=10**6, post_window=10**6)
            self.cores[name] = SyncCore(config, state, self.journals[name])
        self.mail: list[tuple[str, Outgoing]] = []
        self.is_silent = False

    def turn(self) -> None:
        """Run one round of every master, then deliver all messages."""
        for name, core in self.cores.items():
            result = core.collect(self.now)
            if result.records:
                self.journals[name].append(result.records)
            self.mail.extend((name, out) for out in result.messages)
        mail, self.mail = self.mail, []
        for sender, out in mail:
            if self.is_silent and sender == "m3" and isinstance(out.message, Post):
                continue
            if isinstance(out.message, Post):
                self.cores[out.to].on_post(sender, out.message, self.now)
            elif isinstance(out.message, Bodies):
                self.cores[out.to].on_bodies(sender, out.message)
        self.now = Instant(self.now.mono_ms + 1, self.now.wall_us + 1000)


def backlog(small: int = 100, large: int = 50_000, count: int = 5_000) -> tuple[Cost, Cost]:
    """Return the cost of a write, and of adding an entry, with a short and with a long incoming queue."""
    writes, adds = [], []
    for depth in (small, large):
        trio = _Trio()
        for _ in range(6):
            trio.turn()
        trio.is_silent = True
        written = 0

        def write(goal: int, trio: _Trio = trio) -> None:
            nonlocal written
            while written < goal:
                for _ in range(min(TURN, goal - written)):
                    trio.cores["m1"].accept(f"bench-{written}", BODY)
                    written += 1
                trio.turn()

        write(depth)
        started = time.perf_counter()
        write(depth + count)
        writes.append((time.perf_counter() - started) / count * 1e6)
        trio.is_silent = False
        started = time.perf_counter()
        while trio.cores["m1"].lsn < written:
            trio.turn()
        adds.append((time.perf_counter() - started) / written * 1e6)
    what = f"backlog of {small:,} and of {large:,}"
    return Cost(f"{what}: a write", *writes), Cost(f"{what}: adding one", *adds)
