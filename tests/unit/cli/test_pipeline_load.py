"""`brokerha pipeline load`: what reaches the program, what is written about its report, and the exit codes. No Spark here."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from brokerha.cli import exits, pipeline_load
from brokerha.model.errors import NotReady, Unreachable
from brokerha.pipeline.loading import LoadOptions, LoadReport, Reject
from brokerha.spark.session import SparkOptions
from tests.unit.cli.fake_job import FakeJob

URL = ("--url", "http://127.0.0.1:7201")
REPORT = LoadReport(
    key="load-1", state="there", files=1, splits=4, splits_before=0, size_bytes=100, lines=10, statements=9, unit="statement", transactions=2,
    rejects=0, max_rejects=0, rejects_file=None, first_rejects=(), lsn=1234, is_complete=True, is_dry_run=False, seconds=1.5,
)  # fmt: skip
BAD = replace(REPORT, rejects=2, rejects_file="r.jsonl", first_rejects=(Reject("a.nt", 3, 3, "no dot", "<urn:a>"),))


@pytest.fixture
def program(monkeypatch, tmp_path) -> FakeJob[LoadOptions, LoadReport]:
    (tmp_path / "a.nt").write_text("x" * 100)
    return FakeJob[LoadOptions, LoadReport](REPORT).put(monkeypatch, pipeline_load, "load")


def test_options_reach_the_program(run, program):
    ran = run(
        "pipeline", "load", "a.nt", "--repository", "r", "--graph", "urn:g", "--state", "S", "--max-rejects", "7", "--rejects", "R",
        "--ordered", "--window", "3", "--split-mib", "2", "--patience-s", "9", "--ack", "synchronised", "--timeout-s", "4",
        "--spark-master", "local[1]", "--spark-memory", "1g", "--spark-conf", "a=b", *URL,
    )  # fmt: skip
    assert ran.code == exits.DONE
    assert program.options == LoadOptions(
        files=("a.nt",), address=URL[1], state="S", repository="r", graph="urn:g", ack="synchronised", timeout_s=4, window=3,
        patience_s=9, max_rejects=7, rejects="R", split_bytes=2 * 1024 * 1024, is_ordered=True,
    )  # fmt: skip
    assert program.spark == SparkOptions("local[1]", "1g", {"a": "b"})


def test_the_same_load_has_the_same_state_folder_and_another_one_has_another(run, program):
    states = []
    for more in ((), (), ("--repository", "r")):
        run("pipeline", "load", "a.nt", *more, *URL)
        states.append(program.options.state)
    assert states[0] == states[1] != states[2]
    assert states[0].startswith(".brokerha-load/")


@pytest.mark.parametrize(
    ("broker", "address"),
    [("amqp://guest@127.0.0.1:1/v", "amqp://guest@127.0.0.1:1/v"), ("embedded://", "http://127.0.0.1:7201")],
)
def test_tasks_publish_to_the_broker_of_the_cluster_file_and_over_http_where_there_is_none(
    run, program, tmp_path, broker, address
):
    (tmp_path / "c.toml").write_text(
        f'[cluster]\nname = "c"\nbroker = "{broker}"\n[[master]]\nid = "m1"\nhttp = "127.0.0.1:7201"\n'
        '[[worker]]\nid = "w1"\nmaster = "m1"\n'
    )
    assert run("pipeline", "load", "a.nt", "-c", "c.toml").err == ""
    assert program.options.address == address


def test_a_dry_run_needs_no_cluster(run, program):
    program.answer = replace(BAD, is_dry_run=True, key="", rejects_file=None, rejects=7)
    ran = run("pipeline", "load", "a.nt", "--dry-run")
    assert program.options.is_dry_run
    assert ran.code == exits.FAILED
    assert ran.out.splitlines() == [
        "nothing was sent; 9 statements in 2 transactions would be, 7 rejects",
        "a.nt:3: no dot",
        "write all of them to a file with --rejects FILE",
    ]
    assert "all other lines are good" in ran.err


def test_a_load_says_what_was_done(run, program):
    ran = run("pipeline", "load", "a.nt", *URL)
    assert (ran.code, ran.out, ran.err) == (
        0, "9 statements in 2 transactions, up to LSN 1,234, 0 rejects, 1.5 s\n", "",
    )  # fmt: skip


def test_keys_are_called_keys(run, program):
    program.answer = replace(REPORT, unit="key")
    assert run("pipeline", "load", "a.nt", *URL).out.startswith("9 keys in 2 transactions")


def test_a_load_that_was_done_before_says_so(run, program):
    program.answer = replace(REPORT, splits_before=4)
    ran = run("pipeline", "load", "a.nt", *URL)
    assert ran.code == 0
    assert "4 of 4 splits were done before" in ran.out
    assert "delete there" in ran.err


@pytest.mark.parametrize(
    ("report", "code", "words"),
    [
        (BAD, exits.FAILED, "all other lines are loaded"),
        (replace(BAD, max_rejects=2), exits.DONE, ""),
        (replace(BAD, is_complete=False), exits.FAILED, "the same command goes on"),
    ],
)
def test_rejects_decide_the_exit_code(run, program, report, code, words):
    program.answer = report
    ran = run("pipeline", "load", "a.nt", *URL)
    assert ran.code == code
    assert words in ran.err
    assert "all rejects: r.jsonl" in ran.out


def test_json_has_every_number(run, program):
    program.answer = BAD
    answer: dict[str, Any] = json.loads(run("pipeline", "load", "a.nt", "-o", "json", *URL).out)
    assert answer == {
        "key": "load-1", "state": "there", "dry_run": False, "complete": True, "files": 1, "splits": 4, "splits_before": 0,
        "bytes": 100, "lines": 10, "statements": 9, "unit": "statement", "transactions": 2, "rejects": 2, "rejects_file": "r.jsonl",
        "first_rejects": [{"file": "a.nt", "line": 3, "reason": "no dot", "text": "<urn:a>"}], "lsn": 1234, "seconds": 1.5,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("none.nt", *URL), exits.USAGE, "none.nt cannot be read"),
        (("a.nt",), exits.USAGE, "which cluster"),
        (("a.nt", "--format", "turtle", *URL), exits.USAGE, "'turtle' is none of nt, nq, csv, parquet"),
        (("a.nt", "--format", "csv", *URL), exits.USAGE, "say with --mapping"),
        (("rows.parquet", "--dry-run"), exits.USAGE, "say with --mapping"),
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


@pytest.mark.parametrize(
    ("error", "code"), [(Unreachable("nobody"), exits.UNREACHABLE), (NotReady("full"), exits.FAILED)]
)
def test_an_error_of_the_load_is_one_line(run, program, error, code):
    program.answer = error
    ran = run("pipeline", "load", "a.nt", *URL)
    assert ran.code == code
    assert len(ran.err.splitlines()) == 1


def test_without_spark_the_command_says_what_to_install(run, monkeypatch, tmp_path):
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "pyspark" else found(name, *rest)
    )
    (tmp_path / "a.nt").write_text("")
    ran = run("pipeline", "load", "a.nt", *URL)
    assert ran.code == exits.CONFIGURATION
    assert "pip install 'brokerha[spark]'" in ran.err
