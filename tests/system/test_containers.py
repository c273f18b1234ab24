"""The services of docker/ without containers: the same commands, environment, files and health checks, as processes of this machine.

Given the broker as rabbitmq.conf and the definitions set it up (there is no guest), and the nodes as compose.yaml starts them, only with paths and
ports of a folder of the test, then all become healthy, an app writes as its own user, and SIGTERM ends each node within its time.
Given three virtual hosts in place of three brokers, linked by the definitions alone, then what is written at one site is read at the others.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest

import brokerha
from brokerha.cli.main import main
from tests.support.broker_source import BrokerSource
from tests.support.free_ports import free_ports
from tests.support.private_broker import PrivateBroker, find_scripts

DOCKER: Final = Path(__file__).resolve().parents[2] / "docker"
PATIENCE_S: Final = 90.0
ADMIN_PASSWORD: Final = "for the test"


class Composed(PrivateBroker):
    """A private broker with the configuration and the definitions of compose.yaml, as far as it leaves ports and folders open."""

    def __init__(self, configuration: str, definitions: Path) -> None:
        super().__init__(find_scripts())
        ports = ("listeners.", "management.tcp.", "log.", "load_definitions")
        self._lines = [line for line in configuration.splitlines() if line and not line.startswith(("#", *ports))]
        self._definitions = definitions

    @property
    def management_url(self) -> str:
        """There is no guest."""
        return f"http://orders.admin:{quote(ADMIN_PASSWORD)}@127.0.0.1:{self._ports.management}"

    def _write_files(self) -> None:
        super()._write_files()
        path = self.folder / "rabbitmq.conf"
        kept = [line for line in path.read_text(encoding="ascii").splitlines() if not line.startswith(("vm_memory", "disk_free"))]
        lines = [*kept, *self._lines, f"load_definitions = {self._definitions}"]
        path.write_text("\n".join(lines) + "\n", encoding="ascii")


class Services:
    """The nodes of a compose file as processes, with its paths and ports replaced by those of a folder."""

    def __init__(self, folder: Path, compose: dict[str, Any], brokers: dict[str, str]) -> None:
        """``brokers`` maps host:port of a broker in the secrets to where it is."""
        self.folder = folder
        self.services = {name: each for name, each in compose["services"].items() if "secrets" in each}
        first = free_ports(len(self.services))
        self.ports = {name: first + n for n, name in enumerate(self.services)}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for secret in compose["secrets"].values():
            path = folder / secret["file"]
            text = path.read_text(encoding="utf-8")
            for name, place in brokers.items():
                text = text.replace(f"@{name}/", f"@{place}/")
            path.write_text(text, encoding="utf-8")
        self._files = {f"/run/secrets/{name}": folder / each["file"] for name, each in compose["secrets"].items()}

    def start(self) -> None:
        with (self.folder / "nodes.log").open("ab") as log:
            for name, service in self.services.items():
                words = [
                    str(self.folder / "cluster.toml") if word == "/etc/brokerha/cluster.toml" else word
                    for word in service["command"]
                ]
                self._processes[name] = subprocess.Popen(
                    [sys.executable, "-m", "brokerha", *words],
                    env=self._environment(name),
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )

    def _environment(self, name: str) -> dict[str, str]:
        found = dict(os.environ)
        for key, value in self.services[name]["environment"].items():
            text = str(self._files.get(value, value)).replace("/var/lib/brokerha", str(self.folder / "var" / name))
            for prefix in ("0.0.0.0:", "http://127.0.0.1:"):
                text = f"{prefix}{self.ports[name]}" if text.startswith(prefix) else text
            found[key] = text.replace("0.0.0.0:", "127.0.0.1:")
        return found

    def is_healthy(self, name: str) -> bool:
        """By the health check of the image."""
        line = next(line for line in (DOCKER / "Dockerfile").read_text().splitlines() if line.startswith("HEALTHCHECK"))
        command = json.loads(line.split("CMD ", maxsplit=1)[1])
        done = subprocess.run(
            [sys.executable, *command[1:]], env=self._environment(name), capture_output=True, check=False, timeout=60
        )
        return done.returncode == 0

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]}"

    def until(self, found: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not found():
            dead = [name for name, process in self._processes.items() if process.poll() is not None]
            tail = "\n".join((self.folder / "nodes.log").read_text("utf-8", "replace").splitlines()[-40:])
            assert not dead, f"{dead} ended\n{tail}"
            assert time.monotonic() < deadline, f"not in time: {what}\n{tail}"
            time.sleep(0.3)

    def stop(self) -> dict[str, int]:
        """SIGTERM, as an engine does; returns the exit codes."""
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        codes = {}
        for name, process in self._processes.items():
            grace_s = float(self.services[name]["stop_grace_period"].removesuffix("s"))
            try:
                codes[name] = process.wait(grace_s)
            except subprocess.TimeoutExpired:
                process.kill()
                codes[name] = process.wait(10)
        self._processes.clear()
        return codes


def made(example: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The files of an example with secrets, and its compose file as data."""
    shutil.copy(DOCKER / example / "cluster.toml", folder)
    monkeypatch.setenv("BROKERHA_PASSWORD_ADMIN", ADMIN_PASSWORD)
    monkeypatch.chdir(folder)
    assert main(["init", "compose", "--deploy", "."]) == 0
    found: dict[str, Any] = importlib.import_module("yaml").safe_load((folder / "compose.yaml").read_text(encoding="utf-8"))
    return found


