"""Damage that no error tells of: it ends the process, or takes its memory without an end. The worker heals all the same.

Given a master with two workers under load; when pages of the tables of a running worker are emptied, or when all tables of its engine
are spoilt and queries that count come in as soon as it is back; then within a bounded time, without an operator, it has a copy
that is equal to that of the other, the site takes writes all the time, and its memory never goes far over its limit.
How long each took, and how often the process ended, is printed.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from tests.support.private_broker import PrivateBroker
from tests.system.copies import await_equal, check_books
from tests.system.healing import Log, await_writes, is_back
from tests.system.processes import ProcessCluster
from tests.system.writers import Writer, doors, told

HEALED_WITHIN_S = 120.0
PAGE_BYTES = 4096
LIMIT_MB = 500
OVERSHOOT_MB = 1500
"""What the engine may take in the two seconds until the guard has looked and the process is gone."""
QUADS = 6000
COUNTS = "SELECT (COUNT(*) AS ?n) { ?s <urn:preloaded> ?o }"


def empty_pages(folder: Path) -> int:
    """Empty the pages that hold keys of the table `books`; returns how many."""
    (file,) = folder.glob("copy.*/data/data.mdb")
    content = file.read_bytes()
    emptied = 0
    with file.open("r+b", buffering=0) as pages:
        for start in range(2 * PAGE_BYTES, len(content), PAGE_BYTES):
            page = content[start : start + PAGE_BYTES]
            is_leaf = int.from_bytes(page[10:12], sys.byteorder) == 2
            if is_leaf and b"books" in page:
                pages.seek(start)
                pages.write(bytes(PAGE_BYTES))
                emptied += 1
    return emptied


def spoil_tables(folder: Path) -> None:
    """Change a byte in each block of what the engine's tables hold, but none of what it needs to open them."""
    tables = [path for path in folder.glob("copy.*/repositories/main.*/*.sst") if path.stat().st_size > 20_000]
    assert tables, f"no large tables in {folder}"
    for path in tables:
        with path.open("r+b", buffering=0) as table:
            content = table.read()
            for place in range(100, len(content) // 2, 1000):
                table.seek(place)
                table.write(bytes([content[place] ^ 0x55]))


class CountingReader:
    """Asks a worker at its own door to count, again and again, and looks at the memory of its process."""

    def __init__(self, cluster: ProcessCluster, node: str) -> None:
        self._cluster = cluster
        self._node = node
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._ask, self._ask, self._weigh)]
        self.counts: list[int] = []
        self.most_mb = 0

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def _ask(self) -> None:
        with httpx2.Client(timeout=3) as http:
            while not self._stop.wait(0.02):
                try:
                    answer = http.get(self._cluster.url(self._node) + "/repositories/main/sparql", params={"query": COUNTS})
                except httpx2.HTTPError:
                    continue
                if answer.status_code == 200:
                    self.counts.append(int(answer.json()["results"]["bindings"][0]["n"]["value"]))

    def _weigh(self) -> None:
        while not self._stop.wait(0.1):
            try:
                status = Path(f"/proc/{self._cluster.pid(self._node)}/status").read_text(encoding="ascii", errors="replace")
            except (OSError, AssertionError):
                continue
            for line in status.splitlines():
                if line.startswith("RssAnon:"):
                    self.most_mb = max(self.most_mb, int(line.split()[1]) // 1024)


def await_healed(cluster: ProcessCluster, node: str, log: Log) -> float:
    """Wait until a worker has another copy and is in sync again; returns after how many seconds."""
    began_s = time.monotonic()
    while True:
        if log.lines("state=load", "moved aside") and is_back(cluster, node, log):
            return time.monotonic() - began_s
        assert time.monotonic() < began_s + HEALED_WITHIN_S, f"{node} is not healed: {cluster.row(node)}\n{cluster.log_tail(60)}"
        time.sleep(0.1)


def finish(cluster: ProcessCluster, writers: list[Writer]) -> None:
    for writer in writers:
        writer.finish(120)
    await_equal(cluster, 30.0)
    check_books(cluster, writers)


def begun(cluster: ProcessCluster, url: str) -> list[Writer]:
    writers = doors(url, [cluster.url("m1")])
    for writer in writers:
        writer.start()
    return writers


@pytest.mark.slow
@pytest.mark.parametrize("scrub_every_s", [2, 0])
def test_a_worker_whose_pages_were_emptied_while_it_runs_is_healed_although_its_process_may_die_of_it(
    private_broker: PrivateBroker, tmp_path: Path, covered: Callable[[str], None], scrub_every_s: int
) -> None:
    # Without a scrub a write or a read comes by there first, and LMDB ends the process.
    url = private_broker.create_vhost(f"emptied{scrub_every_s}")
    settings = f"scrub-every-s = {scrub_every_s}\n"
    with ProcessCluster(tmp_path, url, masters=1, workers_each=2, settings=settings) as cluster:
        writers = begun(cluster, url)
        await_writes(writers, 300)
        for node in cluster.workers:
            log, before = Log(cluster, node), told(writers)
            assert empty_pages(tmp_path / "var" / node) > 0
            healed_s = await_healed(cluster, node, log)
            ends = log.lines("ended with")
            covered(
                f"pages of {node} emptied, scrub every {scrub_every_s} s: healed after {healed_s:.1f} s, {len(ends)} ends of the process, "
                f"{told(writers) - before} writes meanwhile; {log.lines('moved aside', 'is damaged')[:1]}"
            )
            assert len(ends) <= 3
            await_writes(writers, 20)
        finish(cluster, writers)


@pytest.mark.slow
def test_a_worker_that_counts_over_spoilt_tables_ends_before_the_machine_does_and_is_healed(
    private_broker: PrivateBroker, tmp_path: Path, covered: Callable[[str], None]
) -> None:
    url = private_broker.create_vhost("counting")
    # A look so slow that it finds nothing in time by itself: the queries come first.
    settings = f"scrub-every-s = 600\nscrub-items-per-s = 1\nmemory-limit-mb = {LIMIT_MB}\n"
    with ProcessCluster(tmp_path, url, masters=1, workers_each=2, settings=settings) as cluster:
        node = cluster.workers[1]
        quads = "".join(f'<urn:s{n}> <urn:preloaded> "{n} and a text of some length" .\n' for n in range(QUADS))
        with httpx2.Client(timeout=60) as http:
            http.post(
                cluster.url("m1") + "/repositories/main/statements",
                content=quads.encode(),
                headers={"Content-Type": "application/n-quads"},
            ).raise_for_status()
        writers = begun(cluster, url)
        await_writes(writers, 50)
        # The first kill brings the quads from the engine's log into its tables.
        with cluster.down(node):
            pass
        cluster.await_ready([node])
        await_writes(writers, 50)
        reader, log = CountingReader(cluster, node), Log(cluster, node)
        spoil_tables(tmp_path / "var" / node)
        reader.start()
        healed_s = await_healed(cluster, node, log)
        reader.finish()
        ends = log.lines("ended with")
        covered(
            f"tables of {node} spoilt while {len(reader.counts)} counts were answered: healed after {healed_s:.1f} s, "
            f"{len(ends)} ends of the process, at most {reader.most_mb} MB of {LIMIT_MB}; {log.lines('to be started again', 'is damaged')[:3]}"
        )
        assert set(reader.counts) <= {QUADS}
        assert log.lines("to be started again")
        assert reader.most_mb < LIMIT_MB + OVERSHOOT_MB
        finish(cluster, writers)
