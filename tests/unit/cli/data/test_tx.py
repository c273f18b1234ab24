"""`brokerha tx …` and `brokerha promote`: what is shown, what is sent, and what asks to be confirmed."""

from __future__ import annotations

import json

import pytest

from brokerha.model.errors import NotReady

URL = ("--url", "http://127.0.0.1:7201")
XID = "1:6f72646572:"
ROW = {
    "txid": "m1.a.1.7", "xid": XID, "state": "prepared", "outcome": None, "operations": 3, "bytes": 99, "idle_s": None,
    "node": "m1",
}  # fmt: skip


ALL_WELL = {"nodes": [{"id": "m1", "role": "master", "state": "ok"}, {"id": "m1", "role": "backup", "state": "unreachable"}]}


def test_a_master_that_does_not_answer_is_named_because_the_list_lacks_its_transactions(run, cluster):
    nodes = [*ALL_WELL["nodes"], {"id": "m2", "role": "master", "state": "waiting-for-primary"}]
    cluster(open_transactions=[[ROW]], status={"nodes": nodes})

    ran = run("tx", "list", *URL)

    assert (ran.code, ran.err) == (1, "brokerha: m2 did not answer: what is open or prepared there is not listed\n")
    assert XID in ran.out


def test_all_that_are_not_over_are_listed(run, cluster):
    cluster(open_transactions=[[ROW]], status=ALL_WELL)

    assert json.loads(run("tx", "list", "-o", "json", *URL).out) == {"transactions": [ROW]}
    assert XID in run("tx", "list", *URL).out


def test_one_is_shown_by_its_xid_with_what_the_master_knows(run, cluster):
    client = cluster(open_transactions=[[ROW]], outcome={"txid": "m1.a.1.7", "state": "prepared", "lsn": None})

    shown = json.loads(run("tx", "show", XID, "-o", "json", *URL).out)

    assert (shown["txid"], shown["state"], shown["lsn"]) == ("m1.a.1.7", "prepared", None)
    assert ("outcome", "m1.a.1.7") in client.calls


def test_one_that_is_over_is_shown_by_its_id(run, cluster):
    cluster(open_transactions=[[]], outcome={"txid": "t", "state": "applied", "lsn": 4})

    assert "state: applied" in run("tx", "show", "t", *URL).out


def test_one_that_nobody_knows_is_exit_code_2(run, cluster):
    cluster(open_transactions=[[]], outcome=[None])

    for command in (("show", "t"), ("commit", "t", "--yes"), ("forget", "t")):
        ran = run("tx", *command, *URL)
        assert (ran.code, ran.out) == (2, "")
        assert "transaction t" in ran.err


@pytest.mark.parametrize("action", ["commit", "rollback"])
def test_deciding_by_hand_asks_to_be_confirmed(run, cluster, action):
    client = cluster(open_transactions=[[ROW]], end_transaction={"state": "committed", "lsn": 9})

    refused = run("tx", action, XID, *URL)
    done = run("tx", action, XID, "--yes", "-o", "json", *URL)

    assert refused.code == 64
    assert "--yes" in refused.err
    assert json.loads(done.out) == {"txid": "m1.a.1.7", "xid": XID, "state": "committed", "lsn": 9}
    sent = [call for call in client.calls if call[0] == "end_transaction"]
    assert sent == [("end_transaction", action, "m1", "m1.a.1.7", {"by_hand": True})]


def test_forgetting_needs_no_confirmation(run, cluster):
    client = cluster(open_transactions=[[ROW]], end_transaction={"state": "forgotten"})

    assert run("tx", "forget", "m1.a.1.7", *URL).out == "forgotten: transaction m1.a.1.7\n"
    assert ("end_transaction", "forget", "m1", "m1.a.1.7") in client.calls


# ---- promote

FILE = """
[cluster]
name = "orders"
broker = "amqp://guest:guest@127.0.0.1:5672/orders"
data = "var"

[[master]]
id = "m1"
http = "127.0.0.1:7201"

[[backup]]
id = "m1-b"
master = "m1"
http = "127.0.0.1:7251"

[[worker]]
id = "w1"
master = "m1"
"""


def test_the_process_itself_is_asked_first_and_then_the_others_of_its_master(run, cluster, tmp_path):
    (tmp_path / "cluster.toml").write_text(FILE)
    client = cluster(command={"view": 21})

    ran = run("promote", "m1-b", "--force")

    assert ran.code == 0
    assert client.calls[:2] == [
        ("connect", "http://127.0.0.1:7251,http://127.0.0.1:7201"),
        ("command", "promote", {"node": "m1-b", "force": True}),
    ]


def test_what_is_no_process_of_a_master_is_a_usage_error(run, cluster, tmp_path):
    (tmp_path / "cluster.toml").write_text(FILE)
    cluster(command={})

    assert run("promote", "w1").code == 64


def test_a_promotion_that_is_refused_says_why(run, cluster):
    client = cluster(command=NotReady("2 votes are needed, 1 was given"))

    ran = run("promote", "m1-b", *URL)

    assert (ran.code, client.calls[0]) == (2, ("connect", "http://127.0.0.1:7201"))
    assert "2 votes are needed" in ran.err


@pytest.mark.parametrize(("txid", "asked"), [("m9.0a1b2c3d.1.1.t", "m1"), ("m2.0a1b2c3d.1.1.t", "m2")])
def test_what_no_master_lists_is_rolled_back_at_its_maker_or_at_any_that_answers(run, cluster, txid, asked):
    nodes = [*ALL_WELL["nodes"], {"id": "m2", "role": "master", "state": "ok"}]
    client = cluster(open_transactions=[[]], status={"nodes": nodes}, end_transaction={"state": "aborted"})

    ran = run("tx", "rollback", txid, "--yes", *URL)

    assert (ran.code, ran.out) == (0, f"aborted: transaction {txid}\n")
    assert ("end_transaction", "rollback", asked, txid) in [call[:4] for call in client.calls]


def test_what_is_staged_is_listed(run, cluster):
    found = [{"txid": "load-1", "parts": 3, "bytes": 200_000, "items": 900, "user": "ann", "last_us": 1_000_000}]
    cluster(staged=lambda **_: found)
    assert json.loads(run("tx", "staged", "-o", "json", *URL).out) == {"staged": found}
    header, row = run("tx", "staged", "-o", "tsv", *URL).out.splitlines()
    assert header.split("\t")[0] == "txid"
    assert row.startswith("load-1\t3\t200000\t900\tann\t")
