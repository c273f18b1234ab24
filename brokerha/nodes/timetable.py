"""When what is due: one time for each number, the earliest first.

    table = Timetable()
    table.set(7, 500)         # number 7 is due at 500, whatever it was before
    table.next()              # 500
    table.take(600)           # [7]; it is not in the table any more

Everything that waits has one entry at most and loses it when it is over, so the table is never longer than what is
under way and never wakes anybody for nothing. The unit is the caller's; there is no clock in here.
"""

from __future__ import annotations

from sortedcontainers import SortedList


class Timetable:
    """Numbers and their times."""

    def __init__(self) -> None:
        self.due: dict[int, float] = {}
        self._order: SortedList[tuple[float, int]] = SortedList()

    def set(self, number: int, due: float) -> None:
        """Give a number its time, in place of the one that it had."""
        self.drop(number)
        self.due[number] = due
        self._order.add((due, number))

    def drop(self, number: int) -> None:
        """Take a number out; nothing happens when it is not there."""
        due = self.due.pop(number, None)
        if due is not None:
            self._order.remove((due, number))

    def next(self) -> float | None:
        """The earliest time; None when nothing waits."""
        return self._order[0][0] if self.due else None

    def take(self, now: float) -> list[int]:
        """The numbers that are due now, earliest first; they are taken out."""
        taken = []
        while self._order and self._order[0][0] <= now:
            _, number = self._order.pop(0)
            del self.due[number]
            taken.append(number)
        return taken

    def __len__(self) -> int:
        return len(self.due)
