"""Rules of a site: read-only exactly while too few workers are in sync, a last worker that is never taken away.

Given a site with two workers, when one of them is switched off, dies, and comes back with nothing, then from outside each answer of
the master and each write agree about when the site takes writes, the reason names the worker, writes through another master
are applied by the worker that is left, and reads go on; and when the worker is in sync again, writes are taken again.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import brokerha
from brokerha import errors
from brokerha.embedded import EmbeddedCluster
from brokerha.http.operating.families import numbers_of
from tests.support.configs import config_of
from tests.system.processes import ProcessCluster
from tests.system.site_watch import SiteWatch

WAIT_S = 30.0
LOG_SIZE = 1000
"""Transactions that a master keeps: the fewest that can be chosen."""


@pytest.fixture
def two_and_one(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    """A site with two workers and a site with one."""
    config = config_of("rules", "embedded://two-and-one", tmp_path, {"m1": "m1a m1b", "m2": "m2a"})
    with EmbeddedCluster(config) as cluster:
        await_writable(cluster, "m1")
        await_writable(cluster, "m2")
        yield cluster


def await_writable(cluster: EmbeddedCluster, master: str) -> None:
    """Wait until all workers of a master are in sync: by the rule, and by each of them having what was written."""
    deadline = time.monotonic() + WAIT_S
    while True:
        answer = cluster.client(master).command("workers", {})
        if not answer["read_only"] and all(row["state"] in {"on", "waiting-write", "writing"} for row in answer["workers"]):
            return
        assert time.monotonic() < deadline, answer
        time.sleep(0.02)


def test_a_site_of_two_is_read_only_while_one_is_switched_off(two_and_one: EmbeddedCluster) -> None:
    here, other = two_and_one.client("m1"), two_and_one.client("m2")
    here.put("books", "a", "1")

    here.command("worker-off", {"worker": "m1b"})
    with pytest.raises(errors.ReadOnly, match=r"1 of 2 workers in sync, writes need 2: m1b is off \(switched off\)"):
        here.put("books", "a", "2")
    assert not two_and_one.masters["m1"].writable()[0]

    # Writes through the other master are applied here by the worker that is left, and reads go on.
    lsn = other.put("books", "a", "3").lsn
    assert here.wait(lsn, 1, timeout=WAIT_S)["workers"] == ["m1a"]
    assert here.get("books", "a", min_lsn=lsn) == b"3"
    assert two_and_one.workers["m1b"].runner.core.applied < lsn

    here.command("worker-on", {"worker": "m1b"})
    await_writable(two_and_one, "m1")
    lsn = here.put("books", "a", "4").lsn
    here.wait(lsn, "all", timeout=WAIT_S)


def test_a_master_that_starts_again_is_read_only_at_once_while_a_worker_is_switched_off(two_and_one: EmbeddedCluster) -> None:
    here = two_and_one.client("m1")
    first = here.put("books", "a", "1").lsn
    here.command("worker-off", {"worker": "m1b"})

    two_and_one.stop_node("m1")
    two_and_one.start_node("m1")
    with pytest.raises(errors.ReadOnly, match="writes need 2"):
        here.put("books", "a", "2")

    here.command("worker-on", {"worker": "m1b"})
    await_writable(two_and_one, "m1")
    assert here.put("books", "a", "3").lsn == first + 1


def test_a_retry_of_a_write_that_is_known_is_answered_although_the_site_is_read_only(two_and_one: EmbeddedCluster) -> None:
    here = two_and_one.client("m1")
    first = here.put("books", "a", "1", key="once")
    here.command("worker-off", {"worker": "m1b"})
    assert here.put("books", "a", "1", key="once").lsn == first.lsn


def test_the_only_worker_goes_on_serving_while_it_makes_a_backup_and_is_not_taken_away(
    two_and_one: EmbeddedCluster, tmp_path: Path
) -> None:
    single = two_and_one.client("m2")
    single.put("books", "a", "1")

    single.backup("monday")
    reads = 0
    while not list(tmp_path.glob("backups/monday")):
        assert single.get("books", "a", min_lsn=single.put("books", "a", str(reads)).lsn) == str(reads).encode()
        reads += 1
    assert reads
    for command in ("worker-off", "worker-remove"):
        with pytest.raises(errors.InvalidRequest, match="m2a is the last worker in sync"):
            single.command(command, {"worker": "m2a"})


def test_a_site_of_two_with_one_away_makes_a_backup_and_serves(two_and_one: EmbeddedCluster) -> None:
    here = two_and_one.client("m1")
    lsn = here.put("books", "b", "1").lsn
    here.command("worker-off", {"worker": "m1b"})
    assert here.backup("monday")["worker"] == "m1a"
    assert here.get("books", "b", min_lsn=lsn) == b"1"


def test_a_single_worker_that_is_not_protected_makes_a_backup(tmp_path: Path) -> None:
    config = config_of("rules", "embedded://unprotected", tmp_path, {"m1": "m1a"}, protect_single_worker=False)
    with EmbeddedCluster(config) as cluster:
        await_writable(cluster, "m1")
        db = cluster.client("m1")
        lsn = db.put("books", "a", "1").lsn
        task = db.backup("monday")
        deadline = time.monotonic() + WAIT_S
        while task["state"] == "running":
            assert time.monotonic() < deadline, task
            time.sleep(0.02)
            task = db.task(task["request"]) or task
        assert task["state"] == "done", task
        assert task["answer"]["lsn"] == lsn


def journal_first_lsn(cluster: ProcessCluster, master: str) -> int:
    """Where a master's log begins."""
    answer = cluster.get(master, "/metrics")
    assert answer is not None
    return int(numbers_of(answer.text)["journal_first_lsn"])


