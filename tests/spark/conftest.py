"""One Spark session for all tests here: starting one takes longer than most of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from brokerha.spark.session import SparkOptions, session
from tests.support.commands_on_spark import QUICK
from tests.support.free_ports import free_ports


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of them run in one process, one after the other."""
    for item in items:
        if "/tests/spark/" in str(item.path):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def s3_port() -> int:
    """Where tests of object stores start a server; workers of Spark learn of it by their environment, so that it is known before they start."""
    port = int(free_ports())
    os.environ |= {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "nothing",
    }  # fmt: skip
    return port


@pytest.fixture(scope="session")
def spark(s3_port: int) -> Iterator[Any]:
    with session("tests", SparkOptions(conf={**QUICK, "spark.sql.shuffle.partitions": "2"})) as running:
        yield running
