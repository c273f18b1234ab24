"""``brokerha bench writes``: writes per second, latency, and the cost of a write for the nodes, compared with the broker's rate.

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
from typing import TYPE_CHECKING, Any

from brokerha.cli.bench import core
from brokerha.cli.bench.load import KINDS, VALUE, Make, measure
from brokerha.cli.bench.options import BenchOptions
from brokerha.cli.bench.site import START_S, running
from brokerha.cli.common import exits
from brokerha.cli.common.command import Answer
from brokerha.cli.common.output import columns
from brokerha.client import Client
from brokerha.model.numbers import Numbers
from brokerha.transports.tools import yardstick

if TYPE_CHECKING:
    from brokerha.ports.wire import Wire

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
    from brokerha.nodes.config.cluster import ClusterConfig
    from brokerha.nodes.config.nodes import MasterEntry, WorkerEntry

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
    from brokerha.cli.demo.run import demo_config
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
    costs = [*core.log_length(), *core.backlog()]
    answer["cost_us"] = [{**cost._asdict(), "ratio": cost.ratio} for cost in costs]
    for cost in costs:
        exits.say(f"{cost.what}: {cost.small:.1f} and {cost.large:.1f} us, ratio {cost.ratio:.2f}")
    return Answer(answer, answer["writes"], COLUMNS)
