"""`brokerha status`: the table, the JSON contract, and the exit code of the worst state."""

from __future__ import annotations

import json
from typing import Any

import pytest

from brokerha.cli.cluster import status as status_module
from brokerha.model import states
from brokerha.model.errors import NotReady, TimedOut, Unreachable
from tests.unit.cli.fake_cluster import HEALTHY, answer, node
from tests.unit.cli.two_masters import FILE

URL = ("--url", "http://127.0.0.1:7201")
CONTRACT = {
    "id", "role", "state", "reason", "action", "master", "received_lsn", "applied_lsn", "lag_entries", "lag_s", "fingerprint",
    "incoming", "in_doubt", "seen_s", "probe", "readable", "free_bytes",
}  # fmt: skip


def test_a_healthy_cluster_is_a_table_and_exit_code_0(run, cluster):
    client = cluster(
        status=answer(
            node("m1", "master", lsn=120_441, fingerprint="v1:0123456789abcdef"),
            node("w1", lsn=120_000, lag_entries=441, lag_s=1.26),
        )
    )
    ran = run("status", *URL)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "cluster orders  epoch 1  ok  (2 of 2 nodes ok)",
        "NODE  ROLE    STATE  RECEIVED  APPLIED  LAG         INCOMING  IN-DOUBT  ITEMS  FINGERPRINT   SEEN ",
        "m1    master  ok      120,441  120,441  0  0.0 s           0         0     12  v1:012345678  0.5 s",
        "w1    worker  on      120,000  120,000  441  1.3 s         0         0     12  f1            0.5 s",
    ]
    assert client.calls[0] == ("connect", URL[1])


def test_where_a_master_has_backups_the_table_says_which_process_is_primary(run, cluster):
    cluster(
        status=answer(
            node("m1", "master", primary="m1b", view=31),
            node("m1", "backup", states.READY, primary="m1b", view=31, lsn=None),
            node("w1"),
        )
    )
    head, *rows = run("status", *URL).out.splitlines()[1:]
    assert head.split()[:5] == ["NODE", "ROLE", "STATE", "PRIMARY", "VIEW"]
    assert [row.split()[:5] for row in rows[:2]] == [["m1", "master", "ok", "m1b", "31"], ["m1", "backup", "ready", "m1b", "31"]]
    assert rows[2].split()[:4] == ["w1", "worker", "on", "7"]


def test_how_old_reads_may_be_is_told_of_a_master_that_cannot_agree(run, cluster):
    cluster(status=answer(node("m1", "master"), node("m2", "master", states.EXCLUDED, reason="so it is", stale_s=34.2)))
    lines = run("status", *URL).out.splitlines()
    assert lines[-1] == f"m2: so it is: reads show what was known 34 s ago: {states.ACTIONS[states.EXCLUDED]}"


def test_what_is_not_well_is_followed_by_what_to_do(run, cluster):
    cluster(
        status=answer(
            node("m1", "master"), node("m2", "master", states.WAITING_FOR_PEERS, reason="not heard: m3"), state="degraded"
        )
    )
    ran = run("status", *URL)
    assert ran.code == 1
    assert ran.out.splitlines()[-1] == f"m2: not heard: m3: {states.ACTIONS[states.WAITING_FOR_PEERS]}"


def test_what_becomes_of_splits_and_what_became_of_them_follows_the_first_line(run, cluster):
    of_split: dict[str, Any] = {"split_recovery": "smart", "split_recovery_from": "epoch", "splits": 0, "last_split": ""}
    one = {**of_split, "splits": 1, "last_split": "went back to LSN 100, 12 given up, epoch 5"}
    quorum = {**of_split, "split_recovery": "quorum", "split_recovery_from": "file"}
    cluster(status=answer(node("m1", "master", **of_split), node("m2", "master", **one), node("w1")))
    assert run("status", *URL).out.splitlines()[1:3] == [
        "split-recovery smart (from the epoch): m1, m2",
        "m2: 1 split since the start, last: went back to LSN 100, 12 given up, epoch 5",
    ]
    cluster(status=answer(node("m1", "master", **quorum), node("w1")))
    assert run("status", *URL).out.splitlines()[1].startswith("NODE")


def test_who_is_excluded_stands_in_the_first_line(run, cluster):
    given = answer(node("m1", "master"), node("m2", "master"), state="degraded")
    cluster(status={**given, "epoch": 4, "members": ["m1", "m2"], "excluded": ["m3"]})
    head = run("status", *URL).out.splitlines()[0]
    assert head == "cluster orders  epoch 4 of m1, m2 without m3  degraded  (2 of 2 nodes ok)"


