"""`brokerha pipeline rebuild`: what reaches the program, what is written about its report, and the exit codes. No Spark here."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from brokerha.cli.common import exits
from brokerha.cli.pipeline import rebuild as pipeline_rebuild
from brokerha.model.errors import StoreDiffers
from brokerha.spark.rebuild import RebuildOptions, RebuildReport
from tests.unit.cli.fake_job import FakeJob
from tests.unit.pipeline.made_archives import archive_of
from tests.unit.pipeline.random_log import random_entries

REPORT = RebuildReport(
    archive="A", cluster="orders", lsn=1234, txid="t9", timestamp=1_795_234_542_116_798, fingerprint="1:ab", target="b/r",
    node="archive", rows=5000, items=777, repositories=2, seconds=3.75,
)  # fmt: skip


@pytest.fixture
def program(monkeypatch) -> FakeJob[RebuildOptions, RebuildReport]:
    return FakeJob[RebuildOptions, RebuildReport](REPORT).put(monkeypatch, pipeline_rebuild, "rebuild")


def test_options_of_a_backup_reach_the_program(run, program):
    ran = run(
        "pipeline", "rebuild", "r", "--archive", "A", "--backups", "B", "--to-time", "2026-11-21T04:15:42", "--lines", "--replace",
        "--cluster", "c", "--dry-run", "--spark-master", "local[1]",
    )  # fmt: skip
    assert ran.code == exits.DONE
    assert program.options == RebuildOptions(
        archive=str(Path("A").absolute()), backup="r", backups=Path("B"), cluster="c", to_time_us=1_795_234_542_000_000, is_replaced=True,
        has_lines=True, is_dry_run=True,
    )  # fmt: skip
    assert program.spark is not None
    assert program.spark.master == "local[1]"


def test_options_of_a_worker_reach_the_program(run, program, tmp_path):
    archive_of(tmp_path / "A", random_entries(1, 5))
    ran = run("pipeline", "rebuild", "--archive", "A", "--into", "w9", "--as", "w3", "--to-lsn", "0", "--force", "orders")
    assert ran.code == exits.DONE
    assert program.options == RebuildOptions(
        archive=str(Path("A").absolute()), into=Path("w9"), node="w3", to_lsn=0, is_replaced=True
    )


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "what is to be made?"),
        (["r", "--into", "w9"], "what is to be made?"),
        (["r", "--as", "w3"], "go with --into"),
        (["--into", "w9", "--replace"], "with --force"),
        (["--into", "w9", "--to-lsn", "1", "--to-time", "5"], "write one of them"),
        (["--into", "w9", "--force", "elsewhere"], "is called orders"),
        (["r", "--backups", "B", "--to-time", "noon"], "is no time"),
    ],
)
def test_what_contradicts_itself_is_a_mistake_in_the_command(run, program, tmp_path, words, text):
    archive_of(tmp_path / "A", random_entries(1, 5))
    ran = run("pipeline", "rebuild", "--archive", "A", *words)
    assert ran.code == exits.USAGE
    assert text in " ".join(ran.err.replace("│", " ").split())
    assert program.options is None


def test_the_report_is_one_line_for_people_and_all_fields_for_programs(run, program):
    ran = run("pipeline", "rebuild", "r", "--archive", "A", "--backups", "B")
    assert ran.err == ""
    assert ran.out == (
        "b/r: LSN 1,234 (t9, 2026-11-21 04:15:42.116798), fingerprint 1:ab; 777 items in 3.8 s, computed from 5,000 "
        "rows, read again and equal\n"
    )
    ran = run("pipeline", "rebuild", "r", "--archive", "A", "--backups", "B", "-o", "json")
    assert (json.loads(ran.out), ran.err) == (asdict(REPORT), "")


def test_a_dry_run_with_something_in_the_way_fails_and_says_what(run, program):
    program.answer = replace(REPORT, is_dry_run=True, in_the_way="there is a backup r already")
    ran = run("pipeline", "rebuild", "r", "--archive", "A", "--backups", "B", "--dry-run")
    assert ran.code == exits.FAILED
    assert "nothing was changed; it cannot be made now: there is a backup r already" in ran.out


def test_a_state_that_differs_is_one_line_and_a_failure(run, program):
    program.answer = StoreDiffers("the content given for LSN 5 has fingerprint 1:00", 5, b"")
    ran = run("pipeline", "rebuild", "r", "--archive", "A", "--backups", "B")
    assert (ran.code, ran.err) == (exits.FAILED, "brokerha: the content given for LSN 5 has fingerprint 1:00\n")
