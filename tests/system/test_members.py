"""Masters are added, taken out and replaced under load, each by one command: no write is lost, none takes effect twice.

Masters that come and go over RabbitMQ: `up` runs the first ones, each later one is a process of its own with a file of its own.

    up -c cluster.toml          m1 m2 m3, a worker each, all the time
    node m4 -c m4.toml          and node m4a: from `start("m4")` to `stop("m4")`

What changes the masters is the command ``brokerha peer``, as an operator types it.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

import pytest

import brokerha
from tests.system.copies import await_equal, check_books
from tests.system.processes import DEADLINE_S, ProcessCluster, command
from tests.system.writers import Writer, running, told

SETTINGS: Final = "max-peer-lag-s = 2\nround-timeout-ms = 300\nidle-round-ms = 400\nlog-stream = false\n"
STEP_S: Final = 60.0


class MemberSites(ProcessCluster):
    """The masters of the beginning, and those that are there for a while."""

    def __init__(self, folder: Path, broker: str, first: int = 3, later: Collection[str] = ("m4", "m5")) -> None:
        """``first`` masters are there from the beginning; there is room for ``later`` ones."""
        super().__init__(folder, broker, masters=first + len(later), workers_each=1, settings=SETTINGS, name="members")
        self.later = list(later)
        self.masters = [master for master in self.masters if master not in later]
        self.workers = [f"{master}a" for master in self.masters]
        self.path.write_text(self._toml(), encoding="utf-8")
        self._running: dict[str, list[subprocess.Popen[bytes]]] = {}

    def __exit__(self, *exception: object) -> None:
        self.stop(*self._running)
        super().__exit__(*exception)

    def start(self, node: str) -> None:
        """Write a file that names this node beside all masters, and start it and its worker."""
        masters, workers = self.masters, self.workers
        self.masters, self.workers = sorted({*masters, node}), sorted({*workers, f"{node}a"})
        path = self.folder / f"{node}.toml"
        path.write_text(self._toml(), encoding="utf-8")
        log = (self.folder / "up.log").open("ab")
        self._running[node] = [self._spawn(each, path, log) for each in (node, f"{node}a")]
        log.close()

    @staticmethod
    def _spawn(node: str, path: Path, log: IO[bytes]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "brokerha", "node", node, "-c", str(path)]
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True)

    @contextlib.contextmanager
    def down_later(self, node: str) -> Iterator[Path]:
        """SIGKILL a later master while its folder is tampered with, and start it again; its worker stays."""
        process, worker = self._running[node]
        process.kill()
        process.wait(10)
        yield self.folder / "var" / node
        log = (self.folder / "up.log").open("ab")
        self._running[node] = [self._spawn(node, self.folder / f"{node}.toml", log), worker]
        log.close()

    def await_answer(self, node: str) -> None:
        """Wait until a node answers, whatever it says."""
        self.until(lambda: self.get(node, "/livez") is not None, f"{node} answers")

    def stop(self, *nodes: str) -> None:
        """Stop later masters and their workers."""
        processes = [process for node in nodes for process in self._running.pop(node)]
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            try:
                process.wait(20)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait(10)
        self.masters = [master for master in self.masters if master not in nodes]
        self.workers = [worker for worker in self.workers if worker[:-1] not in nodes]

    def peer(self, *words: str, code: int = 0) -> tuple[str, float]:
        """Type a command about masters; returns what it said on standard error, and how many seconds it took."""
        began_s = time.monotonic()
        # Not the file of `up`, from which masters are started again: that stays as it was when they began.
        path = self.folder / "command.toml"
        path.write_text(self._toml(), encoding="utf-8")
        yes = ["--yes"] if words[0] in {"remove", "replace"} else []
        done = command("peer", *words, *yes, "-c", str(path), within_s=STEP_S)
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}\n{self.log_tail()}"
        return done.stderr, time.monotonic() - began_s

    # ---- what there is

    def await_masters(self, *masters: str) -> None:
        """Wait until each of these is a member of an epoch of exactly these."""

        def found() -> dict[str, Any]:
            return {master: self._members_at(master) for master in masters}

        self.until(lambda: found() == dict.fromkeys(masters, sorted(masters)), lambda: f"all are members: {found()}")

    def _members_at(self, master: str) -> Any:
        answer = self.get(master, "/cluster/peers")
        if answer is None or answer.status_code != 200:
            return None
        told = answer.json()
        return told["members"] if told["members"] == told["masters"] else (told["masters"], told["members"])

    def check(self, writers: Sequence[Writer]) -> int:
        """All logs are one, with each transaction once, and each copy has what writers were told; returns its length."""
        await_equal(self, DEADLINE_S)
        txids = self.check_logs()
        check_books(self, writers, with_others=True)
        return len(txids)


@contextlib.contextmanager
def writers_at(sites: MemberSites, masters: Collection[str], name: str) -> Iterator[list[Writer]]:
    """A writer that begins at each of these masters and goes to another one when it is refused; all have their answers at the end."""
    writers = []
    for master in masters:
        urls = [sites.url(master), *(sites.url(other) for other in ("m1", "m2") if other != master and other in sites.masters)]
        writers.append(Writer(f"{name}-{master}", partial(brokerha.connect, ",".join(urls))))
    with running(writers):
        yield writers


def test_from_three_to_five_to_three_and_an_emptied_one_comes_back(
    vhost_url: str, tmp_path: Path, covered: Callable[[str], None]
) -> None:
    with MemberSites(tmp_path, vhost_url) as sites:
        took: dict[str, float] = {}
        with writers_at(sites, ("m1", "m2", "m3"), "first") as writers:
            for node in ("m4", "m5"):
                sites.start(node)
            for node in ("m4", "m5"):
                _, took[f"add {node}"] = sites.peer("add", node)
            sites.await_masters("m1", "m2", "m3", "m4", "m5")
            with writers_at(sites, ("m4", "m5"), "later") as more:
                for node in ("m4", "m5"):
                    _, took[f"remove {node}"] = sites.peer("remove", node)
            sites.await_masters("m1", "m2", "m3")
            refused = sites.get("m4", "/writable")
            assert refused is not None
            assert "taken out of the cluster" in refused.text
            sites.stop("m4", "m5")
            with sites.down("m3") as folder:
                shutil.rmtree(folder)
            said, took["replace m3"] = sites.peer("replace", "m3")
            assert "added with its new journal" in said
            sites.await_masters("m1", "m2", "m3")
        sites.await_ready([*sites.masters, *sites.workers])
        writers = [*writers, *more]
        length = sites.check(writers)
    steps = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in took.items())
    covered(f"masters, 3 to 5 to 3 and one emptied: {steps}; {told(writers)} acknowledged, {length} in each log, 0 lost, 0 twice")


@pytest.mark.campaign
def test_from_one_to_three_to_five_to_three_with_deaths_in_between(
    vhost_url: str, tmp_path: Path, covered: Callable[[str], None]
) -> None:
    """Each step is one command, and somebody dies during each second one: who wishes for it, who is added, who leads."""
    with MemberSites(tmp_path, vhost_url, first=1, later=("m2", "m3", "m4", "m5")) as sites:
        took: dict[str, float] = {}
        everybody: list[Writer] = []
        for round_, victim in enumerate((None, "m1")):
            with writers_at(sites, ("m1",), f"growing-{round_}") as writers:
                everybody += writers
                for node in ("m2", "m3", "m4", "m5"):
                    if node in sites.masters:
                        continue
                    sites.start(node)
                    sites.await_answer(node)
                    killer = threading.Timer(2.5, sites.kill, [victim]) if victim else None
                    if killer is not None:
                        killer.start()
                    _, took[f"add {node}, {round_}"] = sites.peer("add", node)
                    if killer is not None:
                        killer.join()
                        sites.await_ready(["m1"])
                sites.await_masters("m1", "m2", "m3", "m4", "m5")
                with writers_at(sites, ("m2", "m3", "m4", "m5"), f"five-{round_}") as more:
                    everybody += more
                    for node in ("m5", "m4"):
                        _, took[f"remove {node}, {round_}"] = sites.peer("remove", node)
                sites.await_masters("m1", "m2", "m3")
                sites.stop("m4", "m5")
                for node in ("m4", "m5"):
                    shutil.rmtree(sites.folder / "var" / node)
                with sites.down_later("m3") as folder:
                    shutil.rmtree(folder)
                _, took[f"replace m3, {round_}"] = sites.peer("replace", "m3")
                sites.await_masters("m1", "m2", "m3")
        sites.await_ready([*sites.masters, *sites.workers])
        length = sites.check(everybody)
    steps = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in took.items())
    covered(f"masters, 1 to 3 to 5 to 3, twice: {steps}; {told(everybody)} acknowledged, {length} in each log, 0 lost, 0 twice")
