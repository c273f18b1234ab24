"""Answers the reads of one store in its own threads, without blocking the caller, the node or the process.

    callers --read()--> ReadBook --begin--> read threads --> store
                           |                    |
                  watch thread: deadlines       `--> future; or nothing, when the caller has its answer already

The engine evaluates without the interpreter's lock and cannot be stopped: a query without a row for minutes never checks whether to
go on. So the watch thread ends the wait of the caller at the deadline, gives a slow thread the lowest priority, and replaces a
stuck thread. At the limit the node must be restarted (`must_restart`).

The door: `close_door` refuses new reads, fails the waiting ones, and lets no running one give rows. `open_door` ends that. When a
read meets damage, the pool shuts the door by itself and calls `on_damage` (in a read thread). Until the owner, who possibly does
not know yet, has closed the door as well, opening it has no effect.

Every future is completed at its deadline or a moment later. Threads are daemons: a stuck one must not block the end.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

import structlog

from brokerha.model.errors import BrokerhaError, NotReady, StoreDamaged, TimedOut, TooLarge
from brokerha.model.ids import Lsn, NodeId
from brokerha.model.numbers import Numbers
from brokerha.model.wire.messages import Outgoing, ReadResult
from brokerha.nodes.loop import complete
from brokerha.nodes.reads.book import Due, Job, ReadBook, ReadLimits
from brokerha.ports.front import ReadOutcome
from brokerha.ports.store import Store

log = structlog.get_logger()

SLOW_NICENESS = 19
STOPPING = "the worker is stopping"
_SLOW_HERE_S = 0.005
_SLOW_AGAIN_S = 1.0
TEXT_LIMIT = 300
"""Length of a stuck query in its log line."""
PIECE_BYTES = 1024 * 1024


def _nobody(_reason: str) -> None:
    """Ignore a report of damage."""


class ReadPool:
    """Reads of one store; any thread can call it."""

    def __init__(
        self, store: Store, name: str, limits: ReadLimits | None = None, on_damage: Callable[[str], None] = _nobody
    ) -> None:
        self._store = store
        self._name = name
        self._limits = limits or ReadLimits()
        self.on_damage = on_damage
        self._book = ReadBook(self._limits)
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._watched = threading.Condition(self._lock)
        self._idle = self._alive = 0
        self._is_closing = self._is_closed = False
        self._watch: threading.Thread | None = None
        self._slow_until_s = 0.0
        """Until then the disk counts as slow."""
        self._wakes_s = 0.0
        """Time of the watch thread's next look."""

    # ---- reads

    def read(self, kind: str, name: str, arguments: dict[str, Any], min_lsn: Lsn, timeout_ms: int) -> Future[ReadOutcome]:
        """Answer a read once its least LSN is applied; the future is completed at the deadline at the latest."""
        now_s = time.monotonic()
        job = Job(kind, name, arguments, min_lsn, now_s + timeout_ms / 1000)
        with self._lock:
            if self._is_closing:
                refusal: NotReady | None = NotReady(STOPPING)
            else:
                refusal = self._book.admit(job, self._store.applied().lsn)
            if refusal is None:
                self._start_threads()
                self._watch_from(job.deadline_s)
        if refusal is not None:
            job.future.set_exception(refusal)
        return job.future

    def read_here(self, kind: str, name: str, arguments: dict[str, Any], min_lsn: Lsn, timeout_ms: int) -> Future[ReadOutcome]:
        """Answer as `read`, but in the calling thread when that costs next to nothing: the future is complete on return.

        That holds for one key at an applied LSN. When such a read was slow, because of the disk, threads answer for a while.
        """
        began_s = time.monotonic()
        if kind != "get" or "pending" in arguments or began_s < self._slow_until_s or min_lsn > self._store.applied().lsn:
            return self.read(kind, name, arguments, min_lsn, timeout_ms)
        with self._lock:
            job = Job(kind, name, arguments, min_lsn, began_s + timeout_ms / 1000, opening=self._book.opening)
            refusal = NotReady(STOPPING) if self._is_closing else self._book.glance()
        end: ReadOutcome | BrokerhaError = refusal or self._answer(job)
        # A copy that was distrusted meanwhile gives no rows.
        if job.opening != self._book.opening:
            end = NotReady(self._book.closed_reason or "the copy was distrusted meanwhile")
        if time.monotonic() - began_s > _SLOW_HERE_S:
            self._slow_until_s = time.monotonic() + _SLOW_AGAIN_S
        complete(job.future, end)
        return job.future

    def on_applied(self, lsn: Lsn) -> None:
        """Start the reads that waited for this LSN."""
        with self._lock:
            if self._book.on_applied(lsn):
                self._start_threads()

    # ---- the door

    def close_door(self, reason: str) -> None:
        """Answer no more reads from this copy; open ones get NotReady with the reason. Idempotent."""
        with self._lock:
            jobs = self._book.close_door(reason)
        _fail((job, NotReady(reason)) for job in jobs)

    def shut(self, reason: str) -> None:
        """Close the door for damage that its owner does not know yet: it stays closed until the owner has closed it."""
        with self._lock:
            jobs = self._book.shut(reason)
        _fail((job, NotReady(reason)) for job in jobs)

    def open_door(self) -> None:
        """Answer reads again, unless the door was shut and not closed since then. Idempotent."""
        with self._lock:
            self._book.open_door()

    @property
    def closed_reason(self) -> str:
        """Return why the door is closed; empty while it is open."""
        return self._book.closed_reason

    @property
    def opening(self) -> int:
        """Changes with each closing: rows read before a closing must not be sent after it."""
        return self._book.opening

    # ---- questions

    @property
    def must_restart(self) -> str:
        """Return why this process must be restarted; empty while all is well."""
        return self._book.overrun

    def running_before(self, opening: int) -> int:
        """Return the number of running reads that came in before the closing of this number (`opening`)."""
        with self._lock:
            return self._book.running_before(opening)

    @property
    def under_way(self) -> int:
        """Number of reads in threads, including stuck ones."""
        return self._book.running

    @property
    def stuck(self) -> int:
        """Number of threads with an overdue read."""
        return self._book.stuck

    def metrics(self) -> Numbers:
        """Return the numbers for /metrics."""
        book = self._book
        return {
            "reads_total": book.taken,
            "reads_failed_total": book.failed,
            "running_reads": book.running,
            "waiting_reads": max(0, book.open_jobs - book.running),
            "stuck_reads": book.stuck,
        }

    # ---- the end

    def close(self, timeout_s: float = 10.0) -> bool:
        """Take no more reads, and fail those that run at the timeout; return whether all threads ended in time. Idempotent."""
        with self._lock:
            self._is_closing = True
            self._work.notify_all()
            self._work.wait_for(lambda: self._alive <= self._book.stuck, timeout_s)
            jobs = self._book.close_door(STOPPING)
            self._is_closed = True
            self._watched.notify_all()
            is_over = not self._alive
        _fail((job, NotReady(STOPPING)) for job in jobs)
        return is_over

    # ---- threads

    def _start_threads(self) -> None:
        """Wake or start threads for ready reads; the lock is held."""
        for _ in range(self._book.threads_wanted(self._idle, self._alive)):
            self._alive += 1
            threading.Thread(target=self._serve, name=f"{self._name} read", daemon=True).start()
        self._work.notify(min(self._idle, self._book.ready))

    def _serve(self) -> None:
        """Answer one read after another. A slow or stuck thread ends afterwards, because its priority cannot be raised again."""
        thread = threading.get_native_id()
        is_wanted = True
        while is_wanted:
            with self._lock:
                job = self._book.begin(time.monotonic(), thread)
                while job is None and not self._is_closing:
                    self._idle += 1
                    self._work.wait()
                    self._idle -= 1
                    job = self._book.begin(time.monotonic(), thread)
                if job is None:
                    break
                self._watch_from(min(job.deadline_s, job.began_s + self._limits.slow_s))
            end = self._answer(job)
            with self._lock:
                is_awaited = self._book.settle(job)
                is_wanted = self._book.end(job)
            if is_awaited:
                complete(job.future, end)
        with self._lock:
            self._alive -= 1
            self._start_threads()
            self._work.notify_all()

    def _answer(self, job: Job) -> ReadOutcome | BrokerhaError:
        try:
            return self._evaluated(job)
        except StoreDamaged as error:
            self._met_damage(job, str(error))
            return _bare(error)
        except BrokerhaError as error:
            return _bare(error)
        except Exception as error:  # noqa: BLE001  (a fault of one read must not end the pool)
            return NotReady(f"the read failed: {type(error).__name__}: {error}")

    def _met_damage(self, job: Job, reason: str) -> None:
        """Shut the door, unless it was closed since: the damaged copy was possibly replaced meanwhile."""
        with self._lock:
            is_news = not self._book.closed_reason and job.opening == self._book.opening
        if is_news:
            log.error("a read met damage", node=self._name, kind=job.kind, name=job.name, reason=reason)
            self.shut(f"this copy is damaged: {reason}")
            self.on_damage(reason)

    def _evaluated(self, job: Job) -> ReadOutcome:
        answer = self._store.read(job.kind, job.name, job.arguments, lambda: not job.is_settled)
        pieces = []
        size_bytes = 0
        for piece in answer.pieces:
            size_bytes += len(piece)
            if size_bytes > self._limits.result_bytes:
                raise TooLarge(f"the result is over {self._limits.result_bytes} bytes: ask for less at a time (LIMIT and OFFSET)")
            if job.is_settled:
                raise TimedOut("the read did not finish in its time: ask for less, or give it more time")
            pieces.append(piece)
        return ReadOutcome(answer.content_type, answer.lsn, b"".join(pieces))

    # ---- deadlines

    def _watch_from(self, due_s: float) -> None:
        """Tell the watch thread a due time; the lock is held."""
        if self._watch is None:
            self._watch = threading.Thread(target=self._watching, name=f"{self._name} read watch", daemon=True)
            self._watch.start()
        if due_s < self._wakes_s:
            self._watched.notify_all()

    def _watching(self) -> None:
        """End waits at their deadlines, while the pool is open."""
        while True:
            with self._lock:
                if self._is_closed:
                    return
                now_s, next_s = time.monotonic(), self._book.next_s()
                if next_s is None or next_s > now_s:
                    self._wakes_s = math.inf if next_s is None else next_s
                    self._watched.wait(None if next_s is None else next_s - now_s)
                    continue
                due = self._book.due(now_s, self._store.applied().lsn)
                for job in due.slow:
                    _make_nice(job.thread)
                if due.stuck:
                    self._start_threads()
            self._tell(due)

    def _tell(self, due: Due) -> None:
        _fail(due.failed)
        for job in due.stuck:
            text = str(job.arguments.get("query", ""))[:TEXT_LIMIT]
            log.warning("a read is stuck", node=self._name, kind=job.kind, name=job.name, query=text, stuck=self.stuck)


