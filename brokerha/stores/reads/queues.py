"""Which messages of a queue a read of kind ``queue`` asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from brokerha.model.errors import InvalidRequest, TooLarge
from brokerha.model.operations import QUEUE, name_problem
from brokerha.stores.reads.pending import Pending
from brokerha.stores.tables.key_range import RANGE_LIMIT_DEFAULT
from brokerha.stores.tables.queue_change import Message

RESULT_LIMIT_BYTES = 64 * 1024 * 1024


class QueueRange:
    """Arguments, all optional: ``after``, the id of the message before the first; ``limit``, 1000 if not given; ``free``, without messages that
    prepared transactions take. Their shapes were checked (kinds.py). Raises InvalidRequest.
    """

    __slots__ = ("after", "is_free", "limit", "queue")

    def __init__(self, queue: str, arguments: Mapping[str, Any]) -> None:
        problem = name_problem(QUEUE, queue)
        if problem:
            raise InvalidRequest(problem)
        self.queue = queue
        self.after: str | None = arguments.get("after")
        self.limit: int = arguments.get("limit") or RANGE_LIMIT_DEFAULT
        self.is_free = bool(arguments.get("free"))

    def take(
        self, pending: Pending, held: Callable[[str | None], Iterator[Message]], taken: Callable[[], frozenset[tuple[str, str]]]
    ) -> list[Message]:
        """The messages; ``held`` gives those of the store after an id, ``taken`` those (queue, id) that prepared transactions take.

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
