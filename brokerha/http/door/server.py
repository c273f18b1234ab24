"""uvicorn in a thread of its own: listens before `start` returns, stops within a time.

The port is taken by `start` itself, in the caller's thread, so that a port that is not free is an error at once and not a
line in a log. An idle server sleeps: uvicorn's own loop would wake up ten times a second, for each node of an embedded
cluster.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from functools import partial
from pathlib import Path
from typing import Any, cast

import structlog
import uvicorn

from brokerha.http.door.door import Door
from brokerha.http.door.heads import BoundedHeads, HeadLimits
from brokerha.model.errors import ConfigurationError
from brokerha.model.faults import fault_fields

log = structlog.get_logger()

START_LIMIT_S = 10.0
KEEP_ALIVE_S = 75
"""How long an idle connection is kept open; longer than common proxies keep theirs."""
BACKLOG = 1024


class HttpServer:
    """One listening address."""

    def __init__(
        self, app: Any, host: str, port: int, tls: tuple[Path, Path] | None = None, heads: HeadLimits | None = None
    ) -> None:
        """``tls`` is a certificate and its key, as PEM files; without it the server speaks plain HTTP."""
        self.host = host
        self._heads = heads or HeadLimits()
        self._tls = tls
        self.port = port
        """The port it listens on; that of the configuration until `start`, which replaces 0 by a free one."""
        self._app = app
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where it can be reached."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}"

    def start(self) -> None:
        """Listen, and serve in a thread. Raises ConfigurationError when the address cannot be had."""
        listening = self._listen()
        config = uvicorn.Config(
            self._app,
            lifespan="off",
            ws="none",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            # uvicorn takes what makes a protocol; its type says a class.
            http=cast("type[asyncio.Protocol]", partial(BoundedHeads, self._heads)),
            backlog=BACKLOG,
            ssl_certfile=self._tls[0] if self._tls else None,
            ssl_keyfile=self._tls[1] if self._tls else None,
        )
        self._server = _Server(config, listening, getattr(self._app, "door", None))
        self._thread = threading.Thread(target=self._server.serve_until_stopped, name=f"http {self.port}", daemon=True)
        self._thread.start()
        if not self._server.is_up.wait(START_LIMIT_S) or self._server.fault is not None:
            raise ConfigurationError(
                f"the HTTP server at {self.url} did not start: {self._server.fault or 'timed out'}"
            )

    def _listen(self) -> socket.socket:
        # The protocol is named, because asyncio switches Nagle's algorithm off only where it is: without it each answer
        # whose head and body are two writes takes 40 ms.
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((self.host, self.port))
            listening.listen(BACKLOG)
        except OSError as error:
            listening.close()
            if error.errno == errno.EADDRINUSE:
                reason = "another process listens there: stop it, or give this node another address"
            else:
                reason = f"{error.strerror or error}: write an address of this machine and a port that you may use"
            raise ConfigurationError(f"http = {self.host}:{self.port}: {reason}") from None
        listening.setblocking(False)
        self.port = listening.getsockname()[1]
        return listening

    def stop(self, timeout_s: float = 5.0) -> bool:
        """Finish requests under way as far as the time allows, then close; whether it ended in time. Idempotent."""
        if self._server is None or self._thread is None:
            return True
        self._server.ask_to_stop(timeout_s)
        # The server gives up by itself at the time-out; the rest is for closing.
        self._thread.join(timeout_s + 1.0)
        if (door := getattr(self._app, "door", None)) is not None:
            door.close()
        return not self._thread.is_alive()


class _Server(uvicorn.Server):
    """uvicorn, woken by an event instead of a clock."""

    def __init__(self, config: uvicorn.Config, listening: socket.socket, door: Door | None) -> None:
        super().__init__(config)
        self._door = door
        self.is_up = threading.Event()
        self.fault: BaseException | None = None
        self._listening = listening
        self._stopping: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def serve_until_stopped(self) -> None:
        """Body of the thread."""
        try:
            self.run([self._listening])
        except BaseException as error:  # noqa: BLE001  (the thread must not die silently)
            self.fault = error
            log.error("the HTTP server has ended by a fault", **fault_fields(error))
        finally:
            self._listening.close()
            self.is_up.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and say so."""
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        await super().startup(sockets)
        self.is_up.set()

    async def main_loop(self) -> None:
        """Sleep until asked to stop."""
        if self._stopping is not None:
            await self._stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish what is under way, then leave what the door has connected to in this loop."""
        await super().shutdown(sockets)
        if self._door is not None:
            self._door.leave()
            await asyncio.sleep(0)

    def ask_to_stop(self, timeout_s: float) -> None:
        """End within about this time; callable from any thread."""
        # uvicorn reads it when the shutdown begins; it takes whole seconds or fractions alike.
        self.config.timeout_graceful_shutdown = timeout_s  # type: ignore[assignment]
        if self._loop is not None and self._stopping is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stopping.set)
