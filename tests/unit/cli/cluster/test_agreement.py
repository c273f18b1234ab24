"""`brokerha wait` and `brokerha verify`: which copies hold what, with a cluster that answers as it is told."""

from __future__ import annotations

import json

import pytest

from brokerha.cli.cluster import agreement
from brokerha.cli.cluster.agreement import LAST_QUESTION_S, Deadline
from brokerha.model import states
from tests.unit.cli.fake_cluster import answer, node

URL = ("--url", "http://127.0.0.1:7201")
SHORT = ("--timeout-s", "0.05")


def copies(*positions: int, silent_master: bool = False):
    master = node("m1", "master", states.UNREACHABLE if silent_master else states.OK)
    return answer(master, *(node(f"w{place}", lsn=lsn) for place, lsn in enumerate(positions, 1)))


# ---- wait


def test_wait_ends_when_all_copies_have_applied_the_lsn(run, cluster):
    client = cluster(status=[copies(5, 7), copies(7, 7)])
    ran = run("wait", "7", *URL)
    assert (ran.code, ran.out) == (0, "LSN 7 is applied on 2 of 2 copies: w1, w2\n")
    assert [call[0] for call in client.calls].count("status") == 2


@pytest.mark.parametrize(("on", "done"), [("quorum", ["w1", "w2"]), ("1", ["w1", "w2"]), ("2", ["w1", "w2"])])
def test_wait_for_some_copies_does_not_ask_for_the_others(run, cluster, on, done):
    cluster(status=copies(7, 8, 3))
    ran = run("wait", "7", "--on", on, *URL, "-o", "json")
    assert ran.code == 0
    assert json.loads(ran.out) == {"lsn": 7, "txid": None, "copies": done, "of": 3}


def test_wait_names_the_copies_that_are_behind_when_the_time_is_over(run, cluster):
    cluster(status=copies(7, 3))
    ran = run("wait", "7", *URL, *SHORT)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("brokerha: LSN 7 is applied on 1 of 2 copies after 0.05 s (w2 is at 3)")


def test_copies_that_nobody_knows_are_not_taken_for_done(run, cluster):
    cluster(status=copies(7, 7, silent_master=True))
    ran = run("wait", "7", *URL, *SHORT)
    assert ran.code == 2
    assert "the copies of m1 are not known" in ran.err
    assert run("wait", "7", "--on", "2", *URL).code == 0


@pytest.mark.parametrize("on", ["all", "quorum"])
def test_a_cluster_without_workers_has_no_copy_to_wait_for(run, cluster, on):
    cluster(status=answer(node("m1", "master")))
    ran = run("wait", "7", "--on", on, *URL, *SHORT)
    assert ran.code in {2, 64}
    assert "0 copies" in ran.err


def test_the_last_question_leaves_other_sites_time_to_answer():
    deadline = Deadline(0.001)
    while deadline.pause():
        pass
    assert deadline.left_s == LAST_QUESTION_S


def test_a_transaction_id_is_looked_up_until_it_has_its_place(run, cluster):
    waiting = {"txid": "order-7", "state": "accepted", "lsn": None, "outcome": None, "reason": ""}
    cluster(outcome=[None, waiting, {**waiting, "state": "applied", "lsn": 7, "outcome": "applied"}], status=copies(7, 7))
    ran = run("wait", "order-7", *URL, "-o", "json")
    assert json.loads(ran.out) == {"lsn": 7, "txid": "order-7", "copies": ["w1", "w2"], "of": 2}


def test_a_rejected_transaction_is_exit_code_2_with_its_reason(run, cluster):
    cluster(outcome={"txid": "t", "state": "applied", "lsn": 7, "outcome": "rejected", "reason": "no repository x"})
    ran = run("wait", "t", *URL)
    assert (ran.code, ran.err) == (2, "brokerha: transaction t was rejected: no repository x; nothing was changed\n")


def test_a_transaction_that_nobody_knows_is_named_when_the_time_is_over(run, cluster):
    cluster(outcome=None)
    ran = run("wait", "4711", "--txid", *URL, *SHORT)
    assert ran.code == 2
    assert "transaction 4711 is unknown after 0.05 s" in ran.err


@pytest.mark.parametrize("on", ["some", "0", "-1", "1.5"])
def test_an_unknown_number_of_copies_is_a_usage_error(run, cluster, on):
    ran = run("wait", "7", f"--on={on}", *URL)
    assert ran.code == 64
    assert "write all, quorum, or a number of copies" in ran.err


def test_more_copies_than_there_are_is_a_usage_error(run, cluster):
    cluster(status=copies(7, 7))
    ran = run("wait", "7", "--on", "3", *URL)
    assert ran.code == 64
    assert "the cluster has 2 copies" in ran.err


# ---- verify


