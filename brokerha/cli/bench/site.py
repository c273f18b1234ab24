"""A cluster of real processes for measurements, each with its own door; their output goes to files in their folder.

    with running(broker, workers=3) as site, site.wire() as wire:
        site.stop("w3"), site.wipe("w3"), site.start("w3")

All questions go over HTTP, like an operator's. The broker's virtual host must be empty, because shared queues have fixed names:
another cluster there would get the writes of the bench.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2

from brokerha.http.operating.families import numbers_of
from brokerha.model.errors import NotReady
from brokerha.model.numbers import Numbers
from brokerha.model.states import SERVING

if TYPE_CHECKING:
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
            self._processes[node] = subprocess.Popen(  # noqa: S603  (ourselves)
                command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
            )

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
