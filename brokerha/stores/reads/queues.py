"""The messages that a read of kind ``queue`` asks for.

With ``holder``, a master that gives messages to consumers, the answer is msgpack of four:

- the row of claims, or nil
- the ids of the messages that this master has claimed
- these messages and the first unclaimed ones, at most ``limit``, in the order of the queue, each with whether it is claimed
- the other masters with claimed messages

Messages that prepared transactions accept are left out. Claims of ``expired`` masters do not count. Of both kinds of messages,
those after `CLAIMED_BYTES` are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import msgpack

from brokerha.model.errors import InvalidRequest, NotFound, TooLarge
from brokerha.model.invariants import invariant
from brokerha.model.operation_checks import QUEUE, name_problem
from brokerha.model.reserved import staging
from brokerha.model.reserved.claims import EMPTY, claims_in
from brokerha.model.reserved.pieces import pieces_of, plain_type
from brokerha.stores.reads.pending import Pending
from brokerha.stores.tables.key_range import RANGE_LIMIT_DEFAULT, row_key_of
from brokerha.stores.tables.queue_change import Message

RESULT_LIMIT_BYTES = 64 * 1024 * 1024
CLAIMED_BYTES = 4 * 1024 * 1024
Taken = Callable[[], frozenset[tuple[str, str]]]
"""Return the messages that prepared transactions accept, as (queue, id)."""


class QueueRange:
    """Arguments, all optional: ``after``, the id of the message before the first; ``limit``, 1000 by default; ``holder``;
    ``expired``. kinds.py has checked their shapes. Raises InvalidRequest.
    """

    __slots__ = ("after", "expired", "holder", "limit", "queue")

    def __init__(self, queue: str, arguments: Mapping[str, Any]) -> None:
        problem = name_problem(QUEUE, queue)
        if problem:
            raise InvalidRequest(problem)
        self.queue = queue
        self.after: str | None = arguments.get("after")
        self.limit: int = arguments.get("limit") or RANGE_LIMIT_DEFAULT
        self.holder: str | None = arguments.get("holder")
        self.expired: frozenset[str] = frozenset(arguments.get("expired") or ())

    def claims(
        self, row: bytes | None, held: Callable[[str | None], Iterator[Message]], taken: Taken, holds: Callable[[str], bool]
    ) -> tuple[bytes | None, list[str], list[tuple[str, str, bytes, bool]], list[str]]:
        """Answer a ``holder``; ``row`` is that of claims, ``held`` gives messages of the store, ``holds`` tells whether it has one.

        Raises TimedOut, StoreDamaged.
        """
        claims = EMPTY if row is None else claims_in(row)
        left_out = taken()
        holders = {each: master for master, claim in claims.items() if master not in self.expired for each in claim.ids}
        own = {
            each for each, master in holders.items() if master == self.holder and (self.queue, each) not in left_out and holds(each)
        }
        ids: list[str] = []
        found: list[tuple[str, str, bytes, bool]] = []
        others: set[str] = set()
        rooms = {True: _Room(len(own)), False: _Room(self.limit)}
        for message in held(None):
            if len(ids) == len(own) and rooms[False].is_full:
                break
            is_own = message.id in own
            if is_own:
                ids.append(message.id)
            elif (self.queue, message.id) in left_out:
                continue
            elif message.id in holders:
                others.add(holders[message.id])
                continue
            if rooms[is_own].takes(message):
                found.append((*message, is_own))
        return row, ids, found, sorted(others)

    def take(self, pending: Pending, held: Callable[[str | None], Iterator[Message]]) -> list[Message]:
        """Return the messages; ``held`` gives those of the store after an id. Raises NotFound, TooLarge, TimedOut, StoreDamaged."""
        found = []
        size_bytes = 0
        messages = pending.messages(self.queue, self.after, held)
        for message in islice(messages, self.limit):
            size_bytes += len(message.body)
            if size_bytes > RESULT_LIMIT_BYTES:
                raise TooLarge(f"the messages have more than {RESULT_LIMIT_BYTES} bytes: ask for fewer with limit")
            found.append(message)
        return found


def piece_of(message: Message, number: int, stored: Callable[[bytes], bytes | None]) -> bytes:
    """Return the answer to a read of kind ``message``; ``stored`` gives the value of a row key. Raises NotFound."""
    place = pieces_of(message.content_type, message.body)
    count = 1 if place is None else place.last - place.first + 1
    if number >= count:
        raise NotFound(f"message {message.id!r} has {count} pieces, from 0 on: there is no piece {number}")
    if place is None:
        found: Any = message.content_type, len(message.body), 1, message.body
    else:
        row = stored(row_key_of(staging.TABLE, staging.part_key(place.name, place.first + number)))
        invariant(row is not None, "pieces go with their message", message=message.id, number=number)
        data = staging.part_in(row or b"").operations[0][1]
        found = plain_type(message.content_type), place.size_bytes, count, data
    packed: bytes = msgpack.packb(found)
    return packed


class _Room:
    """Room for the first messages, up to a number and to `CLAIMED_BYTES`; a single message always fits."""

    def __init__(self, limit: int) -> None:
        self.is_full = limit == 0
        self._left = limit
        self._size_bytes = 0

    def takes(self, message: Message) -> bool:
        """Take in one more message, if there is room; return whether there was."""
        is_too_much = self._size_bytes > 0 and self._size_bytes + len(message.body) > CLAIMED_BYTES
        if self.is_full or is_too_much:
            self.is_full = True
            return False
        self._size_bytes += len(message.body)
        self._left -= 1
        self.is_full = self._left == 0
        return True
