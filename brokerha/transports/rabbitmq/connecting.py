"""Connections to RabbitMQ through kombu and py-amqp: opened with names and limits, and explained when lost.

    kombu.Connection ── RabbitTransport ── RabbitConnection (py-amqp) ── FrameSocket
                                               └── RabbitChannel

Differences from kombu's own ``amqp`` transport: the socket (below). A publication does not read from the socket first, because the
owning thread reads it once in each turn. TLS verifies the host name. Nothing reconnects automatically: the owner of the connection
decides (kept_connection.py).
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from ssl import SSLWantReadError, SSLWantWriteError
from struct import Struct, pack, unpack_from
from typing import Any

from amqp import spec
from amqp.exceptions import (
    AccessRefused,
    AMQPError,
    NotAllowed,
    PreconditionFailed,
    RecoverableConnectionError,
    ResourceLocked,
    UnexpectedFrame,
)
from amqp.serialization import dumps
from amqp.transport import SSLTransport, TCPTransport
from kombu import Connection
from kombu.exceptions import KombuError
from kombu.transport import pyamqp

from brokerha.model.errors import Unreachable
from brokerha.ports.transport import Problem
from brokerha.transports.config import TransportConfig
from brokerha.transports.lanes import Publication
from brokerha.transports.rabbitmq.addresses import NO_BROKER, Address, explain_os_error, refused
from brokerha.transports.rabbitmq.identity import Identity
from brokerha.transports.rabbitmq.properties import Message, install
from brokerha.transports.topology import foreign_problem

_BUFFER_BYTES = 512 * 1024
_LEAST_READ_BYTES = 64 * 1024
_FRAME_LIMIT_BYTES = 256 * 1024
"""Above twice the frame size that py-amqp negotiates (128 KiB)."""
_HEADER_BYTES = 7
_END_OF_FRAME = 0xCE
_WOULD_BLOCK = (BlockingIOError, SSLWantReadError, SSLWantWriteError)
_METHOD_FRAME = 1
_HEADER_FRAME = 2
_BODY_FRAME = 3
_FRAME_HEAD = Struct(">BHI")
_FRAME_END = b"\xce"
_CONTENT_HEAD = Struct(">HHQ")
_LARGE_BYTES = 64 * 1024
"""Larger bodies are cut into frames here: py-amqp copies them twice more."""
_HEARTBEAT_LOOK_S = 0.5
"""Interval of checks for due heartbeats during a wait. The broker sends its own at most every second."""
_CACHED = 1024
"""Number of encoded destinations and property sets kept: a node has few, and encoding costs more than sending."""


class FrameSocket:
    """py-amqp's socket with fewer system calls: large reads, collected writes, and no unwanted blocking.

    Mixed into py-amqp's TCP and TLS transports; see the head of the module.

    py-amqp reads a frame with three `recv` calls and writes a message with one `sendall`. Each call releases the interpreter's
    lock, and a busy loop thread can then keep it for milliseconds. Here a delivered message costs a fraction of one call, and all
    publications of a turn leave in one.

        serve:      fill() until False ── next_frame() until None ── … publish, ack … ── flush() ── wait for the socket
        py-amqp:    read_frame() in its synchronous calls (open, declare): flushes, then waits with a deadline

    Invariants: the socket is always non-blocking. Only `read_frame` waits, at most ``answer_timeout_s`` or the time that py-amqp
    asked for. Data that the peer does not take stays in the buffer, and `flush` reports it.
    """

    sock: Any
    answer_timeout_s: float = 10.0
    is_read_in_parts: bool = False
    """Whether a read can return less than there is."""
    may_have_more: bool = False
    """Whether the last `fill` possibly left something behind."""

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
        """Number of bytes that `flush` could not send."""
        return len(self._outgoing)

    def fill(self) -> bool:
        """Read available bytes, up to the size of the buffer; return False when there were none. Raises OSError at the end."""
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
        """Return the next whole frame in the buffer as (type, channel, payload), or None. Raises UnexpectedFrame on other bytes."""
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
        # A view avoids a second copy of the bytes.
        with memoryview(self._incoming) as view:
            return kind, channel, bytes(view[begin : begin + size])

    def flush(self) -> bool:
        """Write the collected bytes, as far as the peer takes them; return whether none is left."""
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
        """Flush, and wait for a frame, for py-amqp's synchronous calls. Raises TimeoutError."""
        deadline_s = time.monotonic() + self._patience_s
        while True:
            is_flushed = self.flush()
            frame = self.next_frame()
            if frame is not None:
                # Bytes after this frame are for the next read.
                self.may_have_more = True
                return frame
            if not self.fill():
                self._wait(deadline_s, select.POLLIN if is_flushed else select.POLLIN | select.POLLOUT)

    @contextmanager
    def having_timeout(self, timeout: float | None) -> Iterator[Any]:
        """Set how long `read_frame` can wait, in py-amqp's form; None means the own timeout, never for ever."""
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
    """Over TLS. The TLS layer returns one record at a time, so `fill` is called until it returns False."""

    is_read_in_parts = True


