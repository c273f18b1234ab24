"""JournalFollower: when it wants to be woken; what is due and cannot be done must not keep a process awake."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.replication.journal_benches import VIEW, WITHOUT, FollowerBench
from tests.unit.replication.plain_log import filler


def with_a_gap(bench: FollowerBench) -> None:
    bench.records(9, filler(9), previous=(VIEW, 8))


def with_a_body_that_is_missing(bench: FollowerBench) -> None:
    bench.records(7, WITHOUT)


@pytest.mark.parametrize("trouble", [with_a_gap, with_a_body_that_is_missing])
def test_between_two_primaries_a_question_that_is_due_keeps_nobody_awake(trouble: Callable[[FollowerBench], None]) -> None:
    bench = FollowerBench()
    trouble(bench)
    bench.turn()
    assert bench.core.deadline_ms() is not None
    bench.core.refuse_below(VIEW + 10)
    bench.turn()
    bench.ms += 60_000
    bench.turn()
    due_ms = bench.core.deadline_ms()
    assert due_ms is None or due_ms > bench.ms


@pytest.mark.parametrize("trouble", [with_a_gap, with_a_body_that_is_missing])
def test_while_there_is_a_primary_it_is_asked_in_its_time(trouble: Callable[[FollowerBench], None]) -> None:
    bench = FollowerBench()
    trouble(bench)
    for _ in range(20):
        bench.turn()
        due_ms = bench.core.deadline_ms()
        assert due_ms is not None
        assert due_ms > bench.ms
        bench.ms = due_ms
    assert bench.asked() or bench.out
