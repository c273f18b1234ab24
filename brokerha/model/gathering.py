"""When writes that are handed in one by one wait a moment for each other, so that they travel together.

Callers that wait for their writes come back in groups: a reply to sixteen of them lets sixteen threads go on, one after the other. The first of
them need not leave alone: as many as were answered together are awaited, for at most `PER_CALLER_S` each. A lone writer is answered alone and never waits.

    answered(16) --> 1, 2, ... handed in, waiting --> 16 there, or 4 ms over: they leave

>>> gathering = Gathering()
>>> gathering.answered(16, 0.0)
>>> gathering.hold_s(3, 0.0), gathering.hold_s(16, 0.0)
(0.004, 0.0)
"""

from __future__ import annotations

from typing import Final

PER_CALLER_S: Final = 0.00025
"""About what a thread takes from its answer to its next write, where all share one interpreter."""
MOST_S: Final = 0.005
CLOSE_S: Final = 0.002
"""Answers with no more than this between them are one group."""


class Gathering:
    """Who is awaited; times are seconds of one monotonic clock. For one thread at a time."""

    def __init__(self) -> None:
        self.awaited = 0
        """Callers that were answered together and have not written again."""
        self._until_s = self._answered_s = 0.0

    def answered(self, count: int, now_s: float) -> None:
        """So many writes were answered; those that are answered shortly after each other count together."""
        if now_s - self._answered_s > CLOSE_S:
            self.awaited = 0
        self.awaited += count
        self._answered_s = now_s
        self._until_s = now_s + min(MOST_S, self.awaited * PER_CALLER_S) if self.awaited > 1 else 0.0

    def hold_s(self, waiting: int, now_s: float) -> float:
        """For how long those that wait should go on waiting; 0 when they are to leave."""
        return max(0.0, self._until_s - now_s) if waiting < self.awaited else 0.0

    def left(self, count: int) -> None:
        """So many have left."""
        self.awaited = max(0, self.awaited - count)
