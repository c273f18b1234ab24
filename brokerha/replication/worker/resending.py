"""Results that a master asks for again: read from the store's own log, from the lowest on, as the master takes them in without a gap."""

from __future__ import annotations

from brokerha.model.ids import Lsn
from brokerha.model.ready import ResendResults


class Resending:
    """The range that is still to be reported again; at most one."""

    def __init__(self) -> None:
        self._range: tuple[Lsn, Lsn] | None = None

    def want(self, first: Lsn, last: Lsn) -> None:
        """These, too."""
        if self._range is not None:
            first, last = min(first, self._range[0]), max(last, self._range[1])
        self._range = (first, last)

    def drop(self) -> None:
        """Nobody wants them any more."""
        self._range = None

    def take(self, limit: int) -> ResendResults | None:
        """The next ``limit`` of them; None when there are none."""
        if self._range is None:
            return None
        first, last = self._range
        end = min(last, first + limit - 1)
        self._range = (end + 1, last) if end < last else None
        return ResendResults(first, end)
