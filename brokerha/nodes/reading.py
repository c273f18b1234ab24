"""Reads: asked by masters, answered by workers, through a bounded pool of threads.

    front door --> Reads (master) --Read--> ReadPool (worker) --> store, in a thread of the pool
                        ^                       |
                        +------ ReadResult -----+      pieces of at most 1 MiB, the last one says so

A read may ask for a least LSN: it waits at the worker until that is applied, or until its time is over. Every read has a
deadline, at both ends; a worker takes only so many at once and refuses the rest in clear words.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from brokerha.model.errors import BrokerhaError, NotReady, TimedOut, TooLarge, error_named
from brokerha.model.ids import Lsn, NodeId
from brokerha.model.messages import Outgoing, Read, ReadResult
from brokerha.ports.front import ReadOutcome
from brokerha.ports.store import Store

RESULT_LIMIT_BYTES = 64 * 1024 * 1024
THREADS = 4
WAITING_LIMIT = 256
GRACE_MS = 1000
"""How much longer than the worker the master waits for an answer."""


@dataclass(slots=True)
class _Asked:
    future: Future[ReadOutcome]
    worker: NodeId
    deadline_ms: int
    parts: dict[int, ReadResult] = field(default_factory=dict)
    last: int | None = None


class Reads:
    """Reads that a master passed on to its workers; used by the master's loop only."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._numbers = itertools.count(1)
        self._asked: dict[str, _Asked] = {}

    def ask(self, read: Read, workers: list[NodeId], mono_ms: int, future: Future[ReadOutcome]) -> Outgoing | None:
        """Choose the worker with the fewest reads under way; None (and a failed future) when there is none."""
        if not workers:
            future.set_exception(NotReady("no worker of this master is alive: start one, or ask another master"))
            return None
        counts = dict.fromkeys(workers, 0)
        for asked in self._asked.values():
            if asked.worker in counts:
                counts[asked.worker] += 1
        worker = min(workers, key=lambda node: counts[node])
        request = f"{self._name}.{next(self._numbers)}"
        self._asked[request] = _Asked(future, worker, mono_ms + read.timeout_ms + GRACE_MS)
        return Outgoing(
            worker, Read(request, read.kind, read.repository, read.arguments, read.min_lsn, read.timeout_ms)
        )

    def on_result(self, result: ReadResult) -> None:
        """Take in one piece; completes the read when all are there."""
        asked = self._asked.get(result.request)
        if asked is None:
            return
        if result.error:
            del self._asked[result.request]
            asked.future.set_exception(error_named(result.error, result.body.decode("utf-8", "replace")))
            return
        asked.parts[result.part] = result
        if not result.more:
            asked.last = result.part
        if asked.last is not None and len(asked.parts) == asked.last + 1:
            del self._asked[result.request]
            parts = [asked.parts[n] for n in range(asked.last + 1)]
            body = b"".join(part.body for part in parts)
            asked.future.set_result(ReadOutcome(parts[0].content_type, parts[-1].applied_lsn, body))

    def expire(self, mono_ms: int) -> None:
        """Fail what no worker answered in its time."""
        for request, asked in list(self._asked.items()):
            if mono_ms >= asked.deadline_ms:
                del self._asked[request]
                asked.future.set_exception(TimedOut(f"worker {asked.worker} did not answer in time"))

    def __len__(self) -> int:
        return len(self._asked)

    def due_ms(self) -> int | None:
        """When the next read's time is over; None when none is under way."""
        return min((asked.deadline_ms for asked in self._asked.values()), default=None)


