"""A site under the real supervisord, as ``brokerha init`` sets it up: every node with its own user at the broker, nobody as root.

    with Supervised(folder, broker) as site:     # m1 with its backup m1s and its workers m1a and m1b
        site.kill("m1a")                         # SIGKILL; supervisord starts it again
        site.control("stop", "all")

Run as root, a site belongs to `nobody`, who needs a Python that it may execute: ours, or the system's of the same version. Where there is
none the site runs as root after all, and says so (`is_unprivileged`).
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from brokerha.deploying.machine import KILL_SUPERVISOR_AFTER_S
from tests.support.free_ports import free_ports
from tests.support.private_broker import PrivateBroker
from tests.system.processes import ProcessCluster

ROOT: Final = Path(__file__).resolve().parents[2]
BACKUP: Final = "m1s"
UNPRIVILEGED: Final = "nobody"


class Runner(NamedTuple):
    """Who runs the site, with what."""

    user: str
    python: str
    environment: dict[str, str]

    def command(self, *words: str) -> list[str]:
        """A command of a Python module."""
        return [self.python, "-m", *words]

    def run(self, *words: str, code: int | None = 0, within_s: float = 60) -> str:
        """Run a module as this user; returns what it printed."""
        done: subprocess.CompletedProcess[str] = subprocess.run(
            self.command(*words), **self.options(), capture_output=True, text=True, timeout=within_s, check=False
        )
        assert code in {None, done.returncode}, f"{words} gave {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def options(self) -> dict[str, Any]:
        """Options of subprocess that make a process this user's."""
        found: dict[str, Any] = {"env": self.environment, "cwd": "/"}
        if self.user != _me():
            found |= {"user": self.user, "group": pwd.getpwnam(self.user).pw_gid, "extra_groups": []}
        return found


def find_runner() -> Runner:
    """Somebody without rights who can run brokerha."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BROKERHA_")}
    ours = {**kept, "PYTHONPATH": str(ROOT)}
    if os.geteuid() != 0:
        return Runner(_me(), sys.executable, ours)
    path = f"{ROOT}{os.pathsep}{sysconfig.get_path('purelib')}"
    system = f"/usr/bin/python3.{sys.version_info.minor}"
    for runner in (
        Runner(UNPRIVILEGED, sys.executable, {**ours, "HOME": "/"}),
        Runner(UNPRIVILEGED, system, {**kept, "PYTHONPATH": path, "HOME": "/", "PYTHONDONTWRITEBYTECODE": "1"}),
    ):
        try:
            runner.run("brokerha", "--version")
        except (OSError, AssertionError):
            continue
        return runner
    return Runner(_me(), sys.executable, ours)


def _me() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name


class Supervised(ProcessCluster):
    """See the head of the module."""

    def __init__(self, broker: PrivateBroker, vhost: str) -> None:
        self.runner = find_runner()
        self.vhost = vhost
        self._source = broker
        self.home = Path(tempfile.mkdtemp(prefix="brokerha-supervised-"))
        self._backup_port = free_ports(1)
        super().__init__(self.home, broker.url_of(vhost), masters=1, workers_each=2, name=vhost)
        self.ports[BACKUP] = self._backup_port
        self.nodes = ["m1", BACKUP, *self.workers]
        self.deploy = self.home / "deploy"
        self.log = self.deploy / "log" / "supervisord.log"
        if self.is_foreign:
            for path in (self.home, self.path):
                shutil.chown(path, self.runner.user)

    def _toml(self) -> str:
        text = super()._toml()
        return f'{text}[[backup]]\nid = "{BACKUP}"\nmaster = "m1"\nhttp = "127.0.0.1:{self._backup_port}"\n'

    @property
    def is_foreign(self) -> bool:
        """Whether the site belongs to somebody else."""
        return self.runner.user != _me()

    @property
    def is_unprivileged(self) -> bool:
        """Whether nothing of it runs as root."""
        return self.runner.user != "root"

    def make(self) -> None:
        """Write the files, as a person does, and give the broker its definitions."""
        self.runner.run("brokerha", "init", "definitions", "-c", str(self.path), "--deploy", str(self.deploy))
        user = self.runner.user if self.is_unprivileged else "somebody"
        secrets = ("--secrets", str(self.deploy / "secrets"), "--user", user)
        self.runner.run("brokerha", "init", "supervisord", "-c", str(self.path), "--deploy", str(self.deploy), *secrets)
        if not self.is_unprivileged:
            for file in self.deploy.glob("*.conf"):
                file.write_text(re.sub(r"^user = .*\n", "", file.read_text(), flags=re.MULTILINE), encoding="utf-8")
        with self._source.management() as management:
            management.import_definitions(json.loads((self.deploy / "definitions.json").read_text(encoding="utf-8")))

    def url_of(self, user: str) -> str:
        """The broker for one of its users."""
        return (self.deploy / "secrets" / f"{user}.url").read_text(encoding="utf-8").strip()

    def start(self) -> None:
        """Start supervisord; does not wait for the nodes."""
        self._out = (self.home / "supervisord.out").open("ab")
        self._process = subprocess.Popen(
            self.runner.command("supervisor.supervisord", "-n", "-c", str(self.deploy / "supervisord.conf")),
            stdout=self._out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            **self.runner.options(),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._process is not None:
                assert self.shut_down() == 0
        finally:
            self._http.close()
            shutil.rmtree(self.home, ignore_errors=True)

    def shut_down(self) -> int:
        """SIGTERM to supervisord, which stops the nodes in order first; returns its exit code."""
        assert self._process is not None
        pids = list(self.pids().values())
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(KILL_SUPERVISOR_AFTER_S)
        finally:
            self._process.kill()
            self._process.wait(10)
            self._process = None
            self._out.close()
            for pid in pids:
                _kill_if_alive(pid)

    def control(self, *words: str, code: int | None = None, within_s: float = 120) -> str:
        """supervisorctl."""
        words = ("supervisor.supervisorctl", "-c", str(self.deploy / "supervisord.conf"), *words)
        return self.runner.run(*words, code=code, within_s=within_s)

    def states(self) -> dict[str, str]:
        """State of each program, by the word of supervisord; empty while it does not answer."""
        return dict(re.findall(rf"^{self.vhost}-(\S+)\s+([A-Z]+)\b", self.control("status"), re.MULTILINE))

    def await_states(self, word: str) -> None:
        """Wait until all programs have this state."""
        wanted = dict.fromkeys(self.nodes, word)
        self.until(lambda: self.states() == wanted, lambda: f"all are {word}: {self.states()}")

    def pids(self) -> dict[str, int]:
        """Process id of each node that runs."""
        found = re.findall(rf"^{self.vhost}-(\S+)\s+[A-Z]+\s+pid (\d+),", self.control("status"), re.MULTILINE)
        return {node: int(pid) for node, pid in found}

    def pid(self, node: str) -> int:
        """Process id of a node, once supervisord runs it."""
        return self.until(lambda: self.pids().get(node), f"{node} runs")

    def log_tail(self, lines: int = 60) -> str:
        """The last lines of all logs."""
        files = [self.home / "supervisord.out", *sorted((self.deploy / "log").glob("*.log"))]
        return "\n".join(
            f"--- {file.name}\n" + "\n".join(file.read_text("utf-8", "replace").splitlines()[-lines:])
            for file in files
            if file.is_file()
        )


def _kill_if_alive(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