@lru_cache(_CACHED)
def _publish_arguments(exchange: str, routing_key: str, mandatory: bool) -> bytes:
    encoded: bytes = dumps("Bssbb", (0, exchange, routing_key, mandatory, False))
    return encoded


@lru_cache(_CACHED)
def _encoded_properties(properties: tuple[tuple[str, Any], ...], also: tuple[str, ...]) -> bytes:
    # RabbitMQ also routes by these keys: https://www.rabbitmq.com/docs/sender-selected. Not BCC, which it removes: a federated
    # broker would then know only the first key.
    more = {"application_headers": {"CC": also}} if also else {}
    encoded: bytes = Message(b"", **dict(properties), **more)._serialize_properties()  # noqa: SLF001  # py-amqp has no other way.
    return encoded


@lru_cache(_CACHED)
def _publish_frame(channel: int, exchange: str, routing_key: str) -> bytes:
    payload = pack(">HH", *spec.Basic.Publish) + _publish_arguments(exchange, routing_key, False)
    return _FRAME_HEAD.pack(_METHOD_FRAME, channel, len(payload)) + payload + _FRAME_END


class RepeatedMessage(Message):
    """A message with the properties of many others, encoded once. All values must be hashable."""

    def _serialize_properties(self) -> bytes:
        return _encoded_properties(tuple(self.properties.items()), ())


