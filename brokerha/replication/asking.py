"""Asking: the follower's half of REQUEST: exactly the range that is missing, from whoever has it (replication, section 2).

The primary is asked first, then the other sources. No answer is tried again with growing patience, for as long as it takes:
only a source that says that it does not have the range is left for the next one, and only when none has it the range counts
as missing. Answers are as long as the window of the sender; what is still missing then is asked for anew.
"""

from __future__ import annotations

from dataclasses import dataclass

from brokerha.model.ids import Instant, Lsn, NodeId
from brokerha.model.messages import RangeMissing, Request


@dataclass(frozen=True, slots=True)
class AskConfig:
    """Waits of a follower that asks for a range."""

    first_wait_ms: int = 100
    """The least time between two questions about one range; doubled each time the range has not become smaller."""
    longest_wait_ms: int = 3000


class Asking:
    """One range at a time."""

    def __init__(self, config: AskConfig) -> None:
        self.config = config
        self._range: tuple[Lsn, Lsn] | None = None
        self._sources: tuple[NodeId, ...] = ()
        self._place = 0
        self._wait_ms = config.first_wait_ms
        self._ask_at_ms = 0
        self._asked_at_ms = -(10**12)

    def want(self, missing: tuple[Lsn, Lsn], sources: tuple[NodeId, ...], now: Instant) -> None:
        """This range is missing now; what was asked for before is taken into account."""
        if missing == self._range:
            return
        is_rest = self._range is not None and self._range[1] == missing[1] and missing[0] > self._range[0]
        self._range = missing
        self._wait_ms = self.config.first_wait_ms
        if not is_rest:
            self._place = 0
            self._sources = sources
        # A range that shrinks is being answered; one that is new may be asked for at once, but not too often.
        pause_ms = self._wait_ms if is_rest else 0
        self._ask_at_ms = max(now.mono_ms + pause_ms, self._asked_at_ms + self.config.first_wait_ms)

    def stop(self) -> None:
        """Nothing is missing any more."""
        self._range = None
        self._place = 0

    def is_asked(self, sender: NodeId, first: Lsn) -> bool:
        """Whether this node was asked for a range that this LSN is in."""
        if self._range is None or sender not in self._sources[: self._place + 1]:
            return False
        return self._range[0] <= first <= self._range[1]

    def on_missing(self, sender: NodeId, answer: RangeMissing, now: Instant) -> bool:
        """A source does not have the range. Returns whether nobody has it."""
        if self._range is None or answer.first_lsn != self._range[0] or sender != self._sources[self._place]:
            return False
        if self._place + 1 >= len(self._sources):
            return True
        self._place += 1
        self._ask_at_ms = now.mono_ms
        return False

    @property
    def source(self) -> NodeId:
        """Who is asked now; empty when nothing is missing."""
        return self._sources[self._place] if self._range is not None else ""

    def range_text(self) -> str:
        """The range, for a reason."""
        return f"{self._range[0]} to {self._range[1]}" if self._range is not None else "nothing"

    def take(self, now: Instant) -> list[tuple[NodeId, Request]]:
        """The question that is due."""
        if self._range is None or now.mono_ms < self._ask_at_ms:
            return []
        self._asked_at_ms = now.mono_ms
        self._ask_at_ms = now.mono_ms + self._wait_ms
        self._wait_ms = min(2 * self._wait_ms, self.config.longest_wait_ms)
        return [(self._sources[self._place], Request(*self._range))]

    def deadline_ms(self) -> int | None:
        """When the next question is due."""
        return self._ask_at_ms if self._range is not None else None