class ReadAnswers:
    """Answers that wait to be sent by the loop, in pieces of at most 1 MiB; their number is bounded by the pool's.

        pool thread:  future completed -> queue, wake the loop          loop:  take() -> pieces -> transport

    Rows read before a closing of the pool's door are not sent after it: the copy is possibly damaged. Such an answer becomes a
    NotReady, and the master asks another worker.
    """

    def __init__(self, pool: ReadPool, wake: Callable[[], None]) -> None:
        self._pool = pool
        self._wake = wake
        self._ready: deque[tuple[NodeId, str, int, Future[ReadOutcome]]] = deque()

    def when_done(self, asker: NodeId, request: str, future: Future[ReadOutcome]) -> None:
        """Queue the answer for the asking master when it is complete. To be called right after `ReadPool.read`."""
        opening = self._pool.opening

        def put(done: Future[ReadOutcome]) -> None:
            self._ready.append((asker, request, opening, done))
            self._wake()

        future.add_done_callback(put)

    def take(self) -> list[Outgoing]:
        """Return the pieces to send now."""
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
            ReadResult(request, part, part + 1 < count, "", content_type, body[part * PIECE_BYTES : (part + 1) * PIECE_BYTES], lsn)
            for part in range(count)
        ]


def _error(request: str, name: str, text: str) -> ReadResult:
    return ReadResult(request, 0, False, name, "", text.encode(), 0)


def _make_nice(thread: int) -> None:
    """Give a thread the lowest priority, if the system can do so for one thread (Linux)."""
    if thread and hasattr(os, "setpriority") and os.uname().sysname == "Linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, SLOW_NICENESS)


def _fail(ends: Iterable[tuple[Job, BrokerhaError]]) -> None:
    for job, error in ends:
        complete(job.future, error)


def _bare(error: BrokerhaError) -> BrokerhaError:
    """Return the error without its traceback, whose frames hold iterators of the engine that only this thread can release."""
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)
