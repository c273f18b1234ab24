"""How long one waits for a worker before another is asked the same, and how often one may do so.

The **patience** with a kind of read is four times what the slowest twentieth of its recent answers took, and never below a
floor. Slow queries therefore get a long patience by themselves, and a `get` that hangs is noticed at once.

A second question costs a second worker, so it has to be earned: each answer in good time brings a twentieth of one, each
second question that was answered first brings its price back. When a query is slow everywhere the savings are soon used
up and it stays with one worker; when one worker of several hangs they last.

    savings  10.0 -> ask again -1.0 -> the second was first +1.0        bounded by the limit, never below 0

There is no clock in here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from sortedcontainers import SortedList

SAMPLES = 128
"""Recent answers of one kind that count."""
LEAST_SAMPLES = 8
KINDS_LIMIT = 16
"""Kinds that are told apart; a program may ask for any word."""
TIMES = 4
EARNED = 0.05


class Recent:
    """How long the last answers of one kind took."""

    def __init__(self) -> None:
        self._in_turn: deque[int] = deque()
        self._sorted: SortedList[int] = SortedList()

    def note(self, duration_ms: int) -> None:
        """One more answer."""
        if len(self._in_turn) == SAMPLES:
            self._sorted.remove(self._in_turn.popleft())
        self._in_turn.append(duration_ms)
        self._sorted.add(duration_ms)

    def p95_ms(self) -> int:
        """What 95 of 100 answers did not exceed; 0 while there are too few to say."""
        count = len(self._sorted)
        return 0 if count < LEAST_SAMPLES else int(self._sorted[min(count - 1, count * 95 // 100)])


class Patience:
    """Waits by kind of read, and the savings from which second questions are paid."""

    def __init__(self, floor_ms: Callable[[], int], savings_limit: int) -> None:
        """``floor_ms`` is the least wait that counts now."""
        self._floor_ms = floor_ms
        self._savings_limit = float(savings_limit)
        self._savings = float(savings_limit)
        self._recent: dict[str, Recent] = {}

    def of(self, kind: str) -> int:
        """Milliseconds to wait for an answer to a read of this kind."""
        recent = self._recent.get(self._known(kind))
        floor_ms = self._floor_ms()
        return floor_ms if recent is None else max(floor_ms, TIMES * recent.p95_ms())

    def note(self, kind: str, duration_ms: int) -> None:
        """A read of this kind was answered."""
        self._recent.setdefault(self._known(kind), Recent()).note(duration_ms)
        self._savings = min(self._savings_limit, self._savings + EARNED)

    def pay(self) -> bool:
        """Whether a second question may be asked now; it is paid for then."""
        if self._savings < 1:
            return False
        self._savings -= 1
        return True

    def give_back(self) -> None:
        """The second question was worth it."""
        self._savings = min(self._savings_limit, self._savings + 1)

    def _known(self, kind: str) -> str:
        return kind if kind in self._recent or len(self._recent) < KINDS_LIMIT else ""
