"""A cluster of three RabbitMQ nodes, each of which is killed in turn while everybody writes: the others carry on.

Given three masters with a worker each, all connected to the first broker node, where their inboxes and the queues of apps began; when a broker node is
killed, then writes go on through the other two within seconds, without waiting for it to come back; and in the end all copies
are equal and hold every acknowledged write once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.broker_cluster import BrokerCluster
from tests.support.broker_source import local_scripts
from tests.system.copies import await_equal, check_books
from tests.system.processes import ProcessCluster
from tests.system.writers import Writer, doors

pytestmark = pytest.mark.broker
GOES_ON_WITHIN_S = 20.0
EQUAL_WITHIN_S = 60.0


def count(writer: Writer) -> int:
    return len(writer.acknowledged) + writer.counted


def await_each(writers: list[Writer], within_s: float, cluster: ProcessCluster, what: str) -> float:
    """Wait until each writer has an answer to a write that it began after now; how long the slowest took."""
    began = time.monotonic()
    # Of two answers the second is to a write that was begun after the first.
    before = {writer.name: count(writer) for writer in writers}
    while slow := [w.name for w in writers if count(w) < before[w.name] + 2 and w.fault is None]:
        assert time.monotonic() < began + within_s, f"{what}: no answer for {slow}\n{cluster.log_tail()}"
        time.sleep(0.02)
    return time.monotonic() - began


def test_writes_go_on_while_any_one_node_of_the_broker_is_away(
    tmp_path: Path, covered: Callable[[str], None]
) -> None:
    with BrokerCluster(3, local_scripts()) as brokers:
        url = brokers.create_vhost("orders")
        with ProcessCluster(tmp_path, url, workers_each=1) as cluster:
            writers = doors(url, [cluster.url(master) for master in cluster.masters])
            for writer in writers:
                writer.start()
            await_each(writers, 30, cluster, "at first")
            gaps = []
            for place, node in enumerate(brokers.nodes):
                node.kill()
                gaps.append(await_each(writers, GOES_ON_WITHIN_S, cluster, f"broker node {place + 1} killed"))
                node.restart()
                await_each(writers, GOES_ON_WITHIN_S, cluster, f"broker node {place + 1} back")
            for writer in writers:
                writer.finish(60)
            seconds = await_equal(cluster, EQUAL_WITHIN_S)
            puts, counts = check_books(cluster, writers)
            covered(
                f"a cluster of three broker nodes, each killed in turn: {puts} puts and {counts} counts acknowledged, none lost, none twice; the slowest of "
                f"{len(writers)} writers went on after {', '.join(f'{gap:.1f}' for gap in gaps)} s; copies equal after {seconds:.1f} s"
            )
