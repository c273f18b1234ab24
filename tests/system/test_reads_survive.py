"""Reads outlive workers, and a client that has written never reads what was before.

Given a site with three workers over RabbitMQ and four clients that write a counter and read it back, as keys, as RDF, through their
master and at each worker's own door; when the worker that executes is killed and another one frozen at the same time, and the
frozen one thawed later; then no read at the master fails, and no read anywhere returns a value older than what its client knew to be
written when it asked.
"""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

import brokerha
from brokerha import errors
from brokerha.client import Session
from brokerha.client.reads import Literal, Solutions
from brokerha.embedded import EmbeddedCluster
from brokerha.http.operating.families import numbers_of
from tests.support.configs import config_of
from tests.support.waiting import until
from tests.system.processes import ProcessCluster

CLIENTS = 4
READS = 10_000
FROZEN_S = 8.0
"""More than a worker may be silent before it counts as dead, so that the site is left with one worker for a while."""
WAIT_S = 60.0
QUERY = "SELECT ?v { <urn:client:%d> <urn:counter> ?v }"
COUNT = "DELETE WHERE { <urn:client:%(name)d> <urn:counter> ?v } ; INSERT DATA { <urn:client:%(name)d> <urn:counter> %(value)d }"


def number_in(rows: Solutions) -> int:
    """The one number of an answer; 0 when there is none."""
    if not rows:
        return 0
    (value,) = [row["v"] for row in rows]
    assert isinstance(value, Literal)
    return int(value.value)


@dataclass
class Counter:
    """One client: a thread that counts up and one that reads, with one session."""

    name: int
    session: Session
    doors: list[str]
    known: int = 0
    """Highest value whose write was acknowledged."""
    known_lsn: int = 0
    tried: int = 0
    """Highest value that was sent."""
    took_s: list[tuple[float, float]] = field(default_factory=list)
    """(when it began, how long it took) of each read at the master."""
    at_doors: int = 0
    unserved: int = 0
    """Reads at doors of workers that are not there."""
    faults: list[BaseException] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        for work in (self._count, self._read, self._read_at_doors):
            self._threads.append(threading.Thread(target=self._run, args=(work,), daemon=True))
            self._threads[-1].start()

    def finish(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), f"client {self.name} still waits for an answer"

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as fault:  # noqa: BLE001  (told by the test)
            self.faults.append(fault)

    def _count(self) -> None:
        while not self._stop.wait(0.1):
            value = self.tried = self.tried + 1
            operations = [
                ("put", "counters", str(self.name).encode(), str(value).encode()),
                ("update", "main", COUNT % {"name": self.name, "value": value}),
            ]
            try:
                lsn = self.session.write(operations, timeout=10).lsn
            except (errors.NotReady, errors.OutcomeUnknown):
                # Read-only while too few workers are in sync: that is a rule, and none of reads.
                continue
            # The LSN first: whoever sees the value may ask for it.
            self.known_lsn = max(self.known_lsn, lsn)
            self.known = max(self.known, value)

    def _read(self) -> None:
        for number in itertools.count():
            if self._stop.is_set():
                return
            least = self.known
            began_s = time.monotonic()
            value = self._value_as_rdf() if number % 2 else self._value_as_key()
            self.took_s.append((began_s, time.monotonic() - began_s))
            assert least <= value <= self.tried, f"client {self.name} reads {value} after it wrote {least}"

    def _read_at_doors(self) -> None:
        with httpx2.Client(timeout=2) as http:
            for door in itertools.cycle(self.doors):
                if self._stop.wait(0.01):
                    return
                self._read_at_a_door(http, door)

    def _value_as_key(self) -> int:
        return int(self.session.get("counters", str(self.name), timeout=20) or 0)

    def _value_as_rdf(self) -> int:
        return number_in(self.session.select("main", QUERY % self.name, timeout=20))

    def _read_at_a_door(self, http: httpx2.Client, door: str) -> None:
        least, lsn = self.known, self.known_lsn
        try:
            answer = http.get(f"{door}/kv/counters/{self.name}", headers={"Brokerha-Min-Lsn": str(lsn)})
        except httpx2.HTTPError:
            self.unserved += 1
            return
        if answer.status_code not in {200, 404}:
            self.unserved += 1
            return
        self.at_doors += 1
        value = int(answer.content) if answer.status_code == 200 else 0
        assert least <= value <= self.tried, f"{door} has {value} at LSN {answer.headers['Brokerha-Lsn']} after {least} at {lsn}"


def reads_at_the_master(clients: list[Counter]) -> int:
    return sum(len(client.took_s) for client in clients)


def reads_at_doors(clients: list[Counter]) -> int:
    return sum(client.at_doors for client in clients)


def reads(clients: list[Counter]) -> int:
    return reads_at_the_master(clients) + reads_at_doors(clients)


def await_reads(
    clients: list[Counter], count: int, cluster: ProcessCluster, counted: Callable[[list[Counter]], int] = reads
) -> None:
    """Wait until there were so many reads."""

    def are_there() -> bool:
        faults = [fault for client in clients for fault in client.faults]
        assert not faults, f"{faults}\n{cluster.log_tail()}"
        return counted(clients) >= count

    until(are_there, lambda: f"only {reads(clients)} reads\n{cluster.log_tail()}", 180)


