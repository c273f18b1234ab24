"""Which messages of a queue a read of kind ``queue`` asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from brokerha.model.errors import InvalidRequest, TooLarge
from brokerha.model.operations import QUEUE, is_message_id, name_problem
from brokerha.stores.key_range import RANGE_LIMIT, RANGE_LIMIT_DEFAULT
from brokerha.stores.pending import Pending
from brokerha.stores.queue_change import Message

RESULT_LIMIT_BYTES = 64 * 1024 * 1024


class QueueRange:
    """Arguments, both optional: ``after``, the id of the message before the first; ``limit``, 1000 if not given. Raises InvalidRequest."""

    __slots__ = ("after", "limit", "queue")

    def __init__(self, queue: str, arguments: dict[str, object]) -> None:
        problem = name_problem(QUEUE, queue)
        if problem:
            raise InvalidRequest(problem)
        after, limit = arguments.get("after"), arguments.get("limit")
        if after is not None and not (isinstance(after, str) and is_message_id(after)):
            raise InvalidRequest(f"{after!r} is no message id (transaction id, dot, number)")
        if limit is None:
            limit = RANGE_LIMIT_DEFAULT
        if not isinstance(limit, int) or not 1 <= limit <= RANGE_LIMIT:
            raise InvalidRequest(f"limit is a number from 1 to {RANGE_LIMIT}, not {limit!r}")
        self.queue = queue
        self.after = after
        self.limit = limit

    def take(self, pending: Pending, held: Callable[[str | None], Iterator[Message]]) -> list[Message]:
        """The messages; ``held`` gives those of the store behind an id. Raises NotFound, TooLarge, TimedOut, StoreDamaged."""
        found = []
        size_bytes = 0
        for message in islice(pending.messages(self.queue, self.after, held), self.limit):
            size_bytes += len(message.body)
            if size_bytes > RESULT_LIMIT_BYTES:
                raise TooLarge(f"the messages have more than {RESULT_LIMIT_BYTES} bytes: ask for fewer with limit")
            found.append(message)
        return found
