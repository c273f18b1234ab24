"""One Spark session for all tests here: starting one takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from brokerha.spark.session import SparkOptions, session


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of them run in one process, one after the other."""
    for item in items:
        if "/tests/spark/" in str(item.path):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    with session("tests", SparkOptions(conf={"spark.sql.shuffle.partitions": "2"})) as running:
        yield running
