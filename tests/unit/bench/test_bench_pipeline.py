"""The bench of the pipeline measures work that is really done: its plain loop comes to the log's fingerprint, and its jobs to the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from brokerha.model.errors import NotReady
from brokerha.pipeline.sources import SourceSpec
from tests.bench import pipeline as bench_pipeline
from tests.bench import pipeline_plain as plain
from tests.bench.options import BenchOptions
from tests.bench.pipeline_log import entries, write_backup

ENTRIES = 11_000


def test_the_plain_loop_comes_to_the_fingerprint_of_the_log() -> None:
    log = list(entries(ENTRIES))
    content = plain.fold(log)
    assert plain.fingerprint_of(content) == log[-1].fingerprint


def test_the_plain_loop_reads_and_writes_all_rows(tmp_path: Path) -> None:
    write_backup(tmp_path / "log", 2_000)
    spec = SourceSpec(backup=str(tmp_path / "log"))
    content = plain.audit(spec, 2_000)
    items = len(content.keys) + len(content.messages) + sum(map(len, content.quads.values()))
    assert plain.rebuild(spec, 2_000) == items > 0
    rows = plain.read(spec, 2_000)
    assert rows == plain.archive(spec, 2_000, tmp_path / "rows.parquet")
    assert rows > 2_000


@pytest.mark.slow
def test_each_step_is_a_process_that_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = ("archive",)
    options = BenchOptions(entries=3_000, folder=tmp_path, steps=",".join(steps), spark="1")
    found = bench_pipeline.pipeline(options).data
    assert [(row["step"], row["where"]) for row in found["steps"]] == [
        (step, where) for step in steps for where in ("plain loop", "Spark, 1 core")
    ]
    for row in found["steps"]:
        assert row["rows"] == found["rows"] > 3_000
        assert min(row["seconds"], row["rows_per_s"], row["entries_per_s"]) > 0
    assert len(capsys.readouterr().err.splitlines()) == 1 + len(found["steps"])
    with pytest.raises(NotReady, match="holds 3000 entries"):
        bench_pipeline.pipeline(replace(options, entries=4_000))


def test_a_step_that_fails_says_why(tmp_path: Path) -> None:
    write_backup(tmp_path / "log", 1_000)
    (tmp_path / "log" / "log" / "1-1000.lines").write_bytes(b"no lines")
    with pytest.raises(NotReady, match=r"the step archive \(plain\) failed: .*does not begin as lines of the log do"):
        bench_pipeline.pipeline(BenchOptions(entries=1_000, folder=tmp_path, steps="archive", spark="1"))
