"""`brokerha node pause|coin|continue`: each order at the right master, and what it says and ends with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from brokerha.cli.machine import node as node_module
from brokerha.model.errors import WrongState
from tests.unit.cli import two_masters

BACKUP = """\
[[backup]]
id = "pause"
master = "m2"
"""
Run = Callable[..., Any]


class Sites:
    """Two masters that take every order, unless they refuse."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        self.answer: dict[str, Any] = {"changed": True, "state": "paused", "reason": "by an operator; not coined"}
        self.refusal: Exception | None = None

    def command(self, master: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        self.asked.append((master, name, arguments))
        if self.refusal is not None:
            raise self.refusal
        return {"node": arguments["node"], **self.answer}


@pytest.fixture
def sites(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Sites:
    made = Sites()
    two_masters.put(made, monkeypatch, tmp_path)
    with (tmp_path / "cluster.toml").open("a") as file:
        file.write(BACKUP)
    return made


def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of nodes that are run from now on; each ends with 5."""
    started: list[str] = []

    def run_node(_path: Path, node_id: str, *_more: str) -> int:
        started.append(node_id)
        return 5

    monkeypatch.setattr(node_module, "run_node", run_node)
    return started


def test_an_order_goes_to_the_master_of_the_node(run: Run, sites: Sites) -> None:
    ran = run("node", "pause", "pause", "--force")
    assert (ran.code, ran.out) == (0, "pause is paused: by an operator; not coined\n")
    run("node", "coin", "pause")
    run("node", "continue", "w1")
    assert sites.asked == [
        ("m2", "node-pause", {"node": "pause", "force": True}),
        ("m2", "node-coin", {"node": "pause"}),
        ("m1", "node-continue", {"node": "w1"}),
    ]


def test_what_was_so_already_says_so_and_programs_get_all_of_it(run: Run, sites: Sites) -> None:
    sites.answer = {"changed": False, "state": "ready", "reason": ""}
    assert run("node", "continue", "pause").out == "pause is ready; nothing was changed\n"
    given = json.loads(run("node", "continue", "pause", "-o", "json").out)
    assert given == {"node": "pause", "changed": False, "state": "ready", "reason": ""}


def test_a_refusal_is_one_line(run: Run, sites: Sites) -> None:
    sites.refusal = WrongState("pause was not coined since it was paused: first brokerha node coin pause")
    ran = run("node", "continue", "pause")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "brokerha: pause was not coined since it was paused: first brokerha node coin pause\n"


@pytest.mark.parametrize("words", [("w1", "-c", "cluster.toml"), ("-c", "cluster.toml", "w1"), ("run", "w1")])
def test_the_word_run_may_be_left_out(run: Run, sites: Sites, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    started = runs(monkeypatch)
    assert run("node", *words).code == 5
    assert (started, sites.asked) == (["w1"], [])


def test_a_node_whose_id_is_an_order_is_run_by_that_word(run: Run, sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    started = runs(monkeypatch)
    assert run("node", "run", "pause").code == 5
    assert (started, sites.asked) == (["pause"], [])
