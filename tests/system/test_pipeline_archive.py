"""The archive job over RabbitMQ: killed at random moments, its nodes killed under it, and what masters keep for it.

Given two masters with a worker each as processes, when the job is killed again and again while somebody writes, and masters are killed
under it, then what is archived is contiguous, without duplicates, and equal to an archive that was made undisturbed. The last job follows
until SIGTERM and ends whole; masters keep their log behind it, and what nodes said of themselves lies beside it.

`brokerha pipeline archive` as a process that is killed at random moments, while a cluster of processes writes on and loses nodes.

Somebody writes all the time and keeps the ids of what was acknowledged. Each job follows the log in small batches until it is killed; the last
one until it is asked to end. In the end a job runs undisturbed into a second archive, and both are read row by row.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import pytest

import brokerha
from brokerha import errors
from brokerha.pipeline import observations
from brokerha.pipeline.audit_rows import check_file
from brokerha.pipeline.entries import LogEntry
from brokerha.pipeline.table import LogTable
from tests.support import spark_servers
from tests.support.commands_on_spark import SMALL, answer, one_session
from tests.support.spark_servers import PYTHON_WORKER, above, executors, parents, processes_with
from tests.support.waiting import until
from tests.system.processes import ProcessCluster
from tests.unit.pipeline.made_archives import held

AGAIN = (errors.OutcomeUnknown, errors.NotReady, errors.Unreachable)
BATCHES = ("--batch-entries", "80")
COMPACTLY = ("--compact", "--vacuum", "--keep-s", "0")
ENDS_WITHIN_S = 240.0


class Writing:
    """One thread that writes keys, each until it is acknowledged."""

    def __init__(self, urls: str) -> None:
        self.acknowledged: list[str] = []
        self._urls = urls
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writing", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "a write still waits for an answer"

    def _run(self) -> None:
        with brokerha.connect(self._urls) as db:
            number = 0
            while not self._stop.is_set():
                key = f"kill.{number}"
                try:
                    db.put("keys", b"%d" % (number % 500), b"%d" % number, key=key, timeout=10)
                except AGAIN:
                    self._stop.wait(0.1)
                    continue
                self.acknowledged.append(key)
                number += 1


def fill(urls: str, count: int) -> None:
    """Some thousand transactions at once, so that the first rounds have enough to do."""
    with brokerha.connect(urls) as db, db.pipeline(window=500) as pipeline:
        for number in range(count):
            if number % 3:
                pipeline.put("keys", b"%d" % (number % 700), os.urandom(30))
            else:
                pipeline.update("main", f"INSERT DATA {{ <urn:s{number}> <urn:p> {number} , {number + 1} }}")


@contextmanager
def job(cluster: ProcessCluster, into: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A job in a session of its own; nothing of it is left after the block."""
    command = [sys.executable, "-m", "brokerha", "pipeline", "archive", "--into", str(into), "-c", str(cluster.path), *options]
    with (into.parent / "jobs.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


def last_lsn(urls: str) -> int:
    """How far the log goes."""
    with brokerha.connect(urls) as db:
        return max(row["applied_lsn"] or 0 for row in db.status(timeout=60)["nodes"])


def commits(into: Path) -> int:
    """How many versions the table has."""
    return len(list((into / "_delta_log").glob("*.json")))


def until_it_works(into: Path, before: int, process: subprocess.Popen[bytes], more: int) -> None:
    """Wait until a job has committed so many times."""
    until(lambda: process.poll() is not None or commits(into) >= before + more, "the job commits", ENDS_WITHIN_S, pause_s=0.01)


def until_held(into: Path, lsn: int) -> None:
    """Wait until the archive goes up to an LSN."""
    until(
        lambda: LogTable(str(into)).exists() and LogTable(str(into)).state().head.last_lsn >= lsn, lambda: said(into), ENDS_WITHIN_S
    )


def said(into: Path) -> str:
    """What the jobs said last."""
    return (into.parent / "jobs.log").read_text("utf-8", "replace")[-3000:]


def archived(into: Path, *options: str) -> Any:
    """What one job from here to the end of the log says of itself, in this process."""
    code, report = answer("pipeline", "archive", "--into", str(into), *options)
    assert code == 0, report
    return report


def everything(into: Path) -> list[LogEntry]:
    """All entries, after the bytes of each file were compared with its name."""
    table = LogTable(str(into))
    assert [what for file in table.state().files if (what := check_file(table.where, file))] == []
    return held(table)


def the_job(process: int) -> list[int]:
    """The process of the command itself."""
    return [process]


def its_java(process: int) -> list[int]:
    """The Java machine that the command has started, driver and executor."""
    known = parents()
    return [each for each in processes_with("org.apache.spark.deploy.SparkSubmit") if process in above(each, known)]


def a_python_worker(process: int) -> list[int]:
    """Processes in which Spark runs Python."""
    known = parents()
    return [each for each in processes_with(PYTHON_WORKER) if process in above(each, known)]


def of_cluster(folder: Path) -> Sequence[Victims]:
    """Executors of the standalone cluster of this folder, and the processes in which they run Python."""

    def an_executor(_process: int) -> list[int]:
        return executors(folder)

    def their_python_worker(_process: int) -> list[int]:
        known, theirs = parents(), {*executors(folder)}
        return [each for each in processes_with(PYTHON_WORKER) if theirs.intersection(above(each, known))]

    return an_executor, their_python_worker


Victims = Callable[[int], list[int]]


def until_it_goes_on(into: Path, process: subprocess.Popen[bytes]) -> bool:
    """Wait until a job that has lost a part commits again, or ends with an error; returns which."""
    before = commits(into)
    until(
        lambda: process.poll() is not None or commits(into) != before,
        lambda: f"the job goes on or ends: {said(into)}",
        ENDS_WITHIN_S,
    )
    return process.poll() is None


def kill_again_and_again(
    cluster: ProcessCluster,
    folder: Path,
    kills: int,
    node_kills: int,
    seed: int,
    victims: Sequence[Victims] = (the_job,),
    spark: Sequence[str] = SMALL,
) -> str:
    """The whole scenario; a sentence about what was covered. What the masters keep for the archive begins after it in the end.

    One of the ``victims`` is killed each time, by chance. ``spark`` are words of the command that say where it runs.
    """
    chance = random.Random(seed)
    urls = ",".join(cluster.url(master) for master in cluster.masters)
    into, undisturbed = folder / "archive", folder / "undisturbed"
    fill(urls, 1500)
    losing = set(chance.sample(range(kills), node_kills))
    reached: list[int] = []
    struck: Counter[str] = Counter()
    following = ("--every", "0.1", "--retry-s", "60", *spark)
    with Writing(urls) as writing, ExitStack() as jobs:
        for number in range(kills):
            more = COMPACTLY if chance.random() < 0.5 else ()
            before = commits(into)
            # What Spark leaves of a killed job may write on while the next one begins: that is part of what is tried.
            process = jobs.enter_context(job(cluster, into, *following, *BATCHES, *more))
            # Now and then it is killed while it starts; else some commits later, however slow the machine is.
            if number == 0 or chance.random() < 0.8:
                until_it_works(into, before, process, 2 + chance.randrange(6))
            lived_s = chance.uniform(0.0, 2.0)
            if number in losing:
                time.sleep(lived_s / 2)
                cluster.kill(chance.choice(cluster.masters))
            with suppress(subprocess.TimeoutExpired):
                process.wait(lived_s)
                raise AssertionError(said(into))
            victim = chance.choice(victims)
            # Of a job that only just starts not every part is there.
            found = victim(process.pid) or [process.pid]
            with suppress(ProcessLookupError):
                os.kill(chance.choice(found), signal.SIGKILL)
            goes_on = process.pid not in found and until_it_goes_on(into, process)
            struck[f"{victim.__name__}{' that was replaced' if goes_on else ''}"] += 1
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            process.wait(30)
            if commits(into):
                kept = everything(into)
                assert [entry.lsn for entry in kept] == list(range(1, len(kept) + 1))
                reached.append(len(kept))
    cluster.await_ready(cluster.masters)
    # In batches of its own choice: what the kills have left may be most of the log.
    with job(cluster, into, *following) as process:
        until_held(into, last_lsn(urls))
        fill(urls, 100)
        until_held(into, last := last_lsn(urls))
        process.send_signal(signal.SIGTERM)
        assert process.wait(90) == 0, said(into)
    with one_session():
        report = archived(into, "-c", str(cluster.path), *COMPACTLY)
        assert report["pinned_from"] == report["last_lsn"] + 1 > last
        archived(undisturbed, "-c", str(cluster.path), "--no-pin")
    kept, expected = everything(into), everything(undisturbed)
    assert [entry.lsn for entry in kept] == list(range(1, len(kept) + 1))
    assert kept == expected[: len(kept)]
    assert len(kept) == len(expected)
    ids = Counter(entry.txid for entry in kept)
    assert max(ids.values()) == 1
    assert not set(writing.acknowledged) - ids.keys()
    assert (LogTable(str(into)).state().head.chain, reached) == (
        LogTable(str(undisturbed)).state().head.chain, sorted(reached)
    )  # fmt: skip
    assert len(set(reached)) >= min(kills, 2), "every job was killed before it had kept anything"
    return (
        f"archive: {kills} kills ({', '.join(f'{count} {name}' for name, count in sorted(struck.items()))}) and {node_kills} of masters, "
        f"{len(set(reached))} of them after something new was kept; {len(kept)} entries, {len(writing.acknowledged)} acknowledged meanwhile, each once, equal to an archive made at once"
    )


pytest.importorskip("pyspark")


def test_a_job_that_is_killed_with_its_nodes_archives_each_entry_once_and_its_masters_keep_what_it_lacks(
    vhost_url: str, tmp_path: Path, covered: Callable[[str], None]
) -> None:
    into = tmp_path / "archive"
    with ProcessCluster(tmp_path, vhost_url, masters=2, workers_each=1) as cluster:
        covered(kill_again_and_again(cluster, tmp_path, kills=1, node_kills=1, seed=7))
        state = LogTable(str(into)).state()
        following = state.head.last_lsn + 1
        for master in cluster.masters:
            with brokerha.connect(cluster.url(master)) as db:
                (pin,) = db.pins()["pins"]
                assert (pin["name"], pin["lsn"]) == (f"archive-{state.id.replace('-', '')[:16]}", following)
        # Through the broker alone: one of the masters is asked, and takes the pin. There is nothing new, so Spark does not start.
        assert archived(into, "--url", vhost_url)["pinned_from"] == following
        seen = observations.read(str(into))
        assert {each.node for each in seen} == {"m1", "m2", "m1a", "m2a"}
        assert {each.epoch for each in seen} == {1}


@pytest.mark.campaign
def test_thirty_kills_of_whatever_takes_part_and_eight_of_masters(
    vhost_url: str, tmp_path: Path, covered: Callable[[str], None]
) -> None:
    """The command, its Java machine, which is driver and executor, and Python workers."""
    with ProcessCluster(tmp_path, vhost_url, masters=2, workers_each=1) as cluster:
        victims = (the_job, its_java, a_python_worker)
        covered(kill_again_and_again(cluster, tmp_path, kills=30, node_kills=8, seed=1, victims=victims))


@pytest.mark.campaign
def test_thirty_kills_on_a_standalone_cluster(vhost_url: str, tmp_path: Path, covered: Callable[[str], None]) -> None:
    """The command, its driver, executors and what these run Python in."""
    folder = tmp_path / "spark"
    with spark_servers.cluster(folder) as url, ProcessCluster(tmp_path, vhost_url, masters=2, workers_each=1) as cluster:
        victims = (the_job, its_java, *of_cluster(folder))
        spark = ("--spark-master", url, *spark_servers.ON_CLUSTER)
        covered(kill_again_and_again(cluster, tmp_path, kills=30, node_kills=4, seed=2, victims=victims, spark=spark))
