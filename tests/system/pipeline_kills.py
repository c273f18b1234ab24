"""The archive and the load as processes that lose at random moments what they are made of, on a cluster that loses nodes.

| victim | what is killed by SIGKILL | what has to happen |
|---|---|---|
| driver | the program, or with it all that it has started | the same command goes on |
| worker | a Python worker of Spark, or what it was forked from | Spark runs the task again; or the job ends, and the same command goes on |
| executor | of a standalone cluster | Spark starts another one |
| node | a master, or a worker of the cluster | it comes back; whoever was asking asks again |

While jobs archive, somebody writes all the time and keeps the ids of what was acknowledged. Each job follows the log in small batches until it
is killed; the last one until it is asked to end. In the end a job runs undisturbed into a second archive, and both are read row by row.
Loads are started again by the same command until they are done, one file after the other: all is there, and nothing twice.
"""

from __future__ import annotations

import json
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import brokerha
from brokerha import errors
from brokerha.pipeline.audit_rows import check_file
from brokerha.pipeline.entries import LogEntry
from brokerha.pipeline.table import LogTable
from tests.support.commands_on_spark import SMALL, answer, one_session
from tests.support.spark_servers import PYTHON_WORKER, SOON_S, above, executors, parents, processes_with
from tests.system.processes import ProcessCluster
from tests.unit.pipeline.made_archives import held

