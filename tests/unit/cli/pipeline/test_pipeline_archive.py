"""`brokerha pipeline archive` and `archive-info`: which log is meant, what is said, and the exit codes. No Spark is started."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from brokerha.cli.pipeline import archive as pipeline_archive
from brokerha.model.errors import NotReady, Unreachable
from brokerha.spark import archive as archiving
from brokerha.spark.archive import ArchiveOptions, ArchiveReport
from tests.unit.cli.fake_job import FakeJob
from tests.unit.pipeline.made_archives import Log, archive_of
from tests.unit.pipeline.random_log import random_entries

ENTRIES = random_entries(2, 60)
Run = Callable[..., Any]
Job = FakeJob[ArchiveOptions, ArchiveReport]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "backups" / "monday", ENTRIES)


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Job:
    return Job(ArchiveReport("a")).put(monkeypatch, pipeline_archive, "archive")


DONE = ArchiveReport(
    "/srv/a", "orders", 1, 60, 60, 71, 1, 100, "ab", 1, added_entries=60, added_rows=71, batches=1, seconds=1.5
)  # fmt: skip


def test_what_was_done_is_one_line_for_people_and_all_fields_for_programs(run: Run, program: Job) -> None:
    program.answer = DONE
    ran = run("pipeline", "archive", "--into", "a", "--backup", "b/")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "/srv/a: 60 transactions were archived in 1.5 s, as 71 rows; it holds LSN 1 to 60 in 1 file, 0.0 MB\n"
    told = json.loads(run("pipeline", "archive", "--into", "a", "--backup", "b/", "-o", "json").out)
    assert (told["cluster"], told["first_lsn"], told["last_lsn"], told["added_entries"]) == ("orders", 1, 60, 60)
    assert (told["notes"], told["is_dry_run"]) == ([], False)


def test_a_dry_run_writes_nothing(run: Run, log: Log) -> None:
    ran = run("pipeline", "archive", "--into", "a", "--backup", f"{log.path}/", "--dry-run")
    assert ran.code == 0
    assert "60 transactions would be archived" in ran.out
    assert not Path("a").exists()


@pytest.mark.parametrize("place", ["gopher://h/a", "http://h/a", "s3://"])
def test_a_place_that_nobody_serves_is_a_mistake_of_the_command_line(run: Run, program: Job, place: str) -> None:
    before = set(Path().iterdir())
    ran = run("pipeline", "archive", "--into", place, "--url", "http://127.0.0.1:7201")
    assert (ran.code, program.options, set(Path().iterdir())) == (64, None, before)
    assert "write a folder, or a URL of" in ran.err or "names no bucket" in ran.err


def test_the_log_that_is_meant_is_named_in_one_way(run: Run, program: Job) -> None:
    for words, kind in (
        (("--url", "http://127.0.0.1:7201"), "http"),
        (("--journal", "var/m1"), "journal"),
        (("--stream", "amqp://h", "--master", "m1"), "stream"),
        (("--backup", "b/monday"), "backup"),
    ):
        assert run("pipeline", "archive", "--into", "a", *words).code == 0
        assert program.options is not None
        assert program.options.source.kind == kind
    assert run("pipeline", "archive", "--into", "a", "--journal", "j", "--backup", "b/").code == 64
    assert run("pipeline", "archive", "--into", "a", "--stream", "amqp://h").code == 64
    assert "which cluster?" in run("pipeline", "archive", "--into", "a").err
    assert run("pipeline", "archive").code == 64


def test_a_range_that_ends_before_it_begins_is_a_mistake_of_the_command_line(run: Run, program: Job) -> None:
    ran = run("pipeline", "archive", "--into", "a", "--url", "http://127.0.0.1:7201", "--from-lsn", "5", "--to-lsn", "3")
    assert (ran.code, program.options) == (64, None)
    assert "there is nothing from LSN 5 to LSN 3" in ran.err


def test_a_name_of_a_backup_needs_its_folder_and_both_ways_to_say_it_are_named(run: Run) -> None:
    ran = run("pipeline", "archive", "--into", "a", "--backup", "monday")
    assert ran.code == 64
    said = " ".join(ran.err.replace("│", " ").split())
    assert "which folder of backups? write --backups DIR, or -c FILE; there is no cluster.toml" in said


def test_info_about_an_archive_that_holds_nothing_says_so(run: Run, tmp_path: Path) -> None:
    archive_of(tmp_path / "a", [])
    assert "orders: nothing yet, LSN 1 comes first, 0 rows" in run("pipeline", "archive-info", "a").out


def test_paths_are_those_of_the_folder_in_which_the_command_was_given(run: Run, program: Job) -> None:
    run("pipeline", "archive", "--into", "a", "--journal", "var/m1")
    assert program.options is not None
    assert program.options.source.journal == str(Path("var/m1").absolute())


def test_following_looks_every_few_seconds_unless_told_otherwise(run: Run, program: Job) -> None:
    url = ("--url", "http://127.0.0.1:7201")
    for words, every_s in (((), None), (("--follow",), 5.0), (("--every", "60"), 60.0), (("--follow", "--every", "0.5"), 0.5)):
        run("pipeline", "archive", "--into", "a", *url, *words)
        assert program.options is not None
        assert program.options.every_s == every_s


def test_defaults_of_the_command_are_those_of_the_job(run: Run, program: Job) -> None:
    run("pipeline", "archive", "--into", "a", "--url", "http://127.0.0.1:7201")
    assert program.options is not None
    assert program.options == ArchiveOptions(str(Path("a").absolute()), program.options.source)
    assert (archiving.BATCH_ENTRIES, archiving.KEEP_S) == (pipeline_archive.BATCH_ENTRIES, pipeline_archive.KEEP_S)


def test_an_archive_whose_log_is_not_kept_is_a_degraded_end(run: Run, program: Job) -> None:
    program.answer = ArchiveReport("a", notes=("no pin",))
    ran = run("pipeline", "archive", "--into", "a", "--url", "http://127.0.0.1:7201", "--from-lsn", "7")
    assert ran.code == 1
    assert program.options is not None
    assert program.options.from_lsn == 7
    assert "brokerha: no pin\n" in ran.err


@pytest.mark.parametrize(("error", "code"), [(Unreachable("m1"), 3), (NotReady("m1 starts"), 2)])
def test_nodes_that_are_away_are_an_exit_code_of_their_own(run: Run, program: Job, error: Exception, code: int) -> None:
    program.answer = error
    assert run("pipeline", "archive", "--into", "a", "--url", "http://127.0.0.1:1").code == code


def test_info_shows_files_and_verifies_them(run: Run, tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "a", ENTRIES, 20)
    ran = run("pipeline", "archive-info", "a", "--verify")
    assert ran.code == 0
    assert "21 to 40" in ran.out
    assert "orders: LSN 1 to 60" in ran.out
    told = json.loads(run("pipeline", "archive-info", "a", "-o", "json").out)
    assert [(file["first_lsn"], file["last_lsn"]) for file in told["files"]] == [(1, 20), (21, 40), (41, 60)]
    assert told["problems"] is None
    path = told["files"][1]["path"]
    (Path(archive.where) / path).unlink()
    ran = run("pipeline", "archive-info", "a", "--verify", "-o", "json")
    assert ran.code == 2
    assert json.loads(ran.out)["problems"] == [f"{path} is missing: it held LSN 21 to 40"]
    assert "is missing" in ran.err


def test_info_about_a_folder_that_is_no_archive_says_how_to_make_one(run: Run) -> None:
    ran = run("pipeline", "archive-info", "nowhere")
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert "brokerha pipeline archive --into" in ran.err
