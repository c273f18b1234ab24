"""`brokerha backup`, `restore` and `replay`: what is asked of a cluster, what is done to directories, and the exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

import brokerha
from brokerha.cli.backup import command as backup_module
from brokerha.cli.backup.command import time_us
from brokerha.cli.common.command import Cluster
from brokerha.log.disks import FileDisk
from brokerha.log.log import Log
from brokerha.model.errors import NotReady, Unreachable
from brokerha.model.operations import LoggedRow, pack_operations
from brokerha.model.records import Accepted, Added, Appended, Outcomes, Started
from brokerha.ports.store import Applied
from brokerha.stores.backup.directory import BackupFolder
from brokerha.stores.backup.writing import About, Work, extend_backup, write_backup
from brokerha.stores.copies.worker_copy import WorkerCopy
from tests.unit.cli import two_masters
from tests.unit.cli.fake_cluster import FakeClient, answer, node

URL = ("--url", "http://127.0.0.1:7201")
FILE = """\
[cluster]
name = "other"
broker = "amqp://h"
data = "new"
backup-folder = "backups"
[[master]]
id = "m1"
[[master]]
id = "m2"
[[worker]]
id = "x1"
master = "m1"
[[worker]]
id = "x2"
master = "m2"
"""


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(backup_module, "POLL_S", 0.0)


# ---- backup, at a cluster


def task(state: str = "running", done: int = 0, **more: object) -> dict[str, object]:
    found = {"name": "monday", "path": "/b/monday", "lsn": 1200, "size_bytes": 5_000_000} if state == "done" else {}
    return {
        "request": "r1", "kind": "backup", "worker": "w2", "state": state, "done": done, "total": 100,
        "reason": "", "answer": found, **more,
    }  # fmt: skip


def test_a_backup_is_begun_and_followed_to_its_end(run, cluster):
    client = cluster(backup=task(total=0), task=[task(total=0), task(done=40), task(done=80), task("done", 100)])
    ran = run("backup", "monday", "--incremental", "--worker", "w2", *URL)
    assert (ran.code, ran.out) == (0, "backup monday: LSN 1,200, 5.0 MB, in /b/monday at w2\n")
    begun = next(call for call in client.calls if call[0] == "backup")
    assert begun == ("backup", "monday", {"incremental": True, "replace": False, "worker": "w2"})
    assert [call for call in client.calls if call[0] == "task"] == [("task", "r1")] * 4


def test_the_answer_can_be_read_by_a_program(run, cluster):
    cluster(backup=task("done", 100))
    ran = run("backup", "make", "monday", *URL, "-o", "json")
    assert json.loads(ran.out) == {"worker": "w2", **task("done")["answer"]}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["lsit"], "list"),
        (["ls"], "list"),
        (["verfy"], "verify"),
        (["Verify"], "verify"),
        (["--incremental", "lsit"], "list"),
        (["-c", "cluster.toml", "list"], "list"),
    ],
)
def test_a_misspelled_command_makes_no_backup(run, cluster, words, meant):
    client = cluster(backup=task("done", 100))
    ran = run("backup", *words)
    assert (ran.code, ran.out) == (64, "")
    assert f"did you mean brokerha backup {meant}?" in ran.err
    assert f"brokerha backup make {words[-1]}" in ran.err
    assert client.calls == []


def test_a_backup_can_have_a_name_like_a_command(run, cluster):
    client = cluster(backup=task("done", 100))
    assert run("backup", "make", "lists", *URL).code == 0
    assert ("backup", "lists") in [call[:2] for call in client.calls]


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({"task": KeyboardInterrupt()}, "backup monday goes on at w2, and gets its name when it is complete: brokerha backup list"),
        ({"task": [task(done=40), KeyboardInterrupt()]}, "backup monday goes on at w2"),
        ({"backup": KeyboardInterrupt()}, "it is not known whether backup monday began: brokerha backup list"),
    ],
)
def test_ctrl_c_says_what_becomes_of_the_backup(run, cluster, answers, told):
    cluster(**{"backup": task(), **answers})
    ran = run("backup", "monday", *URL)
    assert (ran.code, ran.out) == (130, "")
    assert told in ran.err


def test_ctrl_c_before_anything_was_asked_says_nothing(run, cluster, monkeypatch):
    client = cluster(backup=task())
    monkeypatch.setattr(Cluster, "masters", property(lambda _: (_ for _ in ()).throw(KeyboardInterrupt)))
    ran = run("backup", "monday", *URL)
    assert (ran.code, ran.out, ran.err) == (130, "", "")
    assert client.calls == []


def test_a_backup_that_failed_says_why(run, cluster):
    cluster(backup=task(), task=task("failed", reason="the disk is full"))
    ran = run("backup", "monday", *URL)
    assert (ran.code, ran.err) == (2, "brokerha: backup monday at w2: the disk is full\n")


def test_a_backup_that_is_refused_says_why(run, cluster):
    cluster(backup=NotReady("w1 is not in sync, or busy"))
    ran = run("backup", "monday", *URL)
    assert ran.code == 2
    assert "not in sync, or busy" in ran.err


def test_a_master_that_is_away_for_a_moment_is_asked_again(run, cluster):
    cluster(backup=task(), task=[Unreachable("restarting"), task("done", 100)])
    assert run("backup", "monday", *URL).code == 0


def test_a_master_that_was_started_again_does_not_know_the_task(run, cluster):
    cluster(backup=task(), task=[None])
    ran = run("backup", "monday", *URL)
    assert ran.code == 2
    assert "the backup may go on at w2" in ran.err


@pytest.fixture
def sites(monkeypatch, tmp_path) -> dict[str, FakeClient]:
    """Two masters of a cluster file, each with a worker; only the second one has a worker that can make a backup."""
    (tmp_path / "cluster.toml").write_text(two_masters.FILE)
    refusal = NotReady("no worker of this site is in sync and free")
    made = {
        "m1": FakeClient(command={"workers": [{"id": "w1"}]}, backup=refusal, task=None),
        "m2": FakeClient(command={"workers": [{"id": "w2"}]}, backup=task(), task=task("done", 100)),
    }
    monkeypatch.setattr(brokerha, "connect", lambda url, timeout: made[two_masters.URLS[url.split(",")[0]]])
    return made


def begun(sites: dict[str, FakeClient]) -> list[str]:
    return [master for master, client in sites.items() if any(call[0] == "backup" for call in client.calls)]


def test_a_backup_is_asked_of_the_master_of_the_worker_that_is_named(run, sites):
    assert run("backup", "monday", "--worker", "w2").code == 0
    assert begun(sites) == ["m2"]


def test_a_site_that_cannot_make_it_leaves_it_to_the_next_one(run, sites):
    assert run("backup", "monday").code == 0
    assert begun(sites) == ["m1", "m2"]
    sites["m2"] = FakeClient(command=Unreachable("m2 does not answer"))
    ran = run("backup", "monday")
    assert (ran.code, "m1: no worker of this site is in sync and free" in ran.err) == (2, True)


def test_adding_and_replacing_are_two_things(run):
    assert run("backup", "monday", "--incremental", "--replace", *URL).code == 64


# ---- backups on this machine


class Made:
    """Backup monday of 6 transactions, with the copy at LSN 4; and what the states are."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.copy = WorkerCopy(home / "w1", cluster="orders", node="w1")
        self.states = {0: self.copy.applied()}
        folder = BackupFolder(home / "backups")
        self.write(4)
        write_backup(folder, "monday", self.copy, Work(About("orders", "w1"), 1_795_234_542_000_000))
        self.write(2)
        extend_backup(folder, "monday", self.copy, Work(About("orders", "w1"), 1_795_234_543_000_000))

    def write(self, count: int) -> None:
        for _ in range(count):
            lsn = self.copy.applied().lsn + 1
            operations = [("put", "t", b"k%d" % lsn, b"v")]
            # The third one is rejected.
            operations = [("create-repository", "main")] if lsn == 3 else operations  # type: ignore[list-item]
            self.copy.execute(lsn, [(f"t{lsn}", lsn * 1_000_000, pack_operations(operations))])
            self.states[lsn] = self.copy.applied()

    def lines(self, first_lsn: int, last_lsn: int) -> list[LoggedRow]:
        return [tuple(line) for line in self.copy.logged(first_lsn, last_lsn)]  # type: ignore[misc]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    found = Made(tmp_path)
    (tmp_path / "cluster.toml").write_text(FILE)
    yield found
    found.copy.close()


