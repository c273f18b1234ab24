"""Commands of the pipeline in the process of a test, on one session of Spark: the whole way from the command line to its answer, without a JVM for each.

The session is the one thing that is lent; a command that starts as a process of its own, is killed or gets a signal is no matter for this.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from typing import Any
from unittest.mock import patch

import structlog

from brokerha.cli.common.logs import COMMAND, to_stderr
from brokerha.cli.main import main
from brokerha.cli.pipeline.command import job
from brokerha.spark.session import SparkOptions, cache_folder, failures_told, session

QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
"""Settings for a JVM that is over before the slow compiler has paid: it took a third of the processor time of tests."""
SMALL = ("--spark-memory", "1g", "--spark-conf", *(f"{key}={value}" for key, value in QUICK.items()))
"""The same as words of a command."""


@contextmanager
def lent(spark: Any) -> Iterator[None]:
    """Within the block each job gets this session, and leaves it as it is when it ends."""

    @contextmanager
    def running(name: str, _options: SparkOptions) -> Iterator[Any]:
        with failures_told(cache_folder() / f"{name}.log"):
            yield spark

    with ExitStack() as patches:
        for module in {job(name).__module__ for name in ("archive", "load")}:
            patches.enter_context(patch(f"{module}.session", running))
        yield


@contextmanager
def one_session() -> Iterator[None]:
    """A session of its own that each job within the block gets."""
    with session("tests", SparkOptions(memory="1g", conf=QUICK)) as spark, lent(spark):
        yield


def answer(*words: str) -> tuple[int, Any]:
    """Exit code and JSON of a command, which must say some."""
    out, err, logging = io.StringIO(), io.StringIO(), structlog.get_config()
    # A cluster of the test logs in this process too: as a node does, to standard error.
    to_stderr(COMMAND)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = main([*words, "-o", "json"])
    finally:
        structlog.configure(**logging)
    assert out.getvalue(), f"{words}: {code} {err.getvalue()}"
    return code, json.loads(out.getvalue())
