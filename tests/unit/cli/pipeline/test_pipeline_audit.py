"""`brokerha pipeline audit`: what reaches the program, what is written about its report, and the exit codes. No Spark here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from brokerha.cli.common import exits
from brokerha.cli.pipeline import audit as pipeline_audit
from brokerha.model.errors import StoreDamaged, Unreachable
from brokerha.pipeline.audit_copies import CopyAudit, Difference
from brokerha.pipeline.audit_rows import Problem
from brokerha.pipeline.sources import SourceSpec
from brokerha.spark.audit import AuditOptions, AuditReport, TxidAudit
from brokerha.spark.session import SparkOptions
from tests.unit.cli.fake_cluster import answer, node
from tests.unit.cli.fake_job import FakeJob

REPORT = AuditReport(
    archive="A", cluster="orders", first_lsn=1, last_lsn=1234, files=2, rows=2000, chain="ab", lsn=1234, fingerprint="1:ff", is_proved=True,
    seconds=0.5,
)  # fmt: skip
CHANGED = Difference("table", "prices", "sku-1", "changed", "1.50", "9.99", 17)
CLUSTER = """
[cluster]
name = "orders"
broker = "amqp://127.0.0.1"
data = "data"

[[master]]
id = "m1"
http = "127.0.0.1:7201"
[[master]]
id = "m2"
http = "127.0.0.1:7202"
[[worker]]
id = "w1"
master = "m1"
http = "127.0.0.1:7211"
[[worker]]
id = "w2"
master = "m1"
[[worker]]
id = "w3"
master = "m2"
"""


@pytest.fixture
def program(monkeypatch) -> FakeJob[AuditOptions, AuditReport]:
    return FakeJob[AuditOptions, AuditReport](REPORT).put(monkeypatch, pipeline_audit, "audit")


def test_without_a_cluster_the_archive_alone_is_audited(run, program):
    ran = run("pipeline", "audit", "--archive", "A", "--lsn", "7", "--txids", "T", "--deep", "--spark-master", "local[1]")
    assert ran.code == exits.DONE
    assert program.options == AuditOptions(str(Path("A").absolute()), lsn=7, txids=Path("T"), is_deep=True, timeout_s=60.0)
    assert program.spark == SparkOptions("local[1]")
    assert "the archive A holds LSN 1 to 1,234 in 2 files: all are what was archived" in ran.out
    assert "its rows lead to 1:ff at LSN 1,234, as the entry of that LSN says" in ran.out


def test_a_cluster_file_names_workers_with_a_door_and_else_one_worker_of_a_master(run, program, cluster, tmp_path):
    cluster(status=Unreachable("nobody"))
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    assert run("pipeline", "audit", "--archive", "A", "--timeout-s", "3").code == exits.DEGRADED
    assert program.options is not None
    assert program.options.copies == (("w1", "http://127.0.0.1:7211"), ("a worker of m2", "http://127.0.0.1:7202"))
    assert program.options.source == SourceSpec(url="http://127.0.0.1:7201,http://127.0.0.1:7202", timeout_s=3)


def test_workers_that_no_address_leads_to_are_named_and_end_with_1(run, program, cluster, tmp_path):
    (tmp_path / "cluster.toml").write_text(CLUSTER + '[[worker]]\nid = "w4"\nmaster = "m2"\n')
    cluster(
        status=answer(node("m1", "master"), node("w1"), node("w2"), node("w5"), node("w3", master="m2"), node("w4", master="m2"))
    )
    program.answer = replace(REPORT, copies=(CopyAudit("w1", "equal", 1234, 10), CopyAudit("a worker of m2", "equal", 1234, 10)))
    ran = run("pipeline", "audit", "--archive", "A")
    assert ran.code == exits.DEGRADED
    assert "2 of 5 workers hold what the log leads to; not compared: w2, w5, another worker of m2\n" in ran.out
    assert "no http" in ran.out
    told = json.loads(run("pipeline", "audit", "--archive", "A", "-o", "json").out)
    assert told["result"] == "not compared"
    assert [each["node"] for each in told["copies"] if each["result"] == "not compared"] == ["w2", "w5", "another worker of m2"]


def test_one_address_is_compared_by_itself(run, program):
    assert run("pipeline", "audit", "--archive", "A", "--url", "http://127.0.0.1:7201").code == exits.DONE
    assert program.options is not None
    assert program.options.copies == (("http://127.0.0.1:7201", "http://127.0.0.1:7201"),)


def test_alone_leaves_the_cluster_file_aside(run, program, tmp_path):
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    assert run("pipeline", "audit", "--archive", "A", "--alone").code == exits.DONE
    assert program.options is not None
    assert (program.options.source, program.options.copies) == (None, ())


def test_a_difference_is_shown_with_node_store_key_and_both_values_and_ends_with_2(run, program):
    copies = (CopyAudit("w1", "equal", 1234, 10), CopyAudit("w2", "differs", 1234, 10, 1, (CHANGED,)))
    program.answer = replace(REPORT, copies=copies)
    ran = run("pipeline", "audit", "--archive", "A")
    assert ran.code == exits.FAILED
    for word in ("w2", "prices", "sku-1", "1.50", "9.99", "17"):
        assert word in ran.out
    assert "DIFFERING" in ran.out
    assert "1 of 2 workers hold what the log leads to" in ran.out
    assert "brokerha worker copy NODE brings another copy to a worker that differs" in ran.out
    assert "use a copy" not in ran.out
    assert ran.err == ""
    program.answer = replace(REPORT, copies=copies[:1])
    assert "1 of 1 worker holds what the log leads to" in run("pipeline", "audit", "--archive", "A").out


def test_json_has_the_whole_report(run, program):
    program.answer = replace(REPORT, problems=(Problem("log/1-100.parquet", 17, "is another one"),))
    ran = run("pipeline", "audit", "--archive", "A", "-o", "json")
    assert ran.code == exits.FAILED
    answer = json.loads(ran.out)
    assert answer["result"] == "differs"
    assert answer["problems"] == [{"file": "log/1-100.parquet", "lsn": 17, "what": "is another one"}]


def test_an_archive_that_is_another_is_told_with_what_to_do(run, program):
    program.answer = replace(REPORT, problems=(Problem("log/1-100.parquet", 17, "is another one"),))
    ran = run("pipeline", "audit", "--archive", "A")
    assert "the archive A holds LSN 1 to 1,234 in 2 files: 1 problem" in ran.out
    assert "use a copy of this archive, or archive again into an empty place" in ran.out
    assert "worker copy" not in ran.out


def test_an_archive_without_entries_holds_nothing_yet(run, program):
    program.answer = replace(REPORT, last_lsn=0, files=0, rows=0, lsn=0)
    ran = run("pipeline", "audit", "--archive", "A")
    assert "the archive A holds nothing yet\n" in ran.out


def test_tsv_has_a_line_for_each_finding(run, program):
    ids = TxidAudit(5, 3, 1, missing=("lost",), missing_number=1, repeated=(("twice", (4, 9)),))
    copies = (CopyAudit("w2", "differs", 9, 10, 1, (CHANGED,)),)
    program.answer = replace(REPORT, problems=(Problem("f", 0, "is missing"),), txids=ids, copies=copies)
    ran = run("pipeline", "audit", "--archive", "A", "-o", "tsv")
    lines = [line.split("\t") for line in ran.out.splitlines()]
    assert [line[:2] for line in lines] == [
        ["where", "kind"], ["f", "archive"], ["w2", "changed"], ["log", "missing id"], ["log", "repeated id"],
    ]  # fmt: skip
    assert lines[4][-1] == "at LSN 4, 9"


def test_what_was_not_compared_ends_with_1_and_says_why(run, program):
    program.answer = replace(REPORT, copies=(CopyAudit("w1", "not compared", reason="nobody answers"),))
    ran = run("pipeline", "audit", "--archive", "A")
    assert ran.code == exits.DEGRADED
    assert "nobody answers" in ran.out


def test_ids_are_counted(run, program):
    program.answer = replace(REPORT, txids=TxidAudit(5, 3, 1, missing=("a", "b"), missing_number=2))
    ran = run("pipeline", "audit", "--archive", "A")
    assert ran.code == exits.FAILED
    assert "3 of 5 transaction ids are in the log, 1 of them rejected; 2 are missing" in ran.out
    program.answer = replace(REPORT, txids=TxidAudit(5, 4, 1, missing=("a",), missing_number=1))
    assert "; 1 is missing" in run("pipeline", "audit", "--archive", "A").out


@pytest.mark.parametrize(("error", "code"), [(Unreachable("nobody"), exits.UNREACHABLE), (StoreDamaged("no"), exits.FAILED)])
def test_errors_have_their_exit_codes(run, program, error, code):
    program.answer = error
    ran = run("pipeline", "audit", "--archive", "A")
    assert ran.code == code
    assert str(error) in ran.err
