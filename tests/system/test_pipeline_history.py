"""A real history through the whole pipeline over RabbitMQ: loaded, archived while it is written, audited, and rebuilt at any release.

Given two masters with two workers each and an archive that follows them, when release after release of the schema.org vocabulary is
written, then the archive holds each transaction once and every worker is what it says; the states rebuilt at three releases are those
releases, triple by triple, with the fingerprint that the cluster had then; and a worker whose directory is replaced by the oldest of them
follows the log to the same fingerprint as all others, without a snapshot.

The short form takes a sample of all subjects. The campaign takes everything, and loads on Spark too.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast
from zlib import crc32

import pytest

import brokerha
from brokerha.pipeline.table import LogTable
from brokerha.stores.copies.directory import POINTER, read_pointer
from brokerha.stores.copies.worker_copy import WorkerCopy
from brokerha.stores.rdf.query import spelled
from tests.support.commands_on_spark import SMALL, answer, one_session
from tests.system.processes import ProcessCluster
from tests.system.test_history import changes, releases

pytest.importorskip("pyspark")

WITHIN_S = 600
SETTINGS = "scrub-every-s = 0\n"


class Release(NamedTuple):
    """One release as the cluster had it."""

    name: str
    lines: set[str]
    lsn: int
    fingerprint: str


class History:
    """The cluster, its archive, and what was written."""

    def __init__(self, cluster: ProcessCluster, home: Path, *, is_on_spark: bool) -> None:
        self.cluster = cluster
        self.home = home
        self.archive = home / "archive"
        self.backups = home / "backups"
        self._is_on_spark = is_on_spark

    def run(self, *words: str) -> dict[str, Any]:
        """The answer of a command that does what it should, in this process."""
        code, found = answer(*words, "-c", str(self.cluster.path))
        assert code == 0, f"{words}: {code} {found}"
        return cast("dict[str, Any]", found)

    def pipeline(self, job: str, *words: str) -> dict[str, Any]:
        """The answer of a job."""
        return self.run("pipeline", job, *words)

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        """The archive follows as long as the block runs, and ends whole."""
        words = ["pipeline", "archive", "--into", str(self.archive), "--every", "0.5", *SMALL, "-c", str(self.cluster.path)]
        with (self.home / "archive.log").open("wb") as log:
            process = subprocess.Popen([sys.executable, "-m", "brokerha", *words], stderr=log, stdout=log)
            try:
                yield
                while not LogTable(str(self.archive)).exists():
                    assert process.poll() is None, (self.home / "archive.log").read_text()
                    time.sleep(0.1)
                process.send_signal(signal.SIGINT)
                assert process.wait(WITHIN_S) == 0, (self.home / "archive.log").read_text()
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait(10)

    def load(self, name: str, lines: set[str]) -> None:
        """The first release comes as a file."""
        file = self.home / f"{name}.nt"
        file.write_text("\n".join(sorted(lines)) + "\n", encoding="utf-8")
        if self._is_on_spark:
            self.run("pipeline", "load", str(file), "--rejects", str(self.home / "rejects"))
        else:
            self.run("load", str(file), "--key", f"load-{name}")

    def change(self, before: set[str], after: set[str], seed: int) -> None:
        """The next ones as transactions through both masters."""
        with contextlib.ExitStack() as stack:
            clients = [
                stack.enter_context(brokerha.connect(self.cluster.url(master), timeout=60)) for master in self.cluster.masters
            ]
            for number, operations in enumerate(changes(before, after, random.Random(seed))):
                clients[number % len(clients)].write(operations)

    def state(self) -> tuple[int, str]:
        """LSN and fingerprint of all workers, once they agree on them."""
        deadline = time.monotonic() + WITHIN_S
        while True:
            found = {(row["applied_lsn"], row["fingerprint"]) for row in map(self._worker, self.cluster.workers)}
            if len(found) == 1 and (only := found.pop())[1]:
                return only
            assert time.monotonic() < deadline, found
            time.sleep(0.2)

    def _worker(self, worker: str) -> dict[str, Any]:
        with brokerha.connect(self.cluster.url(worker), timeout=30) as client:
            told = client.digests(1)
        return {"applied_lsn": told["lsn"], "fingerprint": told["fingerprint"]}

    def restored(self, name: str, *words: str) -> tuple[dict[str, Any], set[str]]:
        """Report and content of a state that was rebuilt as a backup, verified and restored."""
        report = self.pipeline("rebuild", name, "--archive", str(self.archive), "--backups", str(self.backups), *words)
        assert self.run("backup", "verify", name, "--backups", str(self.backups))["problems"] == []
        self.run("restore", f"{self.backups / name}", "--into", str(self.home / name), "--as", "w1")
        return report, self._lines(self.home / name, report)

    def rebuilt(self, name: str, *words: str) -> tuple[dict[str, Any], set[str]]:
        """Report and content of a state that was rebuilt as the directory of a worker."""
        into = self.home / name
        report = self.pipeline("rebuild", "--archive", str(self.archive), "--into", str(into), "--as", "w1", *words)
        return report, self._lines(into, report)

    def _lines(self, directory: Path, report: dict[str, Any]) -> set[str]:
        """The quads that a worker would have, which stands where a report says."""
        copy = WorkerCopy(directory, cluster=self.cluster.name, node="w1")
        try:
            assert (copy.applied().lsn, copy.applied().fingerprint) == (report["lsn"], report["fingerprint"])
            repository = copy._generation.store._repositories.listed["main"]
            return {f"{spelled(line)} ." for line in repository.engine.lines()}
        finally:
            copy.close()


def sampled(lines: list[str], one_of: int) -> set[str]:
    """All lines of about one in so many subjects, the same in each release."""
    return {line for line in lines if crc32(line.split(" ", 1)[0].encode()) % one_of == 0}


def through_the_pipeline(
    broker: str, home: Path, *, first: int, one_of: int, is_on_spark: bool, covered: Callable[[str], None]
) -> None:
    published = [(name, sampled(lines, one_of)) for name, lines in releases()[:first]]
    with ProcessCluster(home, broker, masters=2, workers_each=2, settings=SETTINGS) as cluster, one_session():
        history = History(cluster, home, is_on_spark=is_on_spark)
        written: list[Release] = []
        with history.followed():
            for number, (name, lines) in enumerate(published):
                if number == 0:
                    history.load(name, lines)
                else:
                    history.change(written[-1].lines, lines, number)
                written.append(Release(name, lines, *history.state()))
        last_lsn = written[-1].lsn
        assert history.pipeline("archive", "--into", str(history.archive))["last_lsn"] == last_lsn
        audit = history.pipeline("audit", "--archive", str(history.archive))
        assert audit["result"] == "equal", audit
        assert {copy["node"] for copy in audit["copies"] if copy["result"] == "equal"} == set(cluster.workers)

        _check_releases(history, written)
        _check_worker(history, written[0], last_lsn)
    covered(
        f"schema.org history through the pipeline: {len(written)} releases, {last_lsn} transactions archived and audited, 3 rebuilt, one as "
        "a worker"
    )


def _check_releases(history: History, written: list[Release]) -> None:
    """One state as a backup, by its LSN, and one as a directory, by the time of its last transaction."""
    middle, last = written[len(written) // 2], written[-1]
    report, lines = history.restored("middle", "--to-lsn", str(middle.lsn), "--lines")
    assert (report["lsn"], report["fingerprint"]) == (middle.lsn, middle.fingerprint)
    assert lines == middle.lines
    table = LogTable(str(history.archive))
    stamped = table.timestamp_at(table.state(), last.lsn)
    report, lines = history.rebuilt("last", "--to-time", str(stamped))
    assert (report["lsn"], report["fingerprint"]) == (last.lsn, last.fingerprint)
    assert lines == last.lines


def _check_worker(history: History, release: Release, last_lsn: int) -> None:
    """The oldest state becomes a worker, which follows the log to where all others are."""
    node = history.cluster.workers[-1]
    with history.cluster.down(node) as directory:
        shutil.rmtree(directory)
        report = history.pipeline(
            "rebuild", "--archive", str(history.archive), "--into", str(directory), "--to-lsn", str(release.lsn)
        )  # fmt: skip
        assert (report["fingerprint"], report["node"]) == (release.fingerprint, node)
        number = read_pointer((directory / POINTER).read_bytes())["copy"]
    history.cluster.await_ready([node])
    assert history.state()[0] == last_lsn
    # A snapshot would have brought another copy.
    assert read_pointer((directory / POINTER).read_bytes())["copy"] == number


@pytest.mark.slow
def test_a_sample_of_three_releases_is_archived_audited_and_rebuilt(
    vhost_url: str, tmp_path: Path, covered: Callable[[str], None]
) -> None:
    through_the_pipeline(vhost_url, tmp_path, first=3, one_of=10, is_on_spark=False, covered=covered)


@pytest.mark.campaign
def test_all_releases_are_loaded_archived_audited_and_rebuilt_on_spark(
    vhost_url: str, tmp_path: Path, covered: Callable[[str], None]
) -> None:
    through_the_pipeline(vhost_url, tmp_path, first=100, one_of=1, is_on_spark=True, covered=covered)
