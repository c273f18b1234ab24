"""py-amqp's socket, without its system calls: large reads, collected writes, and no call that blocks unasked.

py-amqp reads a frame with three `recv` calls and writes a message with one `sendall`. Each call gives up the
interpreter's lock, and a busy loop thread may keep it for milliseconds before it comes back. Here a delivered message
costs a fraction of one call, and whatever was published in a turn leaves in one.

    serve:      fill() until False ── next_frame() until None ── … publish, ack … ── flush() ── wait for the socket
    py-amqp:    read_frame() in its synchronous calls (open, declare): flushes, then waits with a deadline

Invariants: the socket is non-blocking throughout; only `read_frame` waits, at most ``answer_timeout_s`` or the time
that py-amqp asked for; a write that the peer does not take stays in the buffer, and `flush` says so.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ssl import SSLWantReadError, SSLWantWriteError
from struct import unpack_from
from typing import Any

from amqp.exceptions import UnexpectedFrame
from amqp.transport import SSLTransport, TCPTransport

_BUFFER_BYTES = 512 * 1024
_LEAST_READ_BYTES = 64 * 1024
_FRAME_LIMIT_BYTES = 256 * 1024
"""Above twice the frame size that py-amqp negotiates (128 KiB)."""
_HEADER_BYTES = 7
_END_OF_FRAME = 0xCE
_WOULD_BLOCK = (BlockingIOError, SSLWantReadError, SSLWantWriteError)


class FrameSocket:
    """Mixed into py-amqp's TCP and TLS transports; see the head of the module."""

    sock: Any
    answer_timeout_s: float = 10.0
    is_read_in_parts: bool = False
    """Whether a read may bring less than there is."""
    may_have_more: bool = False
    """Whether the last `fill` may have left something behind."""

    def _setup_transport(self) -> None:
        super()._setup_transport()  # type: ignore[misc]  # py-amqp's: the TLS handshake.
        self.sock.setblocking(False)
        self._incoming = bytearray(_BUFFER_BYTES)
        self._start = 0
        self._end = 0
        self._outgoing = bytearray()
        self._patience_s = self.answer_timeout_s
        self._write = self._outgoing.extend

    @property
    def unsent_bytes(self) -> int:
        """What `flush` could not get rid of."""
        return len(self._outgoing)

    def fill(self) -> bool:
        """Read what is there, up to the size of the buffer; False when nothing was. Raises OSError at the end."""
        if self._start == self._end:
            self._start = self._end = 0
        elif _BUFFER_BYTES - self._end < _LEAST_READ_BYTES:
            rest = self._end - self._start
            self._incoming[:rest] = self._incoming[self._start : self._end]
            self._start, self._end = 0, rest
        self.may_have_more = False
        with memoryview(self._incoming) as view:
            try:
                count = self.sock.recv_into(view[self._end :])
            except _WOULD_BLOCK:
                return False
        if not count:
            raise ConnectionResetError("the broker closed the connection")
        self._end += count
        self.may_have_more = self.is_read_in_parts or self._end == _BUFFER_BYTES
        return True

    def next_frame(self) -> tuple[int, int, bytes] | None:
        """The next whole frame in the buffer as (type, channel, payload). Raises UnexpectedFrame on other bytes."""
        if self._end - self._start < _HEADER_BYTES:
            return None
        kind, channel, size = unpack_from(">BHI", self._incoming, self._start)
        if size > _FRAME_LIMIT_BYTES:
            raise UnexpectedFrame(f"a frame of {size} bytes: this is no AMQP")
        begin = self._start + _HEADER_BYTES
        if self._end <= begin + size:
            return None
        if self._incoming[begin + size] != _END_OF_FRAME:
            raise UnexpectedFrame("a frame without its end: this is no AMQP")
        self._start = begin + size + 1
        # Through a view the bytes are copied once, not twice.
        with memoryview(self._incoming) as view:
            return kind, channel, bytes(view[begin : begin + size])

    def flush(self) -> bool:
        """Write what was collected, as far as the peer takes it; whether nothing is left."""
        outgoing = self._outgoing
        sent = 0
        with memoryview(outgoing) as view:
            try:
                while sent < len(view):
                    sent += self.sock.send(view[sent:])
            except _WOULD_BLOCK:
                pass
        del outgoing[:sent]
        return not outgoing

    def read_frame(self, **_options: Any) -> tuple[int, int, bytes]:
        """For py-amqp's synchronous calls: flush, and wait for a frame. Raises TimeoutError."""
        deadline_s = time.monotonic() + self._patience_s
        while True:
            is_flushed = self.flush()
            frame = self.next_frame()
            if frame is not None:
                # What came with it is for the next read.
                self.may_have_more = True
                return frame
            if not self.fill():
                self._wait(deadline_s, select.POLLIN if is_flushed else select.POLLIN | select.POLLOUT)

    @contextmanager
    def having_timeout(self, timeout: float | None) -> Iterator[Any]:
        """py-amqp's way to say how long `read_frame` may wait; None means our own time-out, never for ever."""
        self._patience_s = self.answer_timeout_s if timeout is None else timeout
        yield self.sock

    def _wait(self, deadline_s: float, events: int) -> None:
        poll = select.poll()
        poll.register(self.sock, events)
        if not poll.poll(max(0.0, deadline_s - time.monotonic()) * 1000):
            raise TimeoutError("the broker does not answer")


class TcpFrameSocket(FrameSocket, TCPTransport):  # type: ignore[misc]  # py-amqp has no types.
    """Over TCP."""


class TlsFrameSocket(FrameSocket, SSLTransport):  # type: ignore[misc]  # py-amqp has no types.
    """Over TLS. Decrypted bytes never stay behind in the TLS layer, which gives a record at a time: `fill` is called until it returns False."""

    is_read_in_parts = True
