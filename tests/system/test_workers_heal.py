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
from pathlib import Path

import httpx2
import pyoxigraph
import pytest

from tests.support.private_broker import PrivateBroker
from tests.system.copies import await_equal, check_books
from tests.system.healing import Log, await_writes, is_back
from tests.system.processes import ProcessCluster
from tests.system.writers import doors, told

VHOST = "healing"
HEALED_WITHIN_S = 90.0
FOREIGN = "urn:nobody:wrote:this"
SETTINGS = "scrub-every-s = 1\nscrub-items-per-s = 200000\n"


def until_healed(cluster: ProcessCluster, node: str, log: Log, is_harmed: bool) -> tuple[float, float, str, str]:
    """(seconds to detection, seconds to health, what was said, path); writes are taken all the time.

    A harmed copy is healed when it was replaced or begun anew; one whose process died when it follows again.
    """
    began_s, detected_s, said = time.monotonic(), 0.0, ""
    while True:
        now_s, signs = time.monotonic() - began_s, log.signs()
        if signs and not detected_s:
            detected_s, said = now_s, signs[0].partition("reason=")[2].strip()
        if (signs or not is_harmed) and is_back(cluster, node, log):
            return detected_s or now_s, now_s, said, "copy" if log.lines("state=load") else "replay"
        writable = cluster.get("m1", "/writable")
        assert writable is not None, f"the master did not answer while {node} is healed"
        assert writable.status_code == 200, f"no writes while {node} is healed: {writable.text}"
        assert now_s < HEALED_WITHIN_S, f"{node} is not healed: {cluster.row(node)}\n{cluster.log_tail(40)}"
        time.sleep(0.02)


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
            # By replay, unless it is started so late (on a busy machine) that a copy is cheaper.
            *((f"kill -9 {node}", node, None, {"replay", "copy"}) for node in cluster.workers),
            (f"directory of {first} lost", first, wipe, {"replay", "copy"}),
            (f"bytes of {second} flipped", second, flip_bytes, {"copy", "replay"}),
            (f"foreign quad in {third}", third, foreign_quad, {"copy"}),
        ]
        quad_known_s = 0.0
        for name, node, harm, paths in harms:
            await_writes(writers, 20)
            before = told(writers)
            with cluster.down(node) as folder:
                log = Log(cluster, node)
                if harm is not None:
                    harm(folder)
            began_s = time.monotonic()
            is_harmed = harm in (flip_bytes, foreign_quad)
            detected_s, healed_s, said, path = until_healed(cluster, node, log, is_harmed)
            if harm is foreign_quad:
                quad_known_s = began_s + detected_s
            written = told(writers) - before
            covered(
                f"{name:28} found after {detected_s:5.2f} s, healed by {path:6} after {healed_s:5.2f} s, {written} writes meanwhile; {said}"
            )
            assert path in paths, f"{name}: healed by {path}"
        await_writes(writers, 20)
        for writer in writers:
            writer.finish(120)
        reader.finish()
        late = [node for asked, node in reader.served if asked > quad_known_s]
        covered(
            f"{reader.reads} reads at the workers' doors, {len(reader.served)} of them saw the foreign quad, all before it was found"
        )
        assert not late, f"served after detection: {late}"
        await_equal(cluster, 30.0)
        check_books(cluster, writers)
