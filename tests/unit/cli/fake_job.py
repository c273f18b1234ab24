"""What stands for the program of a job: it notes what reaches it, and answers as a test says. No Spark is started."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Generic, Self, TypeVar

import pytest

from brokerha.spark.session import SparkOptions

OptionsT = TypeVar("OptionsT")
ReportT = TypeVar("ReportT")


class FakeJob(Generic[OptionsT, ReportT]):
    """Returns `answer`, or raises it, after it has told how far it is."""

    def __init__(self, answer: ReportT) -> None:
        self.answer: ReportT | Exception = answer
        self.options: OptionsT | None = None
        self.spark: SparkOptions | None = None

    def __call__(self, options: OptionsT, spark: SparkOptions, tell: Callable[[int, int], None]) -> ReportT:
        self.options, self.spark = options, spark
        tell(0, 100)
        tell(100, 100)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def put(self, monkeypatch: pytest.MonkeyPatch, command: ModuleType, name: str) -> Self:
        """Be the only job that the module of a command finds."""
        monkeypatch.setattr(command, "job", lambda wanted: {name: self}[wanted])
        return self
