"""SiteCommands: each command of an operator does what it says, twice as well as once, and refuses with what to do."""

from __future__ import annotations

from typing import Any

import pytest

from brokerha.master.command_arguments import COMMANDS
from brokerha.model import states
from brokerha.model.errors import InvalidRequest, NotFound, NotReady
from brokerha.model.records import Rebased, WorkersChanged
from brokerha.model.requests import Submit
from brokerha.model.wire.messages import Coin, Idle, LoadFrom, Task, TaskReport
from brokerha.replication.site.config import Standing
from tests.unit.master.one_master import OneMaster
from tests.unit.replication.benches import content, text


def test_commands_are_known_by_name() -> None:
    bench = OneMaster()
    assert len(COMMANDS) == 29
    with pytest.raises(
        InvalidRequest, match="unknown command 'worker-dance'; known are backup, node-coin, node-continue, node-pause, peer-add"
    ):
        bench.do("worker-dance")
    with pytest.raises(InvalidRequest, match="this master has no backups"):
        bench.do("promote", node="m1")


@pytest.mark.parametrize("name", ["worker-add", "worker-remove", "worker-on", "worker-off", "worker-trust", "worker-copy"])
@pytest.mark.parametrize("arguments", [{}, {"worker": ""}, {"worker": 7}, {"worker": None}])
def test_a_command_about_a_worker_needs_its_name(name: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=f"the command {name}.* a name"):
        OneMaster().do(name, **arguments)


@pytest.mark.parametrize("name", ["worker-on", "worker-off", "worker-trust", "worker-copy", "scrub"])
def test_a_worker_of_somebody_else_is_named_with_the_own_ones(name: str) -> None:
    with pytest.raises(InvalidRequest, match="w9 is no worker of m1; its workers are w1, w2"):
        OneMaster().do(name, worker="w9")


def test_a_worker_is_paused_by_being_switched_off_and_its_master_coins_it() -> None:
    bench = OneMaster()
    bench.run()
    off = bench.do("node-pause", node="w2", force=True)
    assert off == {"node": "w2", "changed": True, "state": states.OFF, "reason": "switched off"}
    assert bench.do("node-pause", node="w2")["changed"] is False
    assert bench.do("worker-off", worker="w2")["changed"] is False
    bench.run()
    assert bench.records() == [WorkersChanged((("w1", True, True), ("w2", True, False)))]
    with pytest.raises(InvalidRequest, match="w2 is a worker: its master coins it"):
        bench.do("node-coin", node="w2")
    assert bench.do("node-continue", node="w2")["changed"] is True
    assert bench.do("worker-on", worker="w2")["changed"] is False


@pytest.mark.parametrize("name", ["node-pause", "node-coin", "node-continue"])
def test_a_master_without_backups_and_a_stranger_are_not_paused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="m1 is a master: its backups and its workers can be paused"):
        OneMaster().do(name, node="m1")
    with pytest.raises(InvalidRequest, match="w9 is no worker of m1; its workers are w1, w2"):
        OneMaster().do(name, node="w9")


def test_the_last_worker_in_sync_is_paused_by_force_only() -> None:
    bench = OneMaster()
    bench.run()
    bench.do("node-pause", node="w1", force=True)
    with pytest.raises(
        InvalidRequest,
        match=r"w2 is the last worker in sync: switch another one on first, or use --force \(over HTTP: force=true\)",
    ):
        bench.do("node-pause", node="w2")


# ---- members


def test_a_worker_that_is_added_is_greeted_remembered_and_there_after_a_restart() -> None:
    bench = OneMaster()
    assert bench.do("worker-add", worker="w4", readable=False) == {"worker": "w4", "changed": True}
    assert "w4" in bench.run()
    assert bench.do("worker-add", worker="w4", readable=False) == {"worker": "w4", "changed": False}
    bench.run()
    assert bench.records() == [WorkersChanged((("w1", True, True), ("w2", True, True), ("w4", False, True)))]
    assert list(bench.restart().site.workers) == ["w1", "w2", "w4"]
    assert bench.restart().site.workers["w4"].is_readable is False


