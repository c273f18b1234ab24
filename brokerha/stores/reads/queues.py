"""Which messages of a queue a read of kind ``queue`` asks for.

With ``holder``, a master that gives messages to consumers, the answer is msgpack of four: the row of claims or nil; the ids of the messages
that this master has claimed; these messages; the first messages, at most ``limit``, that nobody has. What prepared transactions take is
not among them. Claims of ``expired`` masters do not count. Of either list of messages those are left out that come after `CLAIMED_BYTES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from brokerha.model.claims import EMPTY, claims_in
from brokerha.model.errors import InvalidRequest, TooLarge
from brokerha.model.operations import QUEUE, name_problem
from brokerha.stores.reads.pending import Pending
from brokerha.stores.tables.key_range import RANGE_LIMIT_DEFAULT
from brokerha.stores.tables.queue_change import Message

RESULT_LIMIT_BYTES = 64 * 1024 * 1024
CLAIMED_BYTES = 4 * 1024 * 1024
Taken = Callable[[], frozenset[tuple[str, str]]]
"""Gives the messages that prepared transactions take, as (queue, id)."""


class QueueRange:
    """Arguments, all optional: ``after``, the id of the message before the first; ``limit``, 1000 if not given; ``free``, without messages that
    prepared transactions take; ``holder`` and ``expired``. Their shapes were checked (kinds.py). Raises InvalidRequest.
    """

    __slots__ = ("after", "expired", "holder", "is_free", "limit", "queue")

    def __init__(self, queue: str, arguments: Mapping[str, Any]) -> None:
        problem = name_problem(QUEUE, queue)
        if problem:
            raise InvalidRequest(problem)
        self.queue = queue
        self.after: str | None = arguments.get("after")
        self.limit: int = arguments.get("limit") or RANGE_LIMIT_DEFAULT
        self.is_free = bool(arguments.get("free"))
        self.holder: str | None = arguments.get("holder")
        self.expired: frozenset[str] = frozenset(arguments.get("expired") or ())

    def claims(
        self, row: bytes | None, held: Callable[[str | None], Iterator[Message]], taken: Taken, holds: Callable[[str], bool]
    ) -> tuple[bytes | None, list[str], list[Message], list[Message]]:
        """The answer for a ``holder``; ``row`` is that of claims, ``held`` gives the messages of the store, ``holds`` says whether it has one.

        Raises TimedOut, StoreDamaged.
        """
        claims = EMPTY if row is None else claims_in(row)
        of_others = {
            each for master, claim in claims.items() if master not in {self.holder, *self.expired} for each in claim.ids
        }
        left_out = taken()
        own = {each for master, claim in claims.items() if master == self.holder for each in claim.ids}
        own = {each for each in own if (self.queue, each) not in left_out and holds(each)}
        ids: list[str] = []
        mine, nobodys = _Measured(len(own)), _Measured(self.limit)
        for message in held(None):
            if len(ids) == len(own) and nobodys.is_full:
                break
            if message.id in own:
                ids.append(message.id)
                mine.add(message)
            elif message.id not in of_others and (self.queue, message.id) not in left_out:
                nobodys.add(message)
        return row, ids, mine.messages, nobodys.messages

    def take(self, pending: Pending, held: Callable[[str | None], Iterator[Message]], taken: Taken) -> list[Message]:
        """The messages; ``held`` gives those of the store after an id.

        Raises NotFound, TooLarge, TimedOut, StoreDamaged.
        """
        found = []
        size_bytes = 0
        messages = pending.messages(self.queue, self.after, held)
        if self.is_free and (left_out := taken()):
            messages = (message for message in messages if (self.queue, message.id) not in left_out)
        for message in islice(messages, self.limit):
            size_bytes += len(message.body)
            if size_bytes > RESULT_LIMIT_BYTES:
                raise TooLarge(f"the messages have more than {RESULT_LIMIT_BYTES} bytes: ask for fewer with limit")
            found.append(message)
        return found


class _Measured:
    """The first messages, up to a number and to `CLAIMED_BYTES`; never none at all."""

    def __init__(self, limit: int) -> None:
        self.messages: list[Message] = []
        self.is_full = limit == 0
        self._limit = limit
        self._size_bytes = 0

    def add(self, message: Message) -> None:
        """Take in one more, if there is room."""
        if self.is_full:
            return
        if self.messages and self._size_bytes + len(message.body) > CLAIMED_BYTES:
            self.is_full = True
            return
        self.messages.append(message)
        self._size_bytes += len(message.body)
        self.is_full = len(self.messages) == self._limit
