"""The client for asyncio: the names and arguments of `brokerha.connect`, to be awaited, without `pipeline`, `large_transaction`,
`session` and ``tpc_…``.

    async with aio.connect("http://127.0.0.1:7201") as db:
        await db.put("prices", "sku-1", b"9.90")
        await asyncio.gather(*(db.put("counters", str(n), b"0") for n in range(1000)))       # they travel together
        async with db.transaction() as tx:
            await tx.put("seen", "1", b"")
            await tx.publish("outbox", b"...")
        async for message in db.consume("inbox", wait=5):
            await message.transaction.put("seen", message.id, b"")

A write takes no thread: it is handed to the wire and awaited, so any number can be open (the wire refuses more than 100,000). All
other calls run in a pool of threads, `connect(..., threads=32)`, which limits concurrent reads and transaction steps; further calls
wait. A consumer has a thread of its own, and so has each `accept`, up to 1,000. A timeout or cancellation ends only the wait for a
call; a request that has begun is still carried out. Use a session from one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Concatenate, NamedTuple, ParamSpec, Self, TypeVar

from tenacity import AsyncRetrying

import brokerha
from brokerha.client.calls import GRACE_S
from brokerha.client.client import Session
from brokerha.client.outcomes import Written, written
from brokerha.client.reads import Least
from brokerha.client.transactions import ATTEMPTS, WAIT_SLICE_S, Committed, Transaction, checked_wait, retries
from brokerha.model.errors import Closed, InvalidRequest, OutcomeUnknown
from brokerha.model.ids import NodeId, TxId
from brokerha.model.operations import Operation
from brokerha.model.outside.isolation import READ_COMMITTED, SERIALIZABLE
from brokerha.model.requests import Reply

THREADS = 32
WAITING_THREADS = 1000
"""Threads for `accept`, so that it does not block other calls. They are made on demand."""
STEP_S = 1.0
"""Longest wait for messages in one step of a transaction: a step cannot be interrupted, and the end must wait for it."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _awaited(
    method: Callable[Concatenate[Any, Arguments], Result],
) -> Callable[Concatenate[Any, Arguments], Coroutine[Any, Any, Result]]:
    """Return an async method that runs ``method`` in a thread."""

    @functools.wraps(method)
    async def call(self: Any, /, *arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        result: Result = await self._run(functools.partial(method, self._of, *arguments, **named))
        return result

    return call


def _written(
    method: Callable[Concatenate[Any, Arguments], Written],
) -> Callable[Concatenate[Any, Arguments], Coroutine[Any, Any, Written]]:
    """Return an async method that hands a write in with ``method`` and awaits its reply without a thread."""

    @functools.wraps(method)
    async def call(self: Any, /, *arguments: Arguments.args, **named: Arguments.kwargs) -> Written:
        waiting: Any = method(self._writing, *arguments, **named)
        done: Written = await waiting
        return done

    return call


@contextlib.contextmanager
def _one_thread() -> Iterator[ThreadPoolExecutor]:
    """Yield a pool of one thread. Nobody waits for its last task to end."""
    own = ThreadPoolExecutor(1, thread_name_prefix="brokerha consumer")
    try:
        yield own
    finally:
        own.shutdown(wait=False)


class _InThreads:
    """An object whose methods run in threads."""

    _of: Any

    def __init__(self, pool: ThreadPoolExecutor, waiting: ThreadPoolExecutor | None = None) -> None:
        self._pool = pool
        self._waiting = waiting or pool
        """For calls that wait for messages, which can take long."""

    async def _run(self, work: Callable[[], Result], pool: ThreadPoolExecutor | None = None) -> Result:
        try:
            future = (pool or self._pool).submit(work)
        except RuntimeError:
            raise Closed from None
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if future.cancelled() and task is not None and not task.cancelling():
                # The session was closed before a thread took the call; nobody has cancelled this task.
                raise Closed from None
            raise

    async def _each(self, found: Iterator[bytes]) -> AsyncGenerator[bytes, None]:
        """Yield the items of an iterator, each read in a thread."""
        while (piece := await self._run(functools.partial(next, found, None))) is not None:
            yield piece


class _Writing(Session):
    """A session whose `write` hands in and returns an awaitable; so do all methods that call `write`."""

    def __init__(self, session: Session) -> None:
        super().__init__(session.wire, session.timeout, session.ack, session.apart)
        self._session = session

    def write(
        self,
        operations: Sequence[Operation],
        *,
        ack: str | None = None,
        timeout: float | None = None,
        key: TxId = "",
        apart: str | None = None,
    ) -> Any:
        """Hand in one transaction of any operations."""
        if self._session.branch is not None:
            raise InvalidRequest("a two-phase transaction takes its writes by itself: use brokerha.connect for it")
        return self._reply(*self.handed_in(operations, ack, timeout, key, apart))

    async def _reply(self, future: Future[Reply], txid: TxId, seconds: float) -> Written:
        try:
            reply = await asyncio.wait_for(asyncio.wrap_future(future), seconds + GRACE_S)
        except TimeoutError:
            raise OutcomeUnknown(txid) from None
        done = written(reply)
        self._session.note(done.lsn)
        return done


class AsyncTransaction(_InThreads):
    """`Transaction` with async methods; for ``async with``, one call at a time."""

    def __init__(self, transaction: Transaction, pool: ThreadPoolExecutor, waiting: ThreadPoolExecutor | None = None) -> None:
        super().__init__(pool, waiting)
        self._of = transaction
        self._turn = threading.Lock()

    async def _run(self, work: Callable[[], Result], pool: ThreadPoolExecutor | None = None) -> Result:
        """Run steps one after the other: a cancelled call does not end its step."""
        return await super()._run(functools.partial(self._in_turn, work), pool)

    def _in_turn(self, work: Callable[[], Result]) -> Result:
        with self._turn:
            return work()

    @property
    def txid(self) -> TxId:
        """The transaction id, after the begin."""
        return str(self._of.txid)

    @property
    def committed(self) -> Committed | None:
        """The transaction id and the LSN, after the commit."""
        found: Committed | None = self._of.committed
        return found

    @property
    def node(self) -> NodeId:
        """The master of the transaction; empty before the begin."""
        return str(self._of.node)

    @property
    def state(self) -> str:
        """``new``, ``open`` or ``over``."""
        return str(self._of.state)

    @property
    def isolation(self) -> str:
        """The isolation level."""
        return str(self._of.isolation)

    async def __aenter__(self) -> Self:
        try:
            await self._run(self._of.__enter__)
        except asyncio.CancelledError:
            # It can begin nevertheless, and must be ended.
            self._abandon_soon()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            await self._run(functools.partial(self._of.__exit__, kind, error, trace))
        except asyncio.CancelledError:
            # A call that waits for a thread is not made any more, and the master would keep the transaction until its time is over.
            self._abandon_soon()
            raise

    def _abandon_soon(self) -> None:
        """End it once its present step is done. If the connection was closed meanwhile, closing has ended it."""
        with contextlib.suppress(RuntimeError):
            self._pool.submit(self._in_turn, self._of.abandon)

    async def accept(self, queue: str, count: int | None = None, *, wait: float = 0.0, bodies: bool = True) -> Any:
        """As `Transaction.accept`: a message or None; with ``count`` a list. A cancelled wait ends after `STEP_S`."""
        checked_wait(wait)
        counted = () if count is None else (count,)
        clock = asyncio.get_running_loop().time
        until_s = clock() + wait
        while True:
            step_s = max(0.0, min(STEP_S, until_s - clock()))
            step = functools.partial(self._of.accept, queue, *counted, wait=step_s, bodies=bodies)
            found = await self._run(step, self._waiting)
            if found or clock() >= until_s:
                return found

    def message_body(
        self, queue: str, message_id: str, *, min_lsn: Least = None, timeout: float | None = None
    ) -> AsyncGenerator[bytes, None]:
        """As `Transaction.message_body`, for ``async for``."""
        return self._each(self._of.message_body(queue, message_id, min_lsn=min_lsn, timeout=timeout))

    commit = _awaited(Transaction.commit)
    rollback = _awaited(Transaction.rollback)
    write = _awaited(Transaction.write)
    flush = _awaited(Transaction.flush)
    update = _awaited(Transaction.update)
    add = _awaited(Transaction.add)
    remove = _awaited(Transaction.remove)
    put = _awaited(Transaction.put)
    delete = _awaited(Transaction.delete)
    publish = _awaited(Transaction.publish)
    expect_key = _awaited(Transaction.expect_key)
    expect_unchanged = _awaited(Transaction.expect_unchanged)
    expect_fingerprint = _awaited(Transaction.expect_fingerprint)
    ping = _awaited(Transaction.ping)
    read = _awaited(Transaction.read)
    query = _awaited(Transaction.query)
    select = _awaited(Transaction.select)
    is_true = _awaited(Transaction.is_true)
    construct = _awaited(Transaction.construct)
    get = _awaited(Transaction.get)
    range = _awaited(Transaction.range)
    size = _awaited(Transaction.size)
    queue = _awaited(Transaction.queue)
    queues = _awaited(Transaction.queues)
    together = _awaited(Transaction.together)


class AsyncConsumed(NamedTuple):
    """A message in the body of a `consume` loop."""

    id: str
    content_type: str
    body: bytes
    transaction: AsyncTransaction
    """Commits when the body ends."""


class AsyncSession(_InThreads):
    """`Session` with async methods; see the head of the module."""

    def __init__(self, session: Session, threads: int = THREADS) -> None:
        if threads < 1:
            raise InvalidRequest(f"threads is a number from 1 on, not {threads}")
        super().__init__(
            ThreadPoolExecutor(threads, thread_name_prefix="brokerha aio"),
            ThreadPoolExecutor(WAITING_THREADS, thread_name_prefix="brokerha accept"),
        )
        self._of = session
        self._writing = _Writing(session)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Finish open calls as far as possible, then disconnect. Idempotent."""
        # A separate thread, because all threads of the pool can be waiting.
        await asyncio.to_thread(self._of.close)
        for pool in (self._pool, self._waiting):
            pool.shutdown(wait=False, cancel_futures=True)

    def transaction(
        self, *, timeout: float | None = None, ack: str | None = None, session: str = "", isolation: str = READ_COMMITTED
    ) -> AsyncTransaction:
        """As `Session.transaction`, for ``async with``."""
        transaction = self._of.transaction(timeout=timeout, ack=ack, session=session, isolation=isolation)
        return AsyncTransaction(transaction, self._pool, self._waiting)

    async def run_transaction(
        self, work: Callable[[AsyncTransaction], Awaitable[Result]], *, isolation: str = SERIALIZABLE, attempts: int = ATTEMPTS
    ) -> Result:
        """As `Session.run_transaction`; ``work`` is awaited."""
        async for attempt in AsyncRetrying(**retries(attempts, self._of.timeout)):
            with attempt:
                async with self.transaction(isolation=isolation) as transaction:
                    return await work(transaction)
        raise AssertionError("unreachable")

    async def accept(self, queue: str, count: int | None = None, *, wait: float = 0.0, timeout: float | None = None) -> Any:
        """As `Session.accept`: a message or None; with ``count`` a list. After a cancellation it takes no more messages."""
        most, unwanted = 1 if count is None else count, threading.Event()
        try:
            take = functools.partial(self._of.take, queue, most, wait, timeout, unwanted)
            found = await self._run(take, self._waiting)
        finally:
            unwanted.set()
        return found if count is not None else found[0] if found else None

    def message_body(
        self, queue: str, message_id: str, *, min_lsn: Least = None, timeout: float | None = None
    ) -> AsyncGenerator[bytes, None]:
        """As `Session.message_body`, for ``async for``."""
        return self._each(self._of.message_body(queue, message_id, min_lsn=min_lsn, timeout=timeout))

    async def consume(
        self, queue: str, *, count: int | None = None, wait: float | None = None, timeout: float | None = None
    ) -> AsyncGenerator[AsyncConsumed, None]:
        """As `Session.consume`. After a ``break``, closing (`contextlib.aclosing`) or garbage collection puts the message back."""
        if count is not None and count < 1:
            raise InvalidRequest(f"count is a number from 1 on, not {count}")
        checked_wait(wait or 0.0)
        loop, done, idle_s = asyncio.get_running_loop(), 0, wait or 0.0
        until_s = loop.time() + idle_s
        # One thread for all calls, so that a message that arrives after a cancellation is put back.
        with _one_thread() as own:
            while count is None or done < count:
                left_s = WAIT_SLICE_S if wait is None else max(0.0, until_s - loop.time())
                messages = self._of.consume(queue, count=1, wait=min(WAIT_SLICE_S, left_s), timeout=timeout)
                is_waiting = True
                try:
                    found = await loop.run_in_executor(own, next, messages, None)
                    is_idle = found is None
                    while found is not None:
                        is_waiting, transaction = False, found.transaction
                        inside = AsyncTransaction(transaction, self._pool, self._waiting)
                        yield AsyncConsumed(found.id, found.content_type, found.body, inside)
                        is_waiting = True
                        # This commits, and returns another message only after an aborted commit.
                        found = await loop.run_in_executor(own, next, messages, None)
                        done += transaction.committed is not None
                        until_s = loop.time() + idle_s
                    is_waiting = False
                    if is_idle and wait is not None and loop.time() >= until_s:
                        return
                finally:
                    closing = loop.run_in_executor(own, messages.close)
                    if not is_waiting:
                        await closing

    write = _written(Session.write)
    update = _written(Session.update)
    put = _written(Session.put)
    delete = _written(Session.delete)
    publish = _written(Session.publish)
    snapshot = _written(Session.snapshot)
    drop_snapshot = _written(Session.drop_snapshot)
    create_repository = _written(Session.create_repository)
    remove_repository = _written(Session.remove_repository)
    control_add = _written(Session.control_add)
    control_remove = _written(Session.control_remove)

    load = _awaited(Session.load)
    read = _awaited(Session.read)
    query = _awaited(Session.query)
    select = _awaited(Session.select)
    is_true = _awaited(Session.is_true)
    construct = _awaited(Session.construct)
    get = _awaited(Session.get)
    range = _awaited(Session.range)
    size = _awaited(Session.size)
    queue = _awaited(Session.queue)
    queues = _awaited(Session.queues)
    together = _awaited(Session.together)
    repositories = _awaited(Session.repositories)
    tables = _awaited(Session.tables)
    snapshots = _awaited(Session.snapshots)
    staged = _awaited(Session.staged)
    export = _awaited(Session.export)
    control_list = _awaited(Session.control_list)
    digests = _awaited(Session.digests)
    bucket_items = _awaited(Session.bucket_items)
    outcome = _awaited(Session.outcome)
    status = _awaited(Session.status)
    log = _awaited(Session.log)
    logged = _awaited(Session.logged)
    entries = _awaited(Session.entries)
    command = _awaited(Session.command)
    backup = _awaited(Session.backup)
    task = _awaited(Session.task)
    pin = _awaited(Session.pin)
    unpin = _awaited(Session.unpin)
    pins = _awaited(Session.pins)
    wait = _awaited(Session.wait)
    open_transactions = _awaited(Session.open_transactions)
    end_transaction = _awaited(Session.end_transaction)


def connect(
    address: str, *, timeout: float = 30.0, ack: str = "applied", apart: str = "wait", threads: int = THREADS, token: str = ""
) -> AsyncSession:
    """As `brokerha.connect`; close the result, or use it with ``async with``. Raises ConfigurationError. Does not block."""
    return AsyncSession(brokerha.connect(address, timeout=timeout, ack=ack, apart=apart, token=token), threads)
