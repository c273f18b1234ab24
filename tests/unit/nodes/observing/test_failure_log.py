"""What a node says in its log of a journal that fails."""

from __future__ import annotations

from structlog.testing import capture_logs

from brokerha.model.ids import Instant
from brokerha.nodes.observing.watching import MINUTE_MS, FailureLog


class Time:
    ms = 0

    def now(self) -> Instant:
        return Instant(self.ms, 0)


def test_a_failure_is_told_at_once_and_again_each_minute_while_it_lasts() -> None:
    time = Time()
    failures = FailureLog("m1", time)
    with capture_logs() as lines:
        for time.ms in range(0, 2 * MINUTE_MS, 1_000):
            failures.tell("disk-full: no space")
        failures.tell("halted: the sync failed")
    assert [(line["event"], line["node"], line["reason"]) for line in lines] == [
        ("cannot write", "m1", "disk-full: no space"),
        ("cannot write", "m1", "disk-full: no space"),
        ("cannot write", "m1", "halted: the sync failed"),
    ]