AGAIN = (errors.OutcomeUnknown, errors.NotReady, errors.Unreachable)
BATCHES = ("--batch-entries", "80")
COMPACTLY = ("--compact", "--vacuum", "--keep-s", "0")
ENDS_WITHIN_S = 240.0
DRIVER, WORKER, EXECUTOR, NODE = "driver", "worker", "executor", "node"
LINES = 30_000
"""Of a file that is loaded."""


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
def job(cluster: ProcessCluster, name: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A job in a session of its own; nothing of it is left after the block."""
    command = [sys.executable, "-m", "brokerha", "pipeline", name, "-c", str(cluster.path), *options]
    with (cluster.folder / "jobs.log").open("ab") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, text=True
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=30)


@dataclass(frozen=True, slots=True)
class Killing:
    """Who may die, and by which chance."""

    cluster: ProcessCluster
    chance: random.Random
    spark: Path | None = None
    """Folder of the standalone cluster; None: Spark runs within the job."""
    on: tuple[str, ...] = SMALL
    """Words that say where a job runs."""

    def kill(self, victim: str, process: subprocess.Popen[str]) -> None:
        """Kill one; for an executor and a Python worker wait until there is one. A job that ends meanwhile is left alone."""
        if victim == DRIVER:
            if self.chance.random() < 0.5:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            # What Spark leaves of a killed program may write on while the next one begins: that is part of what is tried.
            process.kill()
            process.wait(30)
            return
        if victim == NODE:
            self.cluster.kill(self.chance.choice([*self.cluster.masters, *self.cluster.workers]))
            return
        deadline = time.monotonic() + ENDS_WITHIN_S
        while process.poll() is None:
            if found := self._executors() if victim == EXECUTOR else self._workers(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(self.chance.choice(found), signal.SIGKILL)
                return
            assert time.monotonic() < deadline, f"there is no {victim}"
            time.sleep(0.02)

    def _executors(self) -> list[int]:
        return executors(self.spark) if self.spark is not None else []

    def _workers(self, driver: int) -> list[int]:
        known, roots = parents(), {driver, *self._executors()}
        return [each for each in processes_with(PYTHON_WORKER) if roots & set(above(each, known))]


def last_lsn(urls: str) -> int:
    """How far the log goes."""
    with brokerha.connect(urls) as db:
        return max(row["applied_lsn"] or 0 for row in db.status(timeout=60)["nodes"])


def commits(into: Path) -> int:
    """How many versions the table has."""
    return len(list((into / "_delta_log").glob("*.json")))


def until_it_works(done: Callable[[], int], more: int, process: subprocess.Popen[str]) -> None:
    """Wait until a job has done so much more, or has ended."""
    deadline, before = time.monotonic() + ENDS_WITHIN_S, done()
    while process.poll() is None and done() < before + more:
        assert time.monotonic() < deadline, "the job does nothing"
        time.sleep(0.02)


def until_held(into: Path, lsn: int) -> None:
    """Wait until the archive goes up to an LSN."""
    deadline = time.monotonic() + ENDS_WITHIN_S
    while not LogTable(str(into)).exists() or LogTable(str(into)).state().head.last_lsn < lsn:
        assert time.monotonic() < deadline, said(into.parent)
        time.sleep(0.1)


def said(folder: Path) -> str:
    """What the jobs said last."""
    return (folder / "jobs.log").read_text("utf-8", "replace")[-3000:]


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


def archive_again_and_again(killing: Killing, folder: Path, victims: Sequence[str]) -> str:
    """Archive while all these are killed one after the other; a sentence about what was covered.

    What the masters keep for the archive begins behind it in the end.
    """
    cluster, chance = killing.cluster, killing.chance
    urls = ",".join(cluster.url(master) for master in cluster.masters)
    into, undisturbed = folder / "archive", folder / "undisturbed"
    fill(urls, 1500)
    reached: list[int] = []
    following = ("--into", str(into), "--every", "0.1", "--retry-s", "60", *killing.on, *BATCHES)
    with Writing(urls) as writing, ExitStack() as jobs:
        process = None
        for victim in victims:
            if process is None or process.poll() is not None:
                # Only a Python worker may have taken its job with it: the one that plans the stream has no second try.
                assert process is None or process.returncode in {2, 3, -signal.SIGKILL}, said(folder)
                more = COMPACTLY if chance.random() < 0.5 else ()
                process = jobs.enter_context(job(cluster, "archive", *following, *more))
            # Now and then it is killed while it starts; else some commits later, however slow the machine is.
            if chance.random() < 0.8:
                until_it_works(lambda: commits(into), 2 + chance.randrange(6), process)
            time.sleep(chance.uniform(0.0, 1.0))
            killing.kill(victim, process)
            if victim == DRIVER and commits(into):
                found = everything(into)
                assert [entry.lsn for entry in found] == list(range(1, len(found) + 1))
                reached.append(len(found))
    cluster.await_ready([*cluster.masters, *cluster.workers])
    with job(cluster, "archive", *following) as process:
        until_held(into, last_lsn(urls))
        fill(urls, 100)
        until_held(into, last := last_lsn(urls))
        process.send_signal(signal.SIGTERM)
        assert process.wait(90) == 0, said(folder)
    with one_session():
        report = archived(into, "-c", str(cluster.path), *COMPACTLY)
        assert report["pinned_from"] == report["last_lsn"] + 1 > last
        archived(undisturbed, "-c", str(cluster.path), "--no-pin")
    found, expected = everything(into), everything(undisturbed)
    assert [entry.lsn for entry in found] == list(range(1, len(found) + 1))
    assert found == expected[: len(found)]
    assert len(found) == len(expected)
    ids = Counter(entry.txid for entry in found)
    assert max(ids.values()) == 1
    assert not set(writing.acknowledged) - ids.keys()
    assert (LogTable(str(into)).state().head.chain, reached) == (
        LogTable(str(undisturbed)).state().head.chain, sorted(reached)
    )  # fmt: skip
    assert reached, "every job was killed before it had kept anything"
    return (
        f"archive: killed under it {counted(victims)}; {len(found)} entries, {len(writing.acknowledged)} acknowledged meanwhile, each once, "
        "equal to an archive made at once"
    )


def load_again_and_again(killing: Killing, folder: Path, victims: Sequence[str]) -> str:
    """Load files while all these are killed one after the other; a sentence about what was covered."""
    cluster, chance = killing.cluster, killing.chance
    left = list(victims)
    files = transactions = tries = 0
    with brokerha.connect(cluster.url("m1")) as db:
        before = db.size("main", timeout=60)

        def size() -> int:
            with suppress(*AGAIN):
                return db.size("main", timeout=10)
            return 0

        while left:
            files += 1
            path = folder / f"things-{files}.nt"
            path.write_text("".join(f"<urn:l{files}:s{n}> <urn:p:{n % 7}> _:b{n % 100} .\n" for n in range(LINES)))
            words = (
                str(path),
                "--rejects",
                str(folder / "rejects"),
                "--split-mib",
                "1",
                "--window",
                "2",
                "-o",
                "json",
                *killing.on,
            )
            code, answer_ = None, ""
            while code != 0:
                tries += 1
                assert tries < 3 * len(victims) + 3, said(folder)
                with job(cluster, "load", *words) as process:
                    while left and process.poll() is None:
                        until_it_works(size, 1 + chance.randrange(4_000), process)
                        if process.poll() is None:
                            killing.kill(left.pop(), process)
                    answer_, _ = process.communicate(timeout=SOON_S)
                    code = process.returncode
                    # An error of a cluster that is away, or of a Python worker that is gone: the same command goes on.
                    assert code in {0, 2, 3, -signal.SIGKILL}, said(folder)
            report = json.loads(answer_)
            assert (report["complete"], report["items"], report["rejects"]) == (True, LINES, 0)
            cluster.await_ready([*cluster.masters, *cluster.workers])
            found = transactions_of(db, report["id"])
            assert set(found.values()) == {1}, found.most_common(3)
            assert len(found) == report["transactions"]
            transactions += len(found)
            assert db.size("main", timeout=60) == before + files * LINES
    return f"load: killed under it {counted(victims)}; {files} files of {LINES} statements, {transactions} transactions, each once"


def transactions_of(db: brokerha.Client, key: str) -> Counter[str]:
    """How often each transaction of a load is in the log."""
    found: Counter[str] = Counter()
    first = 1
    while rows := db.log(first, first + 9_999):
        found.update(row["txid"] for row in rows if row["txid"].startswith(f"{key}."))
        first = rows[-1]["lsn"] + 1
    return found


def drawn(chance: random.Random, kills: int) -> list[str]:
    """So many victims, each kind as often as the others, in an order of chance."""
    kinds = (DRIVER, WORKER, EXECUTOR, NODE)
    victims = [kinds[number % len(kinds)] for number in range(kills)]
    chance.shuffle(victims)
    return victims


def counted(victims: Sequence[str]) -> str:
    """How many of each."""
    return ", ".join(f"{number} {victim}{'s' * (number > 1)}" for victim, number in sorted(Counter(victims).items()))
