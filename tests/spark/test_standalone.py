"""The jobs on a Spark cluster: a standalone master with two workers on loopback, everything a process of its own, nothing else changed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest

from brokerha.cli.bench.pipeline_log import write_backup
from brokerha.spark.java import find_runtime
from brokerha.spark.session import cache_folder
from brokerha.stores.backup.directory import BackupFolder
from tests.support.free_ports import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.campaign]

ENTRIES = 12_000
SOON_S = 300.0
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
LOOPBACK = "127.0.0.1"
READ = """
import sys
from brokerha.spark.session import SparkOptions, session
conf = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"}
with session("read", SparkOptions(sys.argv[1], "512m", conf)) as spark:
    rows = spark.read.format("brokerha").option("backup", sys.argv[2]).option("partitions", "4").load()
    print(rows.select("lsn").distinct().count())
"""


class Daemon:
    """A master or worker of Spark, and what it said so far."""

    def __init__(self, kind: str, *arguments: str, environment: dict[str, str]) -> None:
        command = [str(SPARK_CLASS), f"org.apache.spark.deploy.{kind}", "--host", LOOPBACK, *arguments]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        self._said: list[str] = []
        self._heard = threading.Condition()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._heard:
                self._said.append(line)
                self._heard.notify_all()

    def until(self, pattern: str, times: int = 1) -> None:
        """Wait until so many lines said it."""

        def is_said() -> bool:
            return sum(re.search(pattern, line) is not None for line in self._said) >= times

        with self._heard:
            assert self._heard.wait_for(is_said, SOON_S), "".join(self._said[-20:])

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(60)
        self._listener.join(60)
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """The URL of a master with two workers of one core each."""
    home = find_runtime(cache_folder()).home
    environment = {
        **os.environ,
        **({"JAVA_HOME": str(home)} if home else {}),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_DAEMON_MEMORY": "256m",
    }
    port = str(free_ports())
    url = f"spark://{LOOPBACK}:{port}"
    with ExitStack() as stack:
        master = Daemon("master.Master", "--port", port, "--webui-port", "0", environment=environment)
        stack.callback(master.end)
        master.until("I have been elected leader")
        for number in (1, 2):
            worker = Daemon(
                "worker.Worker", "--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir",
                str(folder / f"worker-{number}"), url, environment=environment,
            )  # fmt: skip
            stack.callback(worker.end)
        master.until("Registering worker", times=2)
        yield url


def brokerha(*arguments: str, input_: str | None = None) -> str:
    """What a command says on standard output."""
    command = [sys.executable, *(["-"] if input_ else ["-m", "brokerha.cli.main"]), *arguments]
    environment = {**os.environ, "SPARK_LOCAL_IP": LOOPBACK}
    done = subprocess.run(
        command, input=input_, capture_output=True, text=True, env=environment, timeout=SOON_S, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def pipeline(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(brokerha("pipeline", *arguments, "-o", "json"))
    return found


def test_every_job_does_on_a_standalone_cluster_what_it_does_here(tmp_path: Path) -> None:
    log, apart, alone = tmp_path / "log", tmp_path / "on-cluster", tmp_path / "alone"
    manifest = write_backup(log, ENTRIES)
    on: tuple[str, ...] = (
        "--spark-memory", "512m", "--spark-conf", f"spark.driver.host={LOOPBACK}", "--spark-conf",
        "spark.executor.memory=512m",
    )  # fmt: skip
    of_log = ("--backup", f"{log}/", "--batch-entries", "6000")
    pipeline("archive", "--into", str(alone), *of_log)
    with cluster(tmp_path) as url:
        on += ("--spark-master", url)
        archived = pipeline("archive", "--into", str(apart), *of_log, *on)
        assert (archived["last_lsn"], archived["batches"]) == (ENTRIES, 2)
        audited = pipeline("audit", "--archive", str(apart), "--alone", *on)
        assert (audited["result"], audited["is_proved"]) == ("equal", True)
        rebuilt = pipeline("rebuild", "again", "--archive", str(apart), "--backups", str(tmp_path / "backups"), *on)
        assert rebuilt["fingerprint"] == manifest.last_fingerprint
        exported = pipeline("export", "--archive", str(apart), "--into", str(tmp_path / "out"), *on)
        assert exported["fingerprint"] == manifest.last_fingerprint
        assert int(brokerha(url, str(log), input_=READ)) == ENTRIES
        # Tasks of both workers wrote into it, and nothing of them is left over.
        assert len(list((tmp_path / "worker-1").iterdir())) >= 1
        assert len(list((tmp_path / "worker-2").iterdir())) >= 1
    chains = [pipeline("archive-info", str(each))["chain"] for each in (apart, alone)]
    assert chains[0] == chains[1]
    assert list(BackupFolder(tmp_path / "backups").backup("again").verify()) == []
