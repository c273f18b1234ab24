"""One site to measure with: a master and its workers, each a process with a door of its own, and writes that go on meanwhile.

    with Site(broker, folder, workers=3) as site, site.wire() as wire:
        with Writing(wire, put, window=20) as writing:
            ...                      # a worker is stopped, wiped, started again
            writing.rate(since, until)

Everything is asked over HTTP, as an operator would: states of workers at the master, figures of a load at the worker.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Self

import httpx2
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from brokerha.cli.bench.nodes import end_node, free_port, start_node
from brokerha.http.operating.families import numbers_of
from brokerha.model.errors import NotReady
from brokerha.model.numbers import Numbers
from brokerha.model.operations import Operation, pack_operations
from brokerha.model.states import SERVING

if TYPE_CHECKING:
    import subprocess

    from brokerha.model.requests import Reply
    from brokerha.ports.wire import Wire

START_S = 120.0
LOOK_S = 0.05
"""Time between two looks at the states of workers."""
WRITE_TIMEOUT_MS = 120_000
MASTER = "m1"


class Site:
    """The processes."""

    def __init__(self, broker: str, folder: Path, workers: int, settings: str = "") -> None:
        """``settings`` are further lines of the section ``[cluster]``."""
        self.broker = broker
        self.folder = folder
        self.workers = [f"w{n}" for n in range(1, workers + 1)]
        self._ports = {node: free_port() for node in (MASTER, *self.workers)}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._http = httpx2.Client(timeout=10)
        self._path = folder / "cluster.toml"
        text = f'[cluster]\nname = "bench"\nbroker = "{broker}"\ndata = "{folder / "data"}"\n{settings}'
        text += f'[[master]]\nid = "{MASTER}"\nhttp = "127.0.0.1:{self._ports[MASTER]}"\n'
        for node in self.workers:
            text += f'[[worker]]\nid = "{node}"\nmaster = "{MASTER}"\nhttp = "127.0.0.1:{self._ports[node]}"\n'
        self._path.write_text(text, encoding="utf-8")

    def __enter__(self) -> Self:
        for node in (MASTER, *self.workers):
            self.start(node)
        self.until(lambda rows: len(rows) == len(self.workers) and all(map(is_in_sync, rows.values())), START_S)
        return self

    def __exit__(self, *_: object) -> None:
        for node in list(self._processes):
            self.stop(node)
        self._http.close()

    def start(self, node: str) -> None:
        """Start a node on what is in its folder."""
        self._processes[node] = start_node(node, self._path)

    def stop(self, node: str) -> None:
        """Stop a node."""
        end_node(self._processes.pop(node))

    def wipe(self, node: str) -> None:
        """Delete the folder of a node that is stopped."""
        shutil.rmtree(self.directory(node))

    def directory(self, node: str) -> Path:
        """Its folder."""
        return self.folder / "data" / node

    def resident_bytes(self, node: str) -> tuple[int, int]:
        """Memory of a process: now, and the most since it started. Linux only; (0, 0) elsewhere."""
        try:
            text = Path(f"/proc/{self._processes[node].pid}/status").read_text(encoding="ascii")
        except OSError:
            return 0, 0
        found = {words[0]: int(words[1]) * 1024 for line in text.splitlines() if (words := line.split())[-1] == "kB"}
        return found["VmRSS:"], found["VmHWM:"]

    def rows(self) -> dict[str, dict[str, Any]]:
        """Workers as their master sees them; none while it does not answer."""
        try:
            answer = self._http.get(f"http://127.0.0.1:{self._ports[MASTER]}/cluster/workers")
        except httpx2.HTTPError:
            return {}
        return {row["id"]: row for row in answer.json()["workers"]} if answer.status_code == 200 else {}

    def command(self, worker: str, word: str) -> None:
        """Switch a worker ``on`` or ``off``."""
        url = f"http://127.0.0.1:{self._ports[MASTER]}/cluster/workers/{worker}/{word}"
        answer = self._http.post(url, json={"force": True})
        if answer.status_code != 200:
            message = f"worker {word} was refused: {answer.text}"
            raise NotReady(message)

    def metrics(self, node: str) -> Numbers:
        """Figures of a node, without their common prefix."""
        return numbers_of(self._http.get(f"http://127.0.0.1:{self._ports[node]}/metrics").text)

    def until_up(self, node: str, timeout_s: float) -> None:
        """Wait until a node that was started answers at its own door. Raises NotReady."""
        away = retry_if_exception_type(httpx2.HTTPError)
        try:
            Retrying(retry=away, stop=stop_after_delay(timeout_s), wait=wait_fixed(LOOK_S), reraise=True)(self.metrics, node)
        except httpx2.HTTPError as error:
            message = f"{node} does not answer: {error}"
            raise NotReady(message) from None

    def until(self, is_so: Callable[[dict[str, dict[str, Any]]], bool], timeout_s: float) -> float:
        """Wait until the rows of the workers are so; returns the monotonic time. Raises NotReady."""
        deadline_s = time.perf_counter() + timeout_s
        while not is_so(rows := self.rows()):
            if time.perf_counter() > deadline_s:
                logs = "\n".join(
                    path.read_text("utf-8", "replace")[-800:] for path in sorted(self.folder.glob("*.log"))
                )
                message = f"the site is not where it should be after {timeout_s} s: {rows}\n{logs}"
                raise NotReady(message)
            time.sleep(LOOK_S)
        return time.perf_counter()

    @contextlib.contextmanager
    def wire(self) -> Iterator[Wire]:
        """A client's connection."""
        from brokerha.transports.client.wire import AmqpWire

        wire = AmqpWire(self.broker)
        try:
            yield wire
        finally:
            wire.close()


