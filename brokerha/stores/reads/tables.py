"""Reads of keys and queues in an LMDB transaction, with pending operations on top; content types as in reading.py.

The answer to a read of kind ``queue`` with ``holder``, a master that gives messages to consumers, is msgpack of four:

- the row of claims, or nil
- the ids of the messages that this master has claimed
- these messages and the first unclaimed ones, at most ``limit``, in the order of the queue, each with whether it is claimed
- the other masters with claimed messages

Messages that prepared transactions accept are left out. Claims of ``expired`` masters do not count. Of both kinds of messages,
those after `CLAIMED_BYTES` are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

import msgpack

from brokerha.model.errors import InvalidRequest, NotFound, TooLarge
from brokerha.model.invariants import invariant
from brokerha.model.operation_checks import QUEUE, name_problem
from brokerha.model.requests import RANGE_ROWS
from brokerha.model.reserved import about, claims, settings, staging
from brokerha.model.reserved.claims import EMPTY, claims_in
from brokerha.model.reserved.pieces import pieces_of, plain_type
from brokerha.stores.comparing.fingerprint import report
from brokerha.stores.execution.last_changes import Before, LastChanges, range_digest
from brokerha.stores.execution.prepared import BEGINNING, messages_in
from brokerha.stores.execution.staged import BEGINNING as STAGED
from brokerha.stores.execution.staged import Parts
from brokerha.stores.files.environment import Environment
from brokerha.stores.reads.kinds import JSON, MSGPACK, OCTETS, View, Wanted, about_answer, about_beginning, as_json, settings_answer
from brokerha.stores.reads.pending import Pending
from brokerha.stores.tables.key_range import OWN_TABLES, KeyRange, row_key_of, wanted_row_key
from brokerha.stores.tables.key_value import (
    checked_rows,
    keys_from,
    range_digests,
    range_pieces,
    range_rows,
    snapshots_in,
    stored_value,
    table_names,
)
from brokerha.stores.tables.queue_change import Message
from brokerha.stores.tables.queues import Queues
from brokerha.stores.tables.snapshots import past_rows, past_value

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
        self.limit: int = arguments.get("limit") or RANGE_ROWS
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


class TablesReading:
    """Reads of keys and queues of one store."""

    def __init__(self, environment: Environment) -> None:
        self._keys = environment.keys
        self._queues = Queues(environment)
        self._changes = LastChanges(environment.changes)
        self._branches: dict[bytes, frozenset[tuple[str, str]]] = {}
        """Messages that each prepared branch takes, as of the last look; any thread replaces it as a whole."""

    def answer(
        self, transaction: Any, view: View, wanted: Wanted, pending: Pending, may_go_on: Callable[[], bool]
    ) -> tuple[str, bytes]:
        """Return content type and body of a read. Raises InvalidRequest and its subclasses, TimedOut, StoreDamaged."""
        kind, name, arguments = wanted
        match kind:
            case "get":
                return OCTETS, self.value(transaction, name, arguments, pending)
            case "range":
                return MSGPACK, self._whole_range(transaction, KeyRange(name, arguments), pending, may_go_on)
            case "queue":
                return MSGPACK, self.queue(transaction, QueueRange(name, arguments), pending, may_go_on)
            case "message":
                message = self._queues.message(transaction, name, str(arguments["id"]))
                return MSGPACK, piece_of(
                    message, int(str(arguments.get("number") or 0)), partial(stored_value, transaction, self._keys)
                )
            case "about":
                beginning = about_beginning(name, view.repositories)
                return JSON, about_answer(name, view.repositories, self.rows(transaction, about.TABLE, beginning))
        return JSON, self._overview(transaction, view, kind, pending)

    def _overview(self, transaction: Any, view: View, kind: str, pending: Pending) -> bytes:
        """Return the answer to a read without a name."""
        match kind:
            case "fingerprint":
                return report(view.lsn, view.fingerprint, view.items, view.counts)
            case "repositories":
                return as_json(sorted(view.repositories))
            case "control":
                return view.suite.report()
            case "queues":
                return self.queues(transaction, pending)
            case "tables":
                return as_json([name for name in table_names(transaction, self._keys) if name not in OWN_TABLES])
            case "snapshots":
                return snapshots_in(transaction, self._keys).report()
            case "staged":
                return Parts(checked_rows(transaction, self._keys, STAGED)).report()
        return settings_answer(self.rows(transaction, settings.TABLE, b""))

    def before(self, transaction: Any, fingerprint: bytes) -> Before:
        """Return the state of an LMDB transaction, for expectations; the fingerprint is that of its commit."""
        return Before(
            partial(stored_value, transaction, self._keys),
            lambda kind, name: self._changes.lsn_of(transaction, kind, name),
            fingerprint,
            lambda low, high: range_digest(range_digests(transaction, self._keys, low, high)),
        )

    def value(self, transaction: Any, table: str, arguments: Mapping[str, Any], pending: Pending) -> bytes:
        """Answer a read of kind ``get``; a read of a snapshot ignores pending operations. Raises NotFound, StoreDamaged."""
        row_key = wanted_row_key(table, arguments)
        if arguments.get("snapshot") is not None:
            numbers = snapshots_in(transaction, self._keys).from_on(arguments["snapshot"], table)
            return past_value(
                numbers, table, row_key[len(row_key_of(table, b"")) :], partial(stored_value, transaction, self._keys)
            )
        is_pending = row_key in pending.keys
        value = pending.keys[row_key] if is_pending else stored_value(transaction, self._keys, row_key)
        if value is None:
            raise NotFound("there is no such key")
        return value

    def is_union(self, transaction: Any, repository: str) -> bool:
        """Tell whether the default graph of a repository is the union of all its graphs."""
        return transaction.get(row_key_of(about.TABLE, about.setting_key(repository, about.UNION)), db=self._keys) is not None

    def rows(self, transaction: Any, table: str, beginning: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield all keys of a table with this beginning, in order, with their values. Raises StoreDamaged."""
        skip = len(row_key_of(table, b""))
        for row_key, value in checked_rows(transaction, self._keys, row_key_of(table, beginning)):
            yield row_key[skip:], value

    def range(self, transaction: Any, wanted: KeyRange, pending: Pending, may_go_on: Callable[[], bool]) -> Iterator[bytes]:
        """Yield a range as a msgpack list of (key, value), in pieces. Raises TimedOut, TooLarge, UnknownSnapshot, StoreDamaged."""
        if wanted.snapshot is None and not pending.keys:
            yield from range_pieces(transaction, self._keys, wanted, may_go_on)
            return

        def rows_of(place: KeyRange) -> Iterator[tuple[bytes, bytes]]:
            return range_rows(transaction, self._keys, place, may_go_on)

        if wanted.snapshot is not None:
            numbers = snapshots_in(transaction, self._keys).from_on(wanted.snapshot, wanted.table)
            rows = past_rows(numbers, wanted, rows_of)
        else:
            rows = ((row_key[wanted.skip :], value) for row_key, value in pending.rows(rows_of(wanted), wanted))
        found = []
        size_bytes = 0
        for key, value in rows:
            size_bytes += wanted.skip + len(key) + len(value)
            if size_bytes > RESULT_LIMIT_BYTES:
                raise TooLarge(f"the range has more than {RESULT_LIMIT_BYTES} bytes: ask for less")
            found.append((key, value))
        yield msgpack.packb(found)

    def _whole_range(self, transaction: Any, wanted: KeyRange, pending: Pending, may_go_on: Callable[[], bool]) -> bytes:
        body = bytearray()
        for piece in self.range(transaction, wanted, pending, may_go_on):
            body += piece
            if len(body) > RESULT_LIMIT_BYTES:
                raise TooLarge(f"the range has more than {RESULT_LIMIT_BYTES} bytes: ask for less")
        return bytes(body)

    def queue(self, transaction: Any, wanted: QueueRange, pending: Pending, may_go_on: Callable[[], bool]) -> bytes:
        """Return a list of (id, content type, body), or a holder's answer. Raises NotFound, TimedOut, TooLarge, StoreDamaged."""

        def held(after: str | None) -> Iterator[Message]:
            return self._queues.messages(transaction, wanted.queue, after, may_go_on)

        if wanted.holder is None:
            found: Any = wanted.take(pending, held)
        else:
            row = stored_value(transaction, self._keys, row_key_of(claims.TABLE, wanted.queue.encode()))
            found = wanted.claims(
                row, held, partial(self._taken, transaction), partial(self._queues.holds, transaction, wanted.queue)
            )
        body: bytes = msgpack.packb(found)
        return body

    def _taken(self, transaction: Any) -> frozenset[tuple[str, str]]:
        """Return (queue, id) of messages that prepared transactions take, cached as branches never change. Raises StoreDamaged."""
        before, now = self._branches, {}
        for row_key in keys_from(transaction, self._keys, BEGINNING):
            found = before.get(row_key)
            now[row_key] = messages_in(stored_value(transaction, self._keys, row_key) or b"") if found is None else found
        self._branches = now
        return frozenset().union(*now.values())

    def queues(self, transaction: Any, pending: Pending) -> bytes:
        """Return the counters of all queues, as JSON. Raises StoreDamaged."""
        counted = pending.counted(
            self._queues.all_counts(transaction), lambda queue, message_id: self._queues.holds(transaction, queue, message_id)
        )
        return as_json({queue: counts.report() for queue, counts in counted.items()})
