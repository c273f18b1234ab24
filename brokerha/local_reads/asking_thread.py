"""`LocalReads` for callers without an event loop: the loop of a master, which answers reads of apps over AMQP.

The event loop and its thread start with the first read. Answers are futures, completed in that thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import Future

import uvloop

from brokerha.local_reads.asking import LocalReads
from brokerha.model.errors import NotReady
from brokerha.model.ids import NodeId
from brokerha.model.wire.messages import Read
from brokerha.ports.front import ReadOutcome

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