class ReadPool:
    """Answers reads of one store; callable from the worker's loop and from its front door."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix=f"{name} read")
        self._lock = threading.Lock()
        self._waiting: list[tuple[Lsn, int, float, Callable[[], None], Future[ReadOutcome]]] = []
        self._order = itertools.count()
        self.under_way = 0

    def read(
        self, kind: str, name: str, arguments: dict[str, Any], min_lsn: Lsn, timeout_ms: int
    ) -> Future[ReadOutcome]:
        """Answer a read when its least LSN is applied; the future never stays open beyond the time-out for long."""
        future: Future[ReadOutcome] = Future()
        deadline = time.monotonic() + timeout_ms / 1000

        def start() -> None:
            self._threads.submit(self._answer, kind, name, arguments, deadline, future)

        with self._lock:
            if self.under_way + len(self._waiting) >= WAITING_LIMIT:
                future.set_exception(NotReady(f"{WAITING_LIMIT} reads are under way already: try again"))
                return future
            if min_lsn > self._store.applied().lsn:
                heapq.heappush(self._waiting, (min_lsn, next(self._order), deadline, start, future))
                return future
            self.under_way += 1
        start()
        return future

    def on_applied(self, lsn: Lsn) -> None:
        """Start the reads that waited for this LSN; fail those whose time is over."""
        if not self._waiting:
            return
        now = time.monotonic()
        late = []
        with self._lock:
            started = []
            while self._waiting and self._waiting[0][0] <= lsn:
                started.append(heapq.heappop(self._waiting)[3])
            self.under_way += len(started)
            if any(entry[2] <= now for entry in self._waiting):
                late = [entry for entry in self._waiting if entry[2] <= now]
                self._waiting = [entry for entry in self._waiting if entry[2] > now]
                heapq.heapify(self._waiting)
        for start in started:
            start()
        for min_lsn, *_, future in late:
            future.set_exception(TimedOut(f"LSN {min_lsn} was not applied in time; this copy is at {lsn}"))

    def wait_ms(self, most_ms: int) -> int:
        """How long one may sleep before a waiting read's time is over, at most ``most_ms``."""
        with self._lock:
            due = min((entry[2] for entry in self._waiting), default=None)
        return most_ms if due is None else max(0, min(most_ms, int((due - time.monotonic()) * 1000) + 1))

    def _answer(
        self, kind: str, name: str, arguments: dict[str, Any], deadline: float, future: Future[ReadOutcome]
    ) -> None:
        try:
            answer = self._store.read(kind, name, arguments, lambda: time.monotonic() < deadline)
            pieces = []
            size = 0
            for piece in answer.pieces:
                size += len(piece)
                _check(size, deadline)
                pieces.append(piece)
            future.set_result(ReadOutcome(answer.content_type, answer.lsn, b"".join(pieces)))
        except BrokerhaError as error:
            future.set_exception(error)
        except Exception as error:  # noqa: BLE001  (a fault of one read must not end the pool)
            future.set_exception(NotReady(f"the read failed: {type(error).__name__}: {error}"))
        finally:
            with self._lock:
                self.under_way -= 1

    def close(self) -> None:
        """Take no more reads; those that wait fail."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for *_, future in waiting:
            future.set_exception(NotReady("the worker is stopping"))
        self._threads.shutdown(wait=True, cancel_futures=False)


def _check(size: int, deadline: float) -> None:
    if size > RESULT_LIMIT_BYTES:
        message = f"the result is over {RESULT_LIMIT_BYTES} bytes: ask for less at a time (LIMIT and OFFSET)"
        raise TooLarge(message)
    if time.monotonic() >= deadline:
        message = "the read did not finish in its time: ask for less, or give it more time"
        raise TimedOut(message)


PIECE_BYTES = 1024 * 1024


class ReadAnswers:
    """Results on their way from the pool's threads to the loop that sends them."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._ready: deque[Outgoing] = deque()
        self._wake = wake

    def when_done(self, asker: NodeId, request: str, future: Future[ReadOutcome]) -> None:
        """Queue the result of a read for the master that asked, once it is there."""
        future.add_done_callback(lambda done: self._put(asker, request, done))

    def _put(self, asker: NodeId, request: str, done: Future[ReadOutcome]) -> None:
        error = done.exception()
        if error is not None:
            name = type(error).__name__
            self._ready.append(Outgoing(asker, ReadResult(request, 0, False, name, "", str(error).encode(), 0)))
        else:
            outcome = done.result()
            count = max(1, -(-len(outcome.body) // PIECE_BYTES))
            for part in range(count):
                body = outcome.body[part * PIECE_BYTES : (part + 1) * PIECE_BYTES]
                piece = ReadResult(request, part, part + 1 < count, "", outcome.content_type, body, outcome.lsn)
                self._ready.append(Outgoing(asker, piece))
        self._wake()

    def take(self) -> list[Outgoing]:
        """What is to be sent now."""
        taken = []
        while self._ready:
            taken.append(self._ready.popleft())
        return taken


