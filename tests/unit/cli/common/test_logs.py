"""Log lines of commands and nodes: to standard error, and never with what was in variables."""

from __future__ import annotations

import subprocess
import sys

import pytest
import structlog

from brokerha.cli.common import logs


@pytest.fixture(autouse=True)
def _as_before():
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def deep(secret: str) -> str:
    return deep(secret) + secret


def test_an_exception_that_is_logged_takes_a_few_lines_and_shows_no_variable(capsys):
    logs.to_stderr(logs.NODE)
    try:
        deep("canary")
    except RecursionError:
        structlog.get_logger().exception("it failed", node="m1")

    told = capsys.readouterr().err
    assert "it failed" in told
    assert "RecursionError: maximum recursion depth exceeded" in told
    assert "canary" not in told
    assert len(told) < 5000


def test_lines_go_to_the_standard_error_of_the_moment(capsys):
    logs.to_stderr(logs.COMMAND)
    structlog.get_logger().info("nothing")
    structlog.get_logger().warning("something", node="m1")

    assert "something" in capsys.readouterr().err
    assert sys.stdout is not sys.stderr


def test_lines_that_go_into_a_file_have_no_colours() -> None:
    code = "import structlog; from brokerha.cli.common.logs import to_stderr; to_stderr(20); structlog.get_logger().info('begins', node='m1')"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stderr
    assert "begins" in told
    assert "node=m1" in told
    assert "\x1b" not in told
