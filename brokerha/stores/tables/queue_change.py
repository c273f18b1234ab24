"""What one transaction does to queues, operation by operation: rules that must be identical in every store.

Nothing is changed before the commit. The net change counts: a message that the same transaction publishes and accepts was never
there, and changes no counter.

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

from brokerha.model.errors import CONFLICT, Rejected
from brokerha.model.ids import TxId
from brokerha.model.operations import Accept, Change, Delete, Publish, Published, Put, message_id

QUEUES_LIMIT = 10_000
"""Limit of queues in one cluster; a used queue stays known with its counters."""


class Message(NamedTuple):
    """A message in a queue."""

    id: str
    content_type: str
    body: bytes


class Counts(NamedTuple):
    """Counters of the messages of a queue since its first one."""

    published: int = 0
    accepted: int = 0

    @property
    def depth(self) -> int:
        """Number of messages in the queue."""
        return self.published - self.accepted

    def report(self) -> dict[str, int]:
        """Return the counters as a read of kind ``queues`` shows them."""
        return {"depth": self.depth, "published": self.published, "accepted": self.accepted}


NEVER_USED = Counts()


class QueueChange:
    """The changes of one transaction to the queues."""

    __slots__ = ("_accepted", "_holds", "_published", "_txid")

    def __init__(self, txid: TxId, holds: Callable[[str, str], bool]) -> None:
        """``holds`` tells whether a queue has a message of this id before the transaction."""
        self._txid = txid
        self._holds = holds
        self._published: dict[tuple[str, str], Published] = {}
        self._accepted: dict[tuple[str, str], None] = {}

    def add(self, number: int, operation: Publish | Accept) -> None:
        """Take in ``publish`` or ``accept``. Raises Rejected when the message is there already, or missing."""
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
                raise Rejected(f"{CONFLICT}message {place[1]!r} is not in queue {queue!r}")
            self._accepted[place] = None

    def changes(self) -> list[Published | Accept]:
        """Return the net change; messages of one queue in their order."""
        return [*(Accept("accept", *place) for place in self._accepted), *self._published.values()]


def check_room(made: int, known: int) -> None:
    """Raise Rejected when the new queues exceed the limit together with the known ones."""
    if made and made + known > QUEUES_LIMIT:
        raise Rejected(f"there are {known} queues, and {QUEUES_LIMIT} is the limit")


def order_of(change: Change) -> tuple[object, ...]:
    """Return the sort key of a change of an effect: kind, name and key; published messages keep their order."""
    return change[:3] if isinstance(change, _WITH_KEYS) else change[:2]


_WITH_KEYS = (Put, Delete, Accept)
