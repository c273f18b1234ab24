"""What ``brokerha bench`` does: a cluster of real processes, a client that keeps a window of writes under way, a yardstick.

Over a broker: each master and each worker is a process of its own, as in production, and the client is this one. The raw rate of
the broker is taken before and after, with the same windows, so that the ratio means something on a machine whose speed drifts.
Embedded: everything in this process.

The broker's virtual host must be empty, because shared queues have fixed names; a cluster that lives there would get our writes.
"""

from __future__ import annotations

import contextlib
import functools
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from brokerha.cli.bench.cost import Counters, WriteCost, cost_of, counters_of
from brokerha.cli.bench.nodes import end_node, free_port, start_node
from brokerha.model.errors import NotReady
from brokerha.model.operations import Operation, pack_operations
from brokerha.model.requests import Reply

if TYPE_CHECKING:
    from brokerha.ports.wire import Wire

VALUE = b"v" * 100
START_S = 60.0
WRITE_TIMEOUT_MS = 60_000
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement."""

    what: str
    window: int
    writes_per_s: float
    p50_ms: float
    p99_ms: float
    to_raw: float | None = None
    """Share of the broker's own publish-and-confirm rate at the same window; None without a broker."""
    cost: WriteCost | None = None
    """What a write cost the nodes; None where they are no processes of their own."""


def put(number: int) -> Operation:
    """A key-value write of 100 bytes."""
    return ("put", "bench", b"key-%012d" % number, VALUE)


def insert(number: int) -> Operation:
    """A small SPARQL INSERT DATA."""
    return ("update", "main", f'INSERT DATA {{ <urn:bench:{number}> <urn:bench:value> "{number}" }}')


KINDS: tuple[tuple[str, Callable[[int], Operation]], ...] = (("key-value put", put), ("INSERT DATA", insert))


def measure(
    wire: Wire,
    make: Callable[[int], Operation],
    window: int,
    seconds: float,
    first: int,
    level: str = "applied",
) -> tuple[int, list[float]]:
    """Keep ``window`` writes under way for ``seconds``; returns how many reached the level, and their latencies in seconds."""
    done: SimpleQueue[tuple[float, Future[Reply]]] = SimpleQueue()
    latencies: list[float] = []
    number = first
    under_way = 0

    def note(sent: float, future: Future[Reply]) -> None:
        done.put((time.perf_counter() - sent, future))

    def send(count: int) -> None:
        nonlocal number, under_way
        writes = [(f"bench-{n}", pack_operations([make(n)])) for n in range(number, number + count)]
        number += count
        under_way += count
        sent = time.perf_counter()
        for future in wire.submit(writes, level, 1, WRITE_TIMEOUT_MS):
            future.add_done_callback(functools.partial(note, sent))

    def take() -> None:
        nonlocal under_way
        latency, future = done.get(timeout=WRITE_TIMEOUT_MS / 1000 + 10)
        reply = future.result()
        if reply.status != level:
            message = f"a write of the bench was {reply.status}: {reply.reason}"
            raise NotReady(message)
        latencies.append(latency)
        under_way -= 1

    end = time.perf_counter() + seconds
    send(window)
    while time.perf_counter() < end:
        take()
        while not done.empty():
            take()
        send(window - under_way)
    in_time = len(latencies)
    while under_way:
        take()
    return in_time, latencies


def run_kind(
    wire: Wire,
    what: str,
    make: Callable[[int], Operation],
    windows: tuple[int, ...],
    seconds: float,
    counters: Counters,
) -> Iterator[Figure]:
    """All windows of one kind of write; ``counters`` reads those of the nodes."""
    first = time.time_ns() // 1000
    for window in windows:
        before = counters()
        count, latencies = measure(wire, make, window, seconds, first)
        first += len(latencies)
        cost = cost_of(before, counters(), len(latencies))
        ordered = sorted(latencies)
        p50, p99 = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
        yield Figure(what, window, count / seconds, p50 * 1000, p99 * 1000, cost=cost)


@contextlib.contextmanager
def processes(broker: str, masters: int, folder: Path) -> Iterator[dict[str, str]]:
    """Masters with one worker each, as processes; their output goes to a file in the folder. Gives the URL of each node's door."""
    names = [f"m{n}" for n in range(1, masters + 1)]
    text = f'[cluster]\nname = "bench"\nbroker = "{broker}"\ndata = "{folder / "data"}"\n'
    doors = {node: f"127.0.0.1:{free_port()}" for name in names for node in (name, f"w{name[1:]}")}
    for name in names:
        worker = f"w{name[1:]}"
        text += f'[[master]]\nid = "{name}"\nhttp = "{doors[name]}"\n'
        text += f'[[worker]]\nid = "{worker}"\nmaster = "{name}"\nhttp = "{doors[worker]}"\n'
    path = folder / "cluster.toml"
    path.write_text(text, encoding="utf-8")
    with contextlib.ExitStack() as stack:
        for node in [*names, *(f"w{name[1:]}" for name in names)]:
            stack.callback(end_node, start_node(node, path))
        yield {node: f"http://{door}" for node, door in doors.items()}


