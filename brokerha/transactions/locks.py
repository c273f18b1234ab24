"""Locks: which messages of queues are accepted in a transaction that is not over.

A message stays where it is until the transaction is applied, so a rollback unlocks it in its old place and order is kept
without moving anything. Nothing here is durable: the locks of prepared transactions come back with their operations.

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
"""Messages of which it is remembered that they are gone."""
Named = tuple[str, str]
"""A message: (queue, id)."""


def accepted_in(operations: Iterable[tuple[Any, ...]]) -> list[Named]:
    """The messages that operations accept."""
    return [(operation[1], operation[2]) for operation in operations if operation[0] == "accept"]


def accepted_in_body(body: bytes) -> list[Named]:
    """The messages that a packed body accepts; one that was checked when it came in."""
    return accepted_in(msgpack.unpackb(body, use_list=False)) if b"accept" in body else []


class Locks:
    """All locks of one primary."""

    def __init__(self) -> None:
        self._holders: dict[Named, TxId] = {}
        self._held: dict[TxId, list[Named]] = {}
        self._numbers: dict[str, int] = {}
        """Of locks, by queue."""
        self._gone: dict[Named, Lsn] = {}
        """Messages that transactions of this primary took away, with the LSN: what was read of a queue before it still shows them."""

    def __len__(self) -> int:
        return len(self._holders)

    def holder(self, queue: str, message_id: str) -> TxId | None:
        """The transaction that has a message, or None."""
        return self._holders.get((queue, message_id))

    def has(self, txid: TxId) -> bool:
        """Whether a transaction has any message."""
        return txid in self._held

    def conflict(self, txid: TxId, wanted: Iterable[Named]) -> tuple[str, str, TxId] | None:
        """The first of these messages that another transaction has, with that transaction; None when all are free."""
        for queue, message_id in wanted:
            holder = self._holders.get((queue, message_id), txid)
            if holder != txid:
                return queue, message_id, holder
        return None

    def lock(self, txid: TxId, wanted: Iterable[Named]) -> None:
        """Give messages to a transaction that no other one has."""
        for name in wanted:
            if name not in self._holders:
                self._holders[name] = txid
                self._numbers[name[0]] = self._numbers.get(name[0], 0) + 1
                self._held.setdefault(txid, []).append(name)

    def take(self, txid: TxId, queue: str, candidates: Iterable[str], count: int, lsn: Lsn = 0) -> list[str]:
        """Lock the first ``count`` candidates that nobody has, not even this transaction; return them in order. They were seen at ``lsn``."""
        taken = list(islice(self.free(queue, candidates, lsn), count))
        self.lock(txid, [(queue, message_id) for message_id in taken])
        return taken

    def free(self, queue: str, candidates: Iterable[str], lsn: Lsn = 0) -> Iterator[str]:
        """Those of the candidates, seen at ``lsn``, that nobody has."""
        for message_id in candidates:
            name = (queue, message_id)
            if name not in self._holders and self._gone.get(name, 0) <= lsn:
                yield message_id

    def number_in(self, queue: str) -> int:
        """How many messages of a queue transactions have."""
        return self._numbers.get(queue, 0)

    def release(self, txid: TxId, gone_lsn: Lsn = 0) -> None:
        """Give everything back that a transaction has; with ``gone_lsn`` it took it away at that LSN."""
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
        """What was taken away after this LSN may be there again."""
        self._gone = {name: at for name, at in self._gone.items() if at <= lsn}
