"""One site with three workers under load, over RabbitMQ: each worker is harmed in turn, and all of it is found and healed.

Given a master with three workers, writers at its doors, and a reader at each worker's own door that looks for what must never be
served; when workers are killed, lose their directory, have bytes of their files flipped, or get a quad that nobody wrote; then
each is detected and healed by the right path (replay, or a snapshot of another worker), the site takes writes all the time,
no read returns the foreign quad after it was detected, and at the end all copies are equal. How each was found, and how long it
took, is printed.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pyoxigraph
import pytest

from tests.support.private_broker import PrivateBroker
from tests.system.processes import ProcessCluster
from tests.system.writers import Writer, doors

VHOST = "healing"
IN_SYNC = {"on", "writing", "waiting-write", "writing-copy", "replication-server"}
HEALED_WITHIN_S = 90.0
FOREIGN = "urn:nobody:wrote:this"
SETTINGS = "scrub-every-s = 1\nscrub-items-per-s = 200000\n"


@dataclass
class Watch:
    """Looks at one worker as its master sees it, and at its own log, until it is in sync again."""

    cluster: ProcessCluster
    node: str

    def until_healed(self, log_at: int, began_s: float, is_harmed: bool) -> tuple[float, float, str, str]:
        """(seconds to detection, seconds to health, what was said, path).

        A harmed copy is healed when it was replaced or begun anew; one whose process died when it follows again.
        """
        detected_s, said = 0.0, ""
        deadline = began_s + HEALED_WITHIN_S
        while True:
            row = self.cluster.row(self.node)
            state = str(row.get("state", "unreachable"))
            now_s = time.monotonic() - began_s
            lines = self._own_lines(log_at)
            found = [line for line in lines if "state=load" in line or "moved aside" in line or "is damaged" in line]
            if found and not detected_s:
                detected_s, said = now_s, found[0].partition("reason=")[2].strip()
            is_back = state in IN_SYNC and any("state=basic" in line for line in lines[-1:])
            if is_back and (found or not is_harmed):
                path = "copy" if any("state=load" in line for line in lines) else "replay"
                return detected_s or now_s, now_s, said, path
            writable = self.cluster.get("m1", "/writable")
            assert writable is not None, f"the master did not answer while {self.node} is healed"
            assert writable.status_code == 200, f"no writes while {self.node} is healed: {writable.text}"
            assert time.monotonic() < deadline, f"{self.node} is not healed: {row}\n{self.cluster.log_tail(40)}"
            time.sleep(0.02)

    def _own_lines(self, log_at: int) -> list[str]:
        """Lines about following and damage that the worker wrote since then."""
        text = (self.cluster.folder / "up.log").read_bytes()[log_at:].decode("utf-8", "replace")
        words = ("follows", "moved aside", "is damaged")
        return [line for line in text.splitlines() if line.startswith(f"{self.node} ") and any(word in line for word in words)]


class ForeignReader:
    """Asks each worker at its own door, again and again, for what nobody wrote."""

    def __init__(self, cluster: ProcessCluster) -> None:
        self.cluster = cluster
        self.served: list[tuple[float, str]] = []
        self.reads = 0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(node,), daemon=True) for node in cluster.workers]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def _run(self, node: str) -> None:
        query = {"query": f"ASK {{ <{FOREIGN}> ?p ?o }}"}
        with httpx2.Client(timeout=5) as http:
            while not self._stop.wait(0.01):
                try:
                    asked = time.monotonic()
                    answer = http.get(self.cluster.url(node) + "/repositories/main/sparql", params=query)
                except httpx2.HTTPError:
                    continue
                if answer.status_code == 200:
                    self.reads += 1
                    if answer.json()["boolean"]:
                        self.served.append((asked, node))


def wipe(folder: Path) -> None:
    """Lose everything."""
    shutil.rmtree(folder)


def flip_bytes(folder: Path) -> None:
    """Change bytes in the middle of the engine's tables, and in that of keys."""
    tables = sorted(folder.glob("copy.*/repositories/*/*.sst"))
    assert tables, f"no tables in {folder}"
    for path in tables:
        data = bytearray(path.read_bytes())
        for place in range(len(data) // 4, 3 * len(data) // 4, 97):
            data[place] ^= 0x55
        path.write_bytes(bytes(data))


def opened(directory: Path) -> pyoxigraph.Store:
    """The engine, once the last threads of the killed process have let it go."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return pyoxigraph.Store(str(directory))
        except OSError:
            assert time.monotonic() < deadline, f"{directory} is never free"
            time.sleep(0.05)


def foreign_quad(folder: Path) -> None:
    """Write a quad straight into the engine."""
    (directory,) = folder.glob("copy.*/repositories/main.*")
    store = opened(directory)
    node = pyoxigraph.NamedNode(FOREIGN)
    store.add(pyoxigraph.Quad(node, node, node, pyoxigraph.DefaultGraph()))
    store.flush()


def progress(writers: list[Writer]) -> int:
    return sum(len(writer.acknowledged) + writer.counted for writer in writers)


@pytest.mark.slow
def test_a_site_survives_the_harm_of_each_of_its_workers(
    private_broker: PrivateBroker, tmp_path: Path, covered: Callable[[str], None]
) -> None:
    url = private_broker.create_vhost(VHOST)
    with ProcessCluster(tmp_path, url, masters=1, workers_each=3, settings=SETTINGS) as cluster:
        reader = ForeignReader(cluster)
        writers = doors(url, [cluster.url("m1")])
        for writer in writers:
            writer.start()
        reader.start()
        first, second, third = cluster.workers
        harms: list[tuple[str, str, Callable[[Path], None] | None, set[str]]] = [
            *((f"kill -9 {node}", node, None, {"replay"}) for node in cluster.workers),
            (f"directory of {first} lost", first, wipe, {"replay", "copy"}),
            (f"bytes of {second} flipped", second, flip_bytes, {"copy", "replay"}),
            (f"foreign quad in {third}", third, foreign_quad, {"copy"}),
        ]
        quad_known_s = 0.0
        for name, node, harm, paths in harms:
            await_writes(writers, 20)
            before = progress(writers)
            with cluster.down(node) as folder:
                log_at = (tmp_path / "up.log").stat().st_size
                if harm is not None:
                    harm(folder)
            began_s = time.monotonic()
            is_harmed = harm in (flip_bytes, foreign_quad)
            detected_s, healed_s, said, path = Watch(cluster, node).until_healed(log_at, began_s, is_harmed)
            if harm is foreign_quad:
                quad_known_s = began_s + detected_s
            written = progress(writers) - before
            covered(f"{name:28} found after {detected_s:5.2f} s, healed by {path:6} after {healed_s:5.2f} s, {written} writes meanwhile; {said}")
            assert path in paths, f"{name}: healed by {path}"
        await_writes(writers, 20)
        for writer in writers:
            writer.finish(120)
        reader.finish()
        late = [node for asked, node in reader.served if asked > quad_known_s]
        covered(f"{reader.reads} reads at the workers' doors, {len(reader.served)} of them saw the foreign quad, all before it was found")
        assert not late, f"served after detection: {late}"
        await_equal(cluster)
        check_books(cluster, writers)


def await_writes(writers: list[Writer], count: int) -> None:
    """Wait until so many more writes were acknowledged."""
    goal, deadline = progress(writers) + count, time.monotonic() + 60
    while progress(writers) < goal:
        assert time.monotonic() < deadline, "no write is acknowledged any more"
        time.sleep(0.05)


def await_equal(cluster: ProcessCluster) -> None:
    """All copies are at one LSN with one fingerprint."""
    deadline = time.monotonic() + 30
    while True:
        rows = cluster.workers_of("m1")
        if len({(row["applied_lsn"], row["fingerprint"]) for row in rows}) == 1:
            return
        assert time.monotonic() < deadline, rows
        time.sleep(0.1)


def check_books(cluster: ProcessCluster, writers: list[Writer]) -> None:
    """Every acknowledged write is at each worker, once."""
    with httpx2.Client(timeout=30) as http:
        for node in cluster.workers:
            for writer in writers:
                for item, value in list(writer.acknowledged.items())[::37]:
                    answer = http.get(f"{cluster.url(node)}/kv/books/{item.decode()}")
                    assert answer.content == value, f"{node} lacks {item!r}"
                query = {"query": f"SELECT ?v {{ <urn:counter:{writer.name}> <urn:value> ?v }}"}
                found = http.get(f"{cluster.url(node)}/repositories/main/sparql", params=query).json()
                assert [int(row["v"]["value"]) for row in found["results"]["bindings"]] == [writer.counted]
