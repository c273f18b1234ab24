"""The hybrid clock of a master: where its timestamps and promises come from (rules R2 and R3, invariant S11).

    last         the highest timestamp given, promised, or seen in an entry that was merged
    high_water   what the journal says may be used; durable before anything above the old value is revealed

A timestamp is ``max(last + 1, physical)``: unique, and never below physical time. Everything up to a promise is closed:
after promising, ``last`` is at least the promise, so nothing is ever stamped at or below it. After a restart ``last``
starts at ``high_water``, because any value up to there may have been promised to somebody before the crash.

It must never go back, whatever the wall clock does; a wall clock that was set back only stops it from jumping ahead.
"""

from __future__ import annotations

from brokerha.model.ids import Timestamp
from brokerha.model.records import ClockReserved


class HybridClock:
    """Timestamps in microseconds that only grow."""

    def __init__(self, high_water: Timestamp, reserve_us: int) -> None:
        self.last: Timestamp = high_water
        self.high_water: Timestamp = high_water
        self._reserve_us = reserve_us

    def ticks(self, wall_us: int, count: int) -> range:
        """Return so many new timestamps, one at least, above everything given, promised or seen."""
        first = max(self.last + 1, wall_us)
        self.last = first + count - 1
        return range(first, first + count)

    def promise(self, wall_us: int) -> Timestamp:
        """Return the promise for a post: nothing will be stamped at or below it from now on."""
        self.last = max(self.last, wall_us)
        return self.last

    def saw(self, timestamp: Timestamp) -> None:
        """Move past a timestamp of another master, so that own entries come after what is known here."""
        self.last = max(self.last, timestamp)

    def reservation(self) -> ClockReserved | None:
        """Return the record that must be durable before ``last`` is revealed, or None when it is covered already.

        Reserves in steps, so that most turns need no record of it.
        """
        if self.last <= self.high_water - self._reserve_us // 4:
            return None
        self.high_water = self.last + self._reserve_us
        return ClockReserved(self.high_water)
