"""`brokerha peer`: which master is asked, what is said while it waits, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from brokerha.cli.cluster import peer
from brokerha.cli.common import terminal
from brokerha.model.errors import BrokerhaError, InvalidRequest, NotReady, Unreachable
from tests.unit.cli import two_masters

Run = Callable[..., Any]


class Sites:
    """Two masters; a wish goes through its stages with each look."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        self.errors: dict[str, BrokerhaError] = {}
        self.refused: dict[str, str] = {}
        self.epochs = {"m1": 1, "m2": 1}
        self.masters = ["m1", "m2"]
        self.stages = [
            ("under way", "m4 is not heard"),
            ("under way", "m4 has 7 transactions to take over"),
            ("done", "since epoch 2"),
        ]
        self.wish: dict[str, Any] | None = None
        self.others: dict[str, str] = {}
        """Journals under which masters are there that are known by another one."""
        self.silent: set[str] = set()
        self.forgets = False
        """Whether the master is restarted once, and knows nothing of the wish."""
        self.last_words_of = ""
        """A master that was stopped a moment ago: what is known of it is old, and then it comes with another journal."""

    def command(self, master: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        self.asked.append((master, name, arguments))
        if master in self.errors:
            raise self.errors[master]
        if name == "peers":
            return self._peers(master)
        kind, node = name.removeprefix("peer-"), arguments["node"]
        if (node in self.masters) == (kind == "add"):
            return self._answer(master, {"kind": kind, "node": node, "state": "done", "stage": "it is so", "forced": False}, False)
        self.left = list(self.stages)
        self.wish = {"kind": kind, "node": node, "state": "under way", "stage": "begun", "forced": arguments.get("force", False)}
        return self._answer(master, self.wish, True)

    def _answer(self, master: str, wish: dict[str, Any], changed: bool) -> dict[str, Any]:
        return {"master": master, **wish, "changed": changed, "masters": self.masters}

    def _peers(self, master: str) -> dict[str, Any]:
        if self.wish is not None and self.wish["state"] == "under way":
            if self.forgets:
                self.forgets, self.wish = False, None
            else:
                state, stage = self.left.pop(0) if len(self.left) > 1 else self.left[0]
                self.wish = {**self.wish, "state": state, "stage": stage}
                if state == "done":
                    self._make_so(self.wish)
        if self.last_words_of and [name for _, name, _ in self.asked].count("peers") > 2:
            self.others[self.last_words_of] = "another"
        rows = [
            {
                "node": node, "standing": "member", "heard": node not in self.silent,
                "heard_s": 1.2 if node == self.last_words_of else 0.0, "epoch": self.epochs[master],
                "journal": f"journal-of-{node}", "other_journal": self.others.get(node, ""), "lsn": 7, "lag": 0,
            }
            for node in self.masters
        ]  # fmt: skip
        return {
            "master": master, "epoch": self.epochs[master], "proposer": "m1", "masters": list(self.masters), "members": list(self.masters),
            "before": [], "retired": [], "refused": self.refused.get(master, ""), "change": self.wish, "peers": rows,
        }  # fmt: skip

    def _make_so(self, wish: dict[str, Any]) -> None:
        node = wish["node"]
        self.masters = [each for each in self.masters if each != node]
        self.others.pop(node, None)
        if wish["kind"] == "add":
            self.masters = sorted([*self.masters, node])

    def commands(self) -> list[tuple[str, str, dict[str, Any]]]:
        return [each for each in self.asked if each[1] != "peers"]


@pytest.fixture
def sites(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Sites:
    made = Sites()
    two_masters.put(made, monkeypatch, tmp_path)
    monkeypatch.setattr(peer, "PAUSE_S", 0.0)
    monkeypatch.setattr(terminal, "PAUSE_S", 0.0)
    return made


def test_the_masters_are_listed_with_what_is_amiss(run: Run, sites: Sites) -> None:
    ran = run("peer", "list")
    assert ran.code == 0
    assert "journal-" in ran.out
    sites.masters, sites.others, sites.silent = ["m1", "m4"], {"m4": "new"}, {"m4"}
    ran = run("peer", "list", "-o", "json")
    assert ran.code == 1
    assert json.loads(ran.out)["masters"] == ["m1", "m4"]
    assert "brokerha peer replace m4" in ran.err
    assert "the cluster file names m2: no master" in ran.err
    assert "does not name the master m4" in ran.err


def test_a_master_is_added_and_each_stage_is_told_once(run: Run, sites: Sites) -> None:
    ran = run("peer", "add", "m4")
    assert ran.code == 0
    assert ran.out.startswith("m4 is a master now, with m1, m2")
    assert ran.err.splitlines() == ["brokerha: m4: m4 is not heard", "brokerha: m4: m4 has 7 transactions to take over"]
    assert sites.commands() == [("m1", "peer-add", {"node": "m4"})]
    ran = run("peer", "add", "m4", "-o", "json")
    assert (ran.code, json.loads(ran.out)["changed"]) == (0, False)


def test_the_master_in_the_latest_epoch_is_asked_that_takes_commands(run: Run, sites: Sites) -> None:
    sites.epochs["m2"] = 3
    run("peer", "add", "m4", "--wait-s", "0")
    assert sites.commands()[-1][0] == "m2"
    sites.refused["m2"] = "m2 was taken out of the cluster: ask another master"
    run("peer", "add", "m5", "--wait-s", "0")
    assert sites.commands()[-1][0] == "m1"
    ran = run("peer", "add", "m5", "--wait-s", "0", "--master", "m2")
    assert ran.code == 2
    assert "ask another master" in ran.err


def test_a_master_that_is_taken_out_is_not_the_one_that_is_asked(run: Run, sites: Sites) -> None:
    ran = run("peer", "remove", "m1", "-y")
    assert ran.code == 0
    assert "m1 is no master any more; left: m2" in ran.out
    assert ran.err.startswith("brokerha: m1 is taken out for good\n")
    assert {master for master, _, _ in sites.asked} == {"m2"}
    assert run("peer", "remove", "m1", "--master", "m1", "-y").code == 2
    ran = run("peer", "remove", "m1", "-y")
    assert (ran.out, ran.err) == ("m1 is no master: nothing was changed\n", "")


def test_force_is_handed_on(run: Run, sites: Sites) -> None:
    run("peer", "remove", "m2", "--force", "-y")
    assert sites.commands() == [("m1", "peer-remove", {"node": "m2", "force": True})]


def test_a_wish_that_failed_says_why(run: Run, sites: Sites) -> None:
    sites.stages = [("failed", "m4 is not heard: start it")]
    ran = run("peer", "add", "m4")
    assert ran.code == 2
    assert "m4 was not added: m4 is not heard: start it" in ran.err


def test_who_waits_too_long_is_told_what_is_awaited(run: Run, sites: Sites) -> None:
    sites.stages = [("under way", "m4 is not heard")]
    ran = run("peer", "add", "m4", "--wait-s", "0.05")
    assert ran.code == 2
    assert "add m4 is not done yet: m4 is not heard; say it again" in ran.err


def test_a_wish_that_a_restart_forgot_is_said_again(run: Run, sites: Sites) -> None:
    sites.forgets = True
    assert run("peer", "add", "m4").code == 0
    assert [name for _, name, _ in sites.commands()] == ["peer-add", "peer-add"]


def test_without_waiting_it_only_begins(run: Run, sites: Sites) -> None:
    ran = run("peer", "add", "m4", "--wait-s", "0")
    assert ran.code == 0
    assert "it has begun: begun" in ran.out
    assert sites.masters == ["m1", "m2"]


def test_a_refusal_for_good_ends_it_and_silence_everywhere_too(run: Run, sites: Sites) -> None:
    sites.errors["m1"] = Unreachable("nobody there")
    assert run("peer", "add", "m4", "--wait-s", "0").code == 0
    sites.errors["m2"] = Unreachable("nor there")
    assert run("peer", "list").code == 3
    assert run("peer", "add", "m4").code == 3
    sites.errors = {"m2": NotReady("not now"), "m1": InvalidRequest("quorum only")}
    assert run("peer", "add", "m4").code == 2


def test_a_master_whose_disk_was_lost_is_taken_out_and_added(run: Run, sites: Sites) -> None:
    sites.others["m2"] = "new"
    ran = run("peer", "replace", "m2", "-y")
    assert ran.code == 0
    assert [name for _, name, _ in sites.commands()] == ["peer-remove", "peer-add"]
    assert "m2 is taken out; next it is added with its new journal" in ran.err
    assert ran.out.startswith("m2 is a master again, with m1")


def test_a_replacement_goes_on_where_it_was(run: Run, sites: Sites) -> None:
    sites.masters = ["m1"]
    assert run("peer", "replace", "m2", "-y").code == 0
    assert [name for _, name, _ in sites.commands()] == ["peer-add"]


def test_what_was_heard_before_the_question_is_no_proof_that_a_master_is_well(run: Run, sites: Sites) -> None:
    # Given one that was emptied and started a moment ago, and is known by its last words only
    sites.last_words_of = "m2"
    # Then it is replaced as soon as it is heard with its new journal
    assert run("peer", "replace", "m2", "-y").code == 0
    assert [name for _, name, _ in sites.asked if name != "peers"] == ["peer-remove", "peer-add"]


def test_a_master_that_is_well_is_not_replaced(run: Run, sites: Sites) -> None:
    ran = run("peer", "replace", "m2", "-y")
    assert (ran.code, ran.out.strip()) == (0, "m2 is there with the journal that it had: nothing was changed")
    sites.silent.add("m2")
    assert run("peer", "replace", "m2", "-y").code == 0
    assert [name for _, name, _ in sites.commands()] == ["peer-remove", "peer-add"]