def test_adding_one_again_changes_whether_it_gets_reads() -> None:
    bench = OneMaster()
    assert bench.do("worker-add", worker="w2", readable=False)["changed"] is True
    bench.run()
    assert bench.core.site.readable(bench.ms) == ["w1"]
    assert bench.do("worker-add", worker="w2")["changed"] is True
    assert bench.core.site.readable(bench.ms) == ["w1", "w2"]


@pytest.mark.parametrize("node", ["No Id", "w" * 33, "m1"])
def test_what_cannot_be_a_worker_is_not_added(node: str) -> None:
    with pytest.raises(InvalidRequest):
        OneMaster().do("worker-add", worker=node)


def test_a_worker_that_is_removed_is_sent_nothing_more() -> None:
    bench = OneMaster(("w1", "w2", "w3"))
    assert bench.do("worker-remove", worker="w1") == {"worker": "w1", "changed": True}
    bench.core.step(Submit(0, "t6", b"body"), bench.now())
    sent = bench.run()
    assert "w1" not in sent
    assert bench.core.feed.probe == "w2"
    assert bench.do("worker-remove", worker="w1") == {"worker": "w1", "changed": False}
    assert list(bench.restart().site.workers) == ["w2", "w3"]


def test_when_all_workers_were_removed_those_of_the_cluster_file_do_not_come_back() -> None:
    bench = OneMaster()
    for node in ("w1", "w2"):
        assert bench.do("worker-remove", worker=node, force=True)["changed"] is True
    assert bench.restart().site.workers == {}
    assert bench.records()[-1] == WorkersChanged(())


def test_the_last_worker_in_sync_is_neither_removed_nor_switched_off_unless_forced() -> None:
    for name in ("worker-remove", "worker-off"):
        bench = OneMaster()
        bench.hear("w2", 5, fingerprint=text(99))
        with pytest.raises(InvalidRequest, match=r"w1 is the last worker in sync: .* or use --force \(over HTTP: force=true\)"):
            bench.do(name, worker="w1")
        assert bench.do(name, worker="w1", force=True)["changed"] is True
        # Without the protection nobody asks.
        bench = OneMaster(("w1",), protect=False)
        assert bench.do(name, worker="w1")["changed"] is True


def test_one_that_is_not_in_sync_may_always_go() -> None:
    bench = OneMaster()
    bench.hear("w1", 5, fingerprint=text(99))
    bench.hear("w2", 5, fingerprint=text(99))
    assert bench.do("worker-off", worker="w1")["changed"] is True
    assert bench.do("worker-remove", worker="w2")["changed"] is True


def test_off_and_on_are_orders_that_are_remembered() -> None:
    bench = OneMaster(("w1", "w2", "w3"))
    assert bench.do("worker-off", worker="w2") == {"worker": "w2", "changed": True}
    assert bench.do("worker-off", worker="w2") == {"worker": "w2", "changed": False}
    assert bench.run()["w2"] == [Idle(1, "switched off by its master")]
    assert bench.standing("w2") is Standing.OFF
    assert bench.restart().site.workers["w2"].is_switched_on is False
    bench.hear("w2", 5, follows="idle")
    assert bench.do("worker-on", worker="w2") == {"worker": "w2", "changed": True}
    assert bench.do("worker-on", worker="w2") == {"worker": "w2", "changed": False}
    assert isinstance(bench.run()["w2"][0], Coin)
    assert bench.restart().site.workers["w2"].is_switched_on is True


