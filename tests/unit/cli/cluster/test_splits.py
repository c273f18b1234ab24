"""`brokerha splits` and `brokerha split-recovery`: whose answer is shown, how much of it, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from brokerha.cli.cluster import splits
from brokerha.cli.common import terminal
from brokerha.model.errors import BrokerhaError, InvalidRequest, NotFound, NotReady, TimedOut, Unreachable
from tests.unit.cli import two_masters

Run = Callable[..., Any]
HEAD = {
    "number": 412, "last_write": 1_795_234_542_116_798, "epoch": 3, "lineage": 5, "lsn": 100, "keeps_content": False, "total": 1200, "held": 1150,
    "effects": {"same place": 0, "re-ordered": 1149, "executed again": 0, "not executed again": 0, "rejected now": 1, "applied now": 0, "waits": 0},
    "counted": 1150,
}  # fmt: skip


def entry(lsn: int) -> dict[str, Any]:
    return {
        "lsn": lsn, "txid": f"t{lsn}", "origin": "m3", "outcome": "applied", "new_lsn": lsn + 1000, "new_outcome": "rejected",
        "reason": "too late", "effect": "rejected now",
    }  # fmt: skip


class Sites:
    """Two masters; a wish goes through its stages with each look."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        self.errors: dict[str, BrokerhaError] = {}
        self.mode = {
            "master": "m1",
            "mode": "smart",
            "source": "file",
            "epoch": 4,
            "files": {"m1": "smart", "m2": "smart"},
            "differing": {},
        }
        self.change: dict[str, Any] | None = None
        self.stages = [("under way", "an epoch is being decided"), ("done", "since epoch 5")]
        self.forgets = 0
        """How often the master is restarted, and knows nothing of the wish."""

    def command(self, master: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        self.asked.append((master, name, arguments))
        if master in self.errors:
            raise self.errors[master]
        if name == "splits":
            return {"master": master, "splits": [HEAD]}
        if name == "split":
            return self._page(master, arguments)
        if "mode" in arguments:
            self.left = list(self.stages)
            is_new = arguments["mode"] != self.mode["mode"]
            state, stage = ("under way", "an epoch is to be decided") if is_new else ("done", "it is so")
            self.change = {"mode": arguments["mode"], "state": state, "stage": stage}
            return {**self.mode, "change": self.change, "changed": is_new}
        if self.forgets:
            self.forgets, self.change = self.forgets - 1, None
        if self.change is not None:
            state, stage = self.left.pop(0) if len(self.left) > 1 else self.left[0]
            self.change = {**self.change, "state": state, "stage": stage}
            if state == "done":
                self.mode = {**self.mode, "mode": self.change["mode"], "source": "epoch", "epoch": 5}
        return {**self.mode, "change": self.change}

    @staticmethod
    def _page(master: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if arguments["number"] != 412:
            raise NotFound(f"{master} knows no split {arguments['number']} (any more); its splits are 412")
        first = arguments.get("from", 101)
        end = min(first + arguments["limit"], 1251)
        entries = [entry(lsn) for lsn in range(first, end)]
        effects = None if "from" in arguments else HEAD["effects"]
        return {"master": master, **HEAD, "effects": effects, "entries": entries, "next": end if end < 1251 else None}


@pytest.fixture
def sites(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Sites:
    made = Sites()
    two_masters.put(made, monkeypatch, tmp_path)
    monkeypatch.setattr(terminal, "PAUSE_S", 0.0)
    return made


def test_splits_are_listed_by_the_first_master_that_answers_and_it_is_named(run: Run, sites: Sites) -> None:
    ran = run("splits", "list")
    assert ran.code == 0
    assert ran.err == "brokerha: the book of m1; each master has its own\n"
    head, row = ran.out.splitlines()
    assert head.split()[:1] == ["SPLIT"]
    assert row.split() == [
        "412",
        "2026-11-21",
        "04:15:42",
        "3",
        "5",
        "100",
        "1,200",
        "1,149",
        "re-ordered,",
        "1",
        "rejected",
        "now",
    ]
    sites.errors["m1"] = Unreachable("nobody there")
    ran = run("splits", "list", "-o", "json")
    assert (ran.code, json.loads(ran.out)) == (0, {"master": "m2", "splits": [HEAD]})
    assert "m1: nobody there" in ran.err


def test_where_not_all_were_counted_it_is_told(run: Run, sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HEAD, "counted", 1000)
    assert "of the first 1,000: 1,149 re-ordered, 1 rejected now" in run("splits", "list").out


def test_the_master_that_is_named_is_asked_and_no_other(run: Run, sites: Sites) -> None:
    assert json.loads(run("splits", "list", "--master", "m2", "-o", "json").out)["master"] == "m2"
    sites.errors["m2"] = Unreachable("nobody there")
    assert run("splits", "list", "--master", "m2").code == 3
    assert {master for master, _, _ in sites.asked} == {"m2"}


def test_when_no_master_answers_all_are_named(run: Run, sites: Sites) -> None:
    sites.errors = {"m1": Unreachable("nobody there"), "m2": TimedOut("too late")}
    ran = run("splits", "show", "412")
    assert ran.code == 3
    assert "m1: nobody there; m2: too late" in ran.err


def test_the_first_transactions_of_a_split_are_shown_with_how_many_there_are(run: Run, sites: Sites) -> None:
    ran = run("splits", "show", "412")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0].split() == ["LSN", "TRANSACTION", "MASTER", "OUTCOME", "LSN", "NOW", "OUTCOME", "NOW", "EFFECT", "REASON"]
    assert lines[1].split() == ["101", "t101", "m3", "applied", "1,101", "rejected", "rejected", "now", "too", "late"]
    assert len(lines) == 1 + splits.SHOWN
    assert ran.err.splitlines() == [
        "brokerha: m1 went back to LSN 100 of epoch 3 (lineage 5): 1,200 transactions given up: 1,149 re-ordered, 1 rejected now",
        "brokerha: 1,050 more: --all",
        "brokerha: of 1,200 the first 1,150 are still listed",
    ]


def test_all_of_them_are_read_page_by_page_from_one_master(run: Run, sites: Sites) -> None:
    sites.errors["m1"] = Unreachable("nobody there")
    given = json.loads(run("splits", "show", "412", "--all", "-o", "json").out)
    assert [row["lsn"] for row in given["entries"]] == list(range(101, 1251))
    assert (given["next"], given["effects"], given["master"]) == (None, HEAD["effects"], "m2")
    pages = [(at, arguments.get("from")) for at, _, arguments in sites.asked]
    assert pages == [("m1", None), ("m2", None), ("m2", 1101)]


def test_a_split_that_is_not_known_is_an_error_of_the_master_that_was_asked(run: Run, sites: Sites) -> None:
    ran = run("splits", "show", "7")
    assert ran.code == 2
    assert "m1 knows no split 7 (any more); its splits are 412" in ran.err
    assert len(sites.asked) == 1


# ---- the strategy


def test_what_is_in_force_is_told_with_where_it_comes_from(run: Run, sites: Sites) -> None:
    ran = run("split-recovery")
    assert (ran.code, ran.out, ran.err) == (0, "smart (from the file, as m1 says)\n", "")
    sites.mode |= {"source": "epoch", "mode": "none"}
    assert "none goes before the files, which say something else at m1, m2" in run("split-recovery").err


def test_files_that_differ_are_named(run: Run, sites: Sites) -> None:
    sites.mode |= {"files": {"m1": "smart", "m2": "none"}, "differing": {"m2": "none"}}
    ran = run("split-recovery")
    assert ran.code == 1
    assert "m2 follows none, m1 smart" in ran.err


def test_another_one_is_chosen_and_waited_for(run: Run, sites: Sites) -> None:
    ran = run("split-recovery", "Simple")
    assert ran.code == 0
    assert ran.out == "simple is in force at all masters since epoch 5; bring the files up to date\n"
    assert ran.err.splitlines()[:2] == ["brokerha: an epoch is to be decided", "brokerha: an epoch is being decided"]
    assert sites.asked[0] == ("m1", "split-recovery", {"mode": "simple"})
    ran = run("split-recovery", "simple")
    assert (ran.code, ran.out) == (0, "simple is in force: nothing was changed\n")


def test_a_master_that_forgot_it_is_told_again(run: Run, sites: Sites) -> None:
    sites.forgets = 1
    assert run("split-recovery", "none").code == 0
    assert [arguments for _, _, arguments in sites.asked].count({"mode": "none"}) == 2


def test_it_may_only_be_begun(run: Run, sites: Sites) -> None:
    ran = run("split-recovery", "none", "--wait-s", "0")
    assert (ran.code, ran.out) == (0, "it has begun: an epoch is to be decided; see brokerha split-recovery\n")


@pytest.mark.parametrize(
    "error",
    [
        NotReady("refused during a split: not heard: m3; smart stays in force"),
        InvalidRequest("split-recovery = 'smrt' is not known: write one of none, simple, smart, quorum"),
    ],
)
def test_a_refusal_ends_it_at_once(run: Run, sites: Sites, error: BrokerhaError) -> None:
    sites.errors["m1"] = error
    ran = run("split-recovery", "none")
    assert ran.code == 2
    assert str(error) in ran.err
    assert len(sites.asked) == 1


def test_what_comes_to_nothing_is_told_with_what_it_waited_for(run: Run, sites: Sites) -> None:
    sites.stages = [("failed", "not heard: m3")]
    ran = run("split-recovery", "none")
    assert ran.code == 2
    assert "none is not in force everywhere: not heard: m3" in ran.err
    sites.stages = [("under way", "not heard: m3")]
    ran = run("split-recovery", "none", "--wait-s", "1")
    assert ran.code == 2
    assert "none is not in force everywhere yet: not heard: m3" in ran.err
