"""The only real clock of a node."""

from __future__ import annotations

import time

from brokerha.model.ids import Instant


class SystemClock:
    """Both clocks of this machine."""

    def now(self) -> Instant:
        """The present instant."""
        return Instant(time.monotonic_ns() // 1_000_000, time.time_ns() // 1000)
