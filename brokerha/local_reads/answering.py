"""The worker's side of reads on one machine: an event loop in its own thread.

A read is passed to the worker's front. Immediate answers go back at once, those of one batch in one write. Answers of its threads
are queued by them and sent by this loop. Rows read before the copy was distrusted are not sent after that.

Bounded: while a door does not take its answers, no more of its reads are taken; the front's pool bounds the reads under way.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol

import structlog
import uvloop

from brokerha.local_reads.frames import HELLO, PING, PONG, SOCKET, VERSION, address_of, pack, unpacker
from brokerha.model.errors import BrokerhaError, NotReady
from brokerha.model.faults import fault_fields
from brokerha.model.ids import Lsn
from brokerha.ports.front import ReadOutcome

log = structlog.get_logger()

BACKLOG = 64
STOP_S = 2.0
_TOGETHER = 64
"""Most answers in one write, while none of them is large."""
_LARGE_BYTES = 16 * 1024


class Answerer(Protocol):
    """A part of a worker's front, which answers reads."""

    def read(
        self, kind: str, name: str, arguments: dict[str, Any], min_lsn: Lsn = 0, timeout_ms: int = 30_000
    ) -> Future[ReadOutcome]:
        """Read as `Front.read`."""


class AnsweringThread:
    """One socket, and all its connections."""

    def __init__(self, folder: Path, cluster: str, node: str, front: Answerer, opening: Callable[[], int]) -> None:
        """``opening`` returns a new number after each distrust of the copy."""
        self.front = front
        self.opening = opening
        self.hello: bytes = pack((HELLO, VERSION, cluster, node))
        self._folder = folder
        self._node = node
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.open: set[_Connection] = set()
        """Doors that are connected."""

    def start(self) -> None:
        """Listen and answer from now on. Without a socket, reads come over the broker, and the log says so."""
        try:
            listening = self._listen()
        except OSError as error:
            log.warning("reads of this machine go over the broker", node=self._node, reason=str(error))
            return
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(listening,), name=f"{self._node} near reads", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take no more reads; the doors ask elsewhere for unanswered ones. Idempotent."""
        loop, self._loop = self._loop, None
        if loop is None or self._thread is None:
            return
        with contextlib.suppress(FileNotFoundError):
            (self._folder / SOCKET).unlink()
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(loop.stop)
        self._thread.join(STOP_S)

    def _listen(self) -> socket.socket:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with address_of(self._folder) as address:
                # This process holds the lock of the store, so an existing socket is of an ended process.
                (self._folder / SOCKET).unlink(missing_ok=True)
                listening.bind(address)
                Path(address).chmod(0o600)
            listening.listen(BACKLOG)
            listening.setblocking(False)
        except OSError:
            listening.close()
            raise
        return listening

    def _run(self, listening: socket.socket) -> None:
        loop = self._loop
        if loop is None:
            return
        try:
            server = loop.run_until_complete(loop.create_unix_server(lambda: _Connection(self, loop), sock=listening))
            loop.run_forever()
            server.close()
            for connection in list(self.open):
                connection.transport.abort()
            # So that aborted connections are notified.
            loop.run_until_complete(asyncio.sleep(0))
        except Exception as error:  # noqa: BLE001  (the thread must not die silently)
            log.error(
                "reads of this machine go over the broker until this worker is restarted", node=self._node, **fault_fields(error)
            )
        finally:
            loop.close()


class _Connection(asyncio.Protocol):
    """The connection of one door."""

    transport: asyncio.Transport

    def __init__(self, thread: AnsweringThread, loop: asyncio.AbstractEventLoop) -> None:
        self._thread = thread
        self._loop = loop
        self._unpacker = unpacker()
        self._done: list[bytes] = []
        """Answers that are sent together."""
        self._is_due = False
        self._is_full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the hello."""
        self.transport = transport  # type: ignore[assignment]
        self._thread.open.add(self)
        self.transport.write(self._thread.hello)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection: no door waits for its reads."""
        self._thread.open.discard(self)

    def pause_writing(self) -> None:
        """Stop answering a door that does not take its answers."""
        self._is_full = True
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        """Answer again."""
        self._is_full = False
        self.transport.resume_reading()
        self._serve()

    def data_received(self, data: bytes) -> None:
        """Answer immediate reads; start the others."""
        self._unpacker.feed(data)
        self._serve()

    def _serve(self) -> None:
        try:
            while not self._is_full:
                frame = next(self._unpacker)
                if frame == (PING,):
                    self._done.append(PONG)
                else:
                    self._ask(*frame)
                if (self._done and len(self._done[-1]) > _LARGE_BYTES) or len(self._done) >= _TOGETHER:
                    self._send()
        except StopIteration:
            pass
        except (ValueError, TypeError) as error:
            log.warning("a door sent what is no read", **fault_fields(error))
            self.transport.abort()
            return
        self._send()

    def _ask(self, number: int, kind: str, name: str, arguments: dict[str, Any], min_lsn: int, timeout_ms: int) -> None:
        opening = self._thread.opening()
        try:
            future = self._thread.front.read(kind, name, arguments, min_lsn, timeout_ms)
        except Exception as error:  # noqa: BLE001  (the door asks elsewhere, and others go on)
            log.error("a read failed by a fault of brokerha", **fault_fields(error))
            self._done.append(pack((number, NotReady.__name__, "", 0, b"a fault of the worker")))
            return
        if future.done():
            self._done.append(self._answer(number, opening, future))
        else:
            future.add_done_callback(lambda done: self._later(number, opening, done))

    def _later(self, number: int, opening: int, done: Future[ReadOutcome]) -> None:
        """Queue an answer, from a thread of the pool."""
        with contextlib.suppress(RuntimeError):  # The loop has ended.
            self._loop.call_soon_threadsafe(self._settle, number, opening, done)

    def _settle(self, number: int, opening: int, done: Future[ReadOutcome]) -> None:
        self._done.append(self._answer(number, opening, done))
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._send)

    def _answer(self, number: int, opening: int, done: Future[ReadOutcome]) -> bytes:
        error = done.exception()
        if error is None and opening != self._thread.opening():
            error = NotReady("the copy was distrusted meanwhile")
        if error is not None:
            name = type(error).__name__ if isinstance(error, BrokerhaError) else NotReady.__name__
            return pack((number, name, "", 0, str(error).encode("utf-8", "replace")))  # type: ignore[no-any-return]
        outcome = done.result()
        return pack((number, "", outcome.content_type, outcome.lsn, outcome.body))  # type: ignore[no-any-return]

    def _send(self) -> None:
        self._is_due = False
        if self._done and not self.transport.is_closing():
            self.transport.write(b"".join(self._done))
        self._done.clear()
