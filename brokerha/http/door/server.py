"""HttpServer: uvicorn in its own thread. It listens before `start` returns, and stops within a time.

`start` itself takes the port, in the caller's thread, so that a taken port is an error at once and not a line in a log. An idle
server sleeps: uvicorn's own loop would wake up ten times a second, for each node of an embedded cluster.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Final, cast

import structlog
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from brokerha.http.door import accepting
from brokerha.http.door.accepting import Accepting
from brokerha.http.door.door import Door, HttpLimits
from brokerha.http.replaced import Certificate
from brokerha.model.errors import ConfigurationError
from brokerha.model.faults import fault_fields

LINGER_S: Final = 2.0
"""Time during which the data of a refused client is dropped: closing at once would lose the answer."""
_FIELD_BYTES: Final = 4
"""Colon, space and end of the line."""
log = structlog.get_logger()
START_LIMIT_S = 10.0
KEEP_ALIVE_S = 75
"""Longest time of an idle connection; longer than that of common proxies."""
BACKLOG = 1024


@dataclass(frozen=True, slots=True)
class HeadLimits:
    """Limits of one head."""

    size_bytes: int = 64 * 1024
    """Request line, headers and trailers; a query in the URL can be long."""
    fields: int = 256
    time_s: float = 30.0


class _Refused(Exception):
    """Raised through the parser, which reports its own error."""


class BoundedHeads(HttpToolsProtocol):
    """uvicorn's protocol with limits on heads: one connection, and the bytes before and between bodies.

        request line and headers   64 KiB and 256 headers in all        431, and the connection ends
        trailers                   the same, with the head; dropped
        framing only               64 KiB of chunk sizes and extensions without a byte of a body: 400, and the connection ends
        unfinished head            30 s after its first byte            408, and the connection ends
        Host                       once; may be missing before HTTP/1.1, else 400

    The memory of one connection's head is bounded by the limit and by one read of the socket.
    """

    def __init__(
        self, limits: HeadLimits, stall_s: float, *arguments: Any, on_end: Callable[[], None] = lambda: None, **named: Any
    ) -> None:
        super().__init__(*arguments, **named)
        self._limits = limits
        self._stall_s = stall_s
        self._stall: asyncio.TimerHandle | None = None
        self._unsent_bytes = 0
        self._is_lost = False
        self._on_end = on_end
        self._refusal: tuple[int, str] | None = None
        self._is_over = False
        """The connection was refused; further data is dropped."""
        self._in_head = True
        self._is_begun = False
        """A head has begun and is not complete."""
        self._head_bytes = self._head_fields = 0
        self._barren_bytes = 0
        """Bytes read since the last complete element."""
        self._came_of_it = False
        self._deadline: asyncio.TimerHandle | None = None

    # ---- the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start; a silent connection is closed after a time."""
        super().connection_made(transport)
        self._keep_alive()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self._is_lost = True
        self._on_end()
        self._disarm()
        if self._stall is not None:
            self._stall.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the data, within the limits."""
        if self._is_over:
            return
        self._came_of_it = False
        super().data_received(data)
        if self.transport.is_closing() or self._has_ended():
            return
        self._barren_bytes = 0 if self._came_of_it else self._barren_bytes + len(data)
        if self._barren_bytes > self._limits.size_bytes:
            self._refusal = (
                self._too_large() if self._in_head else (400, "a chunk of the body begins with too much that is no body")
            )
            self.send_400_response("")
        elif self._is_begun and self._deadline is None:
            self._deadline = self.loop.call_later(self._limits.time_s, self._late)
        elif self._in_head and not self._is_begun and self._is_idle():
            self._keep_alive()

    def send_400_response(self, msg: str) -> None:
        """Refuse unparsable data, or data that this class refuses, and end the connection."""
        status, text = self._refusal or (400, "this is no HTTP request")
        self._is_over = True
        self._disarm()
        body = f"{text}\n".encode()
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        is_idle = self._is_idle()
        self.transport.write(head.encode() + body)
        if is_idle:
            if self.transport.can_write_eof():
                self.transport.write_eof()
            self.loop.call_later(LINGER_S, self._close)
            return
        # The request under way gets no more data, and must not answer after this.
        self.cycle.disconnected = True
        self.cycle.message_event.set()
        self._close()

    # ---- what the parser calls

    def on_message_begin(self) -> None:
        """Note the first byte of a head."""
        super().on_message_begin()
        self._head_bytes = self._head_fields = 0
        self._is_begun = self._came_of_it = True

    def on_url(self, url: bytes) -> None:
        """Count a part of the address."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header or a trailer; trailers are ignored."""
        self._head_fields += 1
        self._count(len(name) + len(value) + _FIELD_BYTES)
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Check a complete head."""
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (not hosts and self.parser.get_http_version() == "1.1"):
            self._refusal = 400, f"a request has one Host header, and this one has {hosts or 'none'}"
            raise _Refused
        self._in_head = self._is_begun = False
        self._came_of_it = True
        self._disarm()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Pass a piece of a body on."""
        self._came_of_it = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note the end of a request."""
        self._in_head = self._came_of_it = True
        super().on_message_complete()

    # ---- a client that does not read

    def pause_writing(self) -> None:
        """Watch whether the client takes anything."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """Watch what is left."""
        super().resume_writing()
        self._watch()

    def on_response_complete(self) -> None:
        """Watch whether the client takes the end of an answer; a connection that is closed before that would wait for ever."""
        super().on_response_complete()
        self._watch()

    def timeout_keep_alive_handler(self) -> None:
        """End an idle connection, also of a client that has not taken all of its answers."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        self._close()

    def _close(self) -> None:
        self.transport.close()
        self._watch()

    def _watch(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
        if self._is_lost:
            return
        self._unsent_bytes = self.transport.get_write_buffer_size()
        if self._unsent_bytes or self.transport.is_closing():
            self._stall = self.loop.call_later(self._stall_s, self._look)

    def _look(self) -> None:
        if self.transport.is_closing() or self.transport.get_write_buffer_size() >= self._unsent_bytes:
            self.transport.abort()
        else:
            self._watch()

    # ---- limits

    def _count(self, size_bytes: int) -> None:
        self._came_of_it = True
        self._head_bytes += size_bytes
        if self._head_bytes > self._limits.size_bytes or self._head_fields > self._limits.fields:
            self._refusal = self._too_large()
            raise _Refused

    def _too_large(self) -> tuple[int, str]:
        limits = self._limits
        return (
            431,
            f"request line and headers have more than {limits.size_bytes} bytes or {limits.fields} headers: send a long query in the body",
        )

    def _is_idle(self) -> bool:
        # uvicorn types it as always present, but starts without one.
        return self.cycle is None or self.cycle.response_complete  # type: ignore[redundant-expr]

    def _has_ended(self) -> bool:
        return self._is_over

    def _keep_alive(self) -> None:
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _late(self) -> None:
        self._deadline = None
        if self._is_over or self.transport.is_closing():
            return
        if not self._is_idle():
            # The next request has begun during the answer to this one.
            self._deadline = self.loop.call_later(self._limits.time_s, self._late)
            return
        self._refusal = 408, f"the head of the request was not there after {self._limits.time_s:g} s"
        self.send_400_response("")

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class HttpServer:
    """One listening address."""

    def __init__(
        self,
        app: Any,
        host: str,
        port: int,
        tls: Certificate | None = None,
        heads: HeadLimits | None = None,
        connections_limit: int = 0,
    ) -> None:
        """Set up the server; without ``tls`` it speaks plain HTTP. By default the limit of connections is that of the process."""
        self.host = host
        self._heads = heads or HeadLimits()
        self._connections_limit = connections_limit or accepting.connections_limit()
        self._tls = tls
        self.port = port
        """The listening port; `start` replaces a configured 0 by a free one."""
        self._app = app
        door: Door | None = getattr(app, "door", None)
        # The handler gives up first, and says so in the log.
        self._stall_s = 1.0 + (door.limits if door is not None else HttpLimits()).answer_stall_s
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """URL of this server."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}"

    def start(self) -> None:
        """Listen, and serve in a thread. Raises ConfigurationError when the address is not available."""
        listening, tls = self._listen(), self._tls
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
            # uvicorn calls it as a factory; its type wants a class.
            http=cast("type[asyncio.Protocol]", partial(BoundedHeads, self._heads, self._stall_s)),
            ssl_context_factory=None if tls is None else lambda _config, _default: tls.context(),
        )
        self._server = _Server(config, listening, self._connections_limit, getattr(self._app, "door", None))
        self._thread = threading.Thread(target=self._server.serve_until_stopped, name=f"http {self.port}", daemon=True)
        self._thread.start()
        if not self._server.is_up.wait(START_LIMIT_S) or self._server.fault is not None:
            raise ConfigurationError(f"the HTTP server at {self.url} did not start: {self._server.fault or 'timed out'}")

    def _listen(self) -> socket.socket:
        # The protocol must be named: otherwise asyncio does not disable Nagle's algorithm, and each answer whose head and body are
        # two writes takes 40 ms.
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
        """Finish requests under way as far as time allows, then close; return whether it ended in time. Idempotent."""
        if self._server is None or self._thread is None:
            return True
        self._server.ask_to_stop(timeout_s)
        # The server stops by itself at the timeout; the rest is for closing.
        self._thread.join(timeout_s + 1.0)
        if (door := getattr(self._app, "door", None)) is not None:
            door.close()
        return not self._thread.is_alive()


class _Server(uvicorn.Server):
    """uvicorn, woken by an event instead of a clock, with a limit of connections."""

    def __init__(self, config: uvicorn.Config, listening: socket.socket, connections_limit: int, door: Door | None) -> None:
        super().__init__(config)
        self._door = door
        self._connections_limit = connections_limit
        self._accepting: Accepting | None = None
        self.is_up = threading.Event()
        self.fault: BaseException | None = None
        self._listening = listening
        self._stopping: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def serve_until_stopped(self) -> None:
        """Run the server; the body of the thread."""
        try:
            self.run([])
        except BaseException as error:  # noqa: BLE001  (the thread must not die silently)
            self.fault = error
            log.error("the HTTP server has ended by a fault", **fault_fields(error))
        finally:
            self._listening.close()
            self.is_up.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, and signal it."""
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        await super().startup(sockets)
        self._accepting = Accepting(self._listening, self._connections_limit, self._protocol, self.config.ssl)
        self.is_up.set()

    def _protocol(self, on_end: Callable[[], None]) -> asyncio.Protocol:
        make = cast("Callable[..., asyncio.Protocol]", self.config.http_protocol_class)
        return make(config=self.config, server_state=self.server_state, app_state=self.lifespan.state, on_end=on_end)

    async def main_loop(self) -> None:
        """Sleep until asked to stop."""
        if self._stopping is not None:
            await self._stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish requests under way, then close the door's connections of this loop."""
        if self._accepting is not None:
            self._accepting.stop()
        self._listening.close()
        await super().shutdown(sockets)
        if self._door is not None:
            self._door.leave()
            await asyncio.sleep(0)

    def ask_to_stop(self, timeout_s: float) -> None:
        """End within about this time; any thread can call it."""
        # uvicorn reads it at the begin of the shutdown; fractions of seconds work as well.
        self.config.timeout_graceful_shutdown = timeout_s  # type: ignore[assignment]
        if self._loop is not None and self._stopping is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stopping.set)
