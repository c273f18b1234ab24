"""One master with backups to measure with: its processes and a worker, each a process of its own with a door.

with group(broker, backups=2, settings=...) as site:
    site.primary()
    site.kill("m1")
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2

from brokerha.cli.bench.nodes import free_port
from brokerha.cli.bench.site import LOOK_S, MASTER, START_S, Site
from brokerha.model.errors import NotReady


class Group(Site):
    """A `Site` whose master has backups ``b1`` and so on."""

    def __init__(self, broker: str, folder: Path, workers: int, backups: int, settings: str = "") -> None:
        """``settings`` are further lines of the section ``[cluster]``."""
        super().__init__(broker, folder, workers, settings)
        self.processes = [MASTER, *(f"b{n}" for n in range(1, backups + 1))]
        text = self._path.read_text(encoding="utf-8")
        for node in self.processes[1:]:
            self._ports[node] = free_port()
            text += f'[[backup]]\nid = "{node}"\nmaster = "{MASTER}"\nhttp = "127.0.0.1:{self._ports[node]}"\n'
        self._path.write_text(text, encoding="utf-8")

    def begin(self) -> None:
        """Start all nodes, and wait until all of them are ready."""
        for node in (*self.processes, *self.workers):
            self.start(node)
        # A master without workers takes writes and cannot be read: it is writable and never ready.
        primary = self.primary()
        rest = [node for node in self.processes if node != primary]
        self.until_ready((*rest, *([primary, *self.workers] if self.workers else ())))

    def end(self) -> None:
        """Stop all nodes, side by side."""
        for process in self._processes.values():
            process.terminate()
        self.__exit__()

    def until_ready(self, nodes: tuple[str, ...], timeout_s: float = START_S) -> None:
        """Wait until these nodes say that they are ready. Raises NotReady."""
        deadline_s = time.perf_counter() + timeout_s
        while waiting := [node for node in nodes if not self._says(node, "/readyz")]:
            if time.perf_counter() > deadline_s:
                logs = "\n".join(
                    path.read_text("utf-8", "replace")[-800:] for path in sorted(self.folder.glob("*.log"))
                )
                message = f"not ready after {timeout_s:g} s: {', '.join(waiting)}\n{logs}"
                raise NotReady(message)
            time.sleep(LOOK_S)

    def primary(self, timeout_s: float = START_S) -> str:
        """The process that takes writes. Raises NotReady when there is none."""
        deadline_s = time.perf_counter() + timeout_s
        while True:
            for node in self.processes:
                if self._says(node, "/writable"):
                    return node
            if time.perf_counter() > deadline_s:
                message = f"no process of {MASTER} takes writes"
                raise NotReady(message)
            time.sleep(LOOK_S)

    def kill(self, node: str) -> float:
        """SIGKILL a node that was started here; returns the time of the performance counter."""
        process = self._processes.pop(node)
        process.kill()
        now = time.perf_counter()
        process.wait(10)
        return now

    def view(self) -> dict[str, Any]:
        """The row of the master in the status, by the word of its primary."""
        answer = self._http.get(f"http://127.0.0.1:{self._ports[self.primary()]}/cluster/status")
        rows: list[dict[str, Any]] = answer.json()["nodes"]
        return next(row for row in rows if row["id"] == MASTER)

    def _says(self, node: str, path: str) -> bool:
        try:
            return self._http.get(f"http://127.0.0.1:{self._ports[node]}{path}").status_code == 200
        except httpx2.HTTPError:
            return False


@contextlib.contextmanager
def group(broker: str, backups: int, workers: int = 1, settings: str = "") -> Iterator[Group]:
    """A running group in a folder of its own, which goes with it."""
    with tempfile.TemporaryDirectory(prefix="brokerha-bench-") as name:
        site = Group(broker, Path(name), workers, backups, settings)
        try:
            site.begin()
            yield site
        finally:
            site.end()
