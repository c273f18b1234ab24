"""Retention: the log of a site that writes on and on keeps its size, and who needs what was forgotten takes a snapshot.

Given a master with two workers, one of which is switched off after a while; when many times more transactions are written than the
log keeps; then the journal holds no more than that, its file stays bounded, no write waits for the forgetting, and the worker that comes
back is healed by a copy, not stopped by an error, and ends equal.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from brokerha.embedded import EmbeddedCluster, FrontWire
from tests.bench.site import Load, put
from tests.support.configs import config_of

WINDOW = 200
HEALED_WITHIN_S = 60.0


def disk_bytes(folder: Path) -> int:
    """Space that the files of a node take on the disk."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def write_on(broker: str, folder: Path, kept: int, transactions: int, covered: Callable[[str], None]) -> None:
    config = config_of("retention", broker, folder, {"m1": "w1 w2"}, min_in_sync=1, tx_log_max_size=kept)
    with EmbeddedCluster(config) as cluster:
        master, returning = cluster.masters["m1"], cluster.workers["w2"]
        sizes: list[tuple[int, int]] = []
        held = 0
        began = trimming_s = time.perf_counter()
        with Load(FrontWire(cluster, ["m1"]), put, WINDOW, 1) as writing:
            while len(writing.done) < transactions and writing.fault is None:
                count = len(writing.done)
                if master.journal.first_lsn() == 1:
                    trimming_s = time.perf_counter()
                if returning.runner.core.applied > transactions // 20 and returning.runner.core.state.value != "idle":
                    master.command("worker-off", {"worker": "w2", "force": True}).result(10)
                    time.sleep(0.1)
                if count >= (len(sizes) + 1) * transactions // 12:
                    sizes.append((count, disk_bytes(folder / "m1")))
                    held = max(held, master.journal.state().lsn - master.journal.first_lsn() + 1)
                time.sleep(0.02)
        ended = time.perf_counter()
        left_at = returning.runner.core.applied
        assert left_at + 1 < master.journal.results_from(), "the worker that is away does not need what was forgotten"
        held = max(held, master.journal.state().lsn - master.journal.first_lsn() + 1)
        master.command("worker-on", {"worker": "w2"}).result(10)
        healed_s = until_equal(cluster)
        assert returning.runner.core.replacing.last.startswith("loaded LSN"), "it was not healed by a copy"
    worst_ms = max(each.latency_s for each in writing.done) * 1000
    told = ", ".join(f"{size / 1e6:.0f}" for _, size in sizes)
    covered(
        f"{broker.partition(':')[0]}: {len(writing.done)} transactions, log of {kept}: journal of {told} MB over time, at most {held} "
        f"transactions held; {writing.rate(began, ended):.0f} writes/s, p99 {writing.p99_ms(began, trimming_s):.0f} ms before anything was "
        f"forgotten and {writing.p99_ms(trimming_s, ended):.0f} ms while it went on, longest {worst_ms:.0f} ms; "
        f"worker that left at LSN {left_at} copied and equal after {healed_s:.1f} s"
    )
    # A twentieth more before it is worth forgetting, what a second brings before the next look, and one step.
    assert held <= kept * 1.05 + 1.5 * writing.rate(began, ended) + 5_000 + WINDOW
    third = [size for count, size in sizes if count <= transactions // 2]
    rest = [size for count, size in sizes if count > transactions // 2]
    # Ids stay known for as long as `tx-log-max-depth-h` says: they take the rest.
    assert max(rest) <= 1.5 * max(third) + 100 * transactions, f"the journal grows: {told} MB"


def until_equal(cluster: EmbeddedCluster) -> float:
    """Seconds until all copies are at one LSN with one fingerprint."""
    began = time.perf_counter()
    while True:
        found = {worker.store.applied() for worker in cluster.workers.values()}
        words = {worker.runner.core.state.value for worker in cluster.workers.values()}
        if len(found) == 1 and words == {"basic"}:
            return time.perf_counter() - began
        assert time.perf_counter() - began < HEALED_WITHIN_S, (found, words)
        time.sleep(0.02)


def test_the_log_of_an_embedded_site_keeps_its_size(tmp_path: Path, covered: Callable[[str], None]) -> None:
    write_on("embedded://", tmp_path, 1000, 15_000, covered)


def test_the_log_of_a_site_over_rabbitmq_keeps_its_size(tmp_path: Path, vhost_url: str, covered: Callable[[str], None]) -> None:
    write_on(vhost_url, tmp_path, 1000, 15_000, covered)


@pytest.mark.campaign
def test_three_hundred_thousand_transactions_keep_a_log_of_fifty_thousand(tmp_path: Path, covered: Callable[[str], None]) -> None:
    write_on("embedded://", tmp_path, 50_000, 300_000, covered)