def found_in(directory: Path, cluster: str, node_id: str) -> Applied:
    copy = WorkerCopy(directory, cluster=cluster, node=node_id)
    try:
        return copy.applied()
    finally:
        copy.close()


def test_backups_are_listed_with_what_they_hold(run, made):
    ran = run("backup", "list", "-o", "json")
    assert ran.code == 0
    row = json.loads(ran.out)["backups"][0]
    assert {name: row[name] for name in ("name", "cluster", "node", "least_lsn", "lsn", "last_lsn", "segments")} == {
        "name": "monday", "cluster": "orders", "node": "w1", "least_lsn": 0, "lsn": 4, "last_lsn": 6, "segments": 2,
    }  # fmt: skip
    assert {name: row[name] for name in ("worker", "base_lsn", "base_items")} == {
        "worker": "w1",
        "base_lsn": 4,
        "base_items": row["items"],
    }
    assert run("backup", "list").out.split()[:3] == ["NAME", "CLUSTER", "WORKER"]
    assert run("backup", "list", "--backups", "nowhere").err == "brokerha: there is no backup in nowhere\n"


def test_a_backup_that_cannot_be_used_is_listed_with_its_problem(run, made):
    (made.home / "backups" / "monday" / "manifest.json").write_text("{}")
    ran = run("backup", "list", "-o", "json")
    assert ran.code == 2
    assert "is no manifest of a backup" in json.loads(ran.out)["backups"][0]["problem"]


