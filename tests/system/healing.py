"""What tests of harmed workers share: what a node wrote since a moment, whether it is back, and that nothing was lost.

log = Log(cluster, node)        # before the harm
...                             # the harm
while not is_back(cluster, node, log): ...
"""

from __future__ import annotations

import time

import httpx2

from brokerha.model.states import SERVING
from tests.support.waiting import until
from tests.system.processes import ProcessCluster
from tests.system.writers import Writer


class Log:
    """What a node wrote since a moment."""

    def __init__(self, cluster: ProcessCluster, node: str) -> None:
        self._path = cluster.folder / "up.log"
        self._node = node
        self._at = self._path.stat().st_size

    def lines(self, *words: str) -> list[str]:
        """Lines of the node, and about its end, with one of these words."""
        text = self._path.read_bytes()[self._at :].decode("utf-8", "replace")
        named = [line for line in text.splitlines() if line.startswith((f"{self._node} ", f"brokerha: {self._node} "))]
        return [line for line in named if any(word in line for word in words)]

    def signs(self) -> list[str]:
        """Lines that tell of damage to its copy."""
        return self.lines("state=load", "moved aside", "is damaged")


def is_back(cluster: ProcessCluster, node: str, log: Log) -> bool:
    """Whether a worker is in sync for its master, and the last that it wrote itself is that it follows."""
    state = str(cluster.row(node).get("state"))
    # The log after the master: what it thinks may be of the moment before the harm.
    last = log.lines("follows", "moved aside", "is damaged")[-1:]
    return state in SERVING and any("state=basic" in line for line in last)


def progress(writers: list[Writer]) -> int:
    """Writes that were acknowledged so far."""
    return sum(len(writer.acknowledged) + writer.counted for writer in writers)


def await_writes(writers: list[Writer], count: int) -> None:
    """Wait until so many more writes were acknowledged."""
    goal = progress(writers) + count
    until(lambda: progress(writers) >= goal, f"{count} more writes are acknowledged")


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
