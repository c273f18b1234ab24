"""Cluster questions, probes and metrics."""

from __future__ import annotations

import json
from math import inf, nan
from typing import Any

import msgpack
import pytest

from brokerha.http.operating.families import exposition, numbers_of
from brokerha.model.errors import NotReady
from brokerha.model.fingerprints import packed
from brokerha.model.numbers import Histogram, Numbers
from tests.unit.http.asking import Node
from tests.unit.http.fake_front import FakeFront


def write(node: Node, count: int) -> None:
    for number in range(count):
        node.ask("PUT", "/kv/t/k", str(number).encode(), Idempotency_Key=f"t{number + 1}")


def test_status_is_the_contract_of_the_command(node: Node) -> None:
    write(node, 2)

    status = node.get("/cluster/status").json

    assert (status["cluster"], status["state"], status["epoch"]) == ("orders", "ok", 1)
    assert status["nodes"][0]["applied_lsn"] == 2


def test_status_does_not_wait_for_silent_masters_as_long_as_its_caller_would(node: Node, monkeypatch) -> None:
    asked = []

    def status(timeout_ms: int) -> dict[str, Any]:
        asked.append(timeout_ms)
        return FakeFront.status(node.front)

    monkeypatch.setattr(node.front, "status", status)

    node.get("/cluster/status", Brokerha_Timeout_Ms="30000")
    node.get("/cluster/status", Brokerha_Timeout_Ms="1000")

    assert asked == [2000, 500]


@pytest.mark.parametrize("what", ["", "&effects=1", "&entries=1"])
def test_whoever_read_the_log_before_it_went_back_is_told_where_to_go_on(node: Node, what: str) -> None:
    write(node, 4)
    node.front.rewinds = [[5, 2]]
    accept = {"Accept": "application/x-msgpack"}

    answers = {
        (first, lineage): node.get(f"/cluster/log?from={first}&lineage={lineage}{what}", **accept)
        for first in (3, 4)
        for lineage in (0, 5)
    }

    assert {asked: answer.status for asked, answer in answers.items()} == {(3, 0): 200, (3, 5): 200, (4, 0): 409, (4, 5): 200}
    told = answers[4, 0]
    assert told.headers["brokerha-error"] == "WentBack"
    assert "the log went back to LSN 2 with lineage 5 (split)" in told.text
    assert "go on from 3" in told.text


def test_the_log_is_lines_of_json_or_msgpack(node: Node) -> None:
    write(node, 4)

    lines = node.get("/cluster/log?from=2&to=3")
    packed = node.get("/cluster/log?from=2&to=3", Accept="application/x-msgpack")

    assert lines.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line)["txid"] for line in lines.text.splitlines()] == ["t2", "t3"]
    assert [entry["lsn"] for entry in msgpack.unpackb(packed.body)] == [2, 3]
    assert len(node.get("/cluster/log").text.splitlines()) == 4


def test_fingerprints_tell_one_copy_and_what_each_node_says(node: Node) -> None:
    write(node, 1)

    answer = node.get("/cluster/fingerprints?lsn=1").json

    assert answer["lsn"] == 1
    assert answer["copies"][0]["fingerprint"] == answer["fingerprint"]
    assert node.get("/cluster/fingerprints?lsn=2&timeout-s=0.01").status == 503


def test_waiting_ends_when_the_lsn_is_applied_or_the_time_is_over(node: Node) -> None:
    write(node, 1)

    assert node.get("/cluster/wait?lsn=1").json == {"lsn": 1, "workers": ["w1"]}
    assert node.get("/cluster/wait?lsn=1&workers=all&timeout-s=2").status == 200
    late = node.get("/cluster/wait?lsn=2&workers=2")
    assert (late.status, late.headers["brokerha-error"]) == (503, "TimedOut")
    assert "on 2 workers" in late.text


# ---- probes


def test_a_node_that_works_is_alive_ready_and_writable(node: Node) -> None:
    assert node.get("/livez").text == "[+]loop ok\n"
    assert node.get("/readyz").text.splitlines() == ["[+]loop", "[+]journal ok", "[+]lag"]
    assert node.get("/writable").status == 200