def test_switching_off_says_that_the_site_takes_no_writes_from_then_on() -> None:
    bench = OneMaster()
    bench.run()
    answer = bench.do("worker-off", worker="w2")
    assert answer["read_only"] == "1 of 2 workers in sync, writes need 2: w2 is off (switched off)"
    assert bench.do("worker-off", worker="w2")["read_only"] == answer["read_only"]
    assert bench.do("workers")["read_only"] == answer["read_only"]


def test_the_list_says_what_is_known_of_each() -> None:
    bench = OneMaster()
    bench.core.step(Submit(0, "t6", b"body"), bench.now())
    bench.run()
    listed = bench.do("workers")
    assert (listed["master"], listed["read_only"]) == ("m1", "")
    assert listed["workers"][1] == {
        "id": "w2", "state": "on", "reason": "", "readable": True, "switched_on": True, "applied_lsn": 5,
        "fingerprint": text(5), "probe": False, "alive": True,
    }  # fmt: skip
    assert [row["probe"] for row in listed["workers"]] == [True, False]


# ---- content


def test_with_two_unknown_copies_the_state_names_both_and_the_command_and_the_command_brings_the_site_back() -> None:
    bench = OneMaster()
    for node, came_to in (("w1", 98), ("w2", 99)):
        bench.hear(node, 4, fingerprint=text(came_to), journal=f"other-copy-of-{node}")
    bench.run()
    word, reason = bench.core.state(bench.now())
    assert word == states.NEEDS_ATTENTION
    assert "w1 at LSN 4" in reason
    assert "w2 at LSN 4" in reason
    assert "worker trust" in states.ACTIONS[word]
    answer = bench.do("worker-trust", worker="w2")
    assert answer == {"worker": "w2", "lsn": 4, "fingerprint": text(99)}
    bench.run()
    bench.run()
    assert bench.core.history.fingerprint_at(4) == content(99)
    assert any(isinstance(record, Rebased) for _, record in bench.journal.records())
    bench.ms += 1000
    bench.hear("w2", 4, fingerprint=text(99), follows="idle", view=0, journal="other-copy-of-w2")
    assert bench.standing("w2") is Standing.ON
    bench.hear("w1", 4, fingerprint=text(98), follows="idle", view=0, journal="other-copy-of-w1")
    assert isinstance(bench.run()["w1"][0], LoadFrom)


def test_a_choice_is_refused_when_nothing_needs_to_be_chosen_or_the_one_chosen_cannot_be() -> None:
    bench = OneMaster()
    with pytest.raises(InvalidRequest, match="w2 is in sync with the log"):
        bench.do("worker-trust", worker="w1")
    bench.hear("w2", 9, fingerprint=text(99))
    with pytest.raises(InvalidRequest, match="w2 is at LSN 9; the log here has 1 to 5: restore from a backup"):
        bench.do("worker-trust", worker="w2", force=True)
    bench.hear("w2", 5, trouble="a page cannot be read", follows="idle", journal="another copy")
    with pytest.raises(InvalidRequest, match="w2 is damaged"):
        bench.do("worker-trust", worker="w2", force=True)
    bench.ms += bench.config.feed.dead_after_ms
    bench.run()
    with pytest.raises(NotReady, match="w2 is not heard: start it first"):
        bench.do("worker-trust", worker="w2")


def test_one_that_differs_may_be_chosen_and_is_forgiven() -> None:
    bench = OneMaster()
    for node, came_to in (("w1", 98), ("w2", 99)):
        fields = {"trouble": "differs", "differs_lsn": 4, "differs_fingerprint": content(came_to)}
        bench.hear(node, 3, follows="load", journal=f"other-copy-of-{node}", **fields)
    bench.run()
    bench.do("worker-trust", worker="w2")
    assert Coin(1, (), 4) in bench.run()["w2"]
    bench.hear("w2", 3, journal="other-copy-of-w2")
    assert bench.standing("w2") is Standing.ON


