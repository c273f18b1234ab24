"""What suffers: three masters over a cluster of three broker nodes, each process started by itself.

    m1 with its backups m1b and m1c and its workers w1 and w2
    m2 with w3, m3 with w4          m4 with w5 only while the masters change

Every process can be killed, stopped and frozen, its clock set, its disk filled, slowed down and broken, without being root.
"""

from __future__ import annotations

import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from tests.support.broker_cluster import BrokerCluster
from tests.support.broker_source import BrokerSource
from tests.support.free_ports import free_ports
from tests.system.copies import await_equal
from tests.system.nemesis.harmed import VARIABLE
from tests.system.processes import command, lines_of_log
from tests.system.tx_site import TxSite

SETTINGS: Final = "fail-over-after-ms = 1000\nsync-timeout-ms = 3000\nmax-peer-lag-s = 3\nscrub-every-s = 5\n"
STOPPED_WITHIN_S: Final = 30.0
EQUAL_WITHIN_S: Final = 60.0
LATER, ITS_WORKER = "m4", "w5"


class NemesisSite(TxSite):
    """See the head of the module."""

    def __init__(self, folder: Path, brokers: BrokerCluster, url: str) -> None:
        node = brokers.nodes[0]
        super().__init__(
            folder, BrokerSource(node.amqp_url, node.management_url, "a cluster", node), url, others=2, settings=SETTINGS
        )
        self.brokers = brokers
        self.vhost = unquote(urlsplit(url.partition(";")[0]).path[1:])
        self.ended: list[str] = []
        """Processes that ended although nobody told them to, with their exit codes."""
        # The limit that fills a disk is one of files, and must not keep a node from telling what it sees.
        self._writer = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=self._log, start_new_session=True)
        self._log.close()
        assert self._writer.stdin is not None
        self._log = self._writer.stdin  # type: ignore[assignment]
        (folder / "harm").mkdir()

    @property
    def doors(self) -> list[str]:
        """Addresses of the masters, each with all of its processes."""
        return [",".join(map(self.url, self.processes)), *map(self.url, self.masters[1:])]

    def command(self, node: str) -> list[str]:
        """A node whose clock and disk can be harmed."""
        path = self.folder / f"{node}.toml"
        toml = path if path.exists() else self.path
        return [sys.executable, "-m", "tests.system.nemesis.harmed", "node", node, "-c", str(toml)]

    def environment(self, node: str) -> dict[str, str]:
        return {VARIABLE: str(self.folder / "harm" / node)}

    # ---- harm

    def harm(self, node: str, ahead_s: float = 0.0, slower_s: float = 0.0, *, fails: bool = False) -> None:
        """Set the clock of a node and what its disk does; without words all is well."""
        path = self.folder / "harm" / node
        fresh = path.with_suffix(".new")
        fresh.write_text(f"{ahead_s} {slower_s} {int(fails)}")
        fresh.rename(path)

    def fill_disk(self, node: str, *, is_full: bool) -> None:
        """No file of this process can grow, or all can again."""
        least = 4096 if is_full else resource.RLIM_INFINITY
        if self.runs(node):
            resource.prlimit(self._running[node].pid, resource.RLIMIT_FSIZE, (least, resource.RLIM_INFINITY))

    def stop(self, *nodes: str) -> None:
        """SIGTERM, as an operator stops processes; AssertionError when one does not end with 0, or as a process that has only just been started ends."""
        starting = {node for node in nodes if not self.get(node, "/livez")}
        processes = {node: self._running.pop(node) for node in nodes}
        for process in processes.values():
            process.send_signal(signal.SIGTERM)
        for node, process in processes.items():
            try:
                code = process.wait(STOPPED_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
                raise AssertionError(f"{node} does not stop within {STOPPED_WITHIN_S:.0f} s\n{self.log_tail()}") from None
            assert code == 0 or (code == -signal.SIGTERM and node in starting), f"{node} stops with {code}\n{self.log_tail()}"

    def runs(self, node: str) -> bool:
        """Whether this process is there; one that has ended by itself is noted."""
        self.ended_by_itself()
        return node in self._running

    def ended_by_itself(self) -> list[str]:
        """Take those that ended out of the list of what runs, and name them."""
        found = [node for node, process in self._running.items() if process.poll() is not None]
        for node in found:
            self.ended.append(f"{node} ended with {self._running.pop(node).returncode}")
        return found

    def wake(self, *nodes: str) -> None:
        """Start those of these that do not run, or of all."""
        self.ended_by_itself()
        self.start(*(node for node in nodes or self.nodes if node not in self._running))

    def kill_brokers(self) -> None:
        """SIGKILL to all broker nodes at once."""
        for broker in self.brokers.nodes:
            broker.kill()

    def start_brokers(self) -> None:
        """Start all broker nodes that are down: they wait for each other. One that is disturbed by the start of another one is started again."""
        for tries_left in (2, 1, 0):
            down = [broker for broker in self.brokers.nodes if not broker.is_running]
            if not down:
                return
            with ThreadPoolExecutor(len(down)) as pool:
                started = [pool.submit(broker.restart) for broker in down]
            failed = [error for each in started if (error := each.exception())]
            if failed and not tries_left:
                raise failed[0]

    def do(self, *words: str, file: Path | None = None, within_s: float = 120.0) -> None:
        """Type a command until it is done: while somebody is missing that it needs, it is refused."""
        deadline = time.monotonic() + within_s
        while (done := self.typed(*words, file=file)).returncode != 0:
            assert time.monotonic() < deadline, f"{words}: {done.stdout}{done.stderr}\n{self.log_tail()}"
            time.sleep(0.5)

    def typed(self, *words: str, file: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Type a command once."""
        return command(*words, "-c", str(file or self.path))

    # ---- masters that come and go

    def add_later(self) -> None:
        """Start m4 with its worker, from a file that names all, and add it to the masters."""
        path = self.folder / f"{LATER}.toml"
        if LATER not in self.ports:
            first = free_ports(2)
            self.ports |= {LATER: first, ITS_WORKER: first + 1}
        more = f'[[master]]\nid = "{LATER}"\nhttp = "127.0.0.1:{self.ports[LATER]}"\n'
        more += f'[[worker]]\nid = "{ITS_WORKER}"\nmaster = "{LATER}"\nhttp = "127.0.0.1:{self.ports[ITS_WORKER]}"\n'
        for node in (LATER, ITS_WORKER):
            (self.folder / f"{node}.toml").write_text(self.path.read_text(encoding="utf-8") + more, encoding="utf-8")
            shutil.rmtree(self.folder / "var" / node, ignore_errors=True)
        self.start(LATER, ITS_WORKER)
        self.until(lambda: self.get(LATER, "/livez"), f"{LATER} answers")
        self.do("peer", "add", LATER, file=path)
        self.await_ready(LATER, ITS_WORKER)

    def remove_later(self) -> None:
        """Take it out again, and stop it."""
        self.wake(LATER, ITS_WORKER)
        self.until(lambda: self.get(LATER, "/livez"), f"{LATER} answers")
        self.do("peer", "remove", LATER, "--yes", file=self.folder / f"{LATER}.toml")
        self.stop(LATER, ITS_WORKER)

    # ---- the end of a lap

    def bring_back(self) -> None:
        """All broker nodes and all processes are there, ready, and writable."""
        self.start_brokers()
        self.wake()
        for process in self._running.values():
            process.send_signal(signal.SIGCONT)
        self.await_ready(*self.nodes)
        self.await_primary()

    def await_equal(self) -> None:
        """Once nobody writes any more all copies are at one LSN, with one fingerprint."""
        await_equal(self, EQUAL_WITHIN_S)

    def tx_queue_rows(self) -> str:
        """Not asked: the broker that would tell may be away."""
        return ""

    def judge_order(self, first: int, known: Collection[str]) -> tuple[list[str], list[str]]:
        """Transaction ids of the common log from an LSN on; and what is wrong with it: all masters have the same one, each id once."""
        orders = {node: lines_of_log(self._http, self.url(node), first) for node in (self.await_primary(), *self.masters[1:])}
        (one, line), *others = orders.items()
        wrong = [f"the logs of {one} and {other} differ from LSN {first} on" for other, lines in others if lines != line]
        txids = [txid for txid, _, _ in line]
        wrong += [f"{txid} is in the log twice" for txid in txids if txid in known]
        if len(set(txids)) != len(txids):
            wrong.append(f"{len(txids) - len(set(txids))} transactions are in the log twice")
        return txids, wrong

    def close(self) -> None:
        """End everything."""
        super().close()
        self._writer.wait(10)
