"""Queues in three LMDB tables: messages in the order of their publication, their places by id, and the counters of each queue.

    queues   queue, NUL, place (8 bytes big-endian)    digest, 16 bytes | msgpack [message id, content type, body]
    places   queue, NUL, message id                    place, 8 bytes big-endian
    counts   queue                                     digest, 16 bytes | published, accepted, 8 bytes big-endian each

The place of a message is its number among all messages ever published to its queue, so the counters give the next place. Messages
with their places, and the counters, are content: their digests are part of the fingerprint. Equal queues have equal order and
equal numbering. A queue exists from its first message on, and stays known with its counters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgpack

from brokerha.model.errors import NotFound, StoreDamaged, TimedOut
from brokerha.model.fingerprints import DIGEST_BYTES
from brokerha.model.operations import Accept, Published
from brokerha.stores.comparing.fingerprint import counts_digest, message_digest
from brokerha.stores.files.environment import Environment, WriteTransaction
from brokerha.stores.tables.key_value import PACE_ITEMS, places_from
from brokerha.stores.tables.queue_change import NEVER_USED, Counts, Message

_PLACE_BYTES = 8
_ROWS_BETWEEN_QUESTIONS = 64


class Queues:
    """All queues of a store; each call works in the given transaction."""

    __slots__ = ("_counts", "_messages", "_places")

    def __init__(self, environment: Environment) -> None:
        self._messages = environment.queues
        self._places = environment.places
        self._counts = environment.counts

    def holds(self, transaction: Any, queue: str, message_id: str) -> bool:
        """Tell whether the message is in the queue."""
        return transaction.get(_place_key(queue, message_id), db=self._places) is not None

    def is_known(self, transaction: Any, queue: str) -> bool:
        """Tell whether there ever was a message in the queue."""
        return transaction.get(queue.encode(), db=self._counts) is not None

    def number(self, transaction: Any) -> int:
        """Return the number of queues."""
        return int(transaction.stat(self._counts)["entries"])

    def keep(self, transaction: WriteTransaction, change: Published | Accept) -> tuple[int, int]:
        """Write a change of an effect; return the change of (fingerprint, number of messages). Idempotent."""
        queue, message_id = change.queue, change.message_id
        place_key = _place_key(queue, message_id)
        found = transaction.get(place_key, db=self._places)
        if (found is None) is isinstance(change, Accept):
            return 0, 0
        before = self.counts(transaction, queue)
        if isinstance(change, Published):
            now = before._replace(published=before.published + 1)
            place = now.published.to_bytes(_PLACE_BYTES, "big")
            (key, row), _ = message_rows(queue, now.published, Message(message_id, change.content_type, change.body))
            transaction.put(key, row, db=self._messages)
            transaction.put(place_key, place, db=self._places)
            digest = int.from_bytes(row[:DIGEST_BYTES], "big")
        else:
            now = before._replace(accepted=before.accepted + 1)
            row = transaction.pop(_message_key(queue, found), db=self._messages)
            transaction.delete(place_key, db=self._places)
            if row is None:
                raise _damaged(f"message {message_id!r} of queue {queue!r}")
            digest = int.from_bytes(row[:DIGEST_BYTES], "big")
        key, row = counts_row(queue, now)
        transaction.put(key, row, db=self._counts)
        new = int.from_bytes(row[:DIGEST_BYTES], "big")
        old = counts_digest(queue, before) if before != NEVER_USED else 0
        return digest ^ old ^ new, 1 if isinstance(change, Published) else -1

    def counts(self, transaction: Any, queue: str) -> Counts:
        """Return the counters of a queue; zeros when there is none. Raises StoreDamaged."""
        row = transaction.get(queue.encode(), db=self._counts)
        return NEVER_USED if row is None else _checked_counts(queue, row)

    def all_counts(self, transaction: Any) -> dict[str, Counts]:
        """Return the counters of all queues, in the order of their names. Raises StoreDamaged."""
        with transaction.cursor(self._counts) as cursor:
            rows = [(key.decode(errors="replace"), row) for key, row in cursor]
        return {queue: _checked_counts(queue, row) for queue, row in rows}

    def messages(
        self, transaction: Any, queue: str, after: str | None, may_go_on: Callable[[], bool] = lambda: True
    ) -> Iterator[Message]:
        """Yield messages of a queue in order, after the message ``after`` if given. Raises NotFound, TimedOut, StoreDamaged."""
        first = bytes(_PLACE_BYTES)
        if after is not None:
            found = transaction.get(_place_key(queue, after), db=self._places)
            if found is None:
                raise NotFound(f"message {after!r} is not in queue {queue!r} any more: begin at its head")
            first = (int.from_bytes(found, "big") + 1).to_bytes(_PLACE_BYTES, "big")
        beginning = _message_key(queue, b"")
        with transaction.cursor(self._messages) as cursor:
            is_there = cursor.set_range(beginning + first)
            number = 0
            while is_there:
                key, row = cursor.item()
                if not key.startswith(beginning):
                    return
                if number % _ROWS_BETWEEN_QUESTIONS == 0 and not may_go_on():
                    raise TimedOut("the queue was not read in its time")
                number += 1
                yield checked_message(key, row)
                is_there = cursor.next()

    def message(self, transaction: Any, queue: str, message_id: str) -> Message:
        """Return one message. Raises NotFound, StoreDamaged."""
        place = transaction.get(_place_key(queue, message_id), db=self._places)
        if place is None:
            raise not_there(queue, message_id)
        key = _message_key(queue, place)
        return checked_message(key, transaction.get(key, db=self._messages) or b"")

    def rows(self, transaction: Any, queue: str | None) -> Iterator[tuple[str, int, Message]]:
        """Yield (queue, place, message) for all or one queue, without checking digests. Raises StoreDamaged if unreadable."""
        beginning = b"" if queue is None else _message_key(queue, b"")
        for cursor in places_from(transaction, self._messages, beginning):
            name, place = _split(cursor.key())
            yield name, int.from_bytes(place, "big"), _message_of(name, cursor.value())

    def recomputed(self, transaction: Any, before: int, paced: Callable[[int], None]) -> tuple[int, int]:
        """Compute (fingerprint, number of messages) from the messages themselves. Raises StoreDamaged for a contradiction.

        ``paced`` is called with ``before`` plus the number of messages so far, as in `key_value.recomputed`.
        """
        fingerprint = number = 0
        depths: dict[str, int] = {}
        with transaction.cursor(self._messages) as cursor:
            for key, row in cursor:
                if number % PACE_ITEMS == 0:
                    paced(before + number)
                message = checked_message(key, row)
                queue, place = _split(key)
                if transaction.get(_place_key(queue, message.id), db=self._places) != place:
                    raise _damaged(f"the place of message {message.id!r} of queue {queue!r}")
                fingerprint ^= int.from_bytes(row[:DIGEST_BYTES], "big")
                depths[queue] = depths.get(queue, 0) + 1
                number += 1
        if transaction.stat(self._places)["entries"] != number:
            raise _damaged("a place of a message that is not there")
        for queue, counts in self.all_counts(transaction).items():
            fingerprint ^= counts_digest(queue, counts)
            if depths.pop(queue, 0) != counts.depth:
                raise _damaged(f"the number of messages of queue {queue!r}")
        if depths:
            raise _damaged(f"the counters of queue {min(depths)!r}")
        return fingerprint, number


def not_there(queue: str, message_id: str) -> NotFound:
    """Return the error for a message that is not in its queue."""
    return NotFound(f"message {message_id!r} is not in queue {queue!r}")


def message_rows(queue: str, place: int, message: Message) -> tuple[tuple[bytes, bytes], tuple[bytes, bytes]]:
    """Return the rows of a message in ``queues`` and in ``places``, each as (key, row)."""
    of_place = place.to_bytes(_PLACE_BYTES, "big")
    row: bytes = message_digest(queue, place, message).to_bytes(DIGEST_BYTES, "big") + msgpack.packb(message)
    return (_message_key(queue, of_place), row), (_place_key(queue, message.id), of_place)


def counts_row(queue: str, counts: Counts) -> tuple[bytes, bytes]:
    """Return the row of the counters of a queue, as (key, row)."""
    numbers = b"".join(each.to_bytes(_PLACE_BYTES, "big") for each in counts)
    return queue.encode(), counts_digest(queue, counts).to_bytes(DIGEST_BYTES, "big") + numbers


def checked_message(key: bytes, row: bytes) -> Message:
    """Return the message in a row. Raises StoreDamaged when its digest does not match."""
    queue, place = _split(key)
    message = _message_of(queue, row)
    digest = message_digest(queue, int.from_bytes(place, "big"), message)
    if digest.to_bytes(DIGEST_BYTES, "big") != row[:DIGEST_BYTES]:
        raise _damaged(f"message {message.id!r} of queue {queue!r}")
    return message


def _message_of(queue: str, row: bytes) -> Message:
    """Return the message in a row without checking its digest. Raises StoreDamaged when it is not a message."""
    try:
        message_id, content_type, body = msgpack.unpackb(row[DIGEST_BYTES:])
        if isinstance(message_id, str) and isinstance(content_type, str) and isinstance(body, bytes):
            return Message(message_id, content_type, body)
    except (ValueError, TypeError, msgpack.UnpackException):
        pass
    raise _damaged(f"a message of queue {queue!r}")


def _checked_counts(queue: str, row: bytes) -> Counts:
    counts = Counts(int.from_bytes(row[DIGEST_BYTES:-_PLACE_BYTES], "big"), int.from_bytes(row[-_PLACE_BYTES:], "big"))
    is_whole = len(row) == DIGEST_BYTES + 2 * _PLACE_BYTES
    if not is_whole or counts_digest(queue, counts).to_bytes(DIGEST_BYTES, "big") != row[:DIGEST_BYTES]:
        raise _damaged(f"the counters of queue {queue!r}")
    return counts


def _damaged(what: str) -> StoreDamaged:
    return StoreDamaged(f"damaged: {what}; take the content from another worker")


def _message_key(queue: str, place: bytes) -> bytes:
    return b"%b\0%b" % (queue.encode(), place)


def _place_key(queue: str, message_id: str) -> bytes:
    return f"{queue}\0{message_id}".encode()


def _split(key: bytes) -> tuple[str, bytes]:
    return key[: -_PLACE_BYTES - 1].decode(errors="replace"), key[-_PLACE_BYTES:]
