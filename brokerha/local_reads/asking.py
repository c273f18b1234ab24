"""The door's side of reads on one machine: the choice of a near worker, and the end of the wait for it.

A worker is near when the socket in its folder answers with its name. It is used while the master lists it as readable; of several,
the one with the fewest open reads of this door. If the master also has other workers, a near one gets only a few at once, and the
rest goes over the broker to the worker with the lowest load.

    answer                         the read is answered
    the request is wrong           the read is answered with the error: it is wrong everywhere
    its time is over               the same: another worker would evaluate it for nobody, and the engine cannot be stopped
    another error, the connection   not answered here: the caller asks over the broker
    is lost, the worker is silent

A worker is silent when it sends nothing for the patience, with open reads, and again nothing within it after a ping. A query can
take long, but a frozen process answers no ping. Everything here runs in the door's event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

import structlog
import uvloop

from brokerha.local_reads.frames import HELLO, PING, VERSION, address_of, pack, unpacker
from brokerha.model.errors import BrokerhaError, InvalidRequest, NotReady, TimedOut, error_named
from brokerha.model.ids import Lsn, NodeId
from brokerha.model.wire.messages import Read
from brokerha.ports.front import ReadOutcome

log = structlog.get_logger()

AGAIN_S: Final = 1.0
"""Interval of tries to connect to a worker; without reads there are none."""
AT_ONCE: Final = 4
"""Open reads at a near worker above which other workers are used too: the default number that a worker evaluates at once."""
PATIENCE_S: Final = 0.5
GRACE_S: Final = 1.0
"""Extra time for a worker's answer, because the worker has the same deadline."""


