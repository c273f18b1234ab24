"""What ``python -m tests.bench`` makes of what it measured, and what it refuses; measuring itself is a system test."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any, Self

import pytest

from brokerha.model.errors import NotReady
from brokerha.model.requests import Reply
from tests.bench import backups
from tests.bench.__main__ import main
from tests.bench.options import BenchOptions
from tests.bench.site import Figure, Load, measure, put


def test_an_answer_that_was_on_its_way_at_the_kill_does_not_end_the_pause() -> None:
    assert backups.longest_pause_s([9.0, 9.9, 10.1, 10.2, 11.6, 11.7, 12.5], since_s=10.0) == pytest.approx(1.4)


def test_a_pause_that_begins_with_the_kill_ends_with_the_first_answer() -> None:
    assert backups.longest_pause_s([9.9, 11.5, 11.6], since_s=10.0) == pytest.approx(1.5)


def test_a_load_that_is_never_answered_again_has_no_figure() -> None:
    with pytest.raises(NotReady, match="no write was acknowledged"):
        backups.longest_pause_s([9.0, 9.9], since_s=10.0)


class Wire:
    """Answers at once, what fails as the test says."""

    def __init__(self, *failing: str) -> None:
        self.failing = list(failing)
        self.most = 0
        self.seen: list[str] = []

    def submit(self, writes: Any, level: str, _copies: int, _timeout_ms: int) -> list[Future[Reply]]:
        answers = []
        for txid, _ in writes:
            self.seen.append(txid)
            is_failing = txid in self.failing
            if is_failing:
                self.failing.remove(txid)
            future: Future[Reply] = Future()
            future.set_result(Reply(0, txid, "failed" if is_failing else level, 1, "", "no disk" if is_failing else ""))
            answers.append(future)
        self.most = max(self.most, len(answers))
        return answers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held."""


def test_a_window_of_writes_is_kept_under_way_and_all_of_them_are_counted() -> None:
    wire = Wire()
    with Load(wire, put, 20, 7, level="accepted") as load:  # type: ignore[arg-type]
        while len(load.done) < 100:
            time.sleep(0.001)
    assert wire.most == 20
    assert wire.seen == [f"bench-{7 + n}" for n in range(len(load.done))]


def test_a_figure_counts_what_ended_in_time_and_all_that_was_written() -> None:
    wire = Wire()
    found = measure(wire, put, 20, 0.1, 7, "accepted")  # type: ignore[arg-type]
    assert found.writes == len(wire.seen)
    assert found.per_s <= found.writes / 0.1
    assert 0 <= found.p50_ms <= found.p99_ms


def test_a_write_that_fails_ends_the_measurement() -> None:
    with pytest.raises(NotReady, match="a write of the bench was failed: no disk"):
        measure(Wire("bench-30"), put, 20, 60.0, 0)  # type: ignore[arg-type]


def test_a_load_that_repeats_sends_it_again_under_its_id() -> None:
    wire = Wire("bench-3", "bench-3")
    with Load(wire, put, 5, repeats=True) as load:  # type: ignore[arg-type]
        while len(load.done) < 50:
            time.sleep(0.001)
    assert (wire.seen.count("bench-3"), load.repeated) == (3, 2)
    assert len(load.done) == len(set(wire.seen)) == load.next


def test_only_windows_that_the_seed_measured_have_its_figure_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    class Site(Wire):
        wire = Wire

    monkeypatch.setattr(backups, "running", lambda *_, **__: Site())
    monkeypatch.setattr(backups, "measure", lambda *_: Figure(100, 1000.0, 51.0, 100.0))
    known, unknown = backups.sync(BenchOptions("amqp://h", windows="20,50")).data["writes"][:2]
    assert (known["seed_per_s"], known["to_seed"]) == (500, 2.0)
    assert (unknown["seed_per_s"], unknown["to_seed"]) == (None, None)
    assert (known["p50_ms"], known["p99_ms"]) == (51.0, 100.0)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def command(*arguments: str) -> tuple[int, str]:
        code = main(arguments)
        return code, capsys.readouterr().err

    return command


@pytest.mark.parametrize("measured", ["sync", "tx", "fail-over", "copy", "replay"])
def test_what_travels_through_a_broker_is_not_measured_without_one(run: Any, measured: str) -> None:
    code, error = run(measured)
    assert (code, f"{measured} measures what travels" in error) == (64, True)


@pytest.mark.parametrize("text", ["0", "a", "1,,2", "100001"])
def test_windows_that_are_no_numbers_are_refused(run: Any, text: str) -> None:
    code, error = run("--windows", text)
    assert (code, "write numbers from 1 to 100000" in error) == (64, True)


@pytest.mark.parametrize("text", ["0", "a", "1,,2", ""])
def test_what_is_no_spark_is_refused(run: Any, text: str) -> None:
    code, error = run("pipeline", "--spark", text)
    assert (code, "write numbers of cores from 1 on" in error) == (64, True)