@contextlib.contextmanager
def cluster(broker: str, masters: int) -> Iterator[tuple[Wire, Counters]]:
    """A running cluster: a wire to it, and what reads the counters of its nodes."""
    with tempfile.TemporaryDirectory(prefix="brokerha-bench-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        wire: Wire
        counters: Counters = dict
        if broker.startswith("embedded:"):
            from brokerha.embedded import EmbeddedCluster, FrontWire
            from brokerha.nodes.config.cluster import ClusterConfig
            from brokerha.nodes.config.nodes import MasterEntry, WorkerEntry

            ids = [f"m{n}" for n in range(1, masters + 1)]
            config = ClusterConfig(
                name="bench",
                broker=broker,
                data=folder,
                masters=tuple(MasterEntry(id=i) for i in ids),
                workers=tuple(WorkerEntry(id=f"w{i[1:]}", master=i) for i in ids),
            )
            wire = FrontWire(stack.enter_context(EmbeddedCluster(config)), ids)
        else:
            from brokerha.transports.client.wire import AmqpWire

            urls = stack.enter_context(processes(broker, masters, folder))
            counters = functools.partial(counters_of, urls)
            wire = AmqpWire(broker)
            stack.callback(wire.close)
        deadline_ms = int(START_S * 1000)
        reply = wire.submit([("bench-first", pack_operations([put(0)]))], "applied", 1, deadline_ms)[0].result(
            START_S + 5
        )
        if reply.status != "applied":
            logs = "\n".join(
                f"{p.name}: {p.read_text('utf-8', 'replace')[-500:]}" for p in sorted(folder.glob("*.log"))
            )
            message = f"the cluster did not take its first write: {reply.status} {reply.reason}\n{logs}"
            raise NotReady(message)
        yield wire, counters


def idle_share(seconds: float = 5.0) -> float:
    """Share of one core that an idle embedded cluster of three masters with two workers each takes."""
    from brokerha.cli.demo.run import demo_config
    from brokerha.embedded import EmbeddedCluster

    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="brokerha-bench-"))
        stack.enter_context(EmbeddedCluster(demo_config("embedded://idle", Path(folder))))
        time.sleep(2.0)
        before = time.process_time()
        time.sleep(seconds)
        return (time.process_time() - before) / seconds


def run(broker: str, windows: tuple[int, ...], seconds: float, masters: int, report: Report) -> dict[str, Any]:
    """Measure everything; returns plain data."""
    from brokerha.cli.bench import core as bench_core

    is_embedded = broker.startswith("embedded:")
    raw: dict[int, float] = {}
    answer: dict[str, Any] = {
        "broker": "embedded" if is_embedded else "rabbitmq",
        "masters": masters,
        "raw": [],
        "writes": [],
    }
    if not is_embedded:
        from brokerha.transports.tools import yardstick

        trip = yardstick.round_trip(broker)
        answer["round_trip_ms"] = {"p50": trip.p50_ms, "p99": trip.p99_ms}
        report(f"broker round trip: p50 {trip.p50_ms:.2f} ms, p99 {trip.p99_ms:.2f} ms")
        for window in windows:
            rate = yardstick.publish_and_confirm(broker, window, seconds)
            raw[window] = rate.per_second
            answer["raw"].append({"window": window, **rate._asdict()})
            report(
                f"raw publish and confirm, window {window}: {rate.per_second:,.0f}/s p50 {rate.p50_ms:.2f} p99 {rate.p99_ms:.2f} ms"
            )
    with cluster(broker, masters) as (wire, counters):
        for what, make in KINDS:
            for figure in run_kind(wire, what, make, windows, seconds, counters):
                base = raw.get(figure.window)
                row = {**asdict(figure), "to_raw": figure.writes_per_s / base if base else None}
                if figure.cost is not None:
                    row |= {
                        "cpu_us": figure.cost.total_us,
                        "turns": figure.cost.turns,
                        "messages": figure.cost.messages,
                    }
                answer["writes"].append(row)
                report(
                    f"{what}, window {figure.window}: {figure.writes_per_s:,.0f} writes/s, "
                    f"p50 {figure.p50_ms:.2f} ms, p99 {figure.p99_ms:.2f} ms"
                )
                if figure.cost is not None:
                    report(f"  {figure.cost.sentence()}")
    answer["idle_share"] = idle_share()
    report(f"an idle embedded cluster of 9 nodes takes {answer['idle_share']:.1%} of a core")
    costs = [*bench_core.log_length(), *bench_core.backlog()]
    answer["cost_us"] = [{"what": c.what, "small": c.small, "large": c.large, "ratio": c.ratio} for c in costs]
    for cost in costs:
        report(f"{cost.what}: {cost.small:.1f} and {cost.large:.1f} us, ratio {cost.ratio:.2f}")
    return answer
