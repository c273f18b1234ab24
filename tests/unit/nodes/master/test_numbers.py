"""Numbers that nodes count for /metrics: durations in buckets, and how long commits take."""

from __future__ import annotations

import pytest

from brokerha.model.numbers import SECONDS, Histogram, Numbers
from brokerha.model.requests import APPLIED_LEVEL, REFUSED, SYNCHRONISED, Reply
from brokerha.nodes.master.tickets import Tickets


def buckets_of(numbers: Numbers, name: str = "x") -> list[float]:
    return [value for key, value in numbers.items() if key[0] == f"{name}_bucket"]


class TestHistogram:
    def test_a_value_counts_in_its_bucket_and_in_all_above(self) -> None:
        histogram = Histogram((1.0, 2.0, 4.0))
        for value in (0.5, 1.0, 1.5, 3.0, 100.0):
            histogram.observe(value)

        numbers = histogram.numbers("x")

        # A bound belongs to the bucket below it
        assert numbers["x_bucket", "1.0"] == 2
        assert buckets_of(numbers) == [2, 3, 4, 5]
        assert (numbers["x_sum"], numbers["x_count"]) == (106.0, 5)

    def test_one_that_has_counted_nothing_tells_all_its_buckets(self) -> None:
        numbers = Histogram().numbers("x")
        assert buckets_of(numbers) == [0] * (len(SECONDS) + 1)
        assert list(numbers)[-3:] == [("x_bucket", "+Inf"), "x_sum", "x_count"]

    def test_a_clock_that_goes_back_does_not_make_the_sum_smaller(self) -> None:
        histogram = Histogram()
        histogram.observe(2.0)
        histogram.observe(-5.0)
        assert histogram.numbers("x")["x_sum"] == 2.0
        assert histogram.numbers("x")["x_count"] == 2


class TestCommits:
    @pytest.fixture
    def bench(self) -> CommitBench:
        return CommitBench()

    def test_a_commit_takes_from_when_it_was_handed_in_until_it_is_applied(self, bench: CommitBench) -> None:
        bench.end(bench.begin(10.0), 10.3)
        bench.end(bench.begin(20.0), 22.0)

        count, total_s = bench.commits()
        assert count == 2
        assert total_s == pytest.approx(2.3)
        assert bench.tickets.metrics()["commit_duration_seconds_bucket", "0.5"] == 1

    def test_what_is_not_applied_is_no_commit(self, bench: CommitBench) -> None:
        refused, early = bench.begin(10.0), bench.begin(10.0)
        bench.end(refused, 11.0, REFUSED)
        bench.end(early, 11.0, SYNCHRONISED)
        bench.begin(12.0)
        bench.end(999, 13.0)

        assert bench.commits() == (0, 0.0)
        assert bench.tickets.metrics()["open_tickets"] == 1

    def test_the_end_of_the_node_is_no_commit(self, bench: CommitBench) -> None:
        bench.begin(10.0)
        bench.tickets.close("the node stops")
        assert bench.commits() == (0, 0.0)
        assert bench.tickets.metrics()["open_tickets"] == 0


class CommitBench:
    """Tickets with a clock that the test sets."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.tickets = Tickets(lambda: self.now_s)

    def begin(self, now_s: float) -> int:
        self.now_s = now_s
        ticket, _ = self.tickets.for_future("t")
        return ticket

    def end(self, ticket: int, now_s: float, status: str = APPLIED_LEVEL) -> None:
        self.now_s = now_s
        self.tickets.on_reply(Reply(ticket, "t", status, 1, "", ""))

    def commits(self) -> tuple[float, float]:
        numbers = self.tickets.metrics()
        return numbers["commit_duration_seconds_count"], numbers["commit_duration_seconds_sum"]
