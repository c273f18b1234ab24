"""Shared by both ends of following a journal: its records by number, and its history of views.

A **position** is ``(view, number)``: of a record, or of the place after it. Only one process writes in a view, so two journals with
the same view at the same number are equal up to there; `ViewHistory` compares them by that.

    views = ViewHistory(state.views)
    views.position(12)               # (1, 12) before the first election
    views.is_prefix((1, 14))         # whether a journal that ended there has only records of this journal
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from brokerha.model.records import VIEWS_KEPT, Record, ViewStarted
from brokerha.model.wire.process_messages import Records, RecordsMissing

Position = tuple[int, int]
"""(view, number)"""
Item = tuple[int, bytes]
"""(number, encoded record)"""

FIRST_VIEW = 1
"""View of a master before any election."""
MESSAGE_BYTES = 4 * 1024 * 1024
"""Size of the records in one message; a larger record goes alone."""


class NumberedLog(Protocol):
    """The part of a `ports.Journal` that is read here."""

    @property
    def last_number(self) -> int:
        """Return the number of the last durable record; 0 when there is none."""

    def numbered(self, first: int, last: int, limit_bytes: int) -> list[Item] | None:
        """Return encoded records with their numbers, like `ports.Journal.numbered`."""

    def numbered_from(self) -> int:
        """Return the lowest number from which on no record was trimmed."""


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """Limits of the answer to one request for records; a follower asks again for more."""

    message_bytes: int = MESSAGE_BYTES
    total_bytes: int = 4 * MESSAGE_BYTES


class ViewHistory:
    """The view of each record of a journal."""

    def __init__(self, views: Iterable[Position] = ()) -> None:
        self._views: list[Position] = list(views)

    @property
    def views(self) -> tuple[Position, ...]:
        """Return (view, number of its `ViewStarted`), oldest first."""
        return tuple(self._views)

    def note(self, number: int, record: Record) -> None:
        """Note a written record; only `ViewStarted` counts."""
        if isinstance(record, ViewStarted):
            self._views.append((record.view, number))
            del self._views[:-VIEWS_KEPT]

    def cut(self, last_number: int) -> None:
        """Forget views that began after this number: their records were given up."""
        while self._views and self._views[-1][1] > last_number:
            del self._views[-1]

    def of(self, number: int) -> int:
        """Return the view of the record with this number; 0 when it is older than the history."""
        for view, first in reversed(self._views):
            if number >= first:
                return view
        return FIRST_VIEW if len(self._views) < VIEWS_KEPT else 0

    def position(self, number: int) -> Position:
        """Return the position of this number."""
        return (self.of(number), number)

    def is_prefix(self, last: Position, own_last: int) -> bool:
        """Tell whether a journal that ends at ``last`` has only records of this one, which ends at ``own_last``."""
        view, number = last
        return number == 0 or (number <= own_last and view != 0 and self.of(number) == view)

    def common(self, last: Position, own_last: int) -> int:
        """Return the highest number up to which a journal that ends at ``last`` may equal this one."""
        view, number = last
        number = min(number, own_last)
        for started, first in reversed(self._views):
            if started <= view:
                break
            number = min(number, first - 1)
        return number


def answers(
    log: NumberedLog, views: ViewHistory, first: int, wanted_last: int, last_number: int, limits: AnswerLimits
) -> list[Records | RecordsMissing]:
    """Return the messages of one answer to a request, in order; or the message that the records are not held here.

    If the range ends with results that became void, the record after it comes too. Each message is complete in itself.
    """
    wanted = (first, wanted_last)
    last = min(wanted_last, last_number)
    if first > last or first < 1:
        return [RecordsMissing(*wanted, log.numbered_from())]
    messages: list[Records | RecordsMissing] = []
    total = 0
    while first <= last and total < limits.total_bytes:
        items = log.numbered(first, last, limits.message_bytes)
        if items is None:
            return messages or [RecordsMissing(*wanted, log.numbered_from())]
        if not items:
            # Void up to the end of the range: the next record says so, whichever messages are lost.
            items = log.numbered(first, last_number, 1)
        if not items:
            break
        messages.append(Records(views.position(first - 1), tuple(items)))
        total += sum(len(data) for _, data in items)
        first = items[-1][0] + 1
    return messages
