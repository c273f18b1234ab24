"""Asking: a follower's question for exactly the range that it lacks, to a node that has it (PROTOCOL.md, section 4).

The leader is asked first, then the other sources. A question without an answer is repeated with growing patience. A source that says
that it does not hold the range is left for the next one, and so is one beside the leader that stays silent for `patience_ms`; only when
none is left the range counts as missing. Answers are as long as the window of the sender; what is still missing then is asked for anew.
"""

from __future__ import annotations

from dataclasses import dataclass

from brokerha.model.ids import Instant, NodeId

Range = tuple[int, int]
"""Numbers of the first and the last record, both included."""


@dataclass(frozen=True, slots=True)
class AskConfig:
    """Waits of a follower that asks for a range."""

    first_wait_ms: int = 100
    """The least time between two questions about one range; doubled each time the range has not become smaller."""
    longest_wait_ms: int = 3000
    patience_ms: int = 10_000
    """A source other than the leader that is silent for so long does not hold it. The leader is asked for as long as it takes."""


class Asking:
    """One range at a time."""

    def __init__(self, config: AskConfig) -> None:
        self.config = config
        self._range: Range | None = None
        self._sources: tuple[NodeId, ...] = ()
        self._place = 0
        self._since_ms = 0
        """Since when this source has had this question."""
        self._wait_ms = config.first_wait_ms
        self._ask_at_ms = 0
        self._asked_at_ms = -(10**12)

    def want(self, missing: Range, sources: tuple[NodeId, ...], now: Instant) -> None:
        """This range is missing now; what was asked for before is taken into account. The first source is the leader."""
        if missing == self._range:
            return
        is_rest = self._range is not None and self._range[1] == missing[1] and missing[0] > self._range[0]
        self._range = missing
        self._wait_ms = self.config.first_wait_ms
        self._since_ms = now.mono_ms
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

    def is_asked(self, sender: NodeId, number: int) -> bool:
        """Whether this node was asked for a range that this record is in."""
        if self._range is None or sender not in self._sources[: self._place + 1]:
            return False
        return self._range[0] <= number <= self._range[1]

    def on_missing(self, sender: NodeId, now: Instant) -> bool:
        """A source does not have the range, or not as it should be. Returns whether nobody has it."""
        if sender != self.source or self._range is None:
            return False
        if self._place + 1 >= len(self._sources):
            return True
        self._place += 1
        self._since_ms = self._ask_at_ms = now.mono_ms
        return False

    @property
    def source(self) -> NodeId:
        """Who is asked now; empty when nothing is missing."""
        return self._sources[self._place] if self._range is not None else ""

    @property
    def first(self) -> int:
        """First record that is asked for; 0 when none is."""
        return self._range[0] if self._range is not None else 0

    def range_text(self) -> str:
        """The range, for a reason."""
        return f"{self._range[0]} to {self._range[1]}" if self._range is not None else "nothing"

    def is_in_vain(self, now: Instant) -> bool:
        """Leave a source that was silent for too long. Returns whether nobody is left."""
        is_silent = self._place > 0 and now.mono_ms - self._since_ms >= self.config.patience_ms
        return is_silent and self.on_missing(self.source, now)

    def take(self, now: Instant) -> tuple[NodeId, Range] | None:
        """The question that is due."""
        if self._range is None or now.mono_ms < self._ask_at_ms:
            return None
        self._asked_at_ms = now.mono_ms
        self._ask_at_ms = now.mono_ms + self._wait_ms
        self._wait_ms = min(2 * self._wait_ms, self.config.longest_wait_ms)
        return self.source, self._range

    def deadline_ms(self) -> int | None:
        """When the next question is due."""
        return self._ask_at_ms if self._range is not None else None
