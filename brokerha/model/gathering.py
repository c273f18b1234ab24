"""Writes that wait a moment for each other, to travel together.

Callers come back in groups: after a reply to sixteen of them, sixteen threads go on, one after the other. The first new write
waits for as many as were answered together, at most `PER_CALLER_S` for each. A lone writer never waits.

    answered(16) --> 1, 2, ... handed in, waiting --> all 16 are there, or 4 ms have passed: they leave

>>> gathering = Gathering()
>>> gathering.answered(16, 0.0)
>>> gathering.hold_s(3, 0.0), gathering.hold_s(16, 0.0)
(0.004, 0.0)
"""

from __future__ import annotations

from typing import Final

PER_CALLER_S: Final = 0.00025
"""About the time of a thread from its answer to its next write, if all share one interpreter."""
MOST_S: Final = 0.005
CLOSE_S: Final = 0.002
"""Largest gap between answers of one group."""


class Gathering:
    """The expected writers; times are seconds of one monotonic clock. For one thread at a time."""

    def __init__(self) -> None:
        self.awaited = 0
        """Callers that were answered together and have not written again."""
        self._until_s = self._answered_s = 0.0

    def answered(self, count: int, now_s: float) -> None:
        """Note the number of answered writes; answers within a short time count together."""
        if now_s - self._answered_s > CLOSE_S:
            self.awaited = 0
        self.awaited += count
        self._answered_s = now_s
        self._until_s = now_s + min(MOST_S, self.awaited * PER_CALLER_S) if self.awaited > 1 else 0.0

    def hold_s(self, waiting: int, now_s: float) -> float:
        """Return how long the waiting writes should go on waiting; 0 when they must leave."""
        return max(0.0, self._until_s - now_s) if waiting < self.awaited else 0.0

    def left(self, count: int) -> None:
        """Note the number of writes that left."""
        self.awaited = max(0, self.awaited - count)