def test_equal_copies_at_one_lsn_are_exit_code_0(run, cluster):
    cluster(status=copies(7, 7))
    ran = run("verify", *URL, "-o", "json")
    assert ran.code == 0
    assert json.loads(ran.out) == {
        "lsn": 7,
        "equal": True,
        "fingerprint": "f1",
        "differ": [],
        "copies": [{"id": "w1", "master": "m1", "fingerprint": "f1"}, {"id": "w2", "master": "m1", "fingerprint": "f1"}],
        "skipped": [],
    }
    assert ran.err == "brokerha: 2 copies are equal at LSN 7\n"


def test_the_copy_that_differs_from_most_is_named(run, cluster):
    cluster(status=answer(node("m1", "master"), node("w1"), node("w2", fingerprint="f2"), node("w3")))
    ran = run("verify", *URL)
    assert ran.code == 2
    assert "copies differ at LSN 7: w2" in ran.err


@pytest.mark.parametrize("state", [states.OFF, states.REPLICATION_CLIENT, states.OUT_OF_SYNC, states.UNKNOWN])
def test_a_copy_that_is_not_in_sync_is_named_and_not_waited_for(run, cluster, state):
    cluster(status=answer(node("m1", "master"), node("w1"), node("w2", state=state, lsn=3, reason="why")))
    ran = run("verify", *URL, "-o", "json")
    given = json.loads(ran.out)
    assert (ran.code, given["equal"], given["skipped"][0]["id"]) == (1, True, "w2")
    assert f"not compared: w2 is {state}: why" in ran.err


def test_a_copy_that_is_being_judged_is_waited_for(run, cluster):
    new = answer(node("m1", "master"), node("w1"), node("w2", state=states.UNINITIALISED, lsn=0))
    cluster(status=[new, copies(7, 7)])
    ran = run("verify", *URL)
    assert (ran.code, ran.err) == (0, "brokerha: 2 copies are equal at LSN 7\n")


def test_a_site_that_differs_as_a_whole_is_told_how_to_be_repaired(run, cluster):
    other = [node(name, master="m2", fingerprint="f2") for name in ("w4",)]
    cluster(status=answer(node("m1", "master"), node("m2", "master"), node("w1"), node("w2"), *other))
    ran = run("verify", *URL)
    assert ran.code == 2
    assert "the whole site of m2 differs: brokerha worker repair m2 --from w1" in ran.err


def test_a_copy_that_its_master_has_taken_out_meanwhile_is_still_one_of_its_site(run, cluster):
    # Given a copy that shows another fingerprint at LSN 7, and is out of sync when the others get there
    before = answer(node("m1", "master"), node("w1", lsn=6), node("w2", fingerprint="f2"), node("w3", lsn=6))
    after = answer(node("m1", "master"), node("w1"), node("w2", state=states.OUT_OF_SYNC), node("w3"))
    cluster(status=[before, after])
    ran = run("verify", *URL)
    assert ran.code == 2
    assert "copies differ at LSN 7: w2; replace each by a copy of another worker: brokerha worker copy w2" in ran.err


def test_two_copies_that_differ_are_both_named(run, cluster):
    cluster(status=answer(node("w1"), node("w2", fingerprint="f2")))
    ran = run("verify", *URL, "-o", "json")
    given = json.loads(ran.out)
    assert (ran.code, given["differ"], given["fingerprint"]) == (2, ["w1", "w2"], None)


@pytest.mark.parametrize(
    ("home", "how"), [("m2", "brokerha worker repair MASTER --from WORKER"), ("m1", "brokerha worker trust ID")]
)
def test_who_has_looked_at_all_data_is_not_told_to_look_but_to_choose(run, cluster, monkeypatch, home, how):
    monkeypatch.setattr(agreement, "look_at_all", lambda _cluster: [])
    cluster(status=answer(node("w1"), node("w2", master=home, fingerprint="f2")))
    assert "no content has the most copies: brokerha verify --deep shows which are damaged" in run("verify", *URL).err
    ran = run("verify", "--deep", *URL)
    assert f"no content has the most copies: choose the one that is to stay: {how}" in ran.err
    assert "verify" not in ran.err


def test_copies_under_way_are_compared_at_an_lsn_where_each_was_seen(run, cluster):
    # Given copies that are never at the same LSN at the same time
    cluster(status=[copies(7, 6), copies(8, 7), copies(9, 8)])
    ran = run("verify", *URL, "-o", "json")
    # Then what each showed at LSN 7 is enough
    assert (ran.code, json.loads(ran.out)["lsn"]) == (0, 7)


def test_copies_that_stay_apart_cannot_be_compared(run, cluster):
    cluster(status=copies(7, 3))
    ran = run("verify", *URL, *SHORT)
    assert ran.code == 2
    assert "the copies were not seen at one LSN within 0.05 s (w1 on at 7, w2 on at 3)" in ran.err


def test_a_silent_site_keeps_verify_from_saying_that_all_are_equal(run, cluster):
    cluster(status=copies(7, 7, silent_master=True))
    ran = run("verify", *URL, *SHORT)
    assert ran.code == 2
    assert "the copies of m1 are not known" in ran.err
