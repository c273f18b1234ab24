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

import pytest

from tests.support.private_broker import PrivateBroker
from tests.system.copies import await_equal, check_books
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
        seconds = await_equal(cluster, EQUAL_WITHIN_S)
        assert time.monotonic() - last_fault < EQUAL_WITHIN_S + 60
        puts, counts = check_books(cluster, writers)
        resent = sum(writer.resent for writer in writers)
        covered(
            f"faults over RabbitMQ: {len(told)} faults, {puts} puts and {counts} counts acknowledged, {resent} sent again, "
            f"0 lost, 0 twice, 6 copies equal after {seconds:.1f} s\n" + "\n".join(told)
        )
