"""Followed: one follower as its leader sees it: the leader's half of BASIC and REQUEST (PROTOCOL.md, section 3).

    log        1 2 3 4 5 6 7 8 9
    follower   . . . > > > >             confirmed up to 3, sent up to 7, a window of 4 records is full

Records are pushed to a follower from its confirmed number on, as far as its window allows. Records without confirmation in time are
sent again, at growing intervals; requested records are sent once. No state about a follower must survive a restart of either side:
its next message tells its position.

The holder says from which number on it waits for confirmations (``base``): for most followers that is `applied`, for one that
executes the end of its known results. Invariants: records in flight were sent after the base, and are bounded by the window plus
one message; waiting requests are bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from brokerha.following.asking import Range
from brokerha.model.ids import NodeId

NEVER = -(10**12)
MOST_DOUBLINGS = 2
"""Limit of doublings of the resend interval: a silent follower gets the same after one, two, and at last four times the wait."""
RANGES_LIMIT = 8
"""Limit of waiting requests of one follower."""

Part = tuple[Any, int, int]
"""(message, number of its last record, bytes)"""
Read = Callable[[int, int, int], Part | None]
"""(first number, last number, about how many bytes) -> a message with the first of them; None when there is nothing to send now."""


@dataclass(frozen=True, slots=True)
class Window:
    """Limits of the records under way to one follower, and of their time."""

    entries: int
    bytes: int
    resend_ms: int


@dataclass(slots=True)
class Followed:
    """One follower. Times are of the monotonic clock, in milliseconds."""

    node: NodeId
    _: KW_ONLY
    applied: int = 0
    """Number up to which its present copy is durable, by its own messages."""
    sent: int = 0
    """Number up to which it was sent records."""
    in_flight: deque[tuple[int, int]] = field(default_factory=deque)
    """(last number, bytes) of each unconfirmed message."""
    in_flight_bytes: int = 0
    moved_ms: int = NEVER
    """When it last confirmed sent records, or had none to confirm."""
    stalls: int = 0
    """Number of resends in a row of the same records."""
    wanted: list[Range] = field(default_factory=list)
    """Requested ranges."""

    # ---- inputs

    def stand(self, number: int) -> None:
        """Set its position, whatever was known before; nothing is under way to it."""
        self.applied, self.stalls = number, 0
        self.rewind(number)

    def confirm(self, number: int, mono_ms: int) -> bool:
        """Note that it has all records up to here; return whether that is new."""
        is_new = number > self.applied
        if is_new:
            self.applied = number
            self.moved_ms, self.stalls = mono_ms, 0
        self.sent = max(self.sent, self.applied)
        return is_new

    def settle(self, base: int) -> None:
        """Stop waiting for confirmations up to here."""
        self.sent = max(self.sent, base)
        while self.in_flight and self.in_flight[0][0] <= base:
            self.in_flight_bytes -= self.in_flight.popleft()[1]

    def rewind(self, number: int) -> None:
        """Count records sent after this number as lost."""
        self.sent = number
        while self.in_flight and self.in_flight[-1][0] > number:
            self.in_flight_bytes -= self.in_flight.pop()[1]

    def want(self, first: int, last: int) -> None:
        """Note its request for these records, both ends included."""
        if first <= last and (first, last) not in self.wanted and len(self.wanted) < RANGES_LIMIT:
            self.wanted.append((first, last))

    # ---- output

    def take_wanted(self) -> list[Range]:
        """Return its requests, once."""
        wanted, self.wanted = self.wanted, []
        return wanted

    def resend(self, base: int, window: Window, mono_ms: int) -> bool:
        """Count all records after ``base`` as lost when none was confirmed in time; return whether that is so."""
        self.settle(base)
        if self.sent == base or mono_ms < self.resend_at_ms(window):
            return False
        self.stalls += 1
        self.moved_ms = mono_ms
        self.rewind(base)
        return True

    def resend_at_ms(self, window: Window) -> int:
        """Return when that is, if records are under way."""
        return self.moved_ms + (window.resend_ms << min(self.stalls, MOST_DOUBLINGS))

    def push(self, base: int, goal: int, window: Window, read: Read, mono_ms: int) -> list[Any]:
        """Return messages with all records up to ``goal``, as few as possible, as far as the window after ``base`` allows."""
        messages: list[Any] = []
        if self.sent <= base:
            self.sent, self.moved_ms = base, mono_ms
        last = min(goal, base + window.entries)
        while self.sent < last:
            room_bytes = window.bytes - self.in_flight_bytes
            part = read(self.sent + 1, last, max(room_bytes, 1)) if room_bytes > 0 or not self.in_flight else None
            if part is None:
                break
            messages.append(part[0])
            self.note_sent(part[1], part[2])
        return messages

    def note_sent(self, last: int, size: int) -> None:
        """Note that a message with records up to this one is on its way; resent records count once."""
        if last > self.sent:
            self.in_flight.append((last, size))
            self.in_flight_bytes += size
            self.sent = last
