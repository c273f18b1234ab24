"""``python -m tests.bench writes``: writes per second, latency, and the cost of a write for the nodes, compared with the broker's rate.

Over a broker each master and each worker has its own process, as in production, and this process is the client. The raw rate of the
broker is measured before, with the same windows, so that the ratio is meaningful on a machine whose speed drifts. Embedded:
everything in this process.

Costs come from /metrics of each node before and after a measurement. So they include other work, such as heartbeats, which is
little at any rate worth measuring. They exclude the broker's own processor time.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from brokerha.cli.common import exits
from brokerha.cli.common.command import Answer, columns
from brokerha.client import Client
from brokerha.log.disks import FileDisk, MemoryDisk
from brokerha.log.log import Log
from brokerha.master.config import MasterConfig
from brokerha.master.core import MasterCore
from brokerha.model.ids import Instant
from brokerha.model.numbers import Numbers
from brokerha.model.records import Started
from brokerha.model.requests import Submit
from brokerha.model.wire.messages import Bodies, Outgoing, Post
from brokerha.sync.config import SyncConfig
from brokerha.sync.core import SyncCore
from tests.bench import yardstick
from tests.bench.options import BenchOptions
from tests.bench.site import KINDS, START_S, VALUE, Make, measure, running

if TYPE_CHECKING:
    from brokerha.ports.wire import Wire


# ---- Does the cost of a write grow with the log, or with the backlog? Measured on the shipped core and journal, without a broker.
#
# - **log length**: one master writes turns of 200 transactions into its journal on disk; the last 10,000 before the log has
#   10,000 entries and before it has 500,000 are timed.
# - **backlog**: three masters agree while the third withholds its promises, so no entry can be added; 5,000 writes are timed with
#   100 and with 50,000 transactions in the incoming queues, and then the addition of all of them.
#
# Ratios within one run are meaningful; absolute figures of a shared machine are not.

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


COLUMNS = columns(
    "what=WRITE", "window", "writes_per_s=WRITES/S", "p50_ms", "p99_ms", "to_raw=OF RAW", "cpu_us", "turns",
    "messages",
)  # fmt: skip
WANTED = ("cpu_seconds_total", "turns_total", "transport_total")
Counted = Mapping[tuple[str, str, str], float]
"""(role, metric, label) -> sum over the nodes of the role."""


@dataclass(frozen=True, slots=True)
class WriteCost:
    """Cost of one write, over all nodes of a role."""

    cpu_us: dict[str, dict[str, float]]
    """Microseconds of a processor: ``masters`` and ``workers`` -> purpose of the thread."""
    turns: float
    """Turns of the loops of all nodes."""
    messages: float
    """Messages from nodes to the broker."""

    @property
    def total_us(self) -> float:
        """Total of all nodes."""
        return sum(sum(threads.values()) for threads in self.cpu_us.values())

    def sentence(self) -> str:
        """Describe the largest parts for a person."""
        parts = []
        for role, threads in self.cpu_us.items():
            largest = sorted(threads.items(), key=lambda item: -item[1])[:3]
            named = ", ".join(f"{name} {us:,.0f}" for name, us in largest)
            parts.append(f"{role} {sum(threads.values()):,.0f} us ({named})")
        return f"a write: {'; '.join(parts)}; {self.turns:.2f} turns, {self.messages:.2f} messages"


def counted(metrics: Mapping[str, Numbers]) -> dict[tuple[str, str, str], float]:
    """Sum the wanted metrics of nodes, by node id; ids of masters begin with m."""
    found: defaultdict[tuple[str, str, str], float] = defaultdict(float)
    for node, numbers in metrics.items():
        role = "masters" if node.startswith("m") else "workers"
        for key, value in numbers.items():
            name, label = (key, "") if isinstance(key, str) else key[:2]
            if name in WANTED:
                found[role, name, label] += value
    return found


def cost_of(before: Counted, after: Counted, writes: int) -> WriteCost | None:
    """Return the cost of each of ``writes`` writes; None when nothing was counted.

    >>> cost = cost_of({}, {("masters", "cpu_seconds_total", "loop"): 2.0, ("masters", "turns_total", ""): 300}, 1000)
    >>> cost.total_us, cost.turns
    (2000.0, 0.3)
    """
    if not after or not writes:
        return None
    grown = {key: max(0.0, value - before.get(key, 0.0)) / writes for key, value in after.items()}
    cpu_us: dict[str, dict[str, float]] = {}
    for (role, name, label), each in grown.items():
        if name == "cpu_seconds_total":
            cpu_us.setdefault(role, {})[label] = 1e6 * each
    turns = sum(each for (_, name, _), each in grown.items() if name == "turns_total")
    messages = sum(each for (_, name, label), each in grown.items() if (name, label) == ("transport_total", "sent"))
    return WriteCost(cpu_us, turns, messages)


@contextlib.contextmanager
def _cluster(broker: str, masters: int) -> Iterator[tuple[Wire, Callable[[], Counted]]]:
    """Yield a running cluster of masters with a worker each: a wire to it, and a reader of its nodes' counters."""
    if not broker.startswith("embedded:"):
        with running(broker, masters) as site, site.wire() as wire:
            yield wire, lambda: counted({node: site.metrics(node) for node in site.urls})
        return
    from brokerha.embedded import EmbeddedCluster, FrontWire
    from brokerha.nodes.config.cluster import ClusterConfig, MasterEntry, WorkerEntry

    numbers = range(1, masters + 1)
    with tempfile.TemporaryDirectory(prefix="brokerha-bench-") as folder:
        config = ClusterConfig(
            name="bench",
            broker=broker,
            data=Path(folder),
            masters=tuple(MasterEntry(id=f"m{n}") for n in numbers),
            workers=tuple(WorkerEntry(id=f"w{n}", master=f"m{n}") for n in numbers),
        )
        with EmbeddedCluster(config) as cluster:
            yield FrontWire(cluster, [f"m{n}" for n in numbers]), dict


