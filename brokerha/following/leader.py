"""Followed: what a leader knows of one follower, and what it has to be sent: the leader's half of BASIC and REQUEST (PROTOCOL.md, section 3).

    log        1 2 3 4 5 6 7 8 9
    follower   . . . > > > >             confirmed up to 3, sent up to 7, a window of 4 records is full

A follower is pushed to from what it confirmed on, as much as its window takes; what it did not confirm in time is sent again from there, ever more
patiently; what it asks for it gets once. There is no state about a follower that a restart of either side could lose: the next word of it says
where it stands.

Its holder says from where on it waits for confirmations (``base``): of most followers from `applied` on, of one that executes from where its
results are known. Invariants: what is in flight was sent after the base, is never more than the window takes, and one message; questions that wait are
bounded.
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
"""A follower that confirms nothing is sent the same after a wait, twice the wait, and at last four times the wait."""
RANGES_LIMIT = 8
"""Questions of one follower that may wait for their answer."""

Part = tuple[Any, int, int]
"""(message, number of its last record, bytes)"""
Read = Callable[[int, int, int], Part | None]
"""(first number, last number, about how many bytes) -> a message with the first of them; None when there is nothing to send now."""


@dataclass(frozen=True, slots=True)
class Window:
    """How much may be under way to one follower, and for how long."""

    entries: int
    bytes: int
    resend_ms: int


@dataclass(slots=True)
class Followed:
    """One follower. Times are of the monotonic clock, in milliseconds."""

    node: NodeId
    _: KW_ONLY
    applied: int = 0
    """Number up to which its present copy is durable, by its own word."""
    sent: int = 0
    """Number up to which it was sent records."""
    in_flight: deque[tuple[int, int]] = field(default_factory=deque)
    """(last number, bytes) of each message that it did not confirm yet."""
    in_flight_bytes: int = 0
    moved_ms: int = NEVER
    """When it last confirmed something that it was sent, or had nothing to confirm."""
    stalls: int = 0
    """How often in a row it was sent the same again."""
    wanted: list[Range] = field(default_factory=list)
    """Ranges that it asked for."""

    # ---- inputs

    def stand(self, number: int) -> None:
        """It stands there, whatever was known of it before, and nothing is under way to it."""
        self.applied, self.stalls = number, 0
        self.rewind(number)

    def confirm(self, number: int, mono_ms: int) -> bool:
        """It has everything up to here; returns whether that is new."""
        is_new = number > self.applied
        if is_new:
            self.applied = number
            self.moved_ms, self.stalls = mono_ms, 0
        self.sent = max(self.sent, self.applied)
        return is_new

    def settle(self, base: int) -> None:
        """What was sent up to here is not waited for any more."""
        self.sent = max(self.sent, base)
        while self.in_flight and self.in_flight[0][0] <= base:
            self.in_flight_bytes -= self.in_flight.popleft()[1]

    def rewind(self, number: int) -> None:
        """What was sent after this number counts as lost."""
        self.sent = number
        while self.in_flight and self.in_flight[-1][0] > number:
            self.in_flight_bytes -= self.in_flight.pop()[1]

    def want(self, first: int, last: int) -> None:
        """It asked for these records, both ends included."""
        if first <= last and (first, last) not in self.wanted and len(self.wanted) < RANGES_LIMIT:
            self.wanted.append((first, last))

    # ---- output

    def take_wanted(self) -> list[Range]:
        """What it asked for, once."""
        wanted, self.wanted = self.wanted, []
        return wanted

    def resend(self, base: int, window: Window, mono_ms: int) -> bool:
        """Count everything after ``base`` as lost when nothing of it was confirmed in time; returns whether that is so."""
        self.settle(base)
        if self.sent == base or mono_ms < self.resend_at_ms(window):
            return False
        self.stalls += 1
        self.moved_ms = mono_ms
        self.rewind(base)
        return True

    def resend_at_ms(self, window: Window) -> int:
        """When that is, if anything is under way."""
        return self.moved_ms + (window.resend_ms << min(self.stalls, MOST_DOUBLINGS))

    def push(self, base: int, goal: int, window: Window, read: Read, mono_ms: int) -> list[Any]:
        """Messages with everything up to ``goal``, as few as possible, as far as the window after ``base`` takes them."""
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
        """A message with records up to this one is on its way; one that brings what was sent before counts once."""
        if last > self.sent:
            self.in_flight.append((last, size))
            self.in_flight_bytes += size
            self.sent = last
