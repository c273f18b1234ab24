"""What one transaction does to queues, operation by operation; the rules that every store must share to the word.

Nothing is changed before it is kept. What counts is the net change: a message that is published and accepted by the same
transaction was never there, and moves no counter.

>>> change = QueueChange("tx", lambda queue, message_id: message_id == "old.1")
>>> change.add(1, Publish("publish", "q", "text/plain", b"a"))
>>> change.add(2, Accept("accept", "q", "old.1"))
>>> [tuple(each) for each in change.changes()]
[('accept', 'q', 'old.1'), ('publish', 'q', 'tx.1', 'text/plain', b'a')]
>>> change.add(3, Accept("accept", "q", "tx.1"))
>>> [tuple(each) for each in change.changes()]
[('accept', 'q', 'old.1')]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from brokerha.model.errors import Rejected
from brokerha.model.ids import TxId
from brokerha.model.operations import Accept, Change, Delete, Publish, Published, Put, message_id

QUEUES_LIMIT = 10_000
"""Queues of one cluster; a queue that was used once stays known with its counters."""


class Message(NamedTuple):
    """A message in a queue."""

    id: str
    content_type: str
    body: bytes


class Counts(NamedTuple):
    """What became of the messages of a queue since its first one."""

    published: int = 0
    accepted: int = 0

    @property
    def depth(self) -> int:
        """Messages that are there."""
        return self.published - self.accepted

    def report(self) -> dict[str, int]:
        """As a read of kind ``queues`` shows them."""
        return {"depth": self.depth, "published": self.published, "accepted": self.accepted}


NEVER_USED = Counts()


class QueueChange:
    """The queues as one transaction leaves them, on top of what is there."""

    __slots__ = ("_accepted", "_holds", "_published", "_txid")

    def __init__(self, txid: TxId, holds: Callable[[str, str], bool]) -> None:
        """``holds`` says whether a queue has a message of this id before the transaction."""
        self._txid = txid
        self._holds = holds
        self._published: dict[tuple[str, str], Published] = {}
        self._accepted: dict[tuple[str, str], None] = {}

    def add(self, number: int, operation: Publish | Accept) -> None:
        """Take in ``publish`` or ``accept``. Raises Rejected: not there, or there already."""
        queue = operation.queue
        if isinstance(operation, Publish):
            place = queue, message_id(self._txid, number)
            if place not in self._accepted and self._holds(*place):
                raise Rejected(f"message {place[1]!r} is in queue {queue!r} already: use another transaction id")
            self._published[place] = Published("publish", *place, operation.content_type, operation.body)
            return
        place = queue, operation.message_id
        if self._published.pop(place, None) is None:
            if place in self._accepted or not self._holds(*place):
                raise Rejected(f"message {place[1]!r} is not in queue {queue!r}")
            self._accepted[place] = None

    def changes(self) -> list[Published | Accept]:
        """The net change; messages of one queue in their order."""
        return [*(Accept("accept", *place) for place in self._accepted), *self._published.values()]


def check_room(made: int, known: int) -> None:
    """Raise Rejected when so many new queues are too many beside those that are known."""
    if made and made + known > QUEUES_LIMIT:
        raise Rejected(f"there are {known} queues, and {QUEUES_LIMIT} is the limit")


def order_of(change: Change) -> tuple[object, ...]:
    """By what the changes of an effect are sorted: kind, name and key; published messages keep their order."""
    return change[:3] if isinstance(change, _WITH_KEYS) else change[:2]


_WITH_KEYS = (Put, Delete, Accept)