def test_json_is_the_answer_of_the_cluster_with_every_field_of_the_contract(run, cluster):
    cluster(status=HEALTHY)
    ran = run("status", *URL, "-o", "json")
    given = json.loads(ran.out)
    assert given == HEALTHY
    assert {"cluster", "epoch", "state", "nodes"} <= given.keys()
    assert all(given["nodes"][0].keys() >= CONTRACT for _ in given["nodes"])


def test_yaml_and_tsv_carry_the_same(run, cluster):
    cluster(status=answer(node("m1", "master", reason="", fingerprint="")))
    yaml = run("status", *URL, "-o", "yaml").out
    assert yaml.startswith(
        'cluster: orders\nepoch: 1\nstate: ok\nnodes:\n  - id: m1\n    role: master\n    state: ok\n    reason: ""\n'
    )
    tsv = run("status", *URL, "-o", "tsv").out.splitlines()
    assert tsv[0].split("\t")[:4] == ["id", "role", "state", "reason"]
    assert tsv[1].split("\t")[:4] == ["m1", "master", "ok", ""]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([states.OK, states.OK], 0),
        ([states.OK, states.CATCHING_UP], 1),
        ([states.WAITING_FOR_BROKER, states.NO_WORKER], 1),
        ([states.CATCHING_UP, states.UNREACHABLE], 2),
        ([states.OK, states.HALTED], 2),
        ([states.DISK_FULL], 2),
        ([states.LOST_STATE], 2),
        ([states.OK, *sorted(states.SERVING)], 0),
        ([states.READ_ONLY, states.REPLICATION_CLIENT, states.OFF], 1),
        ([states.OK, states.UNKNOWN], 2),
        ([states.DIFFERS], 2),
        ([states.OK, states.EXCLUDED], 1),
        ([states.NO_MAJORITY], 1),
        ([states.LEFT_BEHIND, states.OK], 2),
        ([states.NEEDS_ATTENTION], 2),
    ],
)
def test_the_worst_state_is_the_exit_code(run, cluster, words, code):
    cluster(status=answer(*(node(f"m{place}", "master", word) for place, word in enumerate(words))))
    assert run("status", *URL).code == code


def test_a_state_that_this_version_does_not_know_needs_a_person(run, cluster):
    cluster(status=answer({**node("m1", "master"), "state": "levitating"}))
    assert run("status", *URL).code == 2


def test_a_master_that_did_not_answer_has_an_empty_row(run, cluster):
    silent = dict.fromkeys(node("x")) | {"id": "m3", "role": "master", **states.describe(states.UNREACHABLE, "did not answer")}
    cluster(status=answer(node("m1", "master"), silent))
    ran = run("status", *URL)
    assert ran.code == 2
    assert "m3: did not answer: start the node, or look at its log" in ran.out


def test_nobody_answers_is_exit_code_3(run, cluster):
    cluster(status=Unreachable("no answer from http://127.0.0.1:7201: Connection refused"))
    ran = run("status", *URL)
    assert (ran.code, ran.out) == (3, "")
    assert ran.err == (
        "brokerha: no answer from http://127.0.0.1:7201: Connection refused; "
        "start the nodes (brokerha up), or name another one with --url\n"
    )


@pytest.mark.parametrize("error", [Unreachable("nobody"), TimedOut("nobody in time"), NotReady("behind it is nobody")])
def test_watch_looks_again_and_ends_with_the_last_state(run, cluster, monkeypatch, error):
    # Given a cluster that is away for a moment, then degraded, and a person who has seen enough
    degraded = answer(node("m1", "master", states.CATCHING_UP), state="degraded")
    client = cluster(status=[HEALTHY, error, degraded, KeyboardInterrupt()])
    ran = run("status", *URL, "--watch", "--interval-s", "0.1", "-o", "json")
    assert ran.code == 1
    assert [json.loads(each)["state"] for each in ran.out.splitlines()] == ["ok", "degraded"]
    assert "nobody" in ran.err
    assert client.calls[-1] == ("close",)


def test_the_table_has_a_head_for_every_column():
    assert len(set(status_module.COLUMNS.values())) == len(status_module.COLUMNS)


def test_a_worker_of_the_file_that_its_master_does_not_have_is_told_with_the_command(run, cluster, tmp_path):
    (tmp_path / "cluster.toml").write_text(FILE)
    cluster(status=answer(node("m1", "master"), node("m2", "master", states.UNREACHABLE)))
    assert run("status").err == "brokerha: m1 has no worker w1, which is in the cluster file: brokerha worker add w1\n"
    cluster(status=answer(node("m1", "master"), node("m2", "master"), node("w1"), node("w2", master="m2")))
    assert run("status").err == ""
