"""`brokerha log`: lines of the queue, lines as they come, and whether all masters hold the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import brokerha
from brokerha.cli.cluster.log import differing
from brokerha.log.disks import FileDisk
from brokerha.log.log import Log
from brokerha.model.errors import InvalidRequest, TimedOut, Unreachable
from brokerha.model.operations import By, Change, Delete, Published, Put, QuadsChanged, pack_effect
from brokerha.model.records import Started
from tests.unit.cli.fake_cluster import FakeClient, answer, line, node

URL = ("--url", "http://127.0.0.1:7201")
FILE = """\
[cluster]
name = "orders"
broker = "amqp://h"
[[master]]
id = "m1"
http = "127.0.0.1:1"
[[master]]
id = "m2"
http = "127.0.0.1:2"
[[worker]]
id = "w1"
master = "m1"
"""


def log_of(count: int, held: int = 1, page: int = 10_000):
    """A log that begins with ``held``; pages of it are as a master gives them."""

    def page_of(first, last):
        if last and last < held:
            raise InvalidRequest(f"LSN {first} to {last} are not held any more: the first one is {held}")
        return [line(lsn) for lsn in range(max(first, held), min(last or count, count) + 1)][:page]

    return page_of


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "orders.toml"
    path.write_text(FILE)
    return str(path)


# ---- show


def test_show_writes_one_object_a_line(run, cluster):
    client = cluster(log=log_of(5, page=2))
    ran = run("log", "show", *URL, "-o", "json")
    lines = [json.loads(each) for each in ran.out.splitlines()]
    assert [each["lsn"] for each in lines] == [1, 2, 3, 4, 5]
    assert lines[0] == line(1)
    assert [call for call in client.calls if call[0] == "log"] == [("log", 1, 0), ("log", 3, 0), ("log", 5, 0), ("log", 6, 0)]


def test_show_begins_with_the_first_line_that_is_held(run, cluster):
    cluster(log=log_of(50_005, held=50_003))
    lines = [json.loads(each)["lsn"] for each in run("log", "show", *URL, "-o", "json").out.splitlines()]
    assert lines == [50_003, 50_004, 50_005]


def test_what_is_not_held_any_more_is_named_once_to_who_asked_for_it(run, cluster):
    cluster(log=log_of(50_005, held=50_003, page=2))
    assert run("log", "show", *URL).err == ""
    ran = run("log", "show", *URL, "--from", "9")
    assert ran.err == "brokerha: LSN 9 to 50,002 are not held any more\n"


def test_show_says_that_a_range_is_not_held_any_more(run, cluster):
    cluster(log=log_of(50_005, held=50_003))
    ran = run("log", "show", *URL, "--to", "9")
    assert (ran.code, ran.out) == (2, "")
    assert "LSN 1 to 9 are not held any more: the first one is 50003" in ran.err


def test_show_takes_a_range_and_asks_for_no_more(run, cluster):
    client = cluster(log=log_of(100))
    ran = run("log", "show", *URL, "--from", "3", "--to", "4", "-o", "tsv")
    assert [each.split("\t")[0] for each in ran.out.splitlines()] == ["lsn", "3", "4"]
    assert [call for call in client.calls if call[0] == "log"] == [("log", 3, 4)]


def test_show_can_leave_out_what_others_wrote(run, cluster):
    users = ["anna", None, "bert", "anna"]
    cluster(log=lambda first, last: [{**line(lsn), "user": users[lsn - 1]} for lsn in range(first, 5)])
    shown = run("log", "show", *URL, "--user", "anna", "-o", "json").out.splitlines()
    assert [json.loads(each)["lsn"] for each in shown] == [1, 4]
    assert run("log", "show", *URL, "--user", "carl").out == ""


def test_show_as_table_has_one_head(run, cluster):
    cluster(log=log_of(2, page=1))
    words = [each.split() for each in run("log", "show", *URL).out.splitlines()]
    assert words[0] == ["LSN", "TXID", "ORIGIN", "TIME", "USER", "KIND", "OPERATIONS", "OUTCOME", "EFFECT"]
    assert [each[0] for each in words[1:]] == ["1", "2"]


EFFECTS: list[list[Change]] = [
    [Put("put", "stock", b"sku-1", b"9"), Put("put", "stock", b"\xff", b"9"), By("by", "anna")],
    [QuadsChanged("quads", "main", ("<a> <b> <c>",), ("<a> <b> <d>", "<a> <b> <e>"))],
    [Published("publish", "orders", "t3.1", "text/plain", b"m"), Delete("delete", "stock", b"sku-1")],
    [],
]
"""Changes of the lines 1 to 4, the last of which was rejected; line 5 has no result yet."""


def log_with_changes(cluster):
    def logged(first, last):
        return [(f"t{lsn}", lsn, "applied", "", pack_effect(EFFECTS[lsn - 1]), b"") for lsn in range(first, min(last, 4) + 1)][:3]

    lines = [line(lsn, reason="no such queue" if lsn == 4 else "") for lsn in range(1, 6)]
    cluster(log=lambda first, _last: lines[first - 1 :], logged=logged)


def test_show_has_the_changes_of_each_line(run, cluster):
    log_with_changes(cluster)
    shown = [json.loads(each)["changes"] for each in run("log", "show", *URL, "--changes", "-o", "json").out.splitlines()]
    assert shown == [
        [{"kind": "put", "name": "stock", "key": "sku-1"}, {"kind": "put", "name": "stock", "key_base64": "/w=="}],
        [{"kind": "quads", "name": "main", "added": 2, "removed": 1}],
        [{"kind": "publish", "name": "orders", "id": "t3.1"}, {"kind": "delete", "name": "stock", "key": "sku-1"}],
        [],
        None,
    ]
    table = run("log", "show", *URL, "--changes").out
    for text in ("put stock sku-1; put stock /w==", "quads main added 2 removed 1", "no such queue"):
        assert text in table


@pytest.mark.parametrize(
    ("options", "lsns"),
    [
        (("--store", "stock"), [1, 3]),
        (("--store", "stock", "--key", "sku-1"), [1, 3]),
        (("--store", "stock", "--key", "sku-2"), []),
        (("--store", "orders"), [3]),
        (("--store", "main"), [2]),
    ],
)
def test_show_can_leave_out_what_did_not_change_a_store_or_a_key(run, cluster, options, lsns):
    log_with_changes(cluster)
    shown = [json.loads(each) for each in run("log", "show", *URL, *options, "-o", "json").out.splitlines()]
    assert [each["lsn"] for each in shown] == lsns


def test_a_key_is_one_of_a_table(run, cluster):
    log_with_changes(cluster)
    ran = run("log", "show", *URL, "--key", "sku-1")
    assert (ran.code, "--store TABLE" in ran.err) == (64, True)


# ---- tail


def test_tail_begins_after_the_newest_line_and_follows(run, cluster):
    # Given a log of 7 lines, to which one is added after a while
    client = cluster(
        status=answer(node("m1", "master", lsn=7)),
        log=[[], [line(8)], [], KeyboardInterrupt()],
        wait=[TimedOut("nothing new"), {"lsn": 8}, {"lsn": 8}],
    )
    # When it is followed until Ctrl-C
    ran = run("log", "tail", *URL, "-o", "json")
    # Then the new line is shown, once
    assert ran.code == 0
    assert [json.loads(each)["lsn"] for each in ran.out.splitlines()] == [8]
    assert [call[1] for call in client.calls if call[0] == "wait"] == [8, 9]


def test_tail_from_an_lsn_shows_what_is_there_first(run, cluster):
    cluster(log=[[line(3), line(4)], [], KeyboardInterrupt()], wait=TimedOut("nothing new"))
    ran = run("log", "tail", *URL, "--from", "3", "-o", "json")
    assert [json.loads(each)["lsn"] for each in ran.out.splitlines()] == [3, 4]


WENT_BACK = {"cluster": "orders", "lineage": 5, "rewinds": [[5, 6]], "entries": []}
BEFORE = {**WENT_BACK, "lineage": 0, "rewinds": []}


def test_tail_says_that_the_log_went_back_while_nothing_new_came_and_goes_on_from_there(run, cluster):
    # Given a log that is followed from 8 on, and goes back to 6
    cluster(
        status=answer(node("m1", "master", lsn=7)),
        entries=[BEFORE, BEFORE, WENT_BACK],
        log=[[], [line(7, "a", lineage=5)], [], KeyboardInterrupt()],
        wait=TimedOut("nothing new"),
    )
    ran = run("log", "tail", *URL, "-o", "json")
    # Then that is said once, and what comes after 6 is shown
    assert [json.loads(each)["txid"] for each in ran.out.splitlines()] == ["a"]
    assert ran.err.count("the log went back to LSN 6 with lineage 5 (split)") == 1
    assert "go on from 7" in ran.err


def test_tail_shows_no_line_of_a_later_lineage_before_it_has_said_where_it_went_back(run, cluster):
    client = cluster(
        entries=[BEFORE, BEFORE, WENT_BACK],
        log=[[line(8, "c", lineage=5)], [line(7, "b", lineage=5), line(8, "c", lineage=5)], [], KeyboardInterrupt()],
        wait=TimedOut("nothing new"),
    )
    ran = run("log", "tail", *URL, "--from", "8", "-o", "json")
    assert [json.loads(each)["txid"] for each in ran.out.splitlines()] == ["b", "c"]
    assert "what was read up to LSN 7 is void" in ran.err
    assert [call[1] for call in client.calls if call[0] == "log"] == [8, 7, 9, 9]


def test_tail_before_the_place_to_which_the_log_went_back_goes_on_silently(run, cluster):
    cluster(
        entries=[BEFORE, BEFORE, WENT_BACK],
        log=[[line(6), line(7, "a", lineage=5)], [line(6), line(7, "a", lineage=5)], [], KeyboardInterrupt()],
        wait=TimedOut("nothing new"),
    )
    ran = run("log", "tail", *URL, "--from", "6", "-o", "json")
    assert [json.loads(each)["txid"] for each in ran.out.splitlines()] == ["t6", "a"]
    assert "void" not in ran.err


def test_show_ends_when_the_log_goes_back_behind_what_it_has_shown(run, cluster):
    cluster(entries=[BEFORE, WENT_BACK], log=[[line(n) for n in range(5, 9)], [line(9, "a", lineage=5)], []])
    ran = run("log", "show", *URL, "--from", "5", "-o", "json")
    assert ran.code != 0
    assert [json.loads(each)["lsn"] for each in ran.out.splitlines()] == [5, 6, 7, 8]
    assert "go on from 7" in ran.err


# ---- verify, all masters

PAGE = 2


def masters(monkeypatch, **logs):
    """Each master by the port of its address: m1 is 1, m2 is 2."""
    clients = {}
    for name, given in logs.items():
        if isinstance(given, Exception):
            clients[name] = FakeClient(status=given)
        else:
            rows = {each["lsn"]: each for each in given}
            own = answer(node(name, "master", lsn=max(rows)))
            clients[name] = FakeClient(
                status=own, log=lambda first, _last, rows=rows: [rows[n] for n in sorted(rows) if n >= first][:PAGE]
            )
    monkeypatch.setattr(brokerha, "connect", lambda address, timeout: clients[f"m{address[-1]}"], raising=False)


def test_equal_logs_are_compared_as_far_as_all_are(run, file, monkeypatch):
    masters(monkeypatch, m1=[line(n) for n in range(1, 6)], m2=[line(n) for n in range(1, 4)])
    ran = run("log", "verify", "-c", file)
    assert (ran.code, ran.err) == (0, "brokerha: the logs of m1, m2 are equal up to LSN 3\n")


def test_logs_that_begin_at_different_lines_are_compared_where_both_hold_them(run, file, monkeypatch):
    ours, theirs = [line(n) for n in range(1, 9)], [line(n) for n in range(5, 9)]
    masters(monkeypatch, m1=ours, m2=theirs)
    assert run("log", "verify", "-c", file).code == 0
    masters(monkeypatch, m1=ours, m2=[*theirs[:-1], line(8, "other")])
    ran = run("log", "verify", "-c", file)
    assert (ran.code, json.loads(ran.out)["lsn"]) == (2, 8)


def test_the_first_line_that_differs_is_shown_with_both_versions(run, file, monkeypatch):
    masters(monkeypatch, m1=[line(1), line(2), line(3)], m2=[line(1), line(2, "other"), line(3, "another")])
    ran = run("log", "verify", "-c", file)
    assert ran.code == 2
    assert json.loads(ran.out) == {"lsn": 2, "m1": line(2), "m2": line(2, "other")}
    assert "the logs differ at LSN 2" in ran.err


def test_lines_of_different_epochs_are_those_of_a_split(run, file, monkeypatch):
    masters(monkeypatch, m1=[line(1), line(2, epoch=2)], m2=[line(1), line(2, "other", epoch=3)])
    ran = run("log", "verify", "-c", file)
    assert ran.code == 2
    assert "the logs part at LSN 2, in different epochs" in ran.err


@pytest.mark.parametrize("silence", [Unreachable, TimedOut])
def test_a_master_that_is_away_is_named_and_the_cluster_is_degraded(run, file, monkeypatch, silence):
    masters(monkeypatch, m1=[line(1)], m2=silence("connection refused"))
    ran = run("log", "verify", "-c", file)
    assert ran.code == 1
    assert "m2 was not compared: connection refused" in ran.err


def test_no_master_at_all_is_exit_code_3(run, file, monkeypatch):
    masters(monkeypatch, m1=Unreachable("refused"), m2=Unreachable("refused"))
    assert run("log", "verify", "-c", file).code == 3


def test_one_address_is_not_enough_to_compare(run):
    ran = run("log", "verify", *URL)
    assert ran.code == 64
    assert "write -c FILE instead of --url" in ran.err


@pytest.mark.parametrize(
    ("change", "is_different"),
    [
        ({"timestamp": 5}, True),
        ({"origin": "m9"}, True),
        ({"outcome": "rejected"}, True),
        ({"effect_digest": "e"}, True),
        ({"outcome": None, "effect_digest": None}, False),
        ({"operations": 0, "kind": "transaction"}, False),
    ],
)
def test_lines_are_equal_in_what_was_agreed_and_in_what_both_have_executed(change, is_different):
    assert (differing({"m1": [line(4)], "m2": [line(4, **change)]}) is not None) is is_different


def test_lines_that_one_master_no_longer_holds_are_not_compared():
    assert differing({"m1": [line(4), line(5)], "m2": [line(5)]}) is None


# ---- verify, one journal on this machine


def test_a_journal_on_this_machine_is_read_record_by_record(run, file, tmp_path):
    journal = Log(FileDisk(tmp_path / "var/orders/m1"), "orders", "m1")
    journal.append([Started(1)])
    journal.close()
    ran = run("log", "verify", "-c", file, "--node", "m1")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == "brokerha: the journal of m1 holds the log up to LSN 0: no problem\n"


def test_the_journal_of_a_backup_is_that_of_its_master(run, file, tmp_path):
    with Path(file).open("a", encoding="utf-8") as text:
        text.write('\n[[backup]]\nid = "m1-b"\nmaster = "m1"\n')
    journal = Log(FileDisk(tmp_path / "var/orders/m1-b"), "orders", "m1")
    journal.append([Started(1)])
    journal.close()
    ran = run("log", "verify", "-c", file, "--node", "m1-b")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == "brokerha: the journal of m1-b holds the log up to LSN 0: no problem\n"


def test_the_journal_of_a_running_node_is_left_alone(run, file, tmp_path):
    journal = Log(FileDisk(tmp_path / "var/orders/m1"), "orders", "m1")
    try:
        ran = run("log", "verify", "-c", file, "--node", "m1")
    finally:
        journal.close()
    assert ran.code == 2
    assert ran.err.count("\n") == 1


def test_a_journal_that_is_not_here_is_not_made(run, file, tmp_path):
    ran = run("log", "verify", "-c", file, "--node", "m2")
    assert ran.code == 64
    assert "is this the machine of m2?" in ran.err
    assert not (tmp_path / "var").exists()


def test_a_folder_without_a_journal_gets_none(run, file, tmp_path):
    folder = tmp_path / "var/orders/m2"
    folder.mkdir(parents=True)
    ran = run("log", "verify", "-c", file, "--node", "m2")
    assert ran.code == 2
    assert "there is no journal in" in ran.err
    assert not list(folder.iterdir())


def test_a_journal_of_another_master_is_named(run, file, tmp_path):
    Log(FileDisk(tmp_path / "var/orders/m1"), "orders", "m9").close()
    ran = run("log", "verify", "-c", file, "--node", "m1")
    assert ran.code == 2
    assert "belongs to node m9, not to node m1" in ran.err


def test_a_worker_has_no_journal(run, file):
    ran = run("log", "verify", "-c", file, "--node", "w1")
    assert ran.code == 64
    assert "w1 is no master" in ran.err