def test_verify_reads_everything(run, made):
    ran = run("backup", "verify", "monday")
    assert ran.code == 0
    assert "no problem" in ran.err
    path = next((made.home / "backups" / "monday" / "log").iterdir())
    path.write_bytes(path.read_bytes() + b"x")
    ran = run("backup", "verify", "backups/monday", "-o", "json")
    assert ran.code == 2
    assert len(json.loads(ran.out)["problems"]) == 1
    assert run("backup", "verify", "tuesday").code == 2


# ---- restore


def test_a_dry_run_shows_the_plan_and_changes_nothing(run, made):
    ran = run("restore", "monday", "--into", "w9", "--dry-run")
    assert ran.code == 0
    assert "LSN 6, transaction t6" in ran.out
    assert "then 2 lines of the log" in ran.out
    assert not (made.home / "w9").exists()


@pytest.mark.parametrize(
    ("words", "lsn"), [((), 6), (("--to-lsn", "5"), 5), (("--to-lsn", "2"), 2), (("--to-time", "1970-01-01T00:00:04"), 4)]
)
def test_a_directory_is_restored_to_a_state(run, made, words, lsn):
    ran = run("restore", "monday", "--into", "w9", *words, "-o", "json")
    assert (ran.code, json.loads(ran.out)["lsn"], json.loads(ran.out)["state"]) == (0, lsn, "restored")
    assert found_in(made.home / "w9", "orders", "w9") == made.states[lsn]


def test_what_is_in_the_way_stays_unless_the_cluster_is_named(run, made):
    assert run("restore", "monday", "--into", "w9", "--to-lsn", "1").code == 0
    ran = run("restore", "monday", "--into", "w9")
    assert (ran.code, "holds data" in ran.err) == (2, True)
    assert run("restore", "monday", "--into", "w9", "--force", "wrong").code == 64
    assert run("restore", "monday", "--into", "w9", "--force", "orders").code == 0
    assert found_in(made.home / "w9", "orders", "w9").lsn == 6
    # The worker that has its directory open is safe from everybody.
    ran = run("restore", "monday", "--into", "w1", "--force", "orders")
    assert (ran.code, "stop that node first" in ran.err) == (2, True)


