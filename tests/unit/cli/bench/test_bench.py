"""What ``brokerha bench`` makes of what it measured, and what it refuses; measuring itself is a system test."""

from __future__ import annotations

import pytest
import typer

from brokerha.cli.bench.command import Measured, check_broker, parse_windows
from brokerha.cli.bench.fail_over import pause_end
from brokerha.cli.bench.sync import _row
from brokerha.model.errors import NotReady


def test_an_answer_that_was_on_its_way_at_the_kill_does_not_end_the_pause() -> None:
    assert pause_end([9.0, 9.9, 10.1, 10.2, 11.6, 11.7, 12.5], since=10.0) == 11.6


def test_a_pause_that_begins_with_the_kill_ends_with_the_first_answer() -> None:
    assert pause_end([9.9, 11.5, 11.6], since=10.0) == 11.5


def test_a_load_that_is_never_answered_again_has_no_figure() -> None:
    with pytest.raises(NotReady, match="no write was acknowledged"):
        pause_end([9.0, 9.9], since=10.0)


def test_only_windows_that_the_seed_measured_have_its_figure_beside_them() -> None:
    latencies = [0.001 * n for n in range(1, 101)]

    known, unknown = (_row(1, window, 1000.0, latencies) for window in (20, 50))

    assert (known["seed_per_s"], known["to_seed"]) == (500, 2.0)
    assert (unknown["seed_per_s"], unknown["to_seed"]) == (None, None)
    assert (known["p50_ms"], known["p99_ms"]) == (pytest.approx(51.0), pytest.approx(100.0))


@pytest.mark.parametrize("measured", [Measured.SYNC, Measured.TX, Measured.FAIL_OVER, Measured.COPY])
def test_what_travels_through_a_broker_is_not_measured_without_one(measured: Measured) -> None:
    with pytest.raises(typer.BadParameter, match=f"{measured} measures what travels"):
        check_broker(measured, "embedded://x")


@pytest.mark.parametrize("text", ["", "0", "a", "1,,2", "100001"])
def test_windows_that_are_no_numbers_are_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="write numbers from 1 to 100000"):
        parse_windows(text)
