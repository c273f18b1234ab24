"""Ctrl-C and SIGTERM around Spark: handlers, processes and words; without Spark."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys

import pytest

from brokerha.spark.session import children, cut_off_questions_untold, start_is_clean

WAITING = (sys.executable, "-c", "input()")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_handler_that_there_was_stays(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with start_is_clean():
        signal.signal(number, lambda *_: None)
    assert signal.getsignal(number) is before


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_what_an_interrupted_start_has_started_ends_and_nothing_else_does(
    number: signal.Signals, error: type[BaseException]
) -> None:
    # A shell that puts the tests into the background has SIGINT ignored.
    held = signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    older = subprocess.Popen(WAITING, stdin=subprocess.PIPE)
    started: list[subprocess.Popen[bytes]] = []

    def begin() -> None:
        with start_is_clean():
            started.append(subprocess.Popen(WAITING, stdin=subprocess.PIPE))
            assert {older.pid, started[0].pid} <= children()
            os.kill(os.getpid(), number)

    try:
        with pytest.raises(error):
            begin()
    finally:
        signal.signal(number, held)
    assert started[0].wait(10) == -signal.SIGKILL
    assert older.poll() is None
    older.communicate(b"\n", timeout=10)
    assert older.returncode == 0
    started[0].communicate()


def test_a_start_that_succeeds_keeps_its_processes() -> None:
    with start_is_clean():
        process = subprocess.Popen(WAITING, stdin=subprocess.PIPE)
    process.communicate(b"\n", timeout=10)
    assert process.returncode == 0


def test_only_words_of_py4j_through_the_root_logger_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    def tell(module: str) -> None:
        record = logging.LogRecord("root", logging.ERROR, f"/x/{module}.py", 1, module, (), None)
        logging.root.handle(record)

    with cut_off_questions_untold():
        tell("java_gateway")
        tell("another")
    tell("clientserver")
    assert [each.message for each in caplog.records] == ["another", "clientserver"]


def test_words_of_py4j_through_its_own_loggers_are_dropped_too(caplog: pytest.LogCaptureFixture) -> None:
    # What it says through the root logger gives that a handler, which then has these as well.
    def tell(logger: str, module: str) -> None:
        record = logging.LogRecord(logger, logging.ERROR, f"/x/{module}.py", 1, logger, (), None)
        logging.getLogger(logger).handle(record)

    with cut_off_questions_untold():
        tell("py4j.clientserver", "clientserver")
        tell("another", "another")
    tell("py4j.clientserver", "clientserver")
    assert [each.message for each in caplog.records] == ["another", "py4j.clientserver"]
