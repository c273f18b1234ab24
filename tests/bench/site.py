"""A cluster of real processes for measurements, each with its own door; their output goes to files in their folder.

    with running(broker, workers=3) as site, site.wire() as wire:
        site.stop("w3"), site.wipe("w3"), site.start("w3")

All questions go over HTTP, like an operator's. The broker's virtual host must be empty, because shared queues have fixed names:
another cluster there would get the writes of the bench.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import httpx2

from brokerha.http.operating.families import numbers_of
from brokerha.model.errors import NotReady
from brokerha.model.numbers import Numbers
from brokerha.model.operations import Operation, pack_operations
from brokerha.model.states import SERVING

if TYPE_CHECKING:
    from brokerha.model.requests import Reply
    from brokerha.ports.wire import Wire


MASTER = "m1"
START_S = 120.0
END_S = 20.0
"""Time in which a node must stop in order."""
LOOK_S = 0.05
"""Time between two questions while waiting."""
Rows = dict[str, dict[str, Any]]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Site:
    """Masters ``m1`` and so on, the workers of each, the backups of the first. ``settings`` are lines for ``[cluster]``."""

    def __init__(self, broker: str, folder: Path, masters: int = 1, workers: int = 1, backups: int = 0, settings: str = "") -> None:
        self.broker = broker
        self.masters = [f"m{n + 1}" for n in range(masters)]
        self.backups = [f"b{n + 1}" for n in range(backups)]
        self.workers = [f"w{n + 1}" for n in range(masters * workers)]
        self.urls = {node: f"http://127.0.0.1:{_free_port()}" for node in (*self.masters, *self.backups, *self.workers)}
        self._folder = folder
        self._file = folder / "cluster.toml"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._http = httpx2.Client(timeout=10)
        homes = {worker: self.masters[place // workers] for place, worker in enumerate(self.workers)}
        text = f'[cluster]\nname = "bench"\nbroker = "{broker}"\ndata = "{folder / "data"}"\n{settings}'
        for kind, nodes in (("master", self.masters), ("backup", self.backups), ("worker", self.workers)):
            for node in nodes:
                text += f'[[{kind}]]\nid = "{node}"\nhttp = "{self.urls[node].removeprefix("http://")}"\n'
                text += f'master = "{homes.get(node, MASTER)}"\n' if kind != "master" else ""
        self._file.write_text(text, encoding="utf-8")

    @property
    def processes(self) -> list[str]:
        """Processes of the master with backups."""
        return [MASTER, *self.backups]

    def start(self, node: str) -> None:
        """Start a node on the data in its folder."""
        command = [sys.executable, "-m", "brokerha", "node", node, "-c", str(self._file)]
        with (self._folder / f"{node}.log").open("ab") as log:
            self._processes[node] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

    def stop(self, *nodes: str) -> float:
        """Stop nodes concurrently, and kill slow ones; return the time of the performance counter before that."""
        now_s = time.perf_counter()
        ending = [self._processes.pop(node) for node in nodes]
        for process in ending:
            process.terminate()
        for process in ending:
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)
        return now_s

    def kill(self, node: str) -> float:
        """SIGKILL a node; return the time of the performance counter."""
        process = self._processes.pop(node)
        process.kill()
        now_s = time.perf_counter()
        process.wait(10)
        return now_s

    def end(self) -> None:
        """Stop everything."""
        self.stop(*self._processes)
        self._http.close()

    def wipe(self, node: str) -> None:
        """Delete the folder of a stopped node."""
        shutil.rmtree(self._folder / "data" / node)

    def resident_mb(self, node: str) -> tuple[float, float]:
        """Return the memory of a process: now, and its maximum. Linux only; zeros elsewhere."""
        try:
            text = Path(f"/proc/{self._processes[node].pid}/status").read_text(encoding="ascii")
        except OSError:
            return 0.0, 0.0
        found = {words[0]: int(words[1]) * 1024 / 1e6 for line in text.splitlines() if (words := line.split())[-1] == "kB"}
        return found["VmRSS:"], found["VmHWM:"]

    def metrics(self, node: str) -> Numbers:
        """Return the metrics of a node, without their common prefix. Raises NotReady when it does not answer."""
        try:
            return numbers_of(self._http.get(f"{self.urls[node]}/metrics").raise_for_status().text)
        except httpx2.HTTPError as error:
            raise NotReady(f"{node} does not tell its metrics: {error}") from None

    def switch(self, worker: str, word: str) -> None:
        """Switch a worker ``on`` or ``off``. Raises NotReady."""
        answer = self._http.post(f"{self.urls[MASTER]}/cluster/workers/{worker}/{word}", json={"force": True})
        if answer.status_code != 200:
            raise NotReady(f"worker {word} was refused: {answer.text}")

    def rows(self) -> Rows:
        """Return the workers as their master sees them; none while it does not answer."""
        try:
            answer = self._http.get(f"{self.urls[MASTER]}/cluster/workers")
        except httpx2.HTTPError:
            return {}
        return {row["id"]: row for row in answer.json()["workers"]} if answer.status_code == 200 else {}

    def primary(self) -> str:
        """Return the process that takes writes. Raises NotReady when there is none in time."""
        found: list[str] = []

        def look() -> bool:
            found[:] = [node for node in self.processes if self._says(node, "writable")]
            return bool(found)

        self._await(look, lambda: f"no process of {MASTER} takes writes", START_S)
        return found[0]

    def until(self, is_so: Callable[[Rows], bool], timeout_s: float) -> float:
        """Wait for a condition on the workers' rows; return the time of the performance counter. Raises NotReady."""
        return self._await(lambda: is_so(self.rows()), lambda: f"workers are {self.rows()}", timeout_s)

    def until_in_sync(self, timeout_s: float = START_S) -> None:
        """Wait until all workers are in sync. Raises NotReady."""
        self.until(lambda rows: len(rows) == len(self.workers) and all(map(is_in_sync, rows.values())), timeout_s)

    def until_ready(self, nodes: Iterable[str] | None = None) -> None:
        """Wait until these nodes, or all, are ready; except a primary without workers, which never is. Raises NotReady."""
        idle = {self.primary()} if not self.workers else set()
        wanted = [node for node in (self.urls if nodes is None else nodes) if node not in idle]
        self._await(
            lambda: all(self._says(node, "readyz") for node in wanted), lambda: f"not all of {', '.join(wanted)} are ready", START_S
        )

    def until_answering(self, node: str) -> None:
        """Wait until a started node answers at its own door. Raises NotReady."""
        self._await(lambda: self._says(node, "metrics"), lambda: f"{node} does not answer", START_S)

    def _says(self, node: str, word: str) -> bool:
        try:
            return self._http.get(f"{self.urls[node]}/{word}").status_code == 200
        except httpx2.HTTPError:
            return False

    def _await(self, is_so: Callable[[], bool], problem: Callable[[], str], timeout_s: float) -> float:
        deadline_s = time.perf_counter() + timeout_s
        while not is_so():
            if time.perf_counter() > deadline_s:
                told = [f"{log.name}: {log.read_text('utf-8', 'replace')[-800:]}" for log in sorted(self._folder.glob("*.log"))]
                raise NotReady("\n".join([f"{problem()} after {timeout_s:g} s", *told]))
            time.sleep(LOOK_S)
        return time.perf_counter()

    @contextlib.contextmanager
    def wire(self) -> Iterator[Wire]:
        """Return a client's connection."""
        from brokerha.transports.client.wire import AmqpWire

        with contextlib.closing(AmqpWire(self.broker)) as wire:
            yield wire


