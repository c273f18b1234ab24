"""`brokerha worker` and `verify --deep`: each command at the right master, and what it says and ends with."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from brokerha.cli.cluster import agreement
from brokerha.cli.common.command import SURVEY_S
from brokerha.model.errors import InvalidRequest, NotFound, NotReady, TimedOut, Unreachable
from tests.unit.cli import two_masters


def row(name: str, state: str = "on", **more: Any) -> dict[str, Any]:
    return {
        "id": name, "state": state, "reason": "", "readable": True, "switched_on": True, "applied_lsn": 7, "fingerprint": "f1",
        "probe": False, "alive": True, **more,
    }  # fmt: skip


class Sites:
    """Two masters that answer commands as a test says."""

    def __init__(self) -> None:
        self.workers = {"m1": [row("w1", probe=True)], "m2": [row("w2"), row("w9")]}
        self.read_only = {"m1": "", "m2": ""}
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        self.silent: set[str] = set()
        self.silence: type[Exception] = Unreachable
        self.refusal: Exception | None = None
        self.changed = True
        self.told: dict[str, Any] = {}
        self.tasks: dict[str, list[dict[str, Any] | Exception]] = {}
        """What a task of a worker says each time that it is asked, the last one for ever."""
        self.waits: list[float | None] = []

    def command(self, master: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if master in self.silent:
            raise self.silence(f"{master} does not answer")
        if name == "workers":
            return {"master": master, "read_only": self.read_only[master], "workers": self.workers[master]}
        self.asked.append((master, name, arguments))
        if self.refusal is not None:
            raise self.refusal
        if name in {"scrub", "task"}:
            return self._task(arguments.get("worker") or arguments["request"].removeprefix("scrub-"))
        if name == "worker-repair":
            return {"workers": [each["id"] for each in self.workers[master]], "from": arguments["from"]}
        return {"worker": arguments["worker"], "changed": self.changed, **self.told}

    def _task(self, worker: str) -> dict[str, Any]:
        said = self.tasks.get(worker) or [task(worker, "done", answer={"lsn": 7, "items": 20, "is_compared": True})]
        given = said.pop(0) if len(said) > 1 else said[0]
        if isinstance(given, Exception):
            raise given
        return given


def task(worker: str, state: str, done: int = 20, reason: str = "", answer: Any = None) -> dict[str, Any]:
    return {
        "request": f"scrub-{worker}", "kind": "scrub", "worker": worker, "state": state, "done": done, "total": 20,
        "reason": reason, "answer": answer or {},
    }  # fmt: skip


@pytest.fixture
def sites(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Sites:
    made = Sites()
    made.waits = two_masters.put(made, monkeypatch, tmp_path)
    monkeypatch.setattr(agreement, "POLL_S", 0.0)
    return made


Run = Callable[..., Any]


def test_all_workers_of_all_masters_are_listed(run: Run, sites: Sites) -> None:
    sites.read_only["m2"] = "1 of 2 workers in sync"
    ran = run("worker", "list", "-o", "json")
    given = json.loads(ran.out)
    assert ran.code == 0
    assert [(each["id"], each["master"]) for each in given["workers"]] == [("w1", "m1"), ("w2", "m2"), ("w9", "m2")]
    assert given["masters"][1] == {"master": "m2", "read_only": "1 of 2 workers in sync"}
    assert "m2 is read-only: 1 of 2 workers in sync" in ran.err
    assert "WORKER  MASTER  STATE  READABLE" in run("worker", "list").out


@pytest.mark.parametrize("silence", [Unreachable, TimedOut])
def test_a_silent_master_is_named_and_the_others_are_listed(run: Run, sites: Sites, silence: type[Exception]) -> None:
    sites.silence = silence
    sites.silent.add("m1")
    ran = run("worker", "list", "-o", "json")
    assert (ran.code, json.loads(ran.out)["silent"]) == (1, ["m1"])
    sites.silent.add("m2")
    assert run("worker", "list").code == 3
    # One that is away keeps nobody waiting for as long as an answer may take.
    assert sites.waits == [SURVEY_S] * 4
    assert run("worker", "list", "--timeout-s", "2").code == 3
    assert sites.waits[4:] == [2.0, 2.0]


@pytest.mark.parametrize(("worker", "master"), [("w1", "m1"), ("w2", "m2"), ("w9", "m2")])
@pytest.mark.parametrize(
    ("command", "name", "arguments"),
    [
        (("off", "--force"), "worker-off", {"force": True}),
        (("off",), "worker-off", {"force": False}),
        (("on",), "worker-on", {}),
        (("remove",), "worker-remove", {"force": False}),
        (("trust", "--yes"), "worker-trust", {"force": False}),
        (("copy",), "worker-copy", {}),
    ],
)
def test_a_command_goes_to_the_master_of_its_worker(
    run: Run, sites: Sites, worker: str, master: str, command: tuple[str, ...], name: str, arguments: dict[str, Any]
) -> None:
    ran = run("worker", command[0], worker, *command[1:])
    assert ran.code == 0
    assert worker in ran.out
    assert sites.asked == [(master, name, {"worker": worker, **arguments})]


def test_with_a_url_it_goes_to_the_master_there(run: Run, sites: Sites) -> None:
    assert run("worker", "off", "w1", "--url", "http://127.0.0.1:7202", "-o", "json").code == 0
    assert sites.asked[0][0] == "m2"


def test_a_worker_that_nobody_has_is_refused(run: Run, sites: Sites) -> None:
    ran = run("worker", "off", "w7")
    assert (ran.code, ran.err) == (2, "brokerha: no master has a worker w7; there are w1, w2, w9\n")
    sites.silent.add("m2")
    assert run("worker", "off", "w7").code == 3
    assert not sites.asked


def test_what_a_master_refuses_is_exit_code_2_with_its_reason(run: Run, sites: Sites) -> None:
    sites.refusal = InvalidRequest("w1 is the last worker in sync: switch another one on first, or use --force")
    ran = run("worker", "off", "w1")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"brokerha: {sites.refusal}\n"
    sites.refusal = InvalidRequest("w1 is no worker of m1")
    assert run("worker", "remove", "w1").code == 2


def test_switching_off_says_when_the_master_is_read_only_from_then_on(run: Run, sites: Sites) -> None:
    assert run("worker", "off", "w1").err == ""
    sites.told = {"read_only": "0 of 1 workers in sync"}
    ran = run("worker", "off", "w1")
    assert ran.code == 0
    assert ran.err == "brokerha: m1 is read-only from now on: 0 of 1 workers in sync\n"


def test_doing_it_again_says_that_nothing_was_changed(run: Run, sites: Sites) -> None:
    sites.changed = False
    assert run("worker", "off", "w1").out == "w1 is off already: nothing was changed\n"
    assert run("worker", "on", "w1").out == "w1 is on already: nothing was changed\n"


def test_a_worker_is_added_where_it_is_told_and_its_start_is_shown(run: Run, sites: Sites) -> None:
    ran = run("worker", "add", "w7", "--master", "m2", "--unreadable")
    assert ran.code == 0
    assert sites.asked == [("m2", "worker-add", {"worker": "w7", "readable": False})]
    assert "brokerha node w7 --role worker --master m2 -c cluster.toml" in ran.out


def test_adding_needs_a_master_that_there_is(run: Run, sites: Sites) -> None:
    ran = run("worker", "add", "w7")
    assert (ran.code, "write --master with one of m1, m2" in ran.err) == (64, True)
    ran = run("worker", "add", "w7", "--master", "m7")
    assert (ran.code, "'m7' is no master of this cluster; masters are m1, m2" in ran.err) == (64, True)
    assert run("worker", "add", "w1").code == 0
    assert sites.asked[0][0] == "m1"


def test_a_worker_of_another_master_is_not_added_to_a_second_one(run: Run, sites: Sites) -> None:
    ran = run("worker", "add", "w1", "--master", "m2")
    assert ran.code == 2
    assert "w1 is a worker of m1: first brokerha worker remove w1, then add it to m2" in ran.err
    assert not sites.asked
    # Whose master is gone for good is taken over.
    sites.silent.add("m1")
    assert run("worker", "add", "w1", "--master", "m2").code == 0


def test_a_site_is_repaired_from_workers_of_another_one(run: Run, sites: Sites) -> None:
    ran = run("worker", "repair", "m2", "--from", "w1", "--from", "w3", "-y")
    assert ran.code == 0
    assert sites.asked == [("m2", "worker-repair", {"from": ["w1", "w3"]})]
    assert "all workers of m2 throw their copies away and take the content of w1, w3" in ran.err
    assert run("worker", "repair", "m2").code == 64


def test_a_person_who_says_no_changes_nothing(run: Run, sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", _no)
    assert run("worker", "trust", "w1").code == 130
    assert not sites.asked
    assert run("worker", "trust", "w1", "--yes").code == 0


@pytest.mark.parametrize(
    "line",
    [
        "repository remove books",
        "worker trust w1",
        "worker repair m2 --from w1",
        "peer remove m2",
        "peer replace m2",
        "tx commit t1",
        "tx rollback t1",
        "quarantine drop --all",
    ],
)
def test_without_a_terminal_every_destructive_command_needs_yes(
    run: Run, cluster: Any, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    client = cluster(size=7, command={"masters": ["m1", "m2"], "peers": [], "refused": "", "epoch": 1, "proposer": "m1"})
    words = [*line.split(), *([] if line.startswith("quarantine") else ["--url", "http://127.0.0.1:7201"])]
    ran = run(*words)
    assert ran.code == 64
    assert "there is no terminal to ask at, so write --yes: " in ran.err
    assert {call[0] for call in client.calls} <= {"connect", "close", "size", "command"}
    assert all(call[1] == "peers" for call in client.calls if call[0] == "command")
    # And a person is asked
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", _no)
    assert run(*words).code == 130


def _no(*_: object, **__: object) -> bool:
    import typer

    raise typer.Abort


# ---- verify --deep


def test_deep_has_every_worker_look_at_its_data(run: Run, sites: Sites) -> None:
    sites.tasks["w2"] = [task("w2", "running", 5), task("w2", "running", 10), task("w2", "done", answer={"lsn": 7, "items": 20})]
    ran = run("verify", "--deep", "-o", "json")
    looks = json.loads(ran.out)["deep"]
    assert ran.code == 0
    assert [(look["id"], look["result"], look["items"]) for look in looks] == [
        ("w1", "equal", 20),
        ("w2", "equal", 20),
        ("w9", "equal", 20),
    ]
    assert sites.asked[0] == ("m1", "scrub", {"worker": "w1"})


def test_a_damaged_copy_is_exit_code_2_with_both_fingerprints(run: Run, sites: Sites) -> None:
    sites.tasks["w2"] = [task("w2", "failed", reason="the data has fingerprint 1:a, expected 1:b", answer={"damaged": True})]
    ran = run("verify", "--deep")
    assert ran.code == 2
    assert "damaged: w2: the data has fingerprint 1:a, expected 1:b" in ran.err
    assert "2 copies are equal at LSN 7" in ran.err


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (task("w2", "failed", reason="worker w2 died meanwhile"), "worker w2 died meanwhile"),
        (NotReady("w2 is not in sync, or busy"), "busy"),
        (task("w2", "done", answer={"lsn": 7, "items": 20, "is_compared": False}), "try again"),
    ],
)
def test_a_look_that_says_nothing_is_neither_equal_nor_damaged(run: Run, sites: Sites, said: Any, words: str) -> None:
    sites.tasks["w2"] = [said]
    ran = run("verify", "--deep")
    assert ran.code == 1
    assert "unknown: w2" in ran.err
    assert words in ran.err


def test_a_master_that_forgot_the_task_ends_the_wait(run: Run, sites: Sites) -> None:
    sites.tasks["w2"] = [task("w2", "running", 5), NotFound("task scrub-w2 is not known")]
    ran = run("verify", "--deep")
    assert (ran.code, "its master was started again meanwhile" in ran.err) == (1, True)


def test_a_worker_that_is_off_is_named_and_not_looked_at(run: Run, sites: Sites) -> None:
    sites.workers["m2"][0] = row("w2", "off", reason="switched off")
    sites.workers["m2"][1] = row("w9", "on", alive=False)
    ran = run("verify", "--deep")
    assert ran.code == 1
    assert "unknown: w2: off: switched off" in ran.err
    assert "unknown: w9: on: not heard" in ran.err
    assert [worker for _, _, worker in sites.asked] == [{"worker": "w1"}]