class RabbitChannel(pyamqp.Channel):
    """A channel that only writes publications; confirmations, returns and refusals come as events."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.auto_decode = False
        # py-amqp can set a confirming version on the instance; this one is for all.
        self.basic_publish = self._publish

    def _publish(
        self, message: Any, exchange: str = "", routing_key: str = "", *, mandatory: bool = False, **_options: Any
    ) -> None:
        if self.connection is None:
            raise RecoverableConnectionError("the connection is closed")
        arguments = _publish_arguments(exchange, routing_key, mandatory)
        if len(message.body) > _LARGE_BYTES:
            self._publish_large(arguments, message)
            return
        self.connection.frame_writer(_METHOD_FRAME, self.channel_id, spec.Basic.Publish, arguments, message)

    def publish_to_nodes(self, publication: Publication) -> None:
        """Publish a message with the properties of many others, encoded once: all values must be hashable."""
        body = publication.body
        properties = _encoded_properties(tuple(publication.properties.items()), publication.also)
        head = _CONTENT_HEAD.pack(spec.Basic.Publish[0], 0, len(body))
        frames = [
            _publish_frame(self.channel_id, publication.exchange, publication.routing_key),
            _FRAME_HEAD.pack(_HEADER_FRAME, self.channel_id, len(head) + len(properties)),
            head,
            properties,
            _FRAME_END,
        ]
        self.connection.transport.write(b"".join(frames))
        self._write_body(body)

    def ask(self, on_answer: Callable[[], None]) -> None:
        """Ask the broker whether it serves this channel; it answers after everything sent before. One question at a time."""
        self._callbacks[spec.Channel.FlowOk] = lambda _is_active: on_answer()
        self.send_method(spec.Channel.Flow, "b", (True,))

    def leave(self) -> None:
        """Close the channel without waiting: unacknowledged messages go back; later frames are ignored."""

        def until_closed(method: tuple[int, int], *_content: Any) -> None:
            if method == spec.Channel.Close:
                self.send_method(spec.Channel.CloseOk)
            elif method == spec.Channel.CloseOk:
                self.collect()

        # py-amqp's own method would log every ignored frame.
        self.dispatch_method = until_closed
        self.send_method(spec.Channel.Close, "BsBB", (0, "", 0, 0))

    def _publish_large(self, arguments: bytes, message: Any) -> None:
        """Write method, header and body as frames; write nothing when a property cannot be encoded."""
        body = message.body
        properties = message._serialize_properties()  # noqa: SLF001  # As py-amqp's own frame writer does.
        header = _CONTENT_HEAD.pack(spec.Basic.Publish[0], 0, len(body)) + properties
        self._write_frame(_METHOD_FRAME, pack(">HH", *spec.Basic.Publish) + arguments)
        self._write_frame(_HEADER_FRAME, header)
        self._write_body(body)

    def _write_body(self, body: bytes) -> None:
        most_bytes = self.connection.frame_max - _FRAME_HEAD.size - len(_FRAME_END)
        with memoryview(body) as view:
            for start in range(0, len(body), most_bytes):
                self._write_frame(_BODY_FRAME, view[start : start + most_bytes])
        # py-amqp counts this to know whether a heartbeat is due.
        self.connection.bytes_sent += 1

    def _write_frame(self, kind: int, payload: bytes | memoryview) -> None:
        write = self.connection.transport.write
        write(_FRAME_HEAD.pack(kind, self.channel_id, len(payload)))
        write(payload)
        write(_FRAME_END)


class RabbitConnection(pyamqp.Connection):
    """A py-amqp connection over a FrameSocket."""

    Channel = RabbitChannel

    def on_inbound_method(self, channel_id: int, method: tuple[int, int], payload: Any, content: Any) -> None:
        """Pass a method to its channel; RabbitMQ can send deliveries after the close of a channel, which is gone here."""
        if self.channels is None or channel_id in self.channels:
            super().on_inbound_method(channel_id, method, payload, content)

    def drain_events(self, timeout: float | None = None) -> None:
        """Wait for a message or an answer, up to the timeout in total. Raises TimeoutError.

        py-amqp's own method restarts its time with each heartbeat of the broker, so it can block for ever; and it sends none.
        """
        deadline_s = time.monotonic() + (self.transport.answer_timeout_s if timeout is None else timeout)
        while True:
            left_s = deadline_s - time.monotonic()
            try:
                if self.blocking_read(min(max(0.0, left_s), _HEARTBEAT_LOOK_S)):
                    return
            except TimeoutError:
                if left_s <= _HEARTBEAT_LOOK_S:
                    raise
            if time.monotonic() >= deadline_s:
                raise TimeoutError("nothing came in time")
            self.heartbeat_tick(rate=2)

    def Transport(self, host: str, connect_timeout: float, tls: Any, *_timeouts: Any, **options: Any) -> Any:  # noqa: N802
        """Make the socket; py-amqp asks for it under this name. Its own timeouts are for blocking sockets."""
        made = TlsFrameSocket if tls else TcpFrameSocket
        frame_socket = made(host, connect_timeout=connect_timeout, ssl=tls, **options)
        frame_socket.answer_timeout_s = connect_timeout
        return frame_socket


class RabbitTransport(pyamqp.Transport):
    """The transport for kombu."""

    Connection = RabbitConnection


def open_connection(
    address: Address,
    identity: Identity,
    config: TransportConfig,
    on_blocked: Callable[[str], None] | None = None,
    on_unblocked: Callable[[], None] | None = None,
) -> Connection:
    """Connect; ``identity`` is shown in the dashboard. Raises OSError or AMQPError after one attempt."""
    install()
    connection = Connection(
        hostname=address.host,
        port=address.port,
        userid=address.user,
        password=address.password,
        virtual_host=address.vhost,
        transport=RabbitTransport,
        ssl=tls_options(address),
        heartbeat=config.heartbeat_s,
        connect_timeout=config.connect_timeout_s,
        transport_options={
            "client_properties": identity.properties(),
            "socket_settings": {socket.TCP_USER_TIMEOUT: config.tcp_user_timeout_ms},
            "on_blocked": on_blocked,
            "on_unblocked": on_unblocked,
        },
    )
    connection.ensure_connection(max_retries=0, reraise_as_library_errors=False)
    return connection


def message_limit(server: Mapping[str, Any]) -> int:
    """Return the default size of the largest message of a broker, by its properties: RabbitMQ does not tell the configured one.

    >>> message_limit({"version": "3.10.8"}) // 1024**2, message_limit({"version": "4.0.5"}) // 1024**2
    (128, 16)
    """
    major = str(server.get("version", "")).partition(".")[0]
    return (128 if major == "3" else 16) * 1024 * 1024


class LedNowhere(KombuError):
    """A connection is given up because its messages lead nowhere."""


def no_broker(*problems: Problem) -> Unreachable:
    """Return the error of a command without a broker, with the reason (`explain`) for each address."""
    # A broker that answers is closer to working than a silent one: its problem comes first.
    remedy = next((problem.remedy for problem in problems if problem.remedy != NO_BROKER), NO_BROKER)
    return Unreachable("; ".join(problem.reason for problem in problems), remedy)


def foreign(error: BaseException, address: Address) -> Problem | None:
    """Explain a refusal because the virtual host is another cluster's; return None for any other error."""
    text = str(error.reply_text) if isinstance(error, PreconditionFailed) else ""
    reason = foreign_problem(text, f"the virtual host {address.vhost!r} at {address.host}:{address.port}")
    remedy = (
        "give each cluster a virtual host of its own (rabbitmqctl add_vhost NAME) and write it in broker; "
        "if the other one is gone for good, delete its virtual host and make it anew"
    )
    return Problem(reason, remedy) if reason else None


