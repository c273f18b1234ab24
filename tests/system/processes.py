"""A cluster of real processes under ``brokerha up --restart``, which a test may kill one by one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import httpx2

from tests.support.free_ports import free_ports
from tests.support.waiting import T, until

DEADLINE_S = 90.0
_LOG_PART = 10_000


def command(*words: str, within_s: float = 120.0) -> subprocess.CompletedProcess[str]:
    """A command of ours, run to its end."""
    command = [sys.executable, "-m", "brokerha", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=within_s, check=False, stdin=subprocess.DEVNULL)


def told_as_json(*words: str, code: int = 0) -> tuple[Any, str]:
    """What a command of ours printed as JSON (None for nothing), and what it told people."""
    done = command(*words, "-o", "json")
    assert done.returncode == code, f"{words}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return (json.loads(done.stdout) if done.stdout.strip() else None), done.stderr


def lines_of_log(http: httpx2.Client, url: str, first: int = 1) -> list[tuple[str, str, int]]:
    """(transaction id, origin, timestamp) of the lines of a master's log from an LSN on."""
    lines: list[tuple[str, str, int]] = []
    while True:
        at = first + len(lines)
        answer = http.get(f"{url}/cluster/log?from={at}&to={at + _LOG_PART - 1}", headers={"Accept": "application/json"})
        answer.raise_for_status()
        found = [(line["txid"], line["origin"], line["timestamp"]) for line in answer.json()]
        lines += found
        if len(found) < _LOG_PART:
            return lines


class ProcessCluster:
    """Masters m1…mN with their workers, each a process with an HTTP door."""

    def __init__(
        self, folder: Path, broker: str, masters: int = 3, workers_each: int = 2, settings: str = "", name: str = "system"
    ) -> None:
        """``settings`` are further lines of the section ``[cluster]``."""
        self.name = name
        self.folder = folder
        self._settings = settings
        self.broker = broker
        self.masters = [f"m{n}" for n in range(1, masters + 1)]
        self.workers = [f"{m}{chr(97 + k)}" for m in self.masters for k in range(workers_each)]
        first = free_ports(len(self.masters) + len(self.workers))
        self.ports = {node: first + n for n, node in enumerate([*self.masters, *self.workers])}
        self.path = folder / "cluster.toml"
        self.path.write_text(self._toml(), encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None
        self._http = httpx2.Client(timeout=5)

    def _toml(self) -> str:
        text = f'[cluster]\nname = "{self.name}"\nbroker = "{self.broker}"\ndata = "{self.folder / "var"}"\n{self._settings}'
        for master in self.masters:
            text += f'[[master]]\nid = "{master}"\nhttp = "127.0.0.1:{self.ports[master]}"\n'
        for worker in self.workers:
            text += f'[[worker]]\nid = "{worker}"\nmaster = "{worker[:-1]}"\nhttp = "127.0.0.1:{self.ports[worker]}"\n'
        return text

    def url(self, node: str) -> str:
        """Where a node's HTTP door is."""
        return f"http://127.0.0.1:{self.ports[node]}"

    def __enter__(self) -> Self:
        self._log = (self.folder / "up.log").open("wb")
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command(), stdout=self._log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True
        )
        self.await_ready([*self.masters, *self.workers])

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "brokerha", "up", "--restart", "-c", str(self.path)]

    def __exit__(self, *_: object) -> None:
        try:
            self._stop()
        finally:
            self._log.close()
            self._http.close()

    def _stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(40)
        finally:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait(10)

    def start_again_with(self, before: str, now: str) -> None:
        """Stop all nodes, change this text of the cluster file, and start them all."""
        self._stop()
        text = self.path.read_text(encoding="utf-8")
        assert before in text
        self.path.write_text(text.replace(before, now), encoding="utf-8")
        self._start()

    def log_tail(self, lines: int = 60) -> str:
        """The last lines of all nodes."""
        return "\n".join((self.folder / "up.log").read_text("utf-8", "replace").splitlines()[-lines:])

    def get(self, node: str, path: str) -> httpx2.Response | None:
        """One question; None when the node does not answer."""
        try:
            return self._http.get(self.url(node) + path)
        except httpx2.HTTPError:
            return None

    def until(
        self, found: Callable[[], T | None], what: str | Callable[[], object] = "it comes true", within_s: float = DEADLINE_S
    ) -> T:
        """Ask until the answer is true, and return it; `waiting.until` with the words of all nodes."""
        return until(found, lambda: f"{what() if callable(what) else what}\n{self.log_tail()}", within_s)

    def await_ready(self, nodes: list[str], deadline_s: float = DEADLINE_S) -> None:
        """Wait until these nodes are ready."""
        waiting = list(nodes)

        def are_ready() -> bool:
            waiting[:] = [n for n in waiting if (r := self.get(n, "/readyz")) is None or r.status_code != 200]
            return not waiting

        self.until(are_ready, lambda: f"{waiting} are ready", deadline_s)

    def txids(self, master: str) -> list[str]:
        """What is in a master's log, by LSN."""
        return [txid for txid, _, _ in lines_of_log(self._http, self.url(master))]

    def check_logs(self) -> list[str]:
        """All logs are one, with each transaction once; returns its transaction ids, by LSN."""
        logs = {master: lines_of_log(self._http, self.url(master)) for master in self.masters}
        first = logs[self.masters[0]]
        for master, log in logs.items():
            place = next((n for n, pair in enumerate(zip(first, log, strict=False), 1) if pair[0] != pair[1]), None)
            assert place is None, f"{self.masters[0]} and {master} differ at LSN {place}: {first[place - 1]}, {log[place - 1]}"
            assert len(log) == len(first), f"{self.masters[0]} has {len(first)} lines, {master} {len(log)}"
        txids = [line[0] for line in first]
        twice = {txid for txid in txids if txids.count(txid) > 1} if len(set(txids)) < len(txids) else set()
        assert not twice, f"in the log more than once: {sorted(twice)[:5]}"
        return txids

    def pid(self, node: str) -> int:
        """Process id of a node."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if b"node" in words and node.encode() in words and str(self.path).encode() in words:
                    return int(entry.name)
        raise AssertionError(f"no process of {node}\n{self.log_tail()}")

    def kill(self, node: str) -> None:
        """SIGKILL a node; ``up --restart`` brings it back."""
        os.kill(self.pid(node), signal.SIGKILL)

    @contextlib.contextmanager
    def down(self, node: str, number: int = signal.SIGKILL) -> Iterator[Path]:
        """End a node by a signal and keep it from coming back while its folder is tampered with."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            pid = self.pid(node)
            os.kill(pid, number)
            while _is_running(pid):
                time.sleep(0.02)
            yield self.folder / "var" / node
        finally:
            self._process.send_signal(signal.SIGCONT)

    def row(self, node: str) -> dict[str, Any]:
        """The status row of a node, by the word of its first master that answers; empty when none does."""
        for master in self.masters:
            response = self.get(master, "/cluster/status")
            if response is not None and response.status_code == 200:
                found = [row for row in response.json()["nodes"] if row["id"] == node]
                if found:
                    return dict(found[0])
        return {}

    def workers_of(self, master: str) -> list[dict[str, object]]:
        """Status rows of one master's workers, by its own word."""
        response = self.get(master, "/cluster/status")
        assert response is not None
        rows = response.json()["nodes"]
        return [row for row in rows if row["role"] == "worker" and row["master"] == master]


def _is_running(pid: int) -> bool:
    """Whether a process runs; one that waits to be reaped does not."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
