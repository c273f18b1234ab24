"""Locks: messages of queues that are accepted in a transaction that is not over.

A message stays in its place until the transaction is applied. So a rollback unlocks it there, and the order is kept without moving
messages. Locks are not durable: those of prepared transactions come back with their operations.

>>> locks = Locks()
>>> locks.take("t1", "orders", ["a", "b", "c"], 2)
['a', 'b']
>>> locks.take("t2", "orders", ["a", "b", "c"], 2)
['c']
>>> locks.release("t1", gone_lsn=7), locks.holder("orders", "a"), len(locks)
(None, None, 1)
>>> locks.take("t3", "orders", ["a", "b", "c"], 2, lsn=6), locks.take("t3", "orders", ["d"], 2, lsn=7)
([], ['d'])
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

import msgpack

from brokerha.model.ids import Lsn, TxId

GONE_LIMIT: Final = 10_000
"""Limit of remembered removals of messages."""
Named = tuple[str, str]
"""A message: (queue, id)."""


def accepted_in(operations: Iterable[tuple[Any, ...]]) -> list[Named]:
    """Return the messages that operations accept."""
    return [(operation[1], operation[2]) for operation in operations if operation[0] == "accept"]


def accepted_in_body(body: bytes) -> list[Named]:
    """Return the messages that a packed body accepts; the body was checked when it came in."""
    return accepted_in(msgpack.unpackb(body, use_list=False)) if b"accept" in body else []


class Locks:
    """All locks of one primary."""

    def __init__(self) -> None:
        self._holders: dict[Named, TxId] = {}
        self._held: dict[TxId, list[Named]] = {}
        self._numbers: dict[str, int] = {}
        """Number of locks, by queue."""
        self._gone: dict[Named, Lsn] = {}
        """Messages that transactions of this primary removed, with the LSN: older reads of a queue still show them."""

    def __len__(self) -> int:
        return len(self._holders)

    def holder(self, queue: str, message_id: str) -> TxId | None:
        """Return the transaction that holds a message, or None."""
        return self._holders.get((queue, message_id))

    def has(self, txid: TxId) -> bool:
        """Tell whether a transaction holds any message."""
        return txid in self._held

    def conflict(self, txid: TxId, wanted: Iterable[Named]) -> tuple[str, str, TxId] | None:
        """Return the first of these messages that another transaction holds, with that transaction; None when all are free."""
        for queue, message_id in wanted:
            holder = self._holders.get((queue, message_id), txid)
            if holder != txid:
                return queue, message_id, holder
        return None

    def lock(self, txid: TxId, wanted: Iterable[Named]) -> None:
        """Give messages that no other transaction holds to a transaction."""
        for name in wanted:
            if name not in self._holders:
                self._holders[name] = txid
                self._numbers[name[0]] = self._numbers.get(name[0], 0) + 1
                self._held.setdefault(txid, []).append(name)

    def take(self, txid: TxId, queue: str, candidates: Iterable[str], count: int, lsn: Lsn = 0) -> list[str]:
        """Lock and return the first ``count`` candidates, seen at ``lsn``, that no transaction holds, not even this one."""
        taken = list(islice(self.free(queue, candidates, lsn), count))
        self.lock(txid, [(queue, message_id) for message_id in taken])
        return taken

    def free(self, queue: str, candidates: Iterable[str], lsn: Lsn = 0) -> Iterator[str]:
        """Yield the candidates, seen at ``lsn``, that no transaction holds."""
        for message_id in candidates:
            name = (queue, message_id)
            if name not in self._holders and self._gone.get(name, 0) <= lsn:
                yield message_id

    def number_in(self, queue: str) -> int:
        """Return how many messages of a queue transactions hold."""
        return self._numbers.get(queue, 0)

    def release(self, txid: TxId, gone_lsn: Lsn = 0) -> None:
        """Release all messages of a transaction; with ``gone_lsn`` it removed them at that LSN."""
        for name in self._held.pop(txid, ()):
            del self._holders[name]
            self._numbers[name[0]] -= 1
            if not self._numbers[name[0]]:
                del self._numbers[name[0]]
            if gone_lsn:
                self._gone.pop(name, None)
                self._gone[name] = gone_lsn
        while len(self._gone) > GONE_LIMIT:
            del self._gone[next(iter(self._gone))]

    def go_back(self, lsn: Lsn) -> None:
        """Forget removals after this LSN: these messages may be there again."""
        self._gone = {name: at for name, at in self._gone.items() if at <= lsn}