def test_a_node_whose_loop_has_ended_is_to_be_restarted(node: Node) -> None:
    node.front.loop_is_alive = False

    assert (node.get("/livez").status, node.get("/readyz").status) == (503, 503)


def test_a_node_that_is_behind_is_alive_and_not_ready(node: Node) -> None:
    node.front.lag_entries = 7

    assert node.get("/readyz?max-lag=7").status == 200
    behind = node.get("/readyz?max-lag=6&max-lag-s=2.5s")
    assert (behind.status, "[-]lag" in behind.text) == (503, True)
    assert node.get("/livez?verbose").status == 200


def test_readiness_may_wait_for_what_is_known_now(node: Node, monkeypatch) -> None:
    write(node, 1)
    assert node.get("/readyz?sync&timeout=1s").status == 200

    ahead = node.front.status()
    ahead["nodes"][0]["received_lsn"] = 9
    monkeypatch.setattr(node.front, "status", lambda timeout_ms: ahead)

    late = node.get("/readyz?sync=1&timeout=0.01")
    assert (late.status, late.text.startswith("[-]sync")) == (503, True)


@pytest.mark.parametrize("front", [FakeFront(role="worker", node_id="w1"), FakeFront()], ids=["a worker", "a full master"])
def test_who_takes_no_writes_says_why(front) -> None:
    front.refusal = NotReady("disk-full: free disk space")

    answer = Node(front).get("/writable")

    assert answer.status == 503
    assert "send writes to master m1" in answer.text or "disk-full" in answer.text


def test_metrics_are_prometheus_text_with_each_family_once(node: Node) -> None:
    write(node, 2)
    node.get("/kv/t/absent")

    answer = node.get("/metrics")

    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    assert "brokerha_applied_lsn 2.0" in lines
    assert "brokerha_turns_total 2.5" in lines
    assert 'brokerha_state_info{state="ok"} 1.0' in lines
    assert 'brokerha_http_requests_total{method="PUT",status="204"} 2.0' in lines
    assert 'brokerha_http_requests_total{method="GET",status="404"} 1.0' in lines
    families = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(families) == len(set(families))
    assert "# TYPE brokerha_turns_total counter" in lines


def test_numbers_that_are_none_are_written_as_prometheus_reads_them() -> None:
    numbers: Numbers = {"lag_seconds": nan, "stale_seconds": inf, ("worker_alive", 'w"2'): 0.25, ("worker_alive", "w1"): 1}
    lines = exposition(numbers).decode().splitlines()

    assert [line for line in lines if not line.startswith("#")] == [
        "brokerha_lag_seconds NaN", "brokerha_stale_seconds +Inf",
        'brokerha_worker_alive{worker="w\\"2"} 0.25', 'brokerha_worker_alive{worker="w1"} 1.0',
    ]  # fmt: skip


def test_what_reads_metrics_finds_the_numbers_that_they_were_written_from() -> None:
    histogram = Histogram((0.5, 2.0))
    histogram.observe(1.0)
    numbers: Numbers = {"turns_total": 3, ("http_requests_total", "GET", "200"): 7, **histogram.numbers("fsync_duration_seconds")}
    assert numbers_of(exposition(numbers).decode()) == numbers


def test_the_log_with_effects_is_what_a_store_can_apply(node: Node) -> None:
    for number in range(3):
        node.ask("PUT", "/kv/t/k", str(number).encode(), Idempotency_Key=f"t{number + 1}")

    answer = node.get("/cluster/log?from=2&to=9&effects=1", Accept="application/x-msgpack")

    assert msgpack.unpackb(answer.body) == [
        ["t2", 1002, "applied", "", b"", packed(2)],
        ["t3", 1003, "applied", "", b"", packed(3)],
    ]
    assert answer.headers["content-type"] == "application/x-msgpack"
    assert node.get("/cluster/log?effects=1", Accept="application/json").status == 406
    assert node.get("/cluster/log?from=5&to=4&effects=1").status == 400