def is_in_sync(row: dict[str, Any]) -> bool:
    """Tell whether a worker is in sync."""
    return row["state"] in SERVING


@contextlib.contextmanager
def running(broker: str, masters: int = 1, workers: int = 1, backups: int = 0, settings: str = "") -> Iterator[Site]:
    """Yield a site whose nodes are all ready, in a temporary folder. Raises NotReady."""
    with tempfile.TemporaryDirectory(prefix="brokerha-bench-") as folder:
        site = Site(broker, Path(folder), masters, workers, backups, settings)
        try:
            for node in site.urls:
                site.start(node)
            site.until_ready()
            yield site
        finally:
            site.end()


# ---- The load of a bench: a constant number of concurrent writes, and when each of them ended.

Make = Callable[[int], Operation]
"""Makes the write with a number."""
VALUE = b"v" * 100
TIMEOUT_MS = 120_000
REPEAT_AFTER_S = 0.01


def put(number: int) -> Operation:
    """Return a key-value write of 100 bytes."""
    return ("put", "bench", b"key-%012d" % number, VALUE)


def insert(number: int) -> Operation:
    """Return a small SPARQL INSERT DATA."""
    return ("update", "main", f'INSERT DATA {{ <urn:bench:{number}> <urn:bench:value> "{number}" }}')


KINDS: tuple[tuple[str, Make], ...] = (("key-value put", put), ("INSERT DATA", insert))


class Done(NamedTuple):
    """A completed write; times are of the performance counter."""

    at_s: float
    latency_s: float


