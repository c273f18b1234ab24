"""The operations of an open transaction on top of a store's content, for the reads inside the transaction.

    Pending.of(arguments)      keys        row key -> value, None when deleted
                               messages    of a queue, with those published and without those accepted
                               counted     counters of queues
                               on          changes of a repository

Nothing is changed and nothing is kept. Expectations, the control suite, and messages that another transaction took are judged at
the commit, not here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import chain, islice
from operator import itemgetter
from typing import Any, NamedTuple

from brokerha.model.ids import TxId
from brokerha.model.operations import (
    Accept,
    Add,
    Checked,
    Clear,
    CreateRepository,
    Delete,
    OnQuads,
    Publish,
    Put,
    Remove,
    RemoveRepository,
    Update,
    message_id,
    unpack_operations,
)
from brokerha.stores.tables.key_range import KeyRange, row_key_of
from brokerha.stores.tables.queue_change import NEVER_USED, Counts, Message

TXID_DEFAULT = "pending"


class OnRepository(NamedTuple):
    """The effect of open operations on one repository."""

    exists: bool | None
    """Whether it exists after them; None if they neither create nor remove it."""
    is_emptied: bool
    """Whether they removed it: nothing of its former content is left, even if it was created again."""
    operations: Sequence[tuple[int, OnQuads]]
    """Updates and quads since then, each with its number in the transaction."""


UNTOUCHED = OnRepository(exists=None, is_emptied=False, operations=())


class Pending:
    """Open operations."""

    __slots__ = ("_accepted", "_on_repositories", "_published", "keys", "txid")

    def __init__(self, operations: Iterable[Checked], txid: TxId) -> None:
        self.txid = txid
        self.keys: dict[bytes, bytes | None] = {}
        self._published: dict[str, dict[str, Message]] = {}
        self._accepted: dict[str, set[str]] = {}
        self._on_repositories: dict[str, OnRepository] = {}
        for number, operation in enumerate(operations, 1):
            match operation:
                case Put() | Delete():
                    self.keys[row_key_of(operation.table, operation.key)] = operation.after
                case Publish() | Accept():
                    self._on_queue(number, operation)
                case CreateRepository() | RemoveRepository() | Update() | Add() | Remove() | Clear():
                    self._on_repository(number, operation)

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Pending:
        """Parse the arguments ``pending`` (a body, or empty) and ``txid`` (for fresh names). Raises InvalidRequest, TooLarge."""
        body = arguments.get("pending")
        return cls(unpack_operations(body) if body else (), arguments.get("txid") or TXID_DEFAULT)

    def rows(self, held: Iterable[tuple[bytes, bytes]], wanted: KeyRange) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows of a range in its order; ``held`` are those of the store, in the same order and without a limit."""
        changed = [(key, value) for key, value in self.keys.items() if wanted.low <= key < wanted.high]
        own = sorted(((key, value) for key, value in changed if value is not None), reverse=wanted.is_reverse)
        kept = (row for row in held if row[0] not in self.keys)
        return islice(merge(kept, own, key=itemgetter(0), reverse=wanted.is_reverse), wanted.limit)

    def messages(self, queue: str, after: str | None, held: Callable[[str | None], Iterator[Message]]) -> Iterator[Message]:
        """Yield messages of a queue in order; ``held`` gives those of the store after an id."""
        own, gone = self._published.get(queue, {}), self._accepted.get(queue, set())
        if after is not None and after in own:
            ids = list(own)
            return iter([own[each] for each in ids[ids.index(after) + 1 :]])
        return chain((message for message in held(after) if message.id not in gone), own.values())

    def takes(self, queue: str, message_id: str) -> bool:
        """Tell whether the operations accept this message of the store."""
        return message_id in self._accepted.get(queue, ())

    def counted(self, held: dict[str, Counts], holds: Callable[[str, str], bool]) -> dict[str, Counts]:
        """Return the counters of all queues, in the order of names; ``holds`` tells whether the store has a message."""
        counted = dict(held)
        for queue, own in self._published.items():
            if own:
                before = counted.get(queue, NEVER_USED)
                counted[queue] = before._replace(published=before.published + len(own))
        for queue, gone in self._accepted.items():
            found = sum(holds(queue, each) for each in gone)
            if found:
                counted[queue] = counted[queue]._replace(accepted=counted[queue].accepted + found)
        return dict(sorted(counted.items()))

    def on(self, repository: str) -> OnRepository:
        """Return the effect on a repository."""
        return self._on_repositories.get(repository, UNTOUCHED)

    def _on_repository(self, number: int, operation: OnQuads | CreateRepository | RemoveRepository) -> None:
        name = operation.repository
        if isinstance(operation, RemoveRepository):
            self._on_repositories[name] = OnRepository(exists=False, is_emptied=True, operations=())
        elif isinstance(operation, CreateRepository):
            self._on_repositories[name] = self.on(name)._replace(exists=True)
        else:
            before = self.on(name)
            if isinstance(before.operations, list):
                before.operations.append((number, operation))
            else:
                self._on_repositories[name] = before._replace(operations=[(number, operation)])

    def _on_queue(self, number: int, operation: Publish | Accept) -> None:
        queue = operation.queue
        own = self._published.setdefault(queue, {})
        if isinstance(operation, Publish):
            name = message_id(self.txid, number)
            own[name] = Message(name, operation.content_type, operation.body)
        elif own.pop(operation.message_id, None) is None:
            self._accepted.setdefault(queue, set()).add(operation.message_id)