def test_a_whole_cluster_begins_after_the_restored_lsn(run, made):
    ran = run("restore", "monday", "--all", "--to-lsn", "5")
    assert (ran.code, ran.err) == (0, "brokerha: restored LSN 5 for x1, x2, m1, m2\n")
    for worker in ("x1", "x2"):
        assert found_in(made.home / "new" / worker, "other", worker) == made.states[5]
    for master in ("m1", "m2"):
        journal = Log(FileDisk(made.home / "new" / master), "other", master)
        state = journal.state()
        assert (state.lsn, state.executed_lsn, state.last) == (5, 5, (5_000_000, "t5", "m1"))
        assert (journal.lsn_of("t2"), journal.lsn_of("t6"), journal.first_lsn()) == (2, None, 6)
        assert journal.rejection(2) is None
        assert "main" in (journal.rejection(3) or "")
        journal.close()
    ran = run("restore", "monday", "--all")
    assert (ran.code, "x1 holds data" in ran.err) == (2, True)


def test_a_backup_of_a_master_keeps_nothing_of_what_was_before(run, made):
    # With its journal it would take over, as it knows more than the restored master, and undo the restore.
    path = Path("cluster.toml")
    path.write_text(FILE + '\n[[backup]]\nid = "m1b"\nmaster = "m1"\n')
    folder = made.home / "new" / "m1b"
    folder.mkdir(parents=True)
    (folder / "current").write_text("of before")
    ran = run("restore", "monday", "--all")
    assert (ran.code, "m1b holds data: current" in ran.err) == (2, True)
    assert run("restore", "monday", "--all", "--force", "other").code == 0
    assert not list(folder.iterdir())
    assert run("restore", "monday", "--node", "m1b").code == 0


def test_the_nodes_of_one_machine_are_restored_by_name(run, made):
    assert run("restore", "monday", "--node", "m2", "--node", "x2").code == 0
    assert sorted(path.name for path in (made.home / "new").iterdir()) == ["m2", "x2"]
    journal = Log(FileDisk(made.home / "new" / "m2"), "other", "m2")
    assert journal.state().last == (6_000_000, "t6", "m1")
    journal.close()


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--into", "w9", "--all"),
        ("--all", "--as", "w9"),
        ("--into", "w9", "--as", "W 9"),
        ("--into", "w9", "--to-time", "yesterday"),
    ],
)
def test_a_restore_that_cannot_be_meant_is_refused(run, made, words):
    assert run("restore", "monday", *words).code == 64


def test_a_state_that_is_not_in_the_backup_is_named(run, made):
    ran = run("restore", "monday", "--into", "w9", "--to-lsn", "7")
    assert (ran.code, "from LSN 0 to 6, not 7" in ran.err) == (2, True)