def explain(error: BaseException, address: Address) -> Problem:
    """Explain why there is no connection, for the status of a node and for commands."""
    where = f"{address.host}:{address.port}"
    if isinstance(error, OSError):
        return explain_os_error(error, address)
    if isinstance(error, LedNowhere):
        return Problem(f"what goes over {where} leads nowhere", "wait; another node of the broker is tried by itself")
    if isinstance(error, ResourceLocked):
        # Half open: after a silent cut the broker keeps the last connection until it misses two heartbeats.
        return Problem(
            "the inbox of this node is taken: another process runs under the id, or the broker still holds a lost connection "
            f"({error.reply_text})",
            "wait: the broker gives up a lost connection by itself after two heartbeats; if this lasts, stop one of the two processes",
        )
    if isinstance(error, (AccessRefused, NotAllowed)):
        return refused(error.reply_text, address)
    if problem := foreign(error, address):
        return problem
    said = (error.reply_text or type(error).__name__) if isinstance(error, AMQPError) else f"{type(error).__name__}: {error}"
    return Problem(f"{said} ({where})", "wait; it is tried again by itself, and the log of the broker says more")


def tls_options(address: Address) -> dict[str, Any] | bool:
    """Return py-amqp's ``ssl`` option: chain and host name are verified; False without TLS."""
    if not address.is_tls:
        return False
    files = {"ca_certs": "cacertfile", "certfile": "certfile", "keyfile": "keyfile"}
    options = {option: address.tls_files[name] for option, name in files.items() if name in address.tls_files}
    # py-amqp verifies the host name only if it is given.
    return {**options, "cert_reqs": ssl.CERT_REQUIRED, "server_hostname": address.host}
