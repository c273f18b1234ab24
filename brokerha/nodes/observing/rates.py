"""How busy a master was within the last hour: one sample each ten seconds, in a ring in memory, for the charts of the status page.

A sample keeps numbers as they are and what was counted as a rate per second since the one before. Where that cannot be told
(the first sample, a pause of the loop, a count that went back with the queue) it is None, and the chart has a hole there.

Must never: grow. An hour is 361 samples of seven numbers; time is an argument.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, NamedTuple

from brokerha.model.ids import Instant, Lsn

EVERY_MS: Final = 10_000
LENGTH: Final = 361
"""Samples that are kept: an hour, both ends included."""
NAMES: Final = ("writes_per_s", "reads_per_s", "lag_entries", "lag_s", "incoming", "open", "in_doubt")
"""What a sample has after its number and its time, in this order."""
PAUSE: Final = 3
"""A sample that comes so many times too late begins anew: a rate over that time would hide what happened."""


class Sample(NamedTuple):
    """What is so at one moment."""

    executed: Lsn
    """Transactions executed since the beginning of the order."""
    reads: int
    """Reads since the start."""
    lag_entries: int
    lag_s: float | None
    incoming: int
    open: int
    in_doubt: int


class Rates:
    """The ring; used by one thread."""

    def __init__(self, every_ms: int = EVERY_MS, length: int = LENGTH) -> None:
        self._every_ms = every_ms
        self._rows: deque[tuple[Any, ...]] = deque(maxlen=length)
        self._number = 0
        self._due_ms = 0
        self._last: tuple[Sample, int] | None = None

    def is_due(self, mono_ms: int) -> bool:
        """Whether it is time for a sample."""
        return self._last is None or mono_ms >= self._due_ms

    def note(self, sample: Sample, now: Instant) -> None:
        """Keep a sample."""
        self._number += 1
        executed, reads, *rest = sample
        was = self._last and self._last[0]
        self._rows.append(
            (
                self._number,
                now.wall_us // 1000,
                self._per_s(executed, was and was.executed, now.mono_ms),
                self._per_s(reads, was and was.reads, now.mono_ms),
                *rest,
            )
        )
        self._last = sample, now.mono_ms
        self._due_ms = now.mono_ms + self._every_ms

    def _per_s(self, count: int, before: int | None, mono_ms: int) -> float | None:
        if self._last is None or before is None:
            return None
        passed_ms, more = mono_ms - self._last[1], count - before
        if more < 0 or not 0 < passed_ms <= PAUSE * self._every_ms:
            return None
        return round(more * 1000 / passed_ms, 3)

    def samples_after(self, number: int, now: Instant) -> dict[str, Any]:
        """``{"every_s", "now_ms", "last", "names", "samples"}``: samples [number, wall-clock ms, *NAMES] with a higher number."""
        return {
            "every_s": self._every_ms / 1000,
            "now_ms": now.wall_us // 1000,
            "last": self._number,
            "names": list(NAMES),
            "samples": [list(row) for row in self._rows if row[0] > number],
        }