class Load:
    """Writes until the block ends, in a separate thread; then waits for all open ones."""

    def __init__(
        self, wire: Wire, make: Make, window: int, first: int = 0, *, level: str = "applied", name: str = "bench",
        repeats: bool = False, timeout_ms: int = TIMEOUT_MS,
    ) -> None:  # fmt: skip
        """``repeats``: a failed write is sent again under its id, and does not end the load."""
        self._wire = wire
        self._make = make
        self._window = window
        self._level = level
        self._name = name
        self._repeats = repeats
        self._timeout_ms = timeout_ms
        self._ended: SimpleQueue[tuple[int, Done, Future[Reply]]] = SimpleQueue()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"writes of {name}", daemon=True)
        self.next = first
        """Number of the next write."""
        self.done: list[Done] = []
        self.repeated = 0
        self.fault: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(self._timeout_ms / 1000 + 20)
        self.check()

    def check(self) -> None:
        """Raise the error that ended the load, so that a caller does not wait for more writes for ever."""
        if self.fault is not None:
            raise self.fault

    def rate(self, since_s: float, until_s: float) -> float:
        """Return the writes per second in a span of time."""
        return len(self._between(since_s, until_s)) / max(until_s - since_s, 1e-9)

    def p99_ms(self, since_s: float, until_s: float) -> float:
        """Return the p99 latency of the writes that ended in a span of time."""
        return share_ms(self._between(since_s, until_s), 0.99)

    def _between(self, since_s: float, until_s: float) -> list[float]:
        return [each.latency_s for each in list(self.done) if since_s <= each.at_s < until_s]

    def _run(self) -> None:
        under_way = 0
        try:
            while under_way or not self._stopping.is_set():
                if under_way < self._window and not self._stopping.is_set():
                    self._send(range(self.next, self.next + self._window - under_way))
                    self.next += self._window - under_way
                    under_way = self._window
                under_way -= self._take()
        except BaseException as fault:  # noqa: BLE001  (told when the block ends)
            self.fault = fault

    def _send(self, numbers: Sequence[int]) -> None:
        writes = [(f"{self._name}-{number}", pack_operations([self._make(number)])) for number in numbers]
        sent_s = time.perf_counter()
        for number, future in zip(numbers, self._wire.submit(writes, self._level, 1, self._timeout_ms), strict=True):
            future.add_done_callback(functools.partial(self._note, number, sent_s))

    def _note(self, number: int, sent_s: float, future: Future[Reply]) -> None:
        now_s = time.perf_counter()
        self._ended.put((number, Done(now_s, now_s - sent_s), future))

    def _take(self) -> int:
        """Wait for a write to end, and take all completed ones; return how many are no longer open."""
        ended = [self._ended.get(timeout=self._timeout_ms / 1000 + 10)]
        while not self._ended.empty():
            ended.append(self._ended.get())
        lost = [number for number, done, future in ended if not self._has_reached(done, future.result())]
        if not lost or self._stopping.is_set():
            return len(ended)
        time.sleep(REPEAT_AFTER_S)
        self._send(lost)
        self.repeated += len(lost)
        return len(ended) - len(lost)

    def _has_reached(self, done: Done, reply: Reply) -> bool:
        if reply.status == self._level:
            self.done.append(done)
        elif not self._repeats:
            raise NotReady(f"a write of the bench was {reply.status}: {reply.reason}")
        return reply.status == self._level


def share_ms(latencies_s: Iterable[float], share: float) -> float:
    """Return the latency in milliseconds below which this share of the writes lies; 0 without any.

    >>> share_ms([0.004, 0.001, 0.003, 0.002], 0.5)
    3.0
    """
    ordered = sorted(latencies_s)
    return ordered[int(len(ordered) * share)] * 1000 if ordered else 0.0


class Figure(NamedTuple):
    """Result of a window of writes."""

    writes: int
    """All writes, including those that ended after the time."""
    per_s: float
    p50_ms: float
    p99_ms: float


def measure(wire: Wire, make: Make, window: int, seconds: float, first: int, level: str = "applied") -> Figure:
    """Keep ``window`` writes open for ``seconds``. Raises NotReady when one fails."""
    with Load(wire, make, window, first, level=level) as load:
        end_s = time.perf_counter() + seconds
        while (left_s := end_s - time.perf_counter()) > 0:
            load.check()
            time.sleep(min(left_s, 0.1))
    latencies = [each.latency_s for each in load.done]
    in_time = sum(each.at_s < end_s for each in load.done)
    return Figure(len(latencies), in_time / seconds, share_ms(latencies, 0.5), share_ms(latencies, 0.99))