def is_in_sync(row: dict[str, Any]) -> bool:
    """Whether a worker is on."""
    return row["state"] in SERVING


class Writing:
    """A window of writes under way, in a thread, for as long as the block lasts."""

    def __init__(self, wire: Wire, make: Callable[[int], Operation], window: int, first: int = 0) -> None:
        self._wire = wire
        self._make = make
        self._window = window
        self._number = first
        self._ended: SimpleQueue[tuple[float, Future[Reply]]] = SimpleQueue()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writes", daemon=True)
        self.done: list[tuple[float, float]] = []
        """(when it was applied, how long it took) in seconds of the performance counter."""
        self.fault: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(WRITE_TIMEOUT_MS / 1000 + 20)
        self.check()

    def check(self) -> None:
        """Raise what ended the writing, if anything did: whoever waits for more writes must not wait for ever."""
        if self.fault is not None:
            raise self.fault

    @property
    def sent(self) -> int:
        """Number of the next write."""
        return self._number

    def rate(self, since: float, until: float) -> float:
        """Writes applied per second in a span of time."""
        return sum(1 for at, _ in list(self.done) if since <= at < until) / max(until - since, 1e-9)

    def p99_ms(self, since: float, until: float) -> float:
        """99th part of a hundred of the latencies of writes that ended in a span of time, in milliseconds."""
        ordered = sorted(latency for at, latency in list(self.done) if since <= at < until)
        return ordered[int(len(ordered) * 0.99)] * 1000 if ordered else 0.0

    def _run(self) -> None:
        under_way = 0
        try:
            while under_way or not self._stopping.is_set():
                if not self._stopping.is_set() and under_way < self._window:
                    self._send(self._window - under_way)
                    under_way = self._window
                under_way -= self._take()
        except BaseException as fault:  # noqa: BLE001  (told when the block ends)
            self.fault = fault

    def _send(self, count: int) -> None:
        writes = [(f"bench-{n}", pack_operations([self._make(n)])) for n in range(self._number, self._number + count)]
        self._number += count
        sent = time.perf_counter()
        for future in self._wire.submit(writes, "applied", 1, WRITE_TIMEOUT_MS):
            future.add_done_callback(functools.partial(self._note, sent))

    def _note(self, sent: float, future: Future[Reply]) -> None:
        self._ended.put((time.perf_counter() - sent, future))

    def _take(self) -> int:
        """Wait for a write to end, and take all that have."""
        ended = [self._ended.get(timeout=WRITE_TIMEOUT_MS / 1000 + 10)]
        with contextlib.suppress(Empty):
            while True:
                ended.append(self._ended.get_nowait())
        for latency, future in ended:
            reply = future.result()
            if reply.status != "applied":
                message = f"a write of the bench was {reply.status}: {reply.reason}"
                raise NotReady(message)
            self.done.append((time.perf_counter(), latency))
        return len(ended)
