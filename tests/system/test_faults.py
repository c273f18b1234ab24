"""Real processes, a real broker, every fault in turn: nothing acknowledged is lost, nothing is applied twice.

Given three masters with two workers each under ``brokerha up --restart`` over a RabbitMQ of the test's own, and writers at all
doors; when each process is killed, the broker is killed and restarted, its queues are purged and deleted and all connections closed,
one after the other; then within 30 seconds of the last fault all copies are equal and hold every acknowledged write once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgpack
import pytest

from tests.support.private_broker import PrivateBroker
from tests.system.processes import ProcessCluster
from tests.system.writers import Writer, doors

EQUAL_WITHIN_S = 30.0
VHOST = "faults"


def kill_and_await(cluster: ProcessCluster, node: str) -> None:
    """SIGKILL a node and wait until it is ready again."""
    cluster.kill(node)
    cluster.await_ready([node])


def kill_broker_and_restart(broker: PrivateBroker) -> None:
    """SIGKILL the broker; it comes back a second later with its data."""
    broker.kill()
    time.sleep(1)
    broker.restart()


def faults(cluster: ProcessCluster, broker: PrivateBroker) -> list[tuple[str, Callable[[], object]]]:
    """Every fault, in order."""
    nodes = [*cluster.masters, *cluster.workers]
    return [
        *((f"kill -9 {node}", partial(kill_and_await, cluster, node)) for node in nodes),
        ("kill -9 the broker and restart it", partial(kill_broker_and_restart, broker)),
        ("purge every queue", partial(broker.purge_queues, VHOST)),
        ("delete every queue", partial(broker.delete_queues, VHOST)),
        ("close every connection", broker.close_all_connections),
    ]


def progress(writers: list[Writer]) -> int:
    return sum(len(writer.acknowledged) + writer.counted for writer in writers)


def await_progress(writers: list[Writer], count: int, cluster: ProcessCluster, fault: str) -> None:
    """Wait until each writer got answers again after a fault."""
    before = {writer.name: len(writer.acknowledged) + writer.counted for writer in writers}
    deadline = time.monotonic() + 90
    while True:
        slow = [w.name for w in writers if len(w.acknowledged) + w.counted < before[w.name] + count and w.fault is None]
        if not slow:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"after {fault!r} no answers at {slow}\n{cluster.log_tail()}")
        time.sleep(0.1)


def copies(cluster: ProcessCluster) -> set[tuple[object, object, object]]:
    """(LSN, count, fingerprint) of every worker, by its own word."""
    found: set[tuple[object, object, object]] = set()
    for worker in cluster.workers:
        response = cluster.get(worker, "/cluster/fingerprints")
        if response is None or response.status_code != 200:
            return {("unknown", 0, worker), ("unknown", 1, worker)}
        answer = response.json()
        found.add((answer["lsn"], answer["items"], answer["fingerprint"]))
    return found


def await_equal(cluster: ProcessCluster) -> float:
    """Seconds until all six copies are equal; fails after the promised time."""
    started = time.monotonic()
    while len(found := copies(cluster)) > 1:
        if time.monotonic() - started > EQUAL_WITHIN_S:
            raise AssertionError(f"copies differ after {EQUAL_WITHIN_S} s: {found}\n{cluster.log_tail()}")
        time.sleep(0.2)
    return time.monotonic() - started


def books(cluster: ProcessCluster, worker: str) -> dict[bytes, bytes]:
    """All keys and values that one worker holds."""
    found: dict[bytes, bytes] = {}
    after = ""
    while True:
        response = cluster._http.get(
            f"{cluster.url(worker)}/kv/books", params={"from": after, "limit": 1000}, headers={"Accept": "application/x-msgpack"}
        )
        response.raise_for_status()
        rows = msgpack.unpackb(response.content)
        fresh = [(bytes(key), bytes(value)) for key, value in rows if bytes(key) not in found]
        if not fresh:
            return found
        found.update(fresh)
        after = fresh[-1][0].decode()


def counter(cluster: ProcessCluster, worker: str, name: str) -> int:
    query = f"SELECT ?v WHERE {{ <urn:counter:{name}> <urn:value> ?v }}"
    response = cluster._http.get(
        f"{cluster.url(worker)}/repositories/main", params={"query": query}, headers={"Accept": "application/sparql-results+json"}
    )
    response.raise_for_status()
    values = [int(row["v"]["value"]) for row in response.json()["results"]["bindings"]]
    assert len(values) == 1, (worker, name, values)
    return values[0]


@pytest.mark.slow
def test_every_fault_in_turn_loses_nothing_and_applies_nothing_twice(
    private_broker: PrivateBroker, tmp_path: Path, covered: Callable[[str], None]
) -> None:
    url = private_broker.create_vhost(VHOST)
    with ProcessCluster(tmp_path, url) as cluster:
        writers = doors(url, [cluster.url(master) for master in cluster.masters])
        for writer in writers:
            writer.start()
        await_progress(writers, 3, cluster, "the start")
        told = []
        for name, inject in faults(cluster, private_broker):
            started = time.monotonic()
            before = progress(writers)
            inject()
            await_progress(writers, 2, cluster, name)
            told.append(f"  {name}: {progress(writers) - before} writes acknowledged in {time.monotonic() - started:.1f} s")
        last_fault = time.monotonic()
        for writer in writers:
            writer.finish(60)
        seconds = await_equal(cluster)
        assert time.monotonic() - last_fault < EQUAL_WITHIN_S + 60
        expected = {key: value for writer in writers for key, value in writer.acknowledged.items()}
        for worker in cluster.workers:
            held = books(cluster, worker)
            lost = expected.keys() - held.keys()
            assert not lost, f"{worker} lost {len(lost)} acknowledged writes, such as {sorted(lost)[:3]}"
            assert held == expected
            for writer in writers:
                assert counter(cluster, worker, writer.name) == writer.counted, (worker, writer.name)
        resent = sum(writer.resent for writer in writers)
        counted = sum(writer.counted for writer in writers)
        covered(
            f"faults over RabbitMQ: {len(told)} faults, {len(expected)} puts and {counted} counts acknowledged, {resent} sent again, "
            f"0 lost, 0 twice, 6 copies equal after {seconds:.1f} s\n" + "\n".join(told)
        )
