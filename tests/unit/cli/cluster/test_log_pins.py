"""`brokerha log pins`, `pin`, `unpin`: every master is asked, and what it says decides the exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from brokerha.cli.common.command import SURVEY_S
from brokerha.model.errors import BrokerhaError, InvalidRequest, NotReady, TimedOut, Unreachable
from tests.unit.cli import two_masters

Run = Callable[..., Any]


class Sites:
    """Two masters that answer commands as a test says."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        self.errors: dict[str, BrokerhaError] = {}
        self.dropped = False
        self.waits: list[float | None] = []

    def command(self, master: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        self.asked.append((master, name, arguments))
        if master in self.errors:
            raise self.errors[master]
        if name == "unpin":
            return {"name": arguments["name"], "changed": master == "m1"}
        lsn = arguments.get("lsn", 3)
        row = {
            "name": arguments.get("name", "archive"), "lsn": lsn, "until": 1_795_234_542_116_798, "left_s": 60,
            "entries": 5, "dropped": self.dropped,
        }  # fmt: skip
        if name == "pin":
            return row
        return {"master": master, "first_lsn": 1, "last_lsn": 7, "hard_limit": 400, "pins": [row]}


@pytest.fixture
def sites(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Sites:
    made = Sites()
    made.waits = two_masters.put(made, monkeypatch, tmp_path)
    return made


def test_the_pins_of_all_masters_are_listed(run: Run, sites: Sites) -> None:
    ran = run("log", "pins", "-o", "json")
    given = json.loads(ran.out)
    assert ran.code == 0
    assert [(row["master"], row["name"], row["lsn"], row["until"]) for row in given["pins"]] == [
        ("m1", "archive", 3, 1_795_234_542_116_798),
        ("m2", "archive", 3, 1_795_234_542_116_798),
    ]
    assert given["masters"][1] == {"master": "m2", "first_lsn": 1, "last_lsn": 7, "hard_limit": 400}
    sites.dropped = True
    table = run("log", "pins").out
    assert "2026-11-21 04:15:42" in table
    assert "yes" in table


def test_a_pin_is_set_at_every_master(run: Run, sites: Sites) -> None:
    ran = run("log", "pin", "archive", "--from", "9", "--for-s", "60")
    assert ran.code == 0
    wanted = {"name": "archive", "lsn": 9, "for_s": 60}
    assert sites.asked == [("m1", "pin", wanted), ("m2", "pin", wanted)]
    assert sites.waits == [SURVEY_S, SURVEY_S]
    assert "archive" in ran.out


def test_without_a_time_a_pin_is_held_for_a_week(run: Run, sites: Sites) -> None:
    run("log", "pin", "archive", "--from", "1", "--master", "m2")
    assert sites.asked == [("m2", "pin", {"name": "archive", "lsn": 1, "for_s": 604_800})]


def test_a_master_that_there_is_not_is_a_mistake(run: Run, sites: Sites) -> None:
    ran = run("log", "unpin", "archive", "--master", "m7")
    assert ran.code == 64
    assert "masters are m1, m2" in ran.err
    assert not sites.asked


def test_a_pin_is_taken_back_where_it_is(run: Run, sites: Sites) -> None:
    ran = run("log", "unpin", "archive")
    assert ran.code == 0
    assert ran.out.splitlines() == ["m1: archive is taken back", "m2: there is no pin archive"]
    given = json.loads(run("log", "unpin", "archive", "-o", "json").out)
    assert given["pins"][1] == {"master": "m2", "name": "archive", "changed": False}


@pytest.mark.parametrize("error", [InvalidRequest("LSN 1 is not held any more"), NotReady("32 pins are set already")])
def test_a_master_that_refuses_keeps_no_other_from_it(run: Run, sites: Sites, error: BrokerhaError) -> None:
    sites.errors["m1"] = error
    ran = run("log", "pin", "archive", "--from", "1", "-o", "json")
    assert ran.code == 2
    assert f"m1: {error}" in ran.err
    given = json.loads(ran.out)
    assert given["refused"] == {"m1": str(error)}
    assert [row["master"] for row in given["pins"]] == ["m2"]


def test_a_pin_that_every_master_refuses_leaves_no_empty_table(run: Run, sites: Sites) -> None:
    sites.errors = {name: InvalidRequest("LSN 1 is not held any more") for name in ("m1", "m2")}
    ran = run("log", "pin", "archive", "--from", "1")
    assert (ran.code, ran.out) == (2, "")


@pytest.mark.parametrize("silence", [Unreachable, TimedOut])
def test_a_master_that_does_not_answer_is_named(run: Run, sites: Sites, silence: type[BrokerhaError]) -> None:
    sites.errors["m2"] = silence("nobody there")
    for command in (("pins",), ("pin", "archive", "--from", "1"), ("unpin", "archive")):
        ran = run("log", *command)
        assert ran.code == 1
        assert "m2: nobody there" in ran.err
    sites.errors["m1"] = silence("nor there")
    assert run("log", "pins").code == 3
