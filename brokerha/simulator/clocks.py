"""Virtual clocks: the true time of the world, and each node's view of it.

The monotonic clock of a process starts at a random value and runs true; the wall clock has a skew, a drift, and jumps.
"""

from __future__ import annotations

from collections.abc import Callable

from brokerha.model.ids import Instant

BEGIN_US = 1_700_000_000 * 1_000_000
"""Wall time at moment 0 of the world."""


class SimClock:
    """Both clocks of one node."""

    def __init__(self, true_us: Callable[[], int], skew_us: int, drift: float) -> None:
        self.mono_offset_ms = 0
        self.skew_us = skew_us
        self._true_us = true_us
        self._drift = drift

    def now(self) -> Instant:
        """Return the current instant, as this node sees it."""
        true_us = self._true_us()
        wall_us = BEGIN_US + true_us + self.skew_us + int(true_us * self._drift)
        return Instant(true_us // 1000 + self.mono_offset_ms, wall_us)

    def jump(self, by_us: int) -> None:
        """Set the wall clock by a jump."""
        self.skew_us += by_us
