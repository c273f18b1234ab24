"""Numbers that nodes count for /metrics, by name, and durations in buckets. http/operating/families.py has Prometheus' names.

>>> histogram = Histogram((0.1, 1.0))
>>> histogram.observe(0.5)
>>> histogram.numbers("x_seconds")["x_seconds_bucket", "1.0"]
1
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

Numbers = dict[str | tuple[str, ...], float]
"""Key: metric name without its prefix; with labels, a tuple of it and the label values in the order of the label names."""

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds from one sync of a fast disk to a client that has long given up."""


class Histogram:
    """Counts since the start; used by one thread, so that the event loop needs no lock (docs/decisions/0050)."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        """``bounds`` are the upper ends of the buckets, ascending; values above the last one are counted too."""
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        # A clock that goes back must not lower the sum.
        value = max(0.0, value)
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def numbers(self, name: str) -> Numbers:
        """Return cumulative buckets, sum and count."""
        found: Numbers = {}
        total = 0
        for bound, count in zip((*map(repr, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            found[f"{name}_bucket", bound] = total
        return {**found, f"{name}_sum": self._sum, f"{name}_count": total}
