"""State shared by all requests of one HTTP door: the node behind it, limits, threads for long work, counters.

Two rules of waiting are implemented here. The door waits for a future of the node without ever cancelling it: a client that hangs
up, or a server that stops, must not affect the node's loop. Long work runs in a pool that refuses work (`NotReady`, 503) instead of
growing a queue.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, TypeVar

from brokerha.ingress.parsers import shared_parsers
from brokerha.local_reads.asking import LocalReads
from brokerha.model.errors import NotReady
from brokerha.model.ids import Lsn
from brokerha.model.invariants import invariant
from brokerha.model.operations import BODY_LIMIT_BYTES
from brokerha.ports.front import Front

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of one door, each with its reaction. The defaults suit a node with a gigabyte of memory."""

    body_limit_bytes: int = 2 * BODY_LIMIT_BYTES
    """Largest request body, else 413. Above the limit of a transaction, because RDF/XML and base64 shrink when parsed."""
    body_stall_s: float = 30.0
    """Longest pause within a body, else 400."""
    answer_stall_s: float = 30.0
    """Longest time that a client takes no piece of an answer; then it is cut off."""
    all_bodies_limit_bytes: int = 256 * MIB
    """Size of all bodies that are read or handled, else 503."""
    requests_limit: int = 2048
    """Requests under way, else 503; each waiting writer is one."""
    inline_limit_bytes: int = 32 * 1024
    """Bodies up to this size are parsed in the event loop: a thread would cost more."""
    threads: int = 4
    """Threads for long work: large bodies, the status of the cluster, pages of the log."""
    thread_calls_limit: int = 64
    """Calls that wait for a thread, else 503."""
    parsings_limit: int = 64
    """Bodies that wait for a parser process, else 503."""
    timeout_ms: int = 30_000
    """Default time limit of a request."""
    timeout_limit_ms: int = 3_600_000
    """Highest time limit that a request can ask for, else 400."""
    grace_ms: int = 5_000
    """Extra time that the door waits for the node, which answers by itself when it is healthy."""
    own_writes_s: float = 10.0
    """Time after a write during which reads without an LSN wait for a worker that has applied it."""
    batch_limit: int = 10_000
    """Transactions in one batch, else 413."""

    def check(self) -> None:
        """Check that the numbers are consistent."""
        invariant(0 < self.body_limit_bytes <= self.all_bodies_limit_bytes, "one body fits into the limit of all")
        invariant(0 < self.timeout_ms <= self.timeout_limit_ms, "the usual time is an allowed time")
        invariant(min(self.requests_limit, self.threads, self.thread_calls_limit, self.batch_limit) > 0, "limits let one in")


class Door:
    """One HTTP door of one node; its counters belong to the event loop."""

    def __init__(
        self,
        front: Front,
        limits: HttpLimits,
        origins: frozenset[str] = frozenset(),
        local_reads: LocalReads | None = None,
        hosts: frozenset[str] | None = None,
    ) -> None:
        limits.check()
        self.front = front
        self.local_reads = local_reads
        """Workers that are reached without the broker; None at a node that has none."""
        self.limits = limits
        self.origins = origins
        """Origins of pages that can change something, besides the door's own pages."""
        self.hosts = hosts
        """Names that a request can be for, besides loopback and addresses; None for every name."""
        self.requests = 0
        """Requests under way."""
        self.bodies_bytes = 0
        """Size of all bodies under way."""
        self.answered: Counter[tuple[str, int]] = Counter()
        """Answers since the start, by method and status."""
        self._threads = ThreadPoolExecutor(limits.threads, thread_name_prefix=f"{front.node_id} http")
        self._calls = 0
        self._parsers = ThreadPoolExecutor(limits.threads, thread_name_prefix=f"{front.node_id} parsing")
        self._parsings = 0
        self._written: tuple[Lsn, float] = (0, 0.0)
        self._shared: dict[str, tuple[asyncio.Future[Any], float]] = {}

    def note_write(self, lsn: Lsn) -> None:
        """Note a write that was answered as applied at this LSN."""
        if lsn >= self._written[0] or self._now() > self._written[1]:
            self._written = lsn, self._now() + self.limits.own_writes_s

    def written_lsn(self) -> Lsn:
        """Return the highest LSN of a write that was recently answered here as applied; 0 for none.

        After that time every worker has it, or lags for a reason that a reader should not wait for.
        """
        return self._written[0] if self._now() <= self._written[1] else 0

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    async def in_thread(self, work: Callable[Arguments, Result], *arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        """Run ``work`` in a thread of the pool. Raises NotReady when too many calls wait."""
        if self._calls >= self.limits.thread_calls_limit:
            raise NotReady(f"{self._calls} long requests are under way at {self.front.node_id} already: try again")
        self._calls += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, partial(work, *arguments, **named))
        finally:
            self._calls -= 1

    async def by_size(
        self, size_bytes: int, work: Callable[Arguments, Result], *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> Result:
        """Run ``work`` here for small input, otherwise in a thread."""
        if size_bytes <= self.limits.inline_limit_bytes:
            return work(*arguments, **named)
        return await self.in_thread(work, *arguments, **named)

    async def parsed(
        self, is_plain: bool, work: Callable[Arguments, Result], *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> Result:
        """Run ``work``, which parses client input: here when that is plain, otherwise in a parser process (ingress/parsers.py)."""
        if is_plain:
            return work(*arguments, **named)
        return await self.parsing(False, partial(shared_parsers().run, work), *arguments, **named)

    async def parsing(self, is_plain: bool, work: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
        """Run ``work``, which uses a parser process for input that is not plain, without blocking the loop. Raises NotReady."""
        if is_plain:
            return work(*arguments, **named)
        if self._parsings >= self.limits.parsings_limit:
            raise NotReady(f"{self._parsings} bodies wait to be parsed at {self.front.node_id} already: try again")
        self._parsings += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._parsers, partial(work, *arguments, **named))
        finally:
            self._parsings -= 1

    async def shared(self, name: str, age_s: float, find: Callable[[], Awaitable[Result]]) -> Result:
        """Return one answer for all callers within a time; callers during the search wait for it. Errors are not kept."""
        future, until = self._shared.get(name, (None, 0.0))
        if future is None or (future.done() and (future.exception() is not None or self._now() > until)):

            async def found() -> Result:
                result = await find()
                self._shared[name] = self._shared[name][0], self._now() + age_s
                return result

            future = asyncio.ensure_future(found())
            self._shared[name] = future, 0.0
        # A caller that goes away must not cancel the answer of the others.
        result: Result = await asyncio.shield(future)
        return result

    async def settled(self, future: Future[Result], timeout_ms: int) -> Result:
        """Return the result of a future of the node. Raises its error, or TimeoutError a grace after its deadline."""
        if not future.done():
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()

            def wake(_: Any) -> None:
                # The server can have stopped meanwhile; then no caller waits.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(_release, waiter)

            timer = loop.call_later((timeout_ms + self.limits.grace_ms) / 1000, _release, waiter)
            future.add_done_callback(wake)
            try:
                await waiter
            finally:
                timer.cancel()
            if not future.done():
                raise TimeoutError
        return future.result()

    def leave(self) -> None:
        """Close the connections of the event loop before it ends."""
        if self.local_reads is not None:
            self.local_reads.close()

    def close(self) -> None:
        """Take no more long work. Idempotent."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._parsers.shutdown(wait=False, cancel_futures=True)


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
