"""Reports of splits are made beside the loop of a master: a few at a time, of one state of the log, and who waits is always told."""

from __future__ import annotations

from threading import Event
from typing import Any

import pytest

from brokerha.master.split_report import Facts
from brokerha.model.errors import NotFound, NotReady
from brokerha.model.given_up import Split
from brokerha.model.records import History, Rewound
from brokerha.nodes.front import commands
from brokerha.nodes.front.commands import AT_ONCE, SplitReports
from tests.support.logs import memory_log
from tests.unit.log.turns import Author
from tests.unit.master.one_master import OneMaster

WAIT_S = 30.0


class Runner:
    """The runner of a master with one split in its book, as far as a report needs it."""

    def __init__(self) -> None:
        self.core = OneMaster(split_recovery="smart").core
        self.journal = memory_log("m1", "journal-of-m1")
        author = Author("m1")
        self.journal.append([*author.whole("a", "b", "c"), Rewound(1, 1, 2)])
        self.safe_lsn = 5


def ask(reports: SplitReports, runner: Runner, name: str = "splits", **arguments: Any) -> Any:
    return reports.run(runner, name, arguments)  # type: ignore[arg-type]


def test_the_book_is_read_and_what_is_refused_is_told() -> None:
    runner, reports = Runner(), SplitReports()
    (split,) = ask(reports, runner).result(WAIT_S)["splits"]
    assert (split["total"], split["effects"]["waits"]) == (2, 2)
    assert [row["txid"] for row in ask(reports, runner, "split", number=split["number"]).result(WAIT_S)["entries"]] == ["b", "c"]
    with pytest.raises(NotFound, match="knows no split 77"):
        ask(reports, runner, "split", number=77).result(WAIT_S)


def test_of_many_at_once_some_are_refused_and_places_become_free(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given as many reports as may be made at once, that take their time
    runner, reports, may_end = Runner(), SplitReports(), Event()

    def slow(_history: History, _facts: Facts, _arguments: dict[str, Any]) -> dict[str, Any]:
        assert may_end.wait(WAIT_S)
        return {"splits": []}

    monkeypatch.setitem(commands.REPORTS, "splits", slow)
    slow_ones = [ask(reports, runner) for _ in range(AT_ONCE)]
    # Then one more is refused, and told so
    with pytest.raises(NotReady, match="are being made already"):
        ask(reports, runner).result(WAIT_S)
    # And when they are over others are made
    may_end.set()
    assert [each.result(WAIT_S) for each in slow_ones] == [{"splits": []}] * AT_ONCE
    for _ in range(2 * AT_ONCE):
        while isinstance(ask(reports, runner).exception(WAIT_S), NotReady):
            pass


def test_what_goes_wrong_in_between_is_told_to_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, reports = Runner(), SplitReports()

    def closed() -> list[Split]:
        raise RuntimeError("the journal is closed")

    monkeypatch.setattr(runner.journal, "splits", closed)
    with pytest.raises(NotReady, match="could not be read: the journal is closed"):
        ask(reports, runner).result(WAIT_S)


def test_a_log_that_goes_back_meanwhile_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, reports, calls = Runner(), SplitReports(), []
    before = commands.REPORTS["splits"]

    def goes_back(history: History, facts: Facts, arguments: dict[str, Any]) -> dict[str, Any]:
        calls.append(len(history.splits()))
        found = before(history, facts, arguments)
        if len(calls) == 1:
            runner.journal.append([Rewound(1, 2, 3)])
        return found

    monkeypatch.setitem(commands.REPORTS, "splits", goes_back)
    assert [split["lineage"] for split in ask(reports, runner).result(WAIT_S)["splits"]] == [3, 2]
    assert calls == [1, 2]
