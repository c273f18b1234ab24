"""`brokerha pipeline export`: what reaches the program, what is written about its report, and the exit codes. No Spark here."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from brokerha.cli.common import exits
from brokerha.cli.pipeline import rebuild as pipeline_export
from brokerha.spark.export import ExportOptions, ExportReport
from tests.unit.cli.fake_job import FakeJob

REPORT = ExportReport("/A", "/out", "delta", "orders", 1234, "1:ab", 5, 1, 3, 3, 1.5)
Job = FakeJob[ExportOptions, ExportReport]


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Job:
    return Job(REPORT).put(monkeypatch, pipeline_export, "export")


def test_options_reach_the_program_and_its_report_is_one_line(run, program):
    ran = run("pipeline", "export", "--archive", "A", "--into", "s3://bucket/out", "--to-time", "2026-11-21T04:15:42")
    assert (ran.code, ran.err) == (exits.DONE, "")
    assert ran.out == "/out: LSN 1,234, fingerprint 1:ab; 5 quads, 1 key, 3 messages in 3 files, 1.5 s\n"
    archive = str(Path("A").absolute())
    assert program.options == ExportOptions(archive, "s3://bucket/out", to_time_us=1_795_234_542_000_000)
    ran = run("pipeline", "export", "--archive", "A", "--into", "out", "--as", "nquads", "--to-lsn", "7", "-o", "json")
    assert json.loads(ran.out) == asdict(REPORT)
    assert program.options == ExportOptions(archive, str(Path("out").absolute()), "nquads", to_lsn=7)


@pytest.mark.parametrize("words", [("--to-lsn", "1", "--to-time", "5"), ("--as", "csv"), ("--to-time", "noon")])
def test_what_means_nothing_is_a_mistake_of_the_command_line(run, program, words):
    assert run("pipeline", "export", "--archive", "A", "--into", "out", *words).code == exits.USAGE
    assert run("pipeline", "export", "--archive", "A", "--into", "ftp://h/out").code == exits.USAGE
    assert program.options is None
