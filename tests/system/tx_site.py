"""A master with backups and workers as real processes over RabbitMQ, each started, killed and frozen by itself.

    with tx_site(broker, folder) as site:          # m1, its backups m1b and m1c, its workers w1 and w2
        with site.client() as db: ...              # over AMQP: whoever is primary answers
        site.kill("m1"); site.await_primary("m1b", "m1c"); site.start("m1")

With ``others`` there are so many masters more without backups, m2, m3 and so on, with one worker each, from w3 on. Nothing starts a process again
but the test.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

import httpx2
import pytest

import brokerha
from brokerha.http.operating.families import numbers_of
from brokerha.model.errors import BrokerhaError
from tests.support.broker_source import BrokerSource
from tests.support.free_ports import free_ports
from tests.support.waiting import T, until
from tests.system.processes import command

DEADLINE_S = 60.0
FAIL_OVER_MS = 1000
PROCESSES = ("m1", "m1b", "m1c")
SETTINGS = f"fail-over-after-ms = {FAIL_OVER_MS}\nsync-timeout-ms = 3000\n"


class TxSite:
    """One cluster of real processes; see the head of the module."""

    def __init__(
        self, folder: Path, source: BrokerSource, broker: str, *, backups: int = 2, others: int = 0, settings: str = SETTINGS
    ) -> None:
        self.folder = folder
        self.broker = broker
        self.source = source
        self.processes = list(PROCESSES[: 1 + backups])
        self.masters = [f"m{1 + n}" for n in range(1 + others)]
        self.workers = [f"w{1 + n}" for n in range(2 + others)]
        self.nodes = [*self.processes, *self.masters[1:], *self.workers]
        first = free_ports(len(self.nodes))
        self.ports = {node: first + n for n, node in enumerate(self.nodes)}
        self.path = folder / "cluster.toml"
        self.path.write_text(self._toml(settings), encoding="utf-8")
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._log = (folder / "nodes.log").open("ab")
        self._http = httpx2.Client(timeout=5, trust_env=False)

    def _toml(self, settings: str) -> str:
        text = f'[cluster]\nname = "tx"\nbroker = "{self.broker}"\ndata = "{self.folder / "var"}"\n{settings}'
        for node in self.nodes:
            kind = "worker" if node in self.workers else "master" if node in self.masters else "backup"
            belongs = "" if kind == "master" else f'master = "{self.master_of(node)}"\n'
            text += f'[[{kind}]]\nid = "{node}"\nhttp = "127.0.0.1:{self.ports[node]}"\n{belongs}'
        return text

    def master_of(self, node: str) -> str:
        """The master that a node is, backs up or works for."""
        if node in self.workers[2:]:
            return self.masters[self.workers.index(node) - 1]
        return node if node in self.masters else "m1"

    # ---- processes

    def start(self, *nodes: str) -> None:
        """Start processes; does not wait for them."""
        for node in nodes:
            self._running[node] = subprocess.Popen(
                self.command(node),
                stdout=self._log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=os.environ | self.environment(node),
            )

    def command(self, node: str) -> list[str]:
        """What runs a node."""
        return [sys.executable, "-m", "brokerha", "node", node, "-c", str(self.path)]

    def environment(self, node: str) -> dict[str, str]:
        """What it has beside the environment of this process."""
        return {}

    def kill(self, *nodes: str) -> None:
        """SIGKILL; returns when all are gone."""
        for node in nodes:
            self._running[node].kill()
        for node in nodes:
            self._running.pop(node).wait(10)

    def stop_in_order(self, node: str) -> int:
        """SIGTERM; returns the exit code."""
        self._running[node].send_signal(signal.SIGTERM)
        return self._running.pop(node).wait(DEADLINE_S)

    def freeze(self, node: str) -> None:
        """SIGSTOP."""
        os.kill(self._running[node].pid, signal.SIGSTOP)

    def thaw(self, node: str) -> None:
        """SIGCONT."""
        os.kill(self._running[node].pid, signal.SIGCONT)

    def restart_all(self, *nodes: str) -> None:
        """Kill all of them at once, then start them, and wait until they are ready."""
        chosen = nodes or tuple(self.nodes)
        self.kill(*chosen)
        self.start(*chosen)
        self.await_ready(*chosen)

    def mend(self) -> None:
        """Have all processes run and be ready, whatever was done to them."""
        for process in self._running.values():
            process.send_signal(signal.SIGCONT)
        self.start(*(node for node in self.nodes if node not in self._running))
        self.await_ready(*self.nodes)
        self.await_primary()

    def memory_mb(self, node: str) -> float:
        """What a process holds of the machine's memory, without the pages of its files."""
        status = Path(f"/proc/{self._running[node].pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon")) / 1000

    def close(self) -> None:
        """End everything, politely first."""
        for process in self._running.values():
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 15
        for process in self._running.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
        self._log.close()
        self._http.close()

    # ---- questions

    def url(self, node: str) -> str:
        """Where a node's HTTP door is."""
        return f"http://127.0.0.1:{self.ports[node]}"

    def get(self, node: str, path: str) -> httpx2.Response | None:
        """One question; None when the node does not answer."""
        try:
            return self._http.get(self.url(node) + path)
        except httpx2.HTTPError:
            return None

    def log_tail(self, lines: int = 60) -> str:
        """The last lines of all nodes."""
        return "\n".join((self.folder / "nodes.log").read_text("utf-8", "replace").splitlines()[-lines:])

    def until(self, found: Callable[[], T | None], what: str, within_s: float = DEADLINE_S) -> T:
        """Ask until the answer is true, and return it; `waiting.until` with the queues and the words of all nodes."""
        return until(found, lambda: f"{what}\n{self.tx_queue_rows()}\n{self.log_tail()}", within_s)

    def await_ready(self, *nodes: str, within_s: float = DEADLINE_S) -> None:
        """Wait until these nodes are ready; backups: until they could take over."""

        def is_ready(node: str) -> bool:
            response = self.get(node, "/readyz")
            return response is not None and response.status_code == 200

        for node in nodes:
            self.until(partial(is_ready, node), f"{node} is ready", within_s)

    def metric(self, node: str, name: str) -> float | None:
        """One number of a node's metrics; None when it does not answer, or has no such number."""
        response = self.get(node, "/metrics")
        return numbers_of(response.text).get(name) if response is not None else None

    def await_primary(self, *among: str, within_s: float = DEADLINE_S) -> str:
        """Wait until one of these processes is primary and takes writes; returns which one."""

        def primary() -> str:
            for node in among or self.processes:
                if node in self._running and self.metric(node, "is_primary") == 1:
                    response = self.get(node, "/writable")
                    if response is not None and response.status_code == 200:
                        return node
            return ""

        return str(self.until(primary, f"one of {among or self.processes} is primary", within_s))

    def row(self, node: str, role: str) -> dict[str, Any]:
        """The status row of a node; empty when there is none."""
        for master in (*self.processes, *self.masters[1:]):
            response = self.get(master, "/cluster/status") if master in self._running else None
            if response is not None and response.status_code == 200:
                found = [row for row in response.json()["nodes"] if row["id"] == node and row["role"] == role]
                return dict(found[0]) if found else {}
        return {}

    def client(self, *nodes: str, timeout: float = 30.0) -> brokerha.Session:
        """A client over HTTP of these nodes, or over AMQP when none is named."""
        return brokerha.connect(",".join(map(self.url, nodes)) or self.broker, timeout=timeout)

    def client_of(self, master: str) -> brokerha.Session:
        """A client over HTTP of all processes of a master."""
        return self.client(*(self.processes if master == "m1" else (master,)))

    def tx_queues(self, *, in_use: bool = False) -> list[str]:
        """Names of all queues of transactions on the broker; ``in_use``: without those that nobody reads and that expire."""
        with self.source.management() as management:
            queues = management.queues(unquote(urlsplit(self.broker).path[1:]))
        names = [q["name"] for q in queues if not (in_use and q.get("consumers") == 0 and "x-expires" in q["arguments"])]
        return sorted(name for name in names if name.startswith("brokerha.tx."))

    def tx_queue_rows(self) -> str:
        """All queues of transactions with what tells why they are there, a line each."""
        with self.source.management() as management:
            queues = management.queues(unquote(urlsplit(self.broker).path[1:]))
        found = [q for q in queues if q["name"].startswith("brokerha.tx.")]
        return "\n".join(f"{q['name']} consumers={q.get('consumers')} {q['arguments']}" for q in found)

    def purge(self) -> None:
        """Empty every queue on the broker."""
        with self.source.management() as management:
            management.purge_queues(unquote(urlsplit(self.broker).path[1:]))

    def await_clean(self, within_s: float = 40.0, *, in_use: bool = False) -> None:
        """Wait until no queue of a transaction is left (or ``in_use``) and no transaction that is not over."""

        def is_clean(db: brokerha.Session) -> bool:
            return not db.open_transactions()

        self.until(lambda: not self.tx_queues(in_use=in_use), "no queue of a transaction is left", within_s)
        for master in self.masters:
            with self.client(*(self.processes if master == "m1" else [master])) as db:
                self.until(partial(is_clean, db), f"no transaction of {master} is open", within_s)

    def bodies(self, node: str, queue: str) -> list[str]:
        """What is in a queue, as one node shows it."""
        response = self.get(node, f"/queues/{queue}?limit=1000")
        assert response is not None, f"{node} does not answer"
        return [message["body"] for message in response.json()["messages"]] if response.status_code == 200 else []

    def await_everywhere(self, db: brokerha.Session) -> None:
        """Wait until all workers of all masters have applied what this client has written."""
        lsn = db.least_lsn()
        for node in (self.await_primary(), *self.masters[1:]):
            response = self.get(node, f"/cluster/wait?lsn={lsn}&workers=all")
            assert response is not None
            assert response.status_code == 200, response.text

    def run(self, *words: str, code: int = 0) -> str:
        """Run ``brokerha`` with this cluster file; returns what it printed."""
        done = self._ran(*words)
        assert done.returncode == code, f"{words} gave {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def run_at_primary(self, *words: str) -> str:
        """The same, again while another process becomes primary: on a busy machine one may be taken for dead at any time."""
        done = self.until(
            lambda: None if "not primary any more" in (ran := self._ran(*words)).stderr else ran, f"a primary that does {words}"
        )
        assert done.returncode == 0, f"{words} gave {done.returncode}: {done.stdout}{done.stderr}"
        return str(done.stdout)

    def _ran(self, *words: str) -> subprocess.CompletedProcess[str]:
        return command(*words, "-c", str(self.path), within_s=60)

    def fingerprints(self) -> set[str]:
        """Fingerprints of the whole content, of each worker by its own word."""
        found = set()
        for worker in self.workers:
            response = self.get(worker, "/cluster/fingerprints")
            assert response is not None
            assert response.status_code == 200
            found.add(str(response.json()["fingerprint"]))
        return found


