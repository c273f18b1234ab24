"""What the copies of a cluster of processes hold, by their workers' own word."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgpack

from tests.support.waiting import until
from tests.system.processes import ProcessCluster
from tests.system.tx_site import TxSite
from tests.system.writers import Writer

Cluster = ProcessCluster | TxSite


def copies(cluster: Cluster) -> set[tuple[object, object, object]]:
    """(LSN, count, fingerprint) of every worker, by its own word."""
    found: set[tuple[object, object, object]] = set()
    for worker in cluster.workers:
        response = cluster.get(worker, "/cluster/fingerprints")
        if response is None or response.status_code != 200:
            return {("unknown", 0, worker), ("unknown", 1, worker)}
        answer = response.json()
        found.add((answer["lsn"], answer["items"], answer["fingerprint"]))
    return found


def await_equal(cluster: Cluster, within_s: float) -> float:
    """Seconds until all copies are equal; fails after ``within_s``."""
    started = time.monotonic()
    until(lambda: len(copies(cluster)) == 1, lambda: f"all copies are equal: {copies(cluster)}\n{cluster.log_tail()}", within_s)
    return time.monotonic() - started


def books(cluster: Cluster, worker: str, table: str = "books") -> dict[bytes, bytes]:
    """All keys and values of a table that one worker holds."""
    found: dict[bytes, bytes] = {}
    after = ""
    while True:
        response = cluster._http.get(
            f"{cluster.url(worker)}/kv/{table}", params={"from": after, "limit": 1000}, headers={"Accept": "application/x-msgpack"}
        )
        response.raise_for_status()
        rows = msgpack.unpackb(response.content)
        fresh = [(bytes(key), bytes(value)) for key, value in rows if bytes(key) not in found]
        if not fresh:
            return found
        found.update(fresh)
        after = fresh[-1][0].decode()


def counter(cluster: Cluster, worker: str, name: str) -> int:
    query = f"SELECT ?v WHERE {{ <urn:counter:{name}> <urn:value> ?v }}"
    response = cluster._http.get(
        f"{cluster.url(worker)}/repositories/main", params={"query": query}, headers={"Accept": "application/sparql-results+json"}
    )
    response.raise_for_status()
    values = [int(row["v"]["value"]) for row in response.json()["results"]["bindings"]]
    assert len(values) == 1, (worker, name, values)
    return values[0]


def check_books(cluster: Cluster, writers: Sequence[Writer], *, with_others: bool = False) -> None:
    """Each worker holds every acknowledged write once, and nothing else; ``with_others``: somebody else wrote there, too."""
    expected = {key: value for writer in writers for key, value in writer.acknowledged.items()}
    for worker in cluster.workers:
        held = books(cluster, worker, writers[0].table)
        lost = expected.items() - held.items()
        assert not lost, f"{worker} lacks {len(lost)} acknowledged writes, such as {sorted(lost)[:3]}"
        assert with_others or len(held) == len(expected)
        for writer in writers:
            assert counter(cluster, worker, writer.name) == writer.counted, (worker, writer.name)