def grow_log(cluster: ProcessCluster) -> None:
    """Write through the other master until the log of the first does not reach back to LSN 1."""
    deadline = time.monotonic() + 60
    with brokerha.connect(cluster.url("m2")) as db:
        while journal_first_lsn(cluster, "m1") < 2:
            assert time.monotonic() < deadline, "the log forgets nothing"
            with db.pipeline(window=500, timeout=60) as pipeline:
                for number in range(LOG_SIZE + 200):
                    pipeline.put("grow", str(number), "x" * 100)


def switch(cluster: ProcessCluster, worker: str, word: str) -> None:
    """``brokerha worker on|off``, by HTTP."""
    answer = cluster._http.post(f"{cluster.url('m1')}/cluster/workers/{worker}/{word}")
    assert answer.status_code == 200, answer.text


def is_whole(sample: object) -> bool:
    return len(sample.in_sync) == 2 and not sample.read_only  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_site_of_two_takes_writes_exactly_while_both_are_in_sync(
    vhost_url: str, tmp_path: Path, covered: Callable[[str], None]
) -> None:
    settings = f"tx-log-max-size = {LOG_SIZE}\n"
    with ProcessCluster(tmp_path, vhost_url, masters=2, workers_each=2, settings=settings) as cluster:
        with SiteWatch(cluster, "m1") as watch:
            watch.await_sample(is_whole, "whole at the beginning")
            watch.await_writes(20)

            # Switched off: read-only from the answer to the command on.
            switch(cluster, "m1b", "off")
            off = watch.await_sample(lambda sample: bool(sample.read_only), "read-only")
            assert "m1b is off (switched off)" in off.read_only
            assert_others_go_on(cluster, "m1a")
            watch.await_writes(20)
            switch(cluster, "m1b", "on")
            watch.await_sample(is_whole, "whole after it was switched on")
            watch.await_writes(20)

            # Dead: read-only as soon as it counts as dead; back with nothing, while the log does not reach back.
            with cluster.down("m1b") as folder:
                killed_s = time.monotonic()
                dead = watch.await_sample(lambda sample: bool(sample.read_only), "read-only")
                assert "m1b is unknown (not heard)" in dead.read_only
                assert_others_go_on(cluster, "m1a")
                grow_log(cluster)
                shutil.rmtree(folder)
                log_at = (tmp_path / "up.log").stat().st_size
            back = watch.await_sample(is_whole, "whole after a copy")
            watch.await_writes(20)
        assert not watch.faults
        assert not watch.failed_reads
        watch.check_rule(needed=2)
        taken, refused, unjudged = watch.judge_writes()
        assert taken > 60
        assert refused > 40
        log = (tmp_path / "up.log").read_bytes()
        assert any(line.startswith(b"m1b ") and b"state=load" in line for line in log[log_at:].splitlines()), "it took no copy"
        # A machine that stands still may begin another one, which the rule above has judged.
        assert log.count(b"read-only begins") == log.count(b"read-only ends") >= 2
        assert_equal_with(cluster, [write.number for write in watch.writes if write.status != 503])
    covered(
        f"a site of two: {len(watch.samples)} answers and {taken} writes taken, {refused} refused, all by the rule ({unjudged} on an "
        f"edge), {watch.reads} reads without an error; read-only {dead.began_s - killed_s:.1f} s after a kill, "
        f"for {back.ended_s - dead.began_s:.1f} s with a copy at the end"
    )


def assert_others_go_on(cluster: ProcessCluster, left: str) -> None:
    """Writes through the other master are taken, and applied at this site by the worker that is left."""
    with brokerha.connect(cluster.url("m2")) as there, brokerha.connect(cluster.url("m1")) as here:
        lsn = max(there.put("others", str(number), "1").lsn for number in range(20))
        assert here.wait(lsn, 1, timeout=WAIT_S)["workers"] == [left]
        writable = cluster.get("m1", "/writable")
        assert writable is not None
        assert writable.status_code == 503
        assert "writes need 2" in writable.text
        with pytest.raises(errors.ReadOnly, match="writes need 2"):
            here.put("others", "x", "1", timeout=2)


def assert_equal_with(cluster: ProcessCluster, numbers: list[int]) -> None:
    """All copies are equal, and each has what was acknowledged, and nothing that was refused."""
    with brokerha.connect(cluster.url("m1")) as db:
        lsn = db.put("end", "end", "").lsn
        fingerprints = set()
        for worker in cluster.workers:
            answer = cluster.get(worker, f"/cluster/fingerprints?lsn={lsn}")
            assert answer is not None
            assert answer.status_code == 200, answer.text
            fingerprints.add((answer.json()["lsn"], answer.json()["fingerprint"]))
        assert len(fingerprints) == 1, fingerprints
        held = {int(key) for key, _ in db.range("watch", limit=100_000, min_lsn=lsn)}
        assert held == set(numbers)