def quantiles(took_s: list[float]) -> str:
    """``p50 3, p99 20, max 30 ms``."""
    cuts = statistics.quantiles(took_s, n=100)
    return f"p50 {1000 * cuts[49]:.0f}, p99 {1000 * cuts[98]:.0f}, max {1000 * max(took_s):.0f} ms"


def probe_and_another(cluster: ProcessCluster) -> tuple[str, str]:
    """The worker that executes, and one that does not."""
    answer = cluster.get("m1", "/cluster/workers")
    assert answer is not None
    rows = answer.json()["workers"]
    (probe,) = [row["id"] for row in rows if row["probe"]]
    return probe, next(row["id"] for row in rows if row["id"] != probe)


def reads_near(cluster: ProcessCluster) -> int:
    """Reads that the door of m1 had answered by a worker of this machine."""
    answer = cluster.get("m1", "/metrics")
    assert answer is not None
    return int(numbers_of(answer.text)["reads_near_total"])


@pytest.mark.slow
def test_no_read_fails_or_goes_back_while_one_worker_is_killed_and_one_frozen(
    vhost_url: str, tmp_path: Path, covered: Callable[[str], None]
) -> None:
    with ProcessCluster(tmp_path, vhost_url, masters=1, workers_each=3) as cluster:
        doors = [cluster.url(worker) for worker in cluster.workers]
        # Half of them through the HTTP door, half through the broker.
        addresses = [vhost_url if n % 2 else cluster.url("m1") for n in range(CLIENTS)]
        clients = [Counter(n, brokerha.connect(address), doors) for n, address in enumerate(addresses)]
        for client in clients:
            client.start()
        await_reads(clients, 500, cluster)
        killed, frozen = probe_and_another(cluster)
        frozen_pid = cluster.pid(frozen)
        began_s = time.monotonic()
        with cluster.down(killed):
            os.kill(frozen_pid, signal.SIGSTOP)
            try:
                time.sleep(FROZEN_S)
                await_reads(clients, reads_at_the_master(clients) + 100, cluster, reads_at_the_master)
                await_reads(clients, reads_at_doors(clients) + 10, cluster, reads_at_doors)
            finally:
                os.kill(frozen_pid, signal.SIGCONT)
        ended_s = time.monotonic()
        cluster.await_ready(cluster.workers)
        known = [client.known for client in clients]
        await_reads(clients, READS, cluster)
        await_counting(clients, known, cluster)
        near = reads_near(cluster)
        for client in clients:
            client.finish()
            client.session.close()
        assert not [fault for client in clients for fault in client.faults]
    took = [each for client in clients for each in client.took_s]
    during = [seconds for at_s, seconds in took if at_s + seconds >= began_s and at_s <= ended_s]
    calm = [seconds for at_s, seconds in took if at_s + seconds < began_s or at_s > ended_s]
    at_doors = reads_at_doors(clients)
    unserved = sum(client.unserved for client in clients)
    assert len(took) + at_doors >= READS
    assert len(during) >= 100
    assert near >= 100, "those over HTTP were answered without the broker"
    covered(
        f"reads of {CLIENTS} clients at 3 workers over RabbitMQ, none failed and none went back: {len(calm)} with all workers "
        f"({quantiles(calm)}), {len(during)} with one killed and one frozen ({quantiles(during)}); {at_doors} at the workers' doors "
        f"({unserved} not served), {sum(client.known for client in clients)} writes of their own"
    )


def await_counting(clients: list[Counter], known: list[int], cluster: ProcessCluster) -> None:
    """Wait until every client has written again."""
    until(
        lambda: all(client.known > before for client, before in zip(clients, known, strict=True)),
        lambda: f"writes after the faults\n{cluster.log_tail()}",
        WAIT_S,
    )


def test_a_session_sees_its_own_writes_at_every_master_and_worker(tmp_path: Path) -> None:
    sites = {"m1": "m1a m1b m1c", "m2": "m2a m2b m2c"}
    config = config_of("own-writes", "embedded://own-writes", tmp_path, sites)
    with EmbeddedCluster(config) as cluster:
        here, other = cluster.client("m1").session(), cluster.client("m2")
        workers = list(cluster.workers.values())
        for value in range(40):
            written = here.write(
                [("put", "counters", b"1", b"%d" % value), ("update", "main", COUNT % {"name": 1, "value": value})]
            )
            # Not the session's own master, and each worker by itself: they are told the LSN.
            assert here.get("counters", "1") == b"%d" % value
            assert number_in(here.select("main", QUERY % 1)) == value
            assert other.get("counters", "1", min_lsn=written.lsn) == b"%d" % value
            worker = workers[value % len(workers)]
            outcome = worker.read("get", "counters", {"key": b"1"}, min_lsn=written.lsn).result(WAIT_S)
            assert (outcome.body, outcome.lsn >= written.lsn) == (b"%d" % value, True)