class LocalReads:
    """The near workers of one door."""

    def __init__(self, cluster: str, data: Path, patience_s: float = PATIENCE_S) -> None:
        """``data`` is the folder with the folders of this machine's workers."""
        self._cluster = cluster
        self._data = data
        self._patience_s = patience_s
        self._links: dict[NodeId, _Link] = {}
        """Links that have identified themselves."""
        self._made: set[_Link] = set()
        self._next_try_s: dict[NodeId, float] = {}
        self._tries: set[asyncio.Task[None]] = set()

    async def read(self, workers: tuple[NodeId, ...], wanted: Read) -> ReadOutcome | None:
        """Ask a near one of these readable workers; None when none answers. Raises the errors of a wrong request, and TimedOut."""
        link = self._chosen(workers)
        if link is None:
            return None
        try:
            return await link.ask(wanted)
        except (InvalidRequest, TimedOut):
            raise
        except BrokerhaError:
            return None

    def close(self) -> None:
        """Close the links; open reads are not answered here. In the loop's thread."""
        for task in self._tries:
            task.cancel()
        for link in list(self._made):
            link.transport.abort()

    def _chosen(self, workers: tuple[NodeId, ...]) -> _Link | None:
        best: _Link | None = None
        near = 0
        for worker in workers:
            link = self._links.get(worker)
            if link is None:
                self._try(worker)
            elif link.is_usable:
                near += 1
                if best is None or len(link.waiting) < len(best.waiting):
                    best = link
        if best is not None and near < len(workers) and len(best.waiting) >= AT_ONCE:
            return None
        return best

    def _try(self, worker: NodeId) -> None:
        """Start to connect, unless that was tried just now."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._next_try_s.get(worker, 0.0):
            return
        self._next_try_s[worker] = loop.time() + AGAIN_S
        task = loop.create_task(self._connect(worker, self._data / worker))
        self._tries.add(task)
        task.add_done_callback(self._tries.discard)

    async def _connect(self, worker: NodeId, folder: Path) -> None:
        loop = asyncio.get_running_loop()

        def made() -> _Link:
            return _Link(self._cluster, worker, self._patience_s, self._made.add, self._on_hello, self._on_lost)

        try:
            with address_of(folder) as address:
                await asyncio.wait_for(loop.create_unix_connection(made, address), AGAIN_S)
        except OSError:
            # It does not run on this machine, or not now. (A timeout is an OSError as well.)
            return

    def _on_hello(self, link: _Link) -> None:
        known = self._links.get(link.worker)
        if known is not None:
            known.transport.abort()
        self._links[link.worker] = link

    def _on_lost(self, link: _Link) -> None:
        self._made.discard(link)
        if self._links.get(link.worker) is link:
            del self._links[link.worker]


class _Link(asyncio.Protocol):
    """The connection to one worker."""

    transport: asyncio.Transport

    def __init__(
        self,
        cluster: str,
        worker: NodeId,
        patience_s: float,
        on_made: Callable[[_Link], None],
        on_hello: Callable[[_Link], None],
        on_lost: Callable[[_Link], None],
    ) -> None:
        self.worker = worker
        self.waiting: dict[int, asyncio.Future[ReadOutcome]] = {}
        self.is_usable = False
        """Whether it has identified itself, and takes data."""
        self._cluster = cluster
        self._patience_s = patience_s
        self._on_made = on_made
        self._on_hello = on_hello
        self._on_lost = on_lost
        self._unpacker = unpacker()
        self._numbers = itertools.count(1)
        self._out: list[bytes] = []
        """Reads that are sent together, at the end of this step of the loop."""
        self._loop = asyncio.get_running_loop()
        self._watch: asyncio.TimerHandle | None = None
        self._was_heard = False
        """Whether data came since the last look."""
        self._is_asked = False
        """Whether a ping is open."""

    async def ask(self, wanted: Read) -> ReadOutcome:
        """Return the answer. Raises the errors of the worker, or NotReady when the connection ends."""
        number = next(self._numbers)
        future = self.waiting[number] = self._loop.create_future()
        fields = (wanted.kind, wanted.repository, wanted.arguments, wanted.min_lsn, wanted.timeout_ms)
        self._out.append(pack((number, *fields)))
        if len(self._out) == 1:
            self._loop.call_soon(self._send)
        if self._watch is None:
            self._was_heard = self._is_asked = False
            self._watch = self._loop.call_later(self._patience_s, self._look)
        try:
            # The worker ends each read at its deadline; this is for a worker that does not.
            async with asyncio.timeout(wanted.timeout_ms / 1000 + GRACE_S):
                outcome: ReadOutcome = await future
        except TimeoutError:
            raise TimedOut(f"{self.worker} did not answer the read in its time") from None
        finally:
            self.waiting.pop(number, None)
        return outcome

    def _send(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(b"".join(self._out))
        self._out.clear()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the hello as for an answer."""
        self.transport = transport  # type: ignore[assignment]
        self._on_made(self)
        self._watch = self._loop.call_later(self._patience_s, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the open reads: their callers must ask elsewhere."""
        self.is_usable = False
        if self._watch is not None:
            self._watch.cancel()
        for future in self.waiting.values():
            if not future.done():
                future.set_exception(NotReady(f"the connection to {self.worker} ended"))
        self._on_lost(self)

    def pause_writing(self) -> None:
        """Note that it takes no data: others are used meanwhile."""
        self.is_usable = False

    def resume_writing(self) -> None:
        """Note that it takes data again."""
        self.is_usable = True

    def data_received(self, data: bytes) -> None:
        """Take answers."""
        self._was_heard = True
        try:
            self._unpacker.feed(data)
            for frame in self._unpacker:
                self._take(*frame)
        except (ValueError, TypeError) as error:
            log.warning("a worker answered what is no answer", worker=self.worker, reason=str(error))
            self.transport.abort()

    def _take(self, number: int | str, *rest: Any) -> None:
        if number == HELLO:
            if rest != (VERSION, self._cluster, self.worker):
                raise ValueError(f"another one answers: {rest!r}")
            self.is_usable = True
            self._on_hello(self)
        elif number != PING:
            self._settle(number, *rest)

    def _settle(self, number: Any, error: str, content_type: str, lsn: Lsn, body: bytes) -> None:
        future = self.waiting.get(number)
        if future is None or future.done():
            return
        if error:
            future.set_exception(error_named(error, body.decode("utf-8", "replace")))
        else:
            future.set_result(ReadOutcome(content_type, lsn, body))

    def _look(self) -> None:
        """Check whether it is alive, while reads wait for it."""
        self._watch = None
        if self.is_usable and not self.waiting:
            return
        if self._is_asked and not self._was_heard:
            # `connection_lost` answers the waiting callers.
            log.warning(
                "a worker of this machine is silent: it is asked over the broker until it answers",
                worker=self.worker,
                reads=len(self.waiting),
            )
            self.transport.abort()
            return
        self._is_asked = not self._was_heard
        if self._is_asked and not self.transport.is_closing():
            self.transport.write(pack((PING,)))
        self._was_heard = False
        self._watch = self._loop.call_later(self._patience_s, self._look)


# ---- `LocalReads` for callers without an event loop: the loop of a master, which answers reads of apps over AMQP.
#
# The event loop and its thread start with the first read. Answers are futures, completed in that thread.

STOP_S = 2.0


class AskingThread:
    """The near workers of one node; any thread can call it."""

    def __init__(self, reads: LocalReads, name: str) -> None:
        self._reads = reads
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def read(self, workers: tuple[NodeId, ...], wanted: Read) -> Future[ReadOutcome | None]:
        """Read as `LocalReads.read`. The future raises NotReady once this is closed."""
        with self._lock:
            if self._is_closed:
                refused: Future[ReadOutcome | None] = Future()
                refused.set_exception(NotReady("the node is stopping"))
                return refused
            if self._loop is None:
                self._loop = uvloop.new_event_loop()
                self._thread = threading.Thread(target=self._run, args=(self._loop,), name=self._name, daemon=True)
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(self._reads.read(workers, wanted), self._loop)

    def close(self) -> None:
        """Take no more reads, and end open ones without an answer. Idempotent."""
        with self._lock:
            self._is_closed = True
            loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(loop.stop)
        thread.join(STOP_S)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.run_forever()
            loop.run_until_complete(self._leave())
        finally:
            loop.close()

    async def _leave(self) -> None:
        """Close the connections, so that waiting callers are notified."""
        self._reads.close()
        await asyncio.sleep(0)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=STOP_S)
