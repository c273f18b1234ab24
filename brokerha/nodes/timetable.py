"""Times at which periodic work is due: one for each number, the earliest first.

    table = Timetable()
    table.set(7, 500)         # number 7 is due at 500, whatever it was before
    table.next()              # 500
    table.take(600)           # [7]; it is no longer in the table

Each waiting number has at most one entry and loses it when it is done, so the table stays short and causes no needless wake-up.
The unit is the caller's; the module has no clock.
"""

from __future__ import annotations

from sortedcontainers import SortedList


class Timetable:
    """Numbers and their times."""

    def __init__(self) -> None:
        self.due: dict[int, float] = {}
        self._order: SortedList[tuple[float, int]] = SortedList()

    def set(self, number: int, due: float) -> None:
        """Set the time of a number, instead of the one that it had."""
        self.drop(number)
        self.due[number] = due
        self._order.add((due, number))

    def drop(self, number: int) -> None:
        """Remove a number, if it is in the table."""
        due = self.due.pop(number, None)
        if due is not None:
            self._order.remove((due, number))

    def next(self) -> float | None:
        """Return the earliest time, or None for an empty table."""
        return self._order[0][0] if self.due else None

    def take(self, now: float) -> list[int]:
        """Remove and return the numbers that are due, earliest first."""
        taken = []
        while self._order and self._order[0][0] <= now:
            _, number = self._order.pop(0)
            del self.due[number]
            taken.append(number)
        return taken

    def __len__(self) -> int:
        return len(self.due)
