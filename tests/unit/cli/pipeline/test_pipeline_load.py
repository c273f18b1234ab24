"""`brokerha pipeline load`: what reaches the program, what is written about its report, and the exit codes. No Spark here."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from brokerha.cli.common import exits
from brokerha.cli.pipeline import load as pipeline_load
from brokerha.model.errors import NotReady, Unreachable
from brokerha.pipeline.loading import LoadOptions, LoadReport
from brokerha.pipeline.publishing import Reject, Result
from brokerha.spark.session import SparkOptions
from tests.unit.cli.fake_job import FakeJob

URL = ("--url", "http://127.0.0.1:7201")
REPORT = LoadReport(
    id="load-1", files=1, size_bytes=100, unit="statement", result=Result(rows=10, items=9, transactions=2, lsn=1234),
    max_rejects=0, rejects="", is_dry_run=False, seconds=1.5,
)  # fmt: skip
REJECT = Reject("file:/d/a.nt", "9f.0", 3, "no dot", "<urn:a>")
BAD = replace(REPORT, result=replace(REPORT.result, rejects=2, first_rejects=(REJECT,)), rejects="load-1.rejects")


@pytest.fixture
def program(monkeypatch, tmp_path) -> FakeJob[LoadOptions, LoadReport]:
    (tmp_path / "a.nt").write_text("x" * 100)
    return FakeJob[LoadOptions, LoadReport](REPORT).put(monkeypatch, pipeline_load, "load")


def test_options_reach_the_program(run, program):
    ran = run(
        "pipeline", "load", "a.nt", "--repository", "r", "--graph", "urn:g", "--id", "I", "--max-rejects", "7", "--rejects", "R",
        "--ordered", "--window", "3", "--split-mib", "2", "--patience-s", "9", "--ack", "synchronised", "--timeout-s", "4",
        "--spark-master", "local[1]", "--spark-memory", "1g", "--spark-conf", "a=b", *URL,
    )  # fmt: skip
    assert ran.code == exits.DONE
    assert program.options == LoadOptions(
        files=("a.nt",), url=URL[1], repository="r", graph="urn:g", id="I", ack="synchronised", timeout_s=4, window=3,
        patience_s=9, max_rejects=7, rejects="R", split_bytes=2 * 1024 * 1024, is_ordered=True,
    )  # fmt: skip
    assert program.spark == SparkOptions("local[1]", "1g", {"a": "b"})


@pytest.mark.parametrize(
    ("broker", "address"), [("amqp://guest@127.0.0.1:1/v", "amqp://guest@127.0.0.1:1/v"), ("embedded://", "http://127.0.0.1:7201")]
)
def test_tasks_publish_to_the_broker_of_the_cluster_file_and_over_http_where_there_is_none(run, program, tmp_path, broker, address):
    (tmp_path / "c.toml").write_text(
        f'[cluster]\nname = "c"\nbroker = "{broker}"\n[[master]]\nid = "m1"\nhttp = "127.0.0.1:7201"\n'
        '[[worker]]\nid = "w1"\nmaster = "m1"\n'
    )
    assert run("pipeline", "load", "a.nt", "-c", "c.toml").err == ""
    assert program.options.url == address


def test_a_dry_run_needs_no_cluster(run, program):
    result = replace(BAD.result, rejects=7)
    program.answer = replace(BAD, is_dry_run=True, rejects="", result=result)
    ran = run("pipeline", "load", "a.nt", "--dry-run")
    assert program.options.is_dry_run
    assert ran.code == exits.FAILED
    assert ran.out.splitlines() == [
        "nothing was sent; 9 statements in 2 transactions would be, 7 rejects",
        "/d/a.nt:3: no dot",
        "write all of them to a folder with --rejects DIR",
    ]
    assert "all other rows are good" in ran.err


def test_a_load_says_what_was_done(run, program):
    ran = run("pipeline", "load", "a.nt", *URL)
    assert (ran.code, ran.out, ran.err) == (
        0, "9 statements in 2 transactions, up to LSN 1,234, 0 rejects, 1.5 s\n", "",
    )  # fmt: skip


def test_keys_are_called_keys(run, program):
    program.answer = replace(REPORT, unit="key")
    assert run("pipeline", "load", "a.nt", *URL).out.startswith("9 keys in 2 transactions")


def test_a_load_that_was_done_before_says_so(run, program):
    program.answer = replace(REPORT, result=replace(REPORT.result, repeated=2))
    ran = run("pipeline", "load", "a.nt", *URL)
    assert ran.code == 0
    assert "2 of the transactions were there before" in ran.out
    assert "another --id" in ran.err


@pytest.mark.parametrize(
    ("report", "code", "words"),
    [
        (BAD, exits.FAILED, "all other rows are loaded"),
        (replace(BAD, max_rejects=2), exits.DONE, ""),
        (
            replace(BAD, max_rejects=2, result=replace(BAD.result, unread=1)),
            exits.FAILED,
            "1 file could not be read to its end, whatever --max-rejects allows: mend it, and load it anew",
        ),
        (replace(BAD, result=replace(BAD.result, is_stopped=True)), exits.FAILED, "the same command goes on"),
    ],
)
def test_rejects_decide_the_exit_code(run, program, report, code, words):
    program.answer = report
    ran = run("pipeline", "load", "a.nt", *URL)
    assert ran.code == code
    assert words in ran.err
    assert "all rejects: load-1.rejects" in ran.out


def test_a_reject_behind_the_first_block_names_the_byte_where_its_rows_are_counted(run, program):
    program.answer = replace(BAD, result=replace(BAD.result, first_rejects=(REJECT._replace(part="9f.4096"),)))
    assert "/d/a.nt, row 3 from byte 4096 on: no dot" in run("pipeline", "load", "a.nt", *URL).out


def test_a_reject_of_csv_names_its_row_which_is_not_the_line(run, program):
    program.answer = replace(BAD, result=replace(BAD.result, first_rejects=(REJECT._replace(source="file:/d/a.csv.gz"),)))
    assert "/d/a.csv.gz, row 3: no dot" in run("pipeline", "load", "a.nt", *URL).out


def test_json_has_every_number(run, program):
    program.answer = BAD
    answer: dict[str, Any] = json.loads(run("pipeline", "load", "a.nt", "-o", "json", *URL).out)
    assert answer == {
        "id": "load-1", "dry_run": False, "complete": True, "files": 1, "bytes": 100, "rows": 10, "items": 9, "unit": "statement",
        "transactions": 2, "transactions_before": 0, "rejects": 2, "rejects_folder": "load-1.rejects",
        "first_rejects": [{"source": "file:/d/a.nt", "part": "9f.0", "row": 3, "reason": "no dot", "text": "<urn:a>"}], "lsn": 1234,
        "seconds": 1.5,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("none.nt", *URL), exits.USAGE, "none.nt cannot be read"),
        (("a.nt",), exits.USAGE, "which cluster"),
        (("a.nt", "--format", "turtles", *URL), exits.USAGE, "'turtles' is none of"),
        (("a.nt", "--mapping", "none.toml", *URL), exits.CONFIGURATION, "none.toml cannot be read"),
        (("a.nt", "--format", "csv", *URL), exits.USAGE, "say with --mapping"),
        (("a.nt", "--format", "parquet", "--dry-run"), exits.USAGE, "say with --mapping"),
        (("a.nt", "--spark-conf", "x", *URL), exits.USAGE, "KEY=VALUE"),
        (("a.nt", "--ack", "soon", *URL), exits.USAGE, "soon"),
        (("a.nt", "--max-rejects", "-1", *URL), exits.USAGE, "--max-rejects"),
    ],
)
def test_a_wrong_command_line_is_said_in_one_line(run, program, arguments, code, words):
    ran = run("pipeline", "load", *arguments)
    assert ran.code == code
    assert words in ran.err
    assert len(ran.err.splitlines()) == 1
    assert program.options is None


@pytest.mark.parametrize(("error", "code"), [(Unreachable("nobody"), exits.UNREACHABLE), (NotReady("full"), exits.FAILED)])
def test_an_error_of_the_load_is_one_line(run, program, error, code):
    program.answer = error
    ran = run("pipeline", "load", "a.nt", *URL)
    assert ran.code == code
    assert len(ran.err.splitlines()) == 1


def test_without_spark_the_command_says_what_to_install(run, monkeypatch, tmp_path):
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "pyspark" else found(name, *rest))
    (tmp_path / "a.nt").write_text("")
    ran = run("pipeline", "load", "a.nt", *URL)
    assert ran.code == exits.CONFIGURATION
    assert "pip install 'brokerha[spark]'" in ran.err
