"""Accepts the connections of one listening socket, up to a limit: above it a new one is closed at once, and those that are there stay.

uvicorn would take each, so that anybody who reaches the door could use up the descriptors of the process, in which the node needs
some for its files. A connection counts from the moment it is accepted, so before a TLS handshake, too.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
from collections.abc import Callable
from typing import Final

import structlog

CONNECTIONS_LIMIT: Final = 8192
ACCEPTED_AT_ONCE: Final = 256
RETRY_S: Final = 1.0
"""Pause when no descriptor is left at all."""
LOG_EVERY_S: Final = 60.0
log = structlog.get_logger()


def connections_limit(files: int | None = None) -> int:
    """Return the limit of connections of a door in a process that can have so many open files; by default in this one."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if files is None else files
    return CONNECTIONS_LIMIT if soft < 0 else min(CONNECTIONS_LIMIT, soft // 2)


class Accepting:
    """``make`` returns the protocol of a new connection, which calls its argument at its end."""

    def __init__(
        self,
        listening: socket.socket,
        limit: int,
        make: Callable[[Callable[[], None]], asyncio.Protocol],
        tls: ssl.SSLContext | None,
    ) -> None:
        """Begin, in the running loop."""
        self._listening = listening
        self._limit = limit
        self._make = make
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._there: set[socket.socket] = set()
        self._beginning: set[asyncio.Task[None]] = set()
        self._quiet_until_s = 0.0
        self._retry: asyncio.TimerHandle | None = None
        self._listen()

    def stop(self) -> None:
        """Accept no more."""
        self._loop.remove_reader(self._listening)
        if self._retry is not None:
            self._retry.cancel()

    def _listen(self) -> None:
        self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                accepted, _address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._warn("no connection can be accepted", reason=error.strerror or str(error))
                self._loop.remove_reader(self._listening)
                self._retry = self._loop.call_later(RETRY_S, self._listen)
                return
            if len(self._there) >= self._limit:
                accepted.close()
                self._warn("new connections are closed: as many as this door takes are open", limit=self._limit)
                continue
            accepted.setblocking(False)
            self._there.add(accepted)
            task = self._loop.create_task(self._begin(accepted))
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)

    async def _begin(self, accepted: socket.socket) -> None:
        def end() -> None:
            self._there.discard(accepted)

        try:
            await self._loop.connect_accepted_socket(lambda: self._make(end), accepted, ssl=self._tls)
        except OSError:
            # A handshake that failed, or took too long.
            end()
            accepted.close()

    def _warn(self, event: str, **facts: object) -> None:
        if self._loop.time() >= self._quiet_until_s:
            self._quiet_until_s = self._loop.time() + LOG_EVERY_S
            log.warning(event, port=self._listening.getsockname()[1], **facts)
