"""Answers to reads on their way from the threads of a worker's pool to the loop that sends them.

    pool thread:  future completed -> queue, wake the loop          loop:  take() -> pieces of at most 1 MiB -> transport

Rows that were read before the door of the pool was closed are not sent after it: the copy may be damaged. Such an
answer becomes a NotReady here, and the master asks another worker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from brokerha.model.ids import NodeId
from brokerha.model.wire.messages import Outgoing, ReadResult
from brokerha.ports.front import ReadOutcome

if TYPE_CHECKING:
    from brokerha.nodes.reads.pool import ReadPool

PIECE_BYTES = 1024 * 1024


class ReadAnswers:
    """Answers that wait to be sent; never more than the pool takes in."""

    def __init__(self, pool: ReadPool, wake: Callable[[], None]) -> None:
        self._pool = pool
        self._wake = wake
        self._ready: deque[tuple[NodeId, str, int, Future[ReadOutcome]]] = deque()

    def when_done(self, asker: NodeId, request: str, future: Future[ReadOutcome]) -> None:
        """Queue the answer for the master that asked, once it is there. To be called right after `ReadPool.read`."""
        opening = self._pool.opening

        def put(done: Future[ReadOutcome]) -> None:
            self._ready.append((asker, request, opening, done))
            self._wake()

        future.add_done_callback(put)

    def take(self) -> list[Outgoing]:
        """What is to be sent now."""
        taken: list[Outgoing] = []
        while self._ready:
            asker, request, opening, done = self._ready.popleft()
            taken.extend(Outgoing(asker, piece) for piece in self._pieces(request, opening, done))
        return taken

    def _pieces(self, request: str, opening: int, done: Future[ReadOutcome]) -> list[ReadResult]:
        error = done.exception()
        if error is not None:
            return [_error(request, type(error).__name__, str(error))]
        if opening != self._pool.opening:
            return [_error(request, "NotReady", self._pool.closed_reason or "the copy was replaced meanwhile")]
        content_type, lsn, body, *_ = done.result()
        count = max(1, -(-len(body) // PIECE_BYTES))
        return [
            ReadResult(
                request,
                part,
                part + 1 < count,
                "",
                content_type,
                body[part * PIECE_BYTES : (part + 1) * PIECE_BYTES],
                lsn,
            )
            for part in range(count)
        ]


def _error(request: str, name: str, text: str) -> ReadResult:
    return ReadResult(request, 0, False, name, "", text.encode(), 0)
