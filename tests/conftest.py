"""What every test may ask for: a broker, a fresh virtual host, a broker to kill, a line in the closing summary.

A test that asks for one of the broker fixtures is marked ``broker`` by that alone. Without a broker it is skipped with
the reason, or fails where a broker is required (tests/support/broker_source.py says when). All brokers start lazily:
a run that selects no such test starts none.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, settings

from tests.support.broker_source import BrokerSource, NoBrokerError, is_required, local_scripts, open_broker
from tests.support.places import ByRoom, check_places, longest_first
from tests.support.private_broker import PrivateBroker

# How long an example takes says how busy the machine is, and nothing about what is tested.
settings.register_profile("brokerha", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("brokerha")
_BROKER_FIXTURES = {"broker", "vhost_url", "private_broker"}
_summary_lines = pytest.StashKey[list[str]]()
SUMMARY_VARIABLE = "BROKERHA_TEST_SUMMARY"
"""Names the file to which lines of the closing summary are appended, if the run is part of a larger one."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_summary_lines] = []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    longest_first(config, items)
    for item in items:
        if _BROKER_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.broker)
    check_places(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    return ByRoom(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if lines := config.stash[_summary_lines]:
        terminalreporter.section("what was covered")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def broker() -> Iterator[BrokerSource]:
    """A broker that all tests of the session share; take a virtual host of it and leave the others alone."""
    with contextlib.ExitStack() as stack:
        try:
            source = stack.enter_context(open_broker())
        except NoBrokerError as problem:
            _do_without(problem)
        yield source


@pytest.fixture
def vhost_url(broker: BrokerSource, request: pytest.FixtureRequest) -> Iterator[str]:
    """AMQP URL of a virtual host of the test's own, deleted afterwards; it is named after the test."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:40].strip("-")
    name = f"{words}-{secrets.token_hex(3)}"
    yield broker.create_vhost(name)
    broker.delete_vhost(name)


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """A command that a test runs in this process says where log lines go; the next test must not inherit that.

    What was said for a whole module stays: nodes that run through all of its tests would write to the standard output of one.
    """
    structlog = sys.modules.get("structlog")
    before = structlog.get_config() if structlog is not None and structlog.is_configured() else None
    yield
    structlog = sys.modules.get("structlog")
    if structlog is None or not structlog.is_configured():
        return
    if before is None:
        structlog.reset_defaults()
    else:
        structlog.configure(**before)


@pytest.fixture(scope="session")
def _killable_node() -> Iterator[PrivateBroker]:
    """One node for all tests that kill: starting one takes seconds."""
    try:
        scripts = local_scripts()
    except NoBrokerError as problem:
        _do_without(problem)
    with PrivateBroker(scripts) as node:
        yield node


@pytest.fixture
def private_broker(_killable_node: PrivateBroker) -> PrivateBroker:
    """A running node that the test may kill, freeze and restart. Take a fresh virtual host: others were here before."""
    if not _killable_node.is_running:
        _killable_node.restart()
    _killable_node.thaw()
    return _killable_node


@pytest.fixture
def covered(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Takes sentences for the closing summary: ``covered("2,000 seeds, 1,234,567 steps, 45,678 faults")``."""

    def note(line: str) -> None:
        request.config.stash[_summary_lines].append(line)
        if target := os.environ.get(SUMMARY_VARIABLE):
            with Path(target).open("a", encoding="utf-8") as file:
                file.write(line + "\n")

    return note


def _do_without(problem: NoBrokerError) -> NoReturn:
    if is_required():
        pytest.fail(f"a broker is required here\n{problem}", pytrace=False)
    pytest.skip(str(problem))
