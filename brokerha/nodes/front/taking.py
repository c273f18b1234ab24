"""One consumer's way along a queue, from its head, until the core lets it have messages.

    page -> rows -> candidates -> taken by the core -> done
      ^                              | all of them are locked by others
      +------- the page after  ------+            at the end: wait until the queue may have changed, then from the head again

A queue is looked at again when the applied LSN has moved, at most ten times a second; and once a second, because a rollback gives
messages back without any LSN.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Final

import msgpack

from brokerha.model.ids import Lsn, TxId
from brokerha.ports.front import ReadOutcome

PAUSE_MS: Final = 100
SURELY_MS: Final = 1000
PAGE_FIRST: Final = 8
PAGE_MOST: Final = 256

Row = tuple[str, str, bytes]
"""(message id, content type, body)"""


class Taking:
    """One ``accept`` that is under way."""

    def __init__(
        self, txid: TxId, first: int, queue: str, count: int, future: Future[dict[str, Any]], wait_until_ms: int
    ) -> None:
        self.txid = txid
        self.first = first
        self.queue = queue
        self.count = count
        self.future = future
        self.wait_until_ms = wait_until_ms
        self.timeout_ms = 0
        self.lsn: Lsn = 0
        """What was seen the last time."""
        self.taken: list[str] = []
        """What the core gave."""
        self._seen: dict[str, Row] = {}
        self._after: str | None = None
        self._limit = max(PAGE_FIRST, min(count, PAGE_MOST))
        self._looked_ms = 0

    def begin(self, now_ms: int) -> None:
        """From the head of the queue."""
        self._looked_ms = now_ms
        self._after, self._limit = None, max(PAGE_FIRST, min(self.count, PAGE_MOST))

    def page(self) -> dict[str, Any]:
        """Arguments of the next read."""
        return {"after": self._after, "limit": self._limit}

    def on_rows(self, rows: Sequence[Row]) -> bool:
        """Take in a page; whether all that was taken is there."""
        if not self.taken:
            self._seen = {}
        self._seen.update((row[0], row) for row in rows)
        self._after, self._limit = rows[-1][0], min(2 * self._limit, PAGE_MOST)
        return self._is_complete()

    def on_taken(self, taken: Sequence[str]) -> bool:
        """The core's answer; whether it is complete. The ids of a repeated call may stand on another page."""
        self.taken = list(taken)
        if not self.taken or self._is_complete():
            return bool(self.taken)
        self._after = None
        return False

    def messages(self) -> list[Row]:
        """What was taken."""
        return [self._seen[message] for message in self.taken]

    def _is_complete(self) -> bool:
        return bool(self.taken) and all(message in self._seen for message in self.taken)

    def is_due(self, applied: Lsn, now_ms: int) -> bool:
        """Whether the queue is worth another look."""
        return now_ms >= self.due_ms(applied)

    def due_ms(self, applied: Lsn) -> int:
        """When it is, as far as known now."""
        return min(self.wait_until_ms, self._looked_ms + (PAUSE_MS if applied > self.lsn else SURELY_MS))


def messages_of(outcome: ReadOutcome) -> list[Row]:
    """The rows of a read of a queue."""
    return list(msgpack.unpackb(outcome.body, use_list=False))
