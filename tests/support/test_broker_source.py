"""The tests' broker is found in the stated order, and its absence is said clearly; no broker is started here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tests.support import broker_source
from tests.support.broker_source import NoBrokerError, is_required, open_broker
from tests.support.free_ports import free_ports


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch):
    for name in ("CI", "BROKERHA_REQUIRE_BROKER", broker_source.AMQP_VARIABLE, broker_source.MANAGEMENT_VARIABLE):
        monkeypatch.delenv(name, raising=False)


class _Engine:
    """Stands for testcontainers' RabbitMqContainer: remembers what it was asked for and maps ports as an engine does."""

    made: list[_Engine] = []  # noqa: RUF012 - reset by the fixture below.

    def __init__(self, image: str, **options: Any) -> None:
        self.image, self.options, self.exposed, self.is_up = image, options, set[int](), False
        _Engine.made.append(self)

    def __enter__(self):
        self.is_up = True
        return self

    def __exit__(self, *_exception):
        self.is_up = False

    def with_exposed_ports(self, *ports):
        self.exposed |= set(ports)

    def get_container_host_ip(self):
        return "localhost"

    def get_exposed_port(self, port):
        assert port in self.exposed
        return port + 40_000


@pytest.fixture
def engine(monkeypatch):
    """A machine without a local RabbitMQ, but with a container engine."""
    _Engine.made.clear()
    monkeypatch.setattr(broker_source, "find_scripts", lambda: None)
    monkeypatch.setattr(broker_source, "_install_package", lambda _version: "no package here")
    module = types.ModuleType("testcontainers.community.rabbitmq")
    module.RabbitMqContainer = _Engine  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "testcontainers.community.rabbitmq", module)
    return _Engine


def test_a_missing_broker_is_a_failure_on_a_ci_machine_and_on_request_only(monkeypatch):
    assert not is_required()
    monkeypatch.setenv("CI", "true")
    assert is_required()
    monkeypatch.setenv("CI", "false")
    assert not is_required()
    monkeypatch.setenv("BROKERHA_REQUIRE_BROKER", "1")
    assert is_required()


def test_a_broker_named_by_the_environment_that_does_not_answer_is_complained_about_and_not_replaced(monkeypatch, engine):
    nobody = free_ports()
    monkeypatch.setenv(broker_source.AMQP_VARIABLE, f"amqp://guest:guest@127.0.0.1:{nobody}/")
    monkeypatch.setenv(broker_source.MANAGEMENT_VARIABLE, f"http://guest:guest@127.0.0.1:{nobody}")
    with pytest.raises(NoBrokerError, match="does not answer"), open_broker():
        pass
    assert engine.made == []


def test_a_container_is_taken_when_there_is_no_local_broker_and_goes_when_the_tests_end(engine):
    with open_broker() as found:
        (container,) = engine.made
        assert container.is_up
        assert container.image == "rabbitmq:4-management"
        assert found.amqp_url == "amqp://brokerha:brokerha@localhost:45672/%2F"
        assert found.management_url == "http://brokerha:brokerha@localhost:55672"
        assert found.url_of("a/b") == "amqp://brokerha:brokerha@localhost:45672/a%2Fb"
    assert not container.is_up


def test_an_error_of_the_test_under_a_container_is_not_taken_for_a_missing_broker(engine):
    with pytest.raises(ZeroDivisionError), open_broker():
        raise ZeroDivisionError
    assert not engine.made[0].is_up


def test_without_any_broker_the_error_lists_what_was_tried(engine, monkeypatch):
    def no_engine(self):
        raise ConnectionRefusedError("no engine")

    monkeypatch.setattr(engine, "__enter__", no_engine)
    with pytest.raises(NoBrokerError) as raised, open_broker():
        pass
    report = str(raised.value)
    assert "BROKERHA_TEST_AMQP_URL is not set" in report
    assert "no package here" in report
    assert "ConnectionRefusedError: no engine" in report


_LENDING = """
import contextlib, pathlib, sys
from tests.support import broker_source

@contextlib.contextmanager
def open_broker():
    try:
        yield broker_source.BrokerSource("amqp://h/", "http://h/", "a stand-in")
    finally:
        pathlib.Path(sys.argv[1]).write_text("stopped")

broker_source.open_broker = open_broker
sys.exit(broker_source.main(["run", "--", sys.executable, "-c", sys.argv[2]]))
"""


def _lent_to(command: str, mark: Path) -> subprocess.Popen[str]:
    """A process that lends a broker to a command of Python, and writes the file ``mark`` when the broker is stopped."""
    return subprocess.Popen(
        [sys.executable, "-c", _LENDING, str(mark), command], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    )


def test_sigterm_ends_the_command_and_then_stops_the_broker_that_it_was_lent(tmp_path):
    # Given a broker that is lent to a command that waits
    waits = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
    with _lent_to(waits, tmp_path / "mark") as lending:
        assert lending.stdout is not None
        command_pid = int(lending.stdout.readline())
        # When the lender is told to end
        lending.send_signal(signal.SIGTERM)
        # Then the command is gone, and the broker stopped
        assert lending.wait(timeout=30) == 128 + signal.SIGTERM
        with pytest.raises(ProcessLookupError):
            os.kill(command_pid, 0)
        assert (tmp_path / "mark").read_text() == "stopped"


def test_the_exit_code_of_the_command_is_that_of_the_lender(tmp_path):
    with _lent_to("raise SystemExit(7)", tmp_path / "mark") as lending:
        assert lending.wait(timeout=30) == 7
    assert (tmp_path / "mark").read_text() == "stopped"
