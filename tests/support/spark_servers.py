"""Servers of Spark on loopback, each a process of its own: a standalone master with its workers, and a server of Spark Connect."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pyspark

from brokerha.spark.java import find_runtime
from brokerha.spark.session import cache_folder
from tests.support.free_ports import free_ports

SOON_S = 300.0
BIN = Path(pyspark.__file__).parent / "bin"
LOOPBACK = "127.0.0.1"
PYTHON_WORKER = "-m\0brokerha.spark.worker_daemon"
"""Within the command line of what Spark forks Python workers from, and of these; that of the JVM names the module too."""
ON_CLUSTER = (
    "--spark-memory", "512m", "--spark-conf", f"spark.driver.host={LOOPBACK}", "--spark-conf", "spark.executor.memory=512m",
)  # fmt: skip
"""Words of a command that runs on a small standalone cluster, beside `--spark-master`."""


class Daemon:
    """A server of Spark, and what it said so far."""

    def __init__(self, script: str, *arguments: str, memory: str = "256m") -> None:
        command = [str(BIN / script), *arguments]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=_environment(memory)
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
        self._process.wait()
        with self._heard:
            self._heard.notify_all()

    def until(self, pattern: str, times: int = 1) -> None:
        """Wait until so many lines said it."""

        def is_said() -> bool:
            return sum(re.search(pattern, line) is not None for line in self._said) >= times

        def is_over() -> bool:
            return is_said() or self._process.returncode is not None

        with self._heard:
            self._heard.wait_for(is_over, SOON_S)
            assert is_said(), "".join(self._said[-60:])

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(60)
        self._listener.join(60)
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """The URL of a master with two workers of one core each."""
    port = str(free_ports())
    url = f"spark://{LOOPBACK}:{port}"
    with ExitStack() as stack:
        master = _deployed("master.Master", "--port", port, "--webui-port", "0")
        stack.callback(master.end)
        master.until("I have been elected leader")
        for number in (1, 2):
            worker = _deployed(
                "worker.Worker", "--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(folder / f"worker-{number}"), url
            )  # fmt: skip
            stack.callback(worker.end)
        master.until("Registering worker", times=2)
        yield url


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """The URL of a server of Spark Connect with two cores. Its Python is the one of the tests."""
    port = free_ports()
    server = Daemon(
        "spark-submit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2,4]",
        "--conf", f"spark.connect.grpc.binding.address={LOOPBACK}", "--conf", f"spark.connect.grpc.binding.port={port}",
        "--conf", "spark.ui.enabled=false", "--conf", f"spark.local.dir={folder}", "--conf", f"spark.sql.warehouse.dir={folder}", "spark-internal",
        memory="1g",
    )  # fmt: skip
    try:
        server.until("Spark Connect server started at")
        yield f"sc://{LOOPBACK}:{port}"
    finally:
        server.end()


def executors(folder: Path) -> list[int]:
    """Processes that Spark's workers of this folder have started."""
    return [each for each in processes_with("CoarseGrainedExecutorBackend") if str(folder) in _place_of(each)]


def processes_with(word: str) -> list[int]:
    """Processes whose command line has a word."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if word.encode() in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


def parents() -> dict[int, int]:
    """The parent of each process."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            found[int(process.name)] = int((process / "stat").read_text().rpartition(")")[2].split()[1])
    return found


def above(process: int, known: dict[int, int]) -> Iterator[int]:
    """The processes that a process comes from."""
    while (process := known.get(process, 0)) > 0:
        yield process


def _place_of(process: int) -> str:
    with suppress(OSError):
        return str(Path(f"/proc/{process}/cwd").readlink())
    return ""


def _deployed(kind: str, *arguments: str) -> Daemon:
    return Daemon("spark-class", f"org.apache.spark.deploy.{kind}", "--host", LOOPBACK, *arguments)


def _environment(memory: str) -> dict[str, str]:
    home = find_runtime(cache_folder()).home
    return {
        **os.environ,
        **({"JAVA_HOME": str(home)} if home else {}),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_DAEMON_MEMORY": memory,
        "PYSPARK_PYTHON": sys.executable,
    }