@pytest.fixture
def one_site(broker: BrokerSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Services, Composed]]:
    if find_scripts() is None:
        pytest.skip("no RabbitMQ here that a test may configure")
    compose = made("one-site", tmp_path, monkeypatch)
    with Composed((tmp_path / "rabbitmq.conf").read_text(encoding="utf-8"), tmp_path / "definitions.json") as rabbit:
        place = rabbit.amqp_url.split("@")[1].split("/")[0]
        services = Services(tmp_path, compose, {"rabbitmq": place})
        services.start()
        try:
            yield services, rabbit
        finally:
            services.stop()


@pytest.mark.slow
def test_one_site_becomes_healthy_and_ends_in_order(one_site: tuple[Services, Composed], tmp_path: Path):
    services, rabbit = one_site
    for name in services.services:
        services.until(partial(services.is_healthy, name), f"{name} is healthy")
    with rabbit.management() as management:
        users = {user["name"] for user in management.export_definitions()["users"]}
        assert users == {f"orders.{name}" for name in ("m1", "m1s", "w1", "w2", "app", "follower", "monitor", "admin")}
    place = rabbit.amqp_url.split("@")[1].split("/")[0]
    url = (tmp_path / "secrets" / "app.url").read_text(encoding="utf-8").strip().replace("@rabbitmq/", f"@{place}/")
    with brokerha.connect(url, timeout=PATIENCE_S) as db:
        db.put("prices", b"sku-1", b"9.90")
        assert db.get("prices", b"sku-1") == b"9.90"
    assert set(services.stop().values()) == {0}


def three_sites(broker: BrokerSource, vhosts: list[str], folder: Path) -> str:
    """A cluster file with a virtual host for each site in place of a broker."""
    text = f'[cluster]\nname = "linked"\nbroker = "{broker.url_of(vhosts[0])}"\n'
    first = free_ports(6)
    for n, vhost in enumerate(vhosts):
        text += f'[[master]]\nid = "m{n + 1}"\nbroker = "{broker.url_of(vhost)}"\nhttp = "127.0.0.1:{first + n}"\n'
    for n in range(3):
        text += f'[[worker]]\nid = "w{n + 1}"\nmaster = "m{n + 1}"\nhttp = "127.0.0.1:{first + 3 + n}"\n'
    (folder / "cluster.toml").write_text(text, encoding="utf-8")
    return text


@pytest.mark.slow
def test_sites_are_linked_by_their_definitions_alone(broker: BrokerSource, tmp_path: Path):
    vhosts = [f"linked-{n}" for n in (1, 2, 3)]
    text = three_sites(broker, vhosts, tmp_path)
    urls = [line.split('"')[1] for line in text.splitlines() if line.startswith("http")]
    assert main(["init", "definitions", "-c", str(tmp_path / "cluster.toml"), "--deploy", str(tmp_path), "--app", "app"]) == 0
    users: set[str] = set()
    processes = []
    try:
        for n in (1, 2, 3):
            definitions = json.loads((tmp_path / f"definitions.m{n}.json").read_text(encoding="utf-8"))
            users |= {user["name"] for user in definitions["users"]}
            with broker.management() as management:
                management.import_definitions(definitions)
        with (tmp_path / "nodes.log").open("ab") as log:
            for node in ("m1", "m2", "m3", "w1", "w2", "w3"):
                key = f"BROKERHA_MASTER_M{node[1]}_BROKER_FILE"
                environment = {**os.environ, key: str(tmp_path / "secrets" / f"{node}.url")}
                command = [sys.executable, "-m", "brokerha", "node", node, "-c", str(tmp_path / "cluster.toml")]
                processes.append(
                    subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
                )
        with brokerha.connect(f"http://{urls[0]}", timeout=PATIENCE_S) as db:
            lsn = written(db)
        for url in urls[1:3]:
            with brokerha.connect(f"http://{url}", timeout=PATIENCE_S) as db:
                assert db.get("prices", b"sku-1", min_lsn=lsn) == b"9.90"
        assert "ACCESS_REFUSED" not in (tmp_path / "nodes.log").read_text(encoding="utf-8", errors="replace")
    except brokerha.errors.BrokerhaError as error:
        tail = (tmp_path / "nodes.log").read_text("utf-8", "replace").splitlines()[-60:]
        raise AssertionError("\n".join([str(error), *tail])) from error
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(PATIENCE_S)
        for vhost in vhosts:
            broker.delete_vhost(vhost)
        with broker.management() as management:
            for user in users:
                management.delete_user(user)


def written(db: Any) -> int:
    """LSN of a write that every master has agreed on: it needs all links."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return int(db.put("prices", b"sku-1", b"9.90", key="once", timeout=5).lsn)
        except brokerha.errors.BrokerhaError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.3)
