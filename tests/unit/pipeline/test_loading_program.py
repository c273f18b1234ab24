"""The program of the bulk load: when it starts Spark, and when it does without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import brokerha
from brokerha.model.errors import InvalidRequest
from brokerha.pipeline.loading import LoadJob, LoadOptions, Split, SplitResult
from brokerha.pipeline.loading_split import run_split
from brokerha.spark.session import SparkOptions
from producers.bulk_load import main
from tests.unit.pipeline.loading_cluster import LoadCluster


class Program:
    """The program, with a cluster and a Spark that are none."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = LoadCluster()
        self.starts = 0
        self.windows: set[int] = set()
        self.folder = folder
        monkeypatch.setattr(brokerha, "connect", self.cluster.connect)
        monkeypatch.setattr(main, "session", self._session)
        monkeypatch.setattr(main, "run_splits", self._run_splits)

    @contextmanager
    def _session(self, _name: str, _options: SparkOptions) -> Iterator[None]:
        self.starts += 1
        yield

    def _run_splits(
        self, _spark: None, job: LoadJob, splits: list[Split], _progress: Callable[[], None]
    ) -> list[SplitResult]:
        self.windows.add(job.window)
        return [run_split(job, split, self.cluster.connect) for split in reversed(splits)]

    def load(self, path: Path, **options: Any) -> Any:
        state = str(self.folder / "state")
        return main.load(LoadOptions((str(path),), "x", state, **options), SparkOptions(), lambda *_: None)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    return Program(tmp_path, monkeypatch)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "one.nt"
    found.write_text("".join(f"<urn:s:{n}> <urn:p> <urn:o> .\n" for n in range(5000)))
    return found


def test_several_splits_are_run_on_spark_and_a_second_run_needs_none(program, path):
    assert program.load(path, split_bytes=20_000).statements == 5000
    assert (program.starts, program.windows) == (1, {8})
    assert program.load(path, split_bytes=20_000).statements == 5000
    assert program.starts == 1


def test_one_split_is_read_in_this_process(program, path):
    assert program.load(path).statements == 5000
    assert program.starts == 0


def test_an_ordered_load_sends_one_transaction_after_the_other_in_the_order_of_the_file(program, path):
    assert program.load(path, split_bytes=20_000, is_ordered=True).statements == 5000
    assert program.starts == 0
    assert program.cluster.lines() == path.read_text().splitlines()


def test_what_is_wrong_before_is_said_without_spark(program, path, tmp_path):
    with pytest.raises(InvalidRequest, match="cannot be read"):
        program.load(tmp_path / "none.nt", split_bytes=10)
    assert program.starts == 0
