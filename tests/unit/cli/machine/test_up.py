"""`brokerha up`: children are started, watched, restarted and stopped in order. The nodes are small programs here."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from brokerha.cli.machine import supervising
from brokerha.cli.machine import up as up_module
from brokerha.cli.machine.supervising import Lines, Up
from brokerha.cli.machine.up import node_command
from brokerha.model.errors import ConfigurationError
from brokerha.nodes.config.cluster import ClusterConfig, MasterEntry, WorkerEntry

WAIT_S = 20.0

# Says its name, writes when it is asked to stop, and ends then.
OBEDIENT = """
import signal, sys, threading
done = threading.Event()
def stop(number, frame):
    with open(sys.argv[2], "a") as log: log.write(sys.argv[1] + "\\n")
    done.set()
signal.signal(signal.SIGTERM, stop)
print("hello from", sys.argv[1], flush=True)
done.wait()
"""
STUBBORN = """
import signal, threading
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
threading.Event().wait()
"""
FAILING = """
import sys
print("reading the file")
print("disk is on fire", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""


def program(text: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", text, *map(str, arguments)]


@pytest.fixture
def config() -> ClusterConfig:
    return ClusterConfig(
        name="orders", broker="amqp://h", masters=(MasterEntry("m1"), MasterEntry("m2")), workers=(WorkerEntry("w1", "m1"),)
    )


class Heard:
    """Lines of children, and a way to wait for one."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self._changed = threading.Condition()

    def write(self, name: str, line: str) -> None:
        with self._changed:
            self.lines.append((name, line))
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.lines) >= count, WAIT_S)


@pytest.fixture
def signals_restored():
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_node_that_does_not_stop_is_killed_and_named(config, tmp_path, capfd, monkeypatch, signals_restored):
    # Given a worker that is deaf to signals
    heard = Heard()
    monkeypatch.setattr(supervising.Lines, "write", lambda _self, name, line: heard.write(name, line))

    def command_of(name: str) -> list[str]:
        return program(STUBBORN) if name == "w1" else program(OBEDIENT, name, tmp_path / "stopped")

    def interrupt() -> None:
        heard.wait_for(3)
        os.kill(os.getpid(), signal.SIGTERM)

    # When all are to stop, then it is killed, and the masters stop in order
    threading.Thread(target=interrupt).start()
    assert Up(config, command_of, restart=False, stop_timeout_s=2.0).run() == 0
    assert "w1 did not stop within 2 s and was killed; its data is safe" in capfd.readouterr().err
    assert sorted((tmp_path / "stopped").read_text().split()) == ["m1", "m2"]


def test_a_line_without_end_is_cut(config, tmp_path, monkeypatch, signals_restored):
    heard = Heard()
    monkeypatch.setattr(supervising.Lines, "write", lambda _self, name, line: heard.write(name, line))
    monkeypatch.setattr(supervising, "wait_until_ready", lambda *_: None)
    endless = "import sys; sys.stdout.write('x' * 200_000); sys.exit(7)"
    assert Up(config, lambda _name: program(endless), restart=False, stop_timeout_s=WAIT_S).run() == 2
    said = Counter[str]()
    for name, line in heard.lines:
        said[name] += len(line)
        assert len(line) <= 2 * supervising.LINE_LIMIT_BYTES
    # Whoever ends first has said all of it; the others are stopped then, wherever they are.
    assert max(said.values()) == 200_000


@pytest.mark.parametrize(("child_code", "code"), [(7, 2), (78, 78)])
def test_a_node_that_fails_at_start_ends_all_and_its_last_lines_are_shown(
    config, tmp_path, capfd, monkeypatch, signals_restored, child_code, code
):
    # Given a node that ends at once while the others run, and nobody is ready yet
    monkeypatch.setattr(supervising, "wait_until_ready", lambda *_: None)

    def command_of(name: str) -> list[str]:
        return program(FAILING, child_code) if name == "m2" else program(OBEDIENT, name, tmp_path / "stopped")

    # When the cluster is started, then it ends with an exit code, and says why
    assert Up(config, command_of, restart=False, stop_timeout_s=WAIT_S).run() == code
    told = capfd.readouterr().err
    assert f"brokerha: m2 ended with exit code {child_code}; its last lines:" in told
    assert "    disk is on fire" in told


def _also(call: Callable[..., None], event: threading.Event) -> Callable[..., None]:
    """The call, and the event behind it."""

    def both(*arguments: Any) -> None:
        call(*arguments)
        event.set()

    return both


def test_a_signal_stops_workers_before_masters_and_ends_well(config, tmp_path, capfd, monkeypatch, signals_restored):
    # Given a cluster that is ready
    heard = Heard()
    monkeypatch.setattr(supervising.Lines, "write", lambda _self, name, line: heard.write(name, line))
    say_ready, is_ready = supervising.say_ready, threading.Event()
    monkeypatch.setattr(supervising, "say_ready", _also(say_ready, is_ready))

    def interrupt() -> None:
        heard.wait_for(3)
        is_ready.wait(WAIT_S)
        os.kill(os.getpid(), signal.SIGINT)

    # When Ctrl-C comes
    threading.Thread(target=interrupt).start()
    log = tmp_path / "stopped"
    code = Up(config, lambda name: program(OBEDIENT, name, log), restart=False, stop_timeout_s=WAIT_S).run()
    # Then all stop in order
    assert code == 0
    assert log.read_text().split()[0] == "w1"
    assert sorted(log.read_text().split()) == ["m1", "m2", "w1"]
    captured = capfd.readouterr()
    assert "SIGINT: stopping workers, then masters" in captured.err
    unknown = "without an http address: whether they are ready is not known; ask brokerha status\n"
    assert captured.out == f"started: m1, m2, {unknown}"
    # Some nodes may have one.
    say_ready({"m1": "http://h:1"}, ["m1", "m2"])
    assert capfd.readouterr().out == f"ready: m1 http://h:1; started: m2, {unknown}"


def test_with_restart_a_node_that_ended_is_started_again(config, tmp_path, capfd, monkeypatch, signals_restored):
    # Given a worker that fails once
    heard = Heard()
    monkeypatch.setattr(supervising.Lines, "write", lambda _self, name, line: heard.write(name, line))
    monkeypatch.setattr(supervising, "RESTART_FIRST_S", 0.05)
    log, started = tmp_path / "stopped", []

    def command_of(name: str) -> list[str]:
        started.append(name)
        if name == "w1" and started.count("w1") == 1:
            return program(FAILING, 3)
        return program(OBEDIENT, name, log)

    def interrupt() -> None:
        heard.wait_for(5)
        os.kill(os.getpid(), signal.SIGTERM)

    # When it runs, then the worker is started a second time
    threading.Thread(target=interrupt).start()
    assert Up(config, command_of, restart=True, stop_timeout_s=WAIT_S).run() == 0
    assert started == ["m1", "m2", "w1", "w1"]
    assert "brokerha: starting w1 again" in capfd.readouterr().err


@pytest.mark.parametrize("over", ["amqp://h/orders", "embedded://orders"])
def test_who_answers_at_the_address_of_a_node_before_it_is_started_is_not_taken_for_it(tmp_path, monkeypatch, over):
    # Given a node of another cluster at the address of a node
    monkeypatch.setattr(Up, "run", lambda _self: pytest.fail("a node was started"))
    monkeypatch.setattr(up_module, "_serve_embedded", lambda _cluster: pytest.fail("a node was started"))
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        file = tmp_path / "cluster.toml"
        file.write_text(f'[cluster]\nname = "orders"\nbroker = "{over}"\n[[master]]\nid = "m1"\nhttp = "{address}"\n')
        # When the cluster is to be started, then nothing is
        with pytest.raises(ConfigurationError, match=f"another process listens at {address} of m1"):
            up_module.up(file)


def test_lines_have_the_name_of_their_node_and_no_colours_outside_of_a_terminal(capsys):
    Lines(["m1", "worker-1"]).write("m1", "hello")
    assert capsys.readouterr().err == "m1       | hello\n"


def test_a_node_is_run_by_the_same_python():
    assert node_command(Path("c.toml"), "m1") == [sys.executable, "-m", "brokerha", "node", "m1", "-c", "c.toml"]
