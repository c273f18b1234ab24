"""Waiting until others have done something: each new stage is told once, and the time has an end."""

from __future__ import annotations

import time

from brokerha.cli.common import exits
from brokerha.model.errors import TimedOut

PAUSE_S = 0.25
"""Between two questions."""


class Waiting:
    """For so many seconds; 0 is not at all."""

    def __init__(self, wait_s: float) -> None:
        self.is_wanted = wait_s > 0
        self._end_s = time.monotonic() + wait_s
        self._told = ""

    @property
    def left_s(self) -> float:
        """Seconds that are left."""
        return max(0.0, self._end_s - time.monotonic())

    def pause(self, stage: str, late: str) -> None:
        """Tell a stage that is new (none when it is empty), and wait a moment. Raises TimedOut, with ``late``, once the time is over."""
        if stage and stage != self._told:
            self._told = stage
            exits.say(stage)
        if not self.left_s:
            raise TimedOut(late)
        time.sleep(PAUSE_S)
