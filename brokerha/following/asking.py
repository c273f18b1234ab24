"""Asking: a follower's request for exactly the missing range, to a node that has it (PROTOCOL.md, section 4).

The leader is asked first, then the other sources. An unanswered request is repeated with growing patience. The next source is asked
after one that says that it does not hold the range, or one other than the leader that stays silent for `patience_ms`. Only when
none is left the range counts as missing. Answers are limited by the window of the sender; the rest is requested anew.
"""

from __future__ import annotations

from dataclasses import dataclass

from brokerha.model.ids import Instant, NodeId

Range = tuple[int, int]
"""Numbers of the first and the last record, both included."""


@dataclass(frozen=True, slots=True)
class AskConfig:
    """Timeouts of a follower that requests a range."""

    first_wait_ms: int = 100
    """Shortest time between two requests for one range; doubled each time the range has not become smaller."""
    longest_wait_ms: int = 3000
    patience_ms: int = 10_000
    """A source other than the leader that is silent for so long does not hold it. The leader has no such limit."""


class Asking:
    """Requests one range at a time."""

    def __init__(self, config: AskConfig) -> None:
        self.config = config
        self._range: Range | None = None
        self._sources: tuple[NodeId, ...] = ()
        self._place = 0
        self._since_ms = 0
        """Time since this source has had this request."""
        self._wait_ms = config.first_wait_ms
        self._ask_at_ms = 0
        self._asked_at_ms = -(10**12)

    def want(self, missing: Range, sources: tuple[NodeId, ...], now: Instant) -> None:
        """Request this missing range, with regard to the former one. The first source is the leader."""
        if missing == self._range:
            return
        is_rest = self._range is not None and self._range[1] == missing[1] and missing[0] > self._range[0]
        self._range = missing
        self._wait_ms = self.config.first_wait_ms
        self._since_ms = now.mono_ms
        if not is_rest:
            self._place = 0
            self._sources = sources
        # A range that shrinks is being answered; a new one can be requested at once, but not too often.
        pause_ms = self._wait_ms if is_rest else 0
        self._ask_at_ms = max(now.mono_ms + pause_ms, self._asked_at_ms + self.config.first_wait_ms)

    def stop(self) -> None:
        """Stop: no range is missing any more."""
        self._range = None
        self._place = 0

    def is_asked(self, sender: NodeId, number: int) -> bool:
        """Tell whether this node was asked for a range that includes this record."""
        if self._range is None or sender not in self._sources[: self._place + 1]:
            return False
        return self._range[0] <= number <= self._range[1]

    def on_missing(self, sender: NodeId, now: Instant) -> bool:
        """Go to the next source: this one does not have the range undamaged. Returns whether no source is left."""
        if sender != self.source or self._range is None:
            return False
        if self._place + 1 >= len(self._sources):
            return True
        self._place += 1
        self._since_ms = self._ask_at_ms = now.mono_ms
        return False

    @property
    def source(self) -> NodeId:
        """Return the source that is asked now; empty when nothing is missing."""
        return self._sources[self._place] if self._range is not None else ""

    @property
    def first(self) -> int:
        """Return the first requested record; 0 when there is none."""
        return self._range[0] if self._range is not None else 0

    def range_text(self) -> str:
        """Return the range as text, for a reason."""
        return f"{self._range[0]} to {self._range[1]}" if self._range is not None else "nothing"

    def is_in_vain(self, now: Instant) -> bool:
        """Leave a source that was silent for too long. Returns whether no source is left."""
        is_silent = self._place > 0 and now.mono_ms - self._since_ms >= self.config.patience_ms
        return is_silent and self.on_missing(self.source, now)

    def take(self, now: Instant) -> tuple[NodeId, Range] | None:
        """Return the request that is due."""
        if self._range is None or now.mono_ms < self._ask_at_ms:
            return None
        self._asked_at_ms = now.mono_ms
        self._ask_at_ms = now.mono_ms + self._wait_ms
        self._wait_ms = min(2 * self._wait_ms, self.config.longest_wait_ms)
        return self.source, self._range

    def deadline_ms(self) -> int | None:
        """Return when the next request is due."""
        return self._ask_at_ms if self._range is not None else None
