"""The ring of samples for the charts of the status page: times, rates, holes, bounds."""

from __future__ import annotations

from typing import Any

from brokerha.model.ids import Instant
from brokerha.nodes.observing.master_view import EVERY_MS, LENGTH, NAMES, Rates, Sample


def at(seconds: float) -> Instant:
    return Instant(int(seconds * 1000), 1_700_000_000_000_000 + int(seconds * 1_000_000))


def sample(executed: int = 0, reads: int = 0) -> Sample:
    return Sample(executed, reads, lag_entries=2, lag_s=0.5, incoming=3, open=1, in_doubt=0)


def noted(*moments: tuple[float, Sample]) -> Rates:
    rates = Rates()
    for seconds, each in moments:
        rates.note(each, at(seconds))
    return rates


def column(rates: Rates, name: str) -> list[Any]:
    place = 2 + NAMES.index(name)
    return [row[place] for row in rates.samples_after(0, at(0))["samples"]]


def test_the_first_sample_is_due_at_once_and_the_next_after_ten_seconds() -> None:
    rates = Rates()
    assert rates.is_due(0)

    rates.note(sample(), at(5))

    assert not rates.is_due(14_999)
    assert rates.is_due(15_000)


def test_counts_become_rates_and_levels_stay_as_they_are() -> None:
    rates = noted((0, sample(100, 10)), (10, sample(150, 10)), (22, sample(180, 34)))

    assert column(rates, "writes_per_s") == [None, 5.0, 2.5]
    assert column(rates, "reads_per_s") == [None, 0.0, 2.0]
    assert column(rates, "lag_entries") == [2, 2, 2]
    assert column(rates, "lag_s") == [0.5, 0.5, 0.5]


def test_a_count_that_went_back_and_a_pause_are_holes_and_no_rates() -> None:
    rates = noted((0, sample(100)), (10, sample(60)), (20, sample(80)), (20 + 31, sample(900)), (61, sample(910)))

    assert column(rates, "writes_per_s") == [None, None, 2.0, None, 1.0]


def test_two_samples_at_one_moment_divide_by_nothing() -> None:
    assert column(noted((0, sample(1)), (0, sample(2))), "writes_per_s") == [None, None]


def test_an_hour_is_kept_and_no_more() -> None:
    rates = noted(*((10.0 * number, sample(number)) for number in range(LENGTH + 40)))

    rows = rates.samples_after(0, at(0))["samples"]

    assert len(rows) == LENGTH
    assert rows[-1][1] - rows[0][1] == 3_600_000
    assert (rows[0][0], rows[-1][0]) == (41, LENGTH + 40)


def test_who_has_samples_is_given_the_newer_ones_only() -> None:
    rates = noted((0, sample()), (10, sample()), (20, sample()))

    found = rates.samples_after(2, at(25))

    assert [row[:2] for row in found["samples"]] == [[3, 1_700_000_020_000]]
    assert (found["last"], found["every_s"], found["now_ms"]) == (3, EVERY_MS / 1000, 1_700_000_025_000)
    assert found["names"] == list(NAMES)
    assert all(len(row) == 2 + len(NAMES) for row in found["samples"])
    assert rates.samples_after(3, at(25))["samples"] == []