def test_where_two_are_ahead_of_results_that_nobody_has_any_more_one_may_be_chosen_and_the_log_begins_anew_from_it() -> None:
    bench = OneMaster()
    for number in range(6, 9):
        bench.core.step(Submit(0, f"t{number}", b"body"), bench.now())
    bench.run()
    # Given that both have the three, and neither the results, which the probe is asked for in vain
    bench.hear("w1", 8)
    bench.hear("w2", 8)
    site = bench.core.site
    site.fill(site.workers["w1"], 8)
    assert site.filling is not None
    site.filling.lacking.update(site.filling.sources)
    assert "which lead to the copy of w1, w2" in site.attention(bench.ms)
    # When one is chosen, then the results begin anew from it, and it is followed
    assert bench.do("worker-trust", worker="w1")["lsn"] == 8
    bench.run()
    assert [record.lsn for _, record in bench.journal.records() if isinstance(record, Rebased)] == [8]
    assert (bench.core.feed.executed, bench.core.history.fingerprint_at(8)) == (8, content(8))
    bench.hear("w1", 8)
    assert bench.standing("w1") is Standing.ON
    assert site.attention(bench.ms) == ""


def test_a_worker_is_told_to_take_a_new_copy_when_there_is_somebody_to_take_it_from() -> None:
    bench = OneMaster()
    assert bench.do("worker-copy", worker="w2")["changed"] is True
    assert bench.run()["w2"] == [LoadFrom(1, ("w1",), "told to take a new copy")]
    with pytest.raises(NotReady, match="w1 has nobody to copy from"):
        bench.do("worker-copy", worker="w1")


def test_a_site_takes_the_content_of_another_one() -> None:
    bench = OneMaster()
    assert bench.do("worker-repair", **{"from": ["w9"]}) == {"workers": ["w1", "w2"], "from": ["w9"]}
    sent = bench.run()
    reason = "the site takes the content of w9"
    assert sent["w1"] == sent["w2"] == [LoadFrom(1, ("w9",), reason)]


@pytest.mark.parametrize("sources", [[], ["w1"], ["w9", "w2"], ["w7"]])
def test_content_is_taken_from_known_workers_of_other_sites_only(sources: list[str]) -> None:
    bench = OneMaster()
    with pytest.raises(InvalidRequest):
        bench.do("worker-repair", **{"from": sources})
    assert bench.standing("w1") is Standing.ON


# ---- tasks


def test_a_backup_is_given_to_a_worker_and_told_how_far_it_is() -> None:
    bench = OneMaster()
    row = bench.do("backup", name="b1", worker="w2")
    assert (row["worker"], row["state"], row["kind"]) == ("w2", "running", "backup")
    assert bench.run()["w2"] == [Task(row["request"], "backup", {"name": "b1"})]
    bench.step("w2", TaskReport(row["request"], "done", 7, 7, "", {"lsn": 5}))
    assert bench.do("task", request=row["request"])["state"] == "done"
    assert [each["request"] for each in bench.do("tasks")["tasks"]] == [row["request"]]
    with pytest.raises(NotFound):
        bench.do("task", request="backup-1")
    with pytest.raises(InvalidRequest):
        bench.do("task")
    with pytest.raises(InvalidRequest, match="w9 is no worker of m1; its workers are w1, w2"):
        bench.do("backup", name="b2", worker="w9")


@pytest.mark.parametrize(("protect", "readable"), [(True, ["w1"]), (False, [])])
def test_the_last_one_that_serves_does_so_while_it_makes_a_backup(protect: bool, readable: list[str]) -> None:
    bench = OneMaster(("w1",), protect=protect)
    assert bench.do("backup", name="b1")["worker"] == "w1"
    assert bench.core.site.readable(bench.ms) == readable
    with pytest.raises(NotReady, match="no worker of this site is in sync and free"):
        bench.do("backup", name="b2")


def test_a_scrub_is_given_to_any_worker() -> None:
    assert OneMaster(("w1",)).do("scrub", worker="w1")["kind"] == "scrub"
