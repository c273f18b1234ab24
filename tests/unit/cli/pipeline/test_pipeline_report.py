"""``brokerha pipeline report`` on the command line, and what all jobs share; Spark does not start here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from brokerha.cli.common import exits
from brokerha.cli.main import COMMANDS
from brokerha.cli.pipeline import command as pipeline
from brokerha.cli.pipeline import report as pipeline_report
from brokerha.model.errors import ConfigurationError
from brokerha.pipeline.report import Bins, ReportFacts, ReportOptions
from tests.unit.cli.conftest import Ran
from tests.unit.cli.fake_job import FakeJob
from tests.unit.pipeline.made_archives import archive_of
from tests.unit.pipeline.random_log import random_entries

FACTS = ReportFacts(
    "orders", 1, 50, "ab", 1, 100, 1, Bins(0, 1, 1), 50, 2, 90, (), (), (), (), (), (), (), (), (), (), (), (), ("A note.",)
)  # fmt: skip


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return Path(archive_of(tmp_path / "archive", random_entries(1, 50)).where)


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> FakeJob[ReportOptions, ReportFacts]:
    return FakeJob[ReportOptions, ReportFacts](FACTS).put(monkeypatch, pipeline_report, "report")


def test_a_report_is_told_in_one_line_and_its_notes_on_standard_error(run: Any, archive: Path, program: Any):
    ran: Ran = run("pipeline", "report", "--archive", str(archive), "--out", "r.html")
    assert ran.code == exits.DONE
    assert ran.out == "r.html: LSN 1 to 50, 50 transactions, 2 rejected, 90 changes\n"
    assert ran.err == "brokerha: A note.\n"
    options = program.options
    assert (options.archive, options.out, program.spark.master) == (str(archive), Path("r.html"), "")


def test_the_facts_are_written_as_json(run: Any, archive: Path, program: Any):
    ran = run("pipeline", "report", "--archive", str(archive), "-o", "json")
    answer = json.loads(ran.out)
    assert (answer["out"], answer["cluster"], answer["bins"]["count"]) == ("report.html", "orders", 1)


def test_times_and_settings_reach_the_job(run: Any, archive: Path, program: Any):
    times = ("--since", "1970-01-01T00:00:01Z", "--until", "2100-01-01T00:00:00Z")
    spark = ("--spark-master", "spark://there:7077", "--spark-memory", "1g", "--spark-conf", "a.b=c=d")
    assert run("pipeline", "report", "--archive", str(archive), *times, *spark).code == exits.DONE
    options, given = program.options, program.spark
    assert (options.since_us, options.until_us) == (1_000_000, 4_102_444_800_000_000)
    assert (given.master, given.memory, given.conf) == ("spark://there:7077", "1g", {"a.b": "c=d"})


def test_a_dry_run_says_what_would_be_read_and_writes_nothing(run: Any, archive: Path, program: Any, tmp_path: Path):
    ran = run("pipeline", "report", "--archive", str(archive), "--dry-run", "-o", "json")
    plan = json.loads(ran.out)
    assert (ran.code, plan["first_lsn"], plan["last_lsn"], plan["dry_run"]) == (exits.DONE, 1, 50, True)
    assert program.options is None
    assert not (tmp_path / "report.html").exists()
    assert "nothing was written" in run("pipeline", "report", "--archive", str(archive), "--dry-run").out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--since", "yesterday"), exits.USAGE, "'yesterday' is no time: write 2026-05-01"),
        (("--since", "2026-05-02", "--until", "2026-05-01"), exits.USAGE, "--since 2026-05-02 is after --until 2026-05-01"),
        (("--since", "2026-05-02"), exits.FAILED, "has no entry within this time"),
        (("--out", "absent/r.html"), exits.FAILED, "there is no folder absent"),
        (("--out", f"{'x' * 300}.html"), exits.FAILED, "File name too long"),
        (("--spark-conf", "novalue"), exits.USAGE, "--spark-conf takes KEY=VALUE"),
    ],
)
def test_what_is_wrong_is_one_line_before_the_work(
    run: Any, archive: Path, program: Any, arguments: tuple[str, ...], code: int, said: str
):
    ran = run("pipeline", "report", "--archive", str(archive), *arguments)
    assert ran.code == code
    assert said in ran.err
    assert ran.err.count("\n") == 1
    assert program.options is None


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_without_an_archive_the_line_says_how_to_make_one(run: Any, tmp_path: Path, program: Any, more: tuple[str, ...]):
    ran = run("pipeline", "report", "--archive", str(tmp_path / "absent"), *more)
    assert ran.code == exits.FAILED
    assert "make one with brokerha pipeline archive" in ran.err
    assert program.options is None


def test_an_archive_that_holds_nothing_is_told_before_spark_starts(run: Any, tmp_path: Path, program: Any):
    ran = run("pipeline", "report", "--archive", archive_of(tmp_path / "empty", []).where)
    assert ran.code == exits.FAILED
    assert "is empty: brokerha pipeline archive fills it" in ran.err
    assert program.options is None


def test_without_the_extra_each_job_says_what_brings_it(run: Any, archive: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    ran = run("pipeline", "report", "--archive", str(archive))
    assert (ran.code, ran.out) == (exits.CONFIGURATION, "")
    assert "pip install 'brokerha[spark]'" in ran.err


def test_a_job_without_a_program_is_named():
    with pytest.raises(ConfigurationError, match="no program for the job nonsense"):
        pipeline.job("nonsense")


def test_every_job_of_the_group_has_a_program_of_its_name():
    assert {"archive", "audit", "rebuild", "export", "load", "report"} <= {name.removeprefix("pipeline ") for name in COMMANDS}
    for name in ("archive", "audit", "rebuild", "export", "load", "report"):
        assert callable(pipeline.job(name))
