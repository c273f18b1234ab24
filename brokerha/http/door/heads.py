"""What may come before and between bodies on one connection: uvicorn's protocol with limits on heads.

    request line and headers   64 KiB and 256 headers in all        431, and the connection ends
    trailers                   the same, with the head; dropped
    nothing but framing        64 KiB of chunk sizes and extensions without a byte of a body: 400, and the connection ends
    a head that does not end   30 s after its first byte            408, and the connection ends
    Host                       once; may be missing before HTTP/1.1, else 400

Memory that one connection takes for a head is bounded by the limit and by what one read of the socket gives.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LINGER_S: Final = 2.0
"""How long what a refused client still sends is dropped: a connection closed at once would take the answer from it."""
_FIELD_BYTES: Final = 4
"""Colon, space and end of the line."""


@dataclass(frozen=True, slots=True)
class HeadLimits:
    """Limits of one head."""

    size_bytes: int = 64 * 1024
    """Request line, headers and trailers; a query in the URL may be long."""
    fields: int = 256
    time_s: float = 30.0


class _Refused(Exception):
    """Raised through the parser, which tells it as an error of its own."""


class BoundedHeads(HttpToolsProtocol):
    """One connection."""

    def __init__(self, limits: HeadLimits, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._limits = limits
        self._refusal: tuple[int, str] | None = None
        self._is_over = False
        """It was refused, and what still comes is dropped."""
        self._in_head = True
        self._is_begun = False
        """The first byte of a head was there, and not the last one."""
        self._head_bytes = self._head_fields = 0
        self._barren_bytes = 0
        """Read since something whole came of it."""
        self._came_of_it = False
        self._deadline: asyncio.TimerHandle | None = None

    # ---- the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin; who never says anything is not kept for ever."""
        super().connection_made(transport)
        self._keep_alive()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came, as far as the limits allow."""
        if self._is_over:
            return
        self._came_of_it = False
        super().data_received(data)
        if self.transport.is_closing() or self._has_ended():
            return
        self._barren_bytes = 0 if self._came_of_it else self._barren_bytes + len(data)
        if self._barren_bytes > self._limits.size_bytes:
            self._refusal = (
                self._too_large()
                if self._in_head
                else (400, "a chunk of the body begins with too much that is no body")
            )
            self.send_400_response("")
        elif self._is_begun and self._deadline is None:
            self._deadline = self.loop.call_later(self._limits.time_s, self._late)
        elif self._in_head and not self._is_begun and self._is_idle():
            self._keep_alive()

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be parsed, or what this class refuses, and end the connection."""
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
            self.loop.call_later(LINGER_S, self.transport.close)
            return
        # The request under way gets nothing more, and may not answer after this.
        self.cycle.disconnected = True
        self.cycle.message_event.set()
        self.transport.close()

    # ---- what the parser calls

    def on_message_begin(self) -> None:
        """The first byte of a head."""
        super().on_message_begin()
        self._head_bytes = self._head_fields = 0
        self._is_begun = self._came_of_it = True

    def on_url(self, url: bytes) -> None:
        """A part of the address."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer, which nobody here wants."""
        self._head_fields += 1
        self._count(len(name) + len(value) + _FIELD_BYTES)
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The end of a head."""
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (not hosts and self.parser.get_http_version() == "1.1"):
            self._refusal = 400, f"a request has one Host header, and this one has {hosts or 'none'}"
            raise _Refused
        self._in_head = self._is_begun = False
        self._came_of_it = True
        self._disarm()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of a body."""
        self._came_of_it = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The end of a request."""
        self._in_head = self._came_of_it = True
        super().on_message_complete()

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
        # uvicorn says that there always is one, and begins with none.
        return self.cycle is None or self.cycle.response_complete  # type: ignore[redundant-expr]

    def _has_ended(self) -> bool:
        return self._is_over

    def _keep_alive(self) -> None:
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _late(self) -> None:
        self._deadline = None
        if self._is_over or self.transport.is_closing():
            return
        if not self._is_idle():
            # The next request has begun while this one is answered.
            self._deadline = self.loop.call_later(self._limits.time_s, self._late)
            return
        self._refusal = 408, f"the head of the request was not there after {self._limits.time_s:g} s"
        self.send_400_response("")

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
