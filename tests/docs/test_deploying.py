"""Every command of docs/deploying.md runs: the real supervisord and RabbitMQ; systemd and containers as far as they go without an init and an engine."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks_of, shell_of, the_block
from tests.support.broker_source import NoBrokerError, local_scripts
from tests.support.free_ports import free_ports
from tests.support.private_broker import PrivateBroker
from tests.support.waiting import until
from tests.system.supervised import Runner, find_runner

PAGE = "docs/deploying.md"
PATIENCE_S = 90.0
PORTS = ("7201", "7202", "7301", "7302")
WAITS = ("supervisorctl", "brokerha status")
"""What a person does again until it says that all is well."""


def commands(text: str) -> list[str]:
    """The command lines of the block that holds this text."""
    return [line for line in the_block(PAGE, "sh", text).splitlines() if line and not line.startswith("#")]


def test_no_command_is_left_out():
    tried = ("import_definitions", "supervisord -c", "shutdown", "systemd-analyze", "docker build")
    assert len(list(blocks_of(PAGE, "sh"))) == len(tried)
    assert all(commands(text) for text in tried)


@pytest.fixture
def person() -> Iterator[tuple[Runner, Path]]:
    """Somebody without rights, with a folder that has the cluster file."""
    runner = find_runner()
    if runner.user == "root":
        pytest.skip("only root can run this Python, and nodes of deployments are not root's")
    folder = Path(tempfile.mkdtemp(prefix="brokerha-deploying-"))
    try:
        yield runner, folder
    finally:
        with_pid = folder / "deploy" / "run" / "supervisord.pid"
        if with_pid.is_file():
            _end(int(with_pid.read_text()))
        shutil.rmtree(folder, ignore_errors=True)


def _end(pid: int) -> None:
    """End supervisord, which ends its nodes."""
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.broker
def test_definitions_and_supervisord(person: tuple[Runner, Path]):
    runner, folder = person
    try:
        scripts = local_scripts()
    except NoBrokerError as problem:
        pytest.skip(str(problem))
    with PrivateBroker(scripts) as broker:
        first = free_ports(len(PORTS))
        text = the_block(PAGE, "toml", "[cluster]").replace("amqp://guest:guest@127.0.0.1:5672/orders", broker.url_of("orders"))
        for n, port in enumerate(PORTS):
            text = text.replace(f":{port}", f":{first + n}")
        (folder / "cluster.toml").write_text(text, encoding="utf-8")
        for path in (folder, folder / "cluster.toml"):
            shutil.chown(path, runner.user)
        for part in ("import_definitions", "supervisord -c", "shutdown"):
            for line in commands(part):
                _carry_out(line, runner, folder, broker)
        # It says yes at once, and is gone when all nodes have stopped.
        until(lambda: not (folder / "deploy" / "run" / "supervisord.pid").exists(), within_s=PATIENCE_S)


def _carry_out(line: str, runner: Runner, folder: Path, broker: PrivateBroker) -> None:
    """One line as it stands; only the name of the user is that of this machine."""
    program, *words = shlex.split(line.replace("--user brokerha", f"--user {runner.user}"))
    if program == "rabbitmqctl":
        # Debian's runs in another folder as another user: what a file holds comes by standard input.
        given = (folder / words.pop()).read_text(encoding="utf-8") if words[-2:-1] == ["<"] else None
        broker.ctl(*(word for word in words if word != "<"), given=given)
        return
    module = {"brokerha": "brokerha", "supervisord": "supervisor.supervisord", "supervisorctl": "supervisor.supervisorctl"}[program]
    deadline = time.monotonic() + PATIENCE_S
    while True:
        options = {**runner.options(), "cwd": folder}
        done = subprocess.run(runner.command(module, *words), **options, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode == 0:
            return
        if not line.startswith(WAITS) or time.monotonic() > deadline:
            logs = "\n".join(path.read_text("utf-8", "replace")[-2000:] for path in (folder / "deploy" / "log").glob("*.log"))
            raise AssertionError(f"{line}: {done.returncode}\n{done.stdout}{done.stderr}\n{logs}")
        time.sleep(0.5)


STUB = """\
#!/bin/sh
echo "$(basename "$0") $*" >> "$SAID"
"""
"""What this machine need not have: it is noted, and everything that it names is looked for afterwards."""


def run_script(lines: list[str], folder: Path, stubs: tuple[str, ...]) -> list[str]:
    """Run lines in one shell; returns the calls of the stubs."""
    said = folder / "said"
    said.touch()
    environment = shell_of(folder, dict.fromkeys(stubs, STUB)) | {"SAID": str(said)}
    done = subprocess.run(
        ["/bin/sh", "-e", "-c", "\n".join(lines)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return said.read_text(encoding="utf-8").splitlines()


@pytest.mark.slow
def test_systemd(tmp_path: Path):
    (tmp_path / "cluster.toml").write_text(the_block(PAGE, "toml", "[cluster]"), encoding="utf-8")
    stubs = ("sudo", "systemctl") if shutil.which("systemd-analyze") else ("sudo", "systemctl", "systemd-analyze")
    calls = run_script(commands("systemd-analyze"), tmp_path, stubs)
    files = {path.name for path in (tmp_path / "deploy" / "systemd").iterdir()}
    assert files == {"brokerha-orders.target", *(f"brokerha-orders-{node}.service" for node in ("m1", "m1s", "w1", "w2"))}
    named = {
        Path(word).name for call in calls for word in call.split() if re.search(r"brokerha-orders\S*\.(service|target)$", word)
    }
    assert {"brokerha-orders.target", "brokerha-orders-m1.service"} <= named <= files
    unit = (tmp_path / "deploy" / "systemd" / "brokerha-orders-m1.service").read_text(encoding="utf-8")
    # The folder that is made is the one that the unit may write.
    assert any("install -d -o brokerha -m 0700 var/orders" in call for call in calls)
    assert f"ReadWritePaths={tmp_path / 'var' / 'orders'}\n" in unit
    assert "User=brokerha\n" in unit


@pytest.mark.slow
def test_containers(tmp_path: Path):
    shutil.copytree(ROOT / "docker", tmp_path / "docker")
    calls = run_script(commands("docker build"), tmp_path, ("docker",))
    assert [call.split()[1] for call in calls] == ["build", "compose"]
    dockerfile = calls[0].split("-f ")[1].split()[0]
    assert (tmp_path / dockerfile).is_file()
    folder = tmp_path / "docker" / "one-site"
    images = set(re.findall(r"BROKERHA_IMAGE:-(\S+)}", (folder / "compose.yaml").read_text(encoding="utf-8")))
    assert images == {calls[0].split("-t ")[1].split()[0]}
    assert (folder / "definitions.json").is_file()
    me = pwd.getpwuid(os.geteuid()).pw_uid
    assert all(path.stat().st_uid == me for path in (folder / "secrets").iterdir())
