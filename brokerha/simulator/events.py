"""Virtual time: a heap of events, one source of luck, and the story of what happened.

    at(when, what) ---> heap ---> step: the earliest event happens ---> more events

Nothing here knows what the events are about. Equal options give equal runs: what is planned first happens first.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, TextIO

from brokerha.simulator.options import Options
from brokerha.simulator.trace import Trace

LOOK_US = 50_000
"""How often the liveness phase looks whether everything has come together."""
LIVENESS_STEPS = 20_000
"""Steps after which a cluster that has not come together is called stuck, whatever the virtual clock says."""


class Events:
    """What happens in a world, one event after the other."""

    def __init__(self, options: Options, out: TextIO | None = None) -> None:
        self.options = options
        self.rng = Random(options.seed)
        self.now_us = 0
        self.steps = 0
        self.trace = Trace(out)
        self.faults_seen: Counter[str] = Counter()
        self.is_calm = False
        """Whether faults are over."""
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._event = 0

    def at(self, when_us: int, action: Callable[..., None], *arguments: Any) -> None:
        """Let something happen at a moment; what is planned first happens first."""
        self._event += 1
        heapq.heappush(self._heap, (when_us, self._event, action, arguments))

    def _step(self) -> None:
        self.now_us, _, action, arguments = heapq.heappop(self._heap)
        action(*arguments)

    def run_until(self, when_us: int, steps: int = 1_000_000_000) -> None:
        """Let everything happen up to a moment, or until so many more turns were taken."""
        last = self.steps + steps
        while self._heap and self._heap[0][0] <= when_us and self.steps < last:
            self._step()
        if self.steps < last:
            self.now_us = max(self.now_us, when_us)

    def run_while(self, goes_on: Callable[[], bool], for_us: int, every_us: int = LOOK_US) -> bool:
        """Let things happen until a question is answered with no, or the time is over; return whether it was answered so."""
        end_us = self.now_us + for_us
        last = self.steps + LIVENESS_STEPS
        while goes_on():
            if self.now_us >= end_us or self.steps >= last:
                return False
            self.run_until(self.now_us + every_us, LIVENESS_STEPS)
        return True