def test_times_are_utc_unless_they_say_otherwise():
    assert time_us("1970-01-01T01:00:00+01:00") == time_us("1970-01-01T00:00:00") == 0
    assert time_us("20261121") == time_us("2026-11-21") == time_us("1795219200000000")
    for seconds in ("1795219200", "1795219200000"):  # Or milliseconds: as microseconds they are in 1970, where there is nothing.
        with pytest.raises(typer.BadParameter, match="microseconds since 1970"):
            time_us(seconds)
    for outside in ("9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "9" * 20):
        with pytest.raises(typer.BadParameter, match="is no time"):
            time_us(outside)


# ---- replay


def test_lines_of_a_backup_are_replayed(run, made):
    assert run("replay", "--into", "w9", "--backup", "monday", "--to-lsn", "2").code == 0
    assert found_in(made.home / "w9", "orders", "w9") == made.states[2]
    ran = run("replay", "--into", "w9", "--backup", "monday", "--from-lsn", "2", "-o", "json")
    assert (ran.code, json.loads(ran.out)["lines"]) == (0, 4)
    assert found_in(made.home / "w9", "orders", "w9") == made.states[6]


def test_a_dry_run_of_a_replay_changes_nothing(run, made):
    ran = run("replay", "--into", "w9", "--backup", "monday", "--dry-run", "-o", "json")
    assert ran.code == 0
    assert (json.loads(ran.out)["lines"], json.loads(ran.out)["fingerprint"]) == (6, made.states[6].fingerprint)
    assert not (made.home / "w9").exists()


def test_lines_of_a_running_master_are_replayed(run, made, cluster):
    cluster(status=answer(node("m1", "master", lsn=6)), logged=made.lines)
    ran = run("replay", "--into", "w9", *URL)
    assert ran.code == 0
    assert found_in(made.home / "w9", "orders", "w9") == made.states[6]


def test_a_directory_takes_over_the_lineage_of_the_lines_and_what_is_void_is_refused(run, made, cluster):
    def went_back_to(lsn: int) -> dict[str, object]:
        return {"rewinds": [[5, lsn]], "entries": []}

    cluster(status=answer(node("m1", "master", lsn=6)), logged=made.lines)
    assert run("replay", "--into", "w9", *URL, "--to-lsn", "4").code == 0
    # Given a log that went back to 3, a directory at 4 holds what is void
    cluster(status=answer(node("m1", "master", lsn=6)), logged=made.lines, entries=went_back_to(3))
    for dry in ((), ("--dry-run",)):
        ran = run("replay", "--into", "w9", *URL, *dry)
        assert ran.code != 0
        assert "the log went back to LSN 3 with lineage 5 (split)" in ran.err
    # Given one that went back to 4, it goes on, and is of the new lineage from then on
    cluster(status=answer(node("m1", "master", lsn=6)), logged=made.lines, entries=went_back_to(4))
    assert run("replay", "--into", "w9", *URL).code == 0
    copy = WorkerCopy(made.home / "w9", cluster="orders", node="w9")
    assert (copy.lineage, copy.applied()) == (5, made.states[6])
    copy.close()


def test_lines_of_a_journal_are_replayed(run, made):
    journal = Log(FileDisk(made.home / "m9"), "orders", "m9")
    lines = made.lines(1, 6)
    entries = tuple((stamp, txid) for txid, stamp, *_ in lines)
    journal.append(
        [
            Started(1),
            Accepted(tuple((txid, b"\x90") for txid, *_ in lines)),
            Appended("m9", 0, entries),
            Added(1, tuple((stamp, txid, "m9") for stamp, txid in entries), {"m9": 6}),
            Outcomes(1, tuple((outcome, reason, effect, mark) for _, _, outcome, reason, effect, mark in lines), 5),
        ]
    )
    ran = run("replay", "--into", "w9", "--journal", "m9")
    assert (ran.code, "open" in ran.err) == (2, True)
    journal.close()
    assert run("replay", "--into", "w9", "--journal", "m9").code == 0
    assert found_in(made.home / "w9", "orders", "w9") == made.states[6]
    assert run("replay", "--into", "w9", "--journal", "nowhere").code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--from-lsn", "3"), "lines from 1 on come next, not 3"),
        (("--to-lsn", "7"), "ends with LSN 6, before 7"),
        (("--from-lsn", "3", "--to-lsn", "2"), "is above"),
    ],
)
def test_a_range_that_cannot_be_applied_makes_no_directory(run, made, words, said):
    ran = run("replay", "--into", "w9", "--backup", "monday", *words)
    assert (ran.code, said in ran.err) == (2, True)
    assert not (made.home / "w9").exists()


def test_a_replay_knows_one_source_and_a_directory_of_a_worker(run, made):
    assert run("replay", "--into", "w9", "--backup", "monday", "--journal", "m1").code == 64
    assert run("replay", "--into", "w9", "--stream", "amqp://h").code == 64
    assert run("replay", "--into", "backups", "--backup", "monday").code == 2
    assert run("replay", "--into", "W9", "--backup", "monday").code == 64
