"""The only way for a node to know the time."""

from __future__ import annotations

from typing import Protocol

from brokerha.model.ids import Instant


class Clock(Protocol):
    """Both clocks of an instant; never fails."""

    def now(self) -> Instant:
        """Return the present instant."""