def _rows(
    wire: Wire, what: str, make: Make, options: BenchOptions, counters: Callable[[], Counted], raw: dict[int, float]
) -> Iterator[dict[str, Any]]:
    """Measure all windows of one kind of write."""
    first = time.time_ns() // 1000
    for window in options.windows_or("1,20,100,1000"):
        before = counters()
        found = measure(wire, make, window, options.seconds, first)
        cost = cost_of(before, counters(), found.writes)
        first += found.writes
        exits.say(f"{what}, window {window}: {found.per_s:,.0f} writes/s, p50 {found.p50_ms:.2f} ms, p99 {found.p99_ms:.2f} ms")
        row = {
            "what": what, "window": window, "writes_per_s": found.per_s, "p50_ms": found.p50_ms, "p99_ms": found.p99_ms,
            "to_raw": found.per_s / raw[window] if window in raw else None, "cost": cost and asdict(cost),
        }  # fmt: skip
        if cost is not None:
            exits.say(f"  {cost.sentence()}")
            row |= {"cpu_us": cost.total_us, "turns": cost.turns, "messages": cost.messages}
        yield row


def _idle_share(seconds: float = 5.0) -> float:
    """Return the share of one core that an idle embedded cluster of three masters with two workers each takes."""
    from brokerha.cli.machine.demonstration import demo_config
    from brokerha.embedded import EmbeddedCluster

    with (
        tempfile.TemporaryDirectory(prefix="brokerha-bench-") as folder,
        EmbeddedCluster(demo_config("embedded://idle", Path(folder))),
    ):
        time.sleep(2.0)
        before = time.process_time()
        time.sleep(seconds)
        return (time.process_time() - before) / seconds


def writes(options: BenchOptions) -> Answer:
    """Run all measurements."""
    answer: dict[str, Any] = {
        "broker": "embedded" if options.is_embedded else "rabbitmq", "masters": options.masters, "raw": [], "writes": [],
    }  # fmt: skip
    raw: dict[int, float] = {}
    if not options.is_embedded:
        trip = yardstick.round_trip(options.broker)
        answer["round_trip_ms"] = {"p50": trip.p50_ms, "p99": trip.p99_ms}
        exits.say(f"broker round trip: p50 {trip.p50_ms:.2f} ms, p99 {trip.p99_ms:.2f} ms")
        for window in options.windows_or("1,20,100,1000"):
            rate = yardstick.publish_and_confirm(options.broker, window, options.seconds)
            raw[window] = rate.per_second
            answer["raw"].append({"window": window, **rate._asdict()})
            exits.say(
                f"raw publish and confirm, window {window}: {rate.per_second:,.0f}/s p50 {rate.p50_ms:.2f} p99 {rate.p99_ms:.2f} ms"
            )
    with _cluster(options.broker, options.masters) as (wire, counters):
        # A cluster that has executed one write is up.
        Client(wire).put("bench", b"first", VALUE, timeout=START_S)
        for what, make in KINDS:
            answer["writes"] += _rows(wire, what, make, options, counters, raw)
    answer["idle_share"] = _idle_share()
    exits.say(f"an idle embedded cluster of 9 nodes takes {answer['idle_share']:.1%} of a core")
    costs = [*log_length(), *backlog()]
    answer["cost_us"] = [{**cost._asdict(), "ratio": cost.ratio} for cost in costs]
    for cost in costs:
        exits.say(f"{cost.what}: {cost.small:.1f} and {cost.large:.1f} us, ratio {cost.ratio:.2f}")
    return Answer(answer, answer["writes"], COLUMNS)