@contextlib.contextmanager
def tx_site(source: BrokerSource, folder: Path, name: str, *, first: str = "", **options: Any) -> Iterator[TxSite]:
    """A site that runs, in a virtual host of its own; ``first`` is told to be primary."""
    site = TxSite(folder, source, source.create_vhost(name), **options)
    try:
        site.start(*site.nodes)
        if first:
            site.until(lambda: [site.get(node, "/livez") for node in site.processes].count(None) == 0, "all answer")
            site.run("promote", first)
        site.await_ready(*site.nodes)
        site.await_primary()
        yield site
    finally:
        site.close()
        source.delete_vhost(name)


def of_module(name: str, **options: Any) -> Callable[..., Any]:
    """A fixture for all tests of a module: such a site, which they share."""

    @pytest.fixture(scope="module")
    def running(broker: BrokerSource, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TxSite]:
        with tx_site(broker, tmp_path_factory.mktemp(name), name, **options) as site:
            yield site

    return running


class Load:
    """Writers that note what was acknowledged: each writes keys of its own, one after the other, and insists on an answer."""

    def __init__(self, connect: Callable[[], brokerha.Session], names: Sequence[str] = ("a", "b"), *, insists: bool = True) -> None:
        self.acknowledged: dict[bytes, int] = {}
        """Key and LSN."""
        self.attempted: set[bytes] = set()
        self.errors: list[BrokerhaError] = []
        self.names = names
        self._connect = connect
        self._insists = insists
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(name,), daemon=True) for name in names]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def check(self, site: TxSite, *others: Load) -> None:
        """Every acknowledged write is there exactly once on every node, and nothing that nobody wrote. Call it when all is ended."""
        loads = (self, *others)
        with site.client() as db:
            db.put("t", "all written", "v")
            site.await_everywhere(db)
            keys = {key for key, _ in db.range("load", limit=100_000)}
            messages: list[bytes] = []
            after = None
            while page := db.queue("load", after=after, limit=1000):
                messages += [message.body for message in page]
                after = page[-1].id
        assert len(messages) == len(set(messages)), "something took place twice"
        assert set(messages) == keys
        names = tuple(f"{name}-".encode() for load in loads for name in load.names)
        mine = {key for key in keys if key.startswith(names)}
        assert mine >= {key for load in loads for key in load.acknowledged}
        assert mine <= {key for load in loads for key in load.attempted}
        assert not [key for key in keys if key.startswith(b"never")]
        assert len(site.fingerprints()) == 1

    def await_more(self, site: TxSite, count: int) -> None:
        """Wait until so many more writes were acknowledged."""
        goal = len(self.acknowledged) + count
        site.until(lambda: len(self.acknowledged) >= goal, f"{count} more writes")

    def _run(self, name: str) -> None:
        with self._connect() as db:
            number = 0
            while not self._stop.is_set():
                number += 1
                key = f"{name}-{number}".encode()
                self.attempted.add(key)
                while True:
                    try:
                        # A message beside it tells when it took place twice.
                        operations = [("put", "load", key, b"v"), ("publish", "load", "text/plain", key)]
                        self.acknowledged[key] = db.write(operations, key=f"load.{name}.{number}", timeout=5).lsn
                        break
                    except BrokerhaError as error:
                        self.errors.append(error)
                        if not self._insists or len(self.errors) > 1000:
                            break
                        time.sleep(0.05)
