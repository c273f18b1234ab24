"""Connections to RabbitMQ through kombu and py-amqp: opened with names and limits, and explained when lost.

    kombu.Connection ── RabbitTransport ── RabbitConnection (py-amqp) ── FrameSocket
                                               └── RabbitChannel

What differs from kombu's own ``amqp`` transport: the socket (frame_socket.py); a publication does not read from the
socket first, because the owning thread reads it anyway, once in each turn; TLS verifies the host name; and nothing
connects anew behind our back: who owns the connection decides (kept_connection.py).
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from functools import lru_cache
from struct import Struct, pack
from typing import Any

from amqp import spec
from amqp.exceptions import AccessRefused, AMQPError, NotAllowed, RecoverableConnectionError, ResourceLocked
from amqp.serialization import dumps
from kombu import Connection
from kombu.transport import pyamqp

from brokerha.transports.config import TransportConfig
from brokerha.transports.lanes.parcels import Publication
from brokerha.transports.rabbitmq.addresses import Address, explain_os_error
from brokerha.transports.rabbitmq.frame_socket import TcpFrameSocket, TlsFrameSocket
from brokerha.transports.rabbitmq.identity import Identity
from brokerha.transports.rabbitmq.properties import Message, install

_METHOD_FRAME = 1
_HEADER_FRAME = 2
_BODY_FRAME = 3
_FRAME_HEAD = Struct(">BHI")
_FRAME_END = b"\xce"
_CONTENT_HEAD = Struct(">HHQ")
_LARGE_BYTES = 64 * 1024
"""Bodies above it are cut into frames here: py-amqp copies them twice more."""
_HEARTBEAT_LOOK_S = 0.5
"""While one waits: how often to see whether a heartbeat is due. The broker sends its own at most every second."""
_CACHED = 1024
"""Destinations and property sets that are kept encoded: a node has few of them, and encoding costs more than sending."""


@lru_cache(_CACHED)
def _publish_arguments(exchange: str, routing_key: str, mandatory: bool) -> bytes:
    encoded: bytes = dumps("Bssbb", (0, exchange, routing_key, mandatory, False))
    return encoded


@lru_cache(_CACHED)
def _encoded_properties(properties: tuple[tuple[str, Any], ...], also: tuple[str, ...]) -> bytes:
    # RabbitMQ routes by these keys too: https://www.rabbitmq.com/docs/sender-selected. Not BCC, which it takes out: a federated broker that
    # the message is passed on to would know the first key only.
    more = {"application_headers": {"CC": also}} if also else {}
    encoded: bytes = Message(b"", **dict(properties), **more)._serialize_properties()  # noqa: SLF001  # py-amqp has no other way.
    return encoded


@lru_cache(_CACHED)
def _publish_frame(channel: int, exchange: str, routing_key: str) -> bytes:
    payload = pack(">HH", *spec.Basic.Publish) + _publish_arguments(exchange, routing_key, False)
    return _FRAME_HEAD.pack(_METHOD_FRAME, channel, len(payload)) + payload + _FRAME_END


class RepeatedMessage(Message):
    """A message whose properties are those of many others: they are encoded once. All values must be hashable."""

    def _serialize_properties(self) -> bytes:
        return _encoded_properties(tuple(self.properties.items()), ())


class RabbitChannel(pyamqp.Channel):
    """A channel whose publications are only written; confirmations, returns and refusals come as events."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.auto_decode = False
        # py-amqp sets a confirming version on the instance if asked to; ours is the class's.
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
        """Publish a message whose properties are those of many others, encoded once: all values must be hashable."""
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
        """Have the broker say that it serves this channel; it does so after all that was sent before. One question at a time."""
        self._callbacks[spec.Channel.FlowOk] = lambda _is_active: on_answer()
        self.send_method(spec.Channel.Flow, "b", (True,))

    def leave(self) -> None:
        """Close the channel without waiting: what was not acknowledged goes back; what still comes is ignored."""

        def until_closed(method: tuple[int, int], *_content: Any) -> None:
            if method == spec.Channel.Close:
                self.send_method(spec.Channel.CloseOk)
            elif method == spec.Channel.CloseOk:
                self.collect()

        # py-amqp's own would tell the log of everything that it ignores.
        self.dispatch_method = until_closed
        self.send_method(spec.Channel.Close, "BsBB", (0, "", 0, 0))

    def _publish_large(self, arguments: bytes, message: Any) -> None:
        """Write method, header and body as frames; nothing is written when a property cannot be."""
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
        # What py-amqp counts, to know whether a heartbeat is due.
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
        """Hand a method to its channel; RabbitMQ can send deliveries after the close of a channel, which is gone here."""
        if self.channels is None or channel_id in self.channels:
            super().on_inbound_method(channel_id, method, payload, content)

    def drain_events(self, timeout: float | None = None) -> None:
        """Wait for a message or an answer, so long at most in all. Raises TimeoutError.

        py-amqp's own begins its time anew with each heartbeat of the broker, so it ends never where these come more often; and it sends none itself.
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
        """The socket; py-amqp asks for it under this name. Its own kind of time-outs is for sockets that block."""
        made = TlsFrameSocket if tls else TcpFrameSocket
        frame_socket = made(host, connect_timeout=connect_timeout, ssl=tls, **options)
        frame_socket.answer_timeout_s = connect_timeout
        return frame_socket


class RabbitTransport(pyamqp.Transport):
    """What kombu is given as its transport."""

    Connection = RabbitConnection


def open_connection(
    address: Address,
    identity: Identity,
    config: TransportConfig,
    on_blocked: Callable[[str], None] | None = None,
    on_unblocked: Callable[[], None] | None = None,
) -> Connection:
    """Connect; ``identity`` shows in the dashboard. Raises OSError or AMQPError after one attempt."""
    install()
    connection = Connection(
        hostname=address.host,
        port=address.port,
        userid=address.user,
        password=address.password,
        virtual_host=address.vhost,
        transport=RabbitTransport,
        ssl=_tls_options(address),
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


def explain(error: BaseException, address: Address) -> str:
    """Why there is no connection, in words for the status of the node."""
    if isinstance(error, OSError):
        return explain_os_error(error, address)
    if isinstance(error, ResourceLocked):
        # Half open: after a silent cut the broker keeps our last connection until it misses two heartbeats.
        return (
            "the broker still holds a connection of this node id: it gives up a lost one by itself after two heartbeats; "
            f"if it stays, another process runs under the id, stop one of the two ({error.reply_text})"
        )
    if isinstance(error, (AccessRefused, NotAllowed)):
        return f"the broker refuses {address}: {error.reply_text}"
    if isinstance(error, AMQPError):
        return f"{error.reply_text or type(error).__name__} ({address.host}:{address.port})"
    return f"{type(error).__name__}: {error} ({address.host}:{address.port})"


def _tls_options(address: Address) -> dict[str, Any] | bool:
    if not address.is_tls:
        return False
    files = {"ca_certs": "cacertfile", "certfile": "certfile", "keyfile": "keyfile"}
    options = {option: address.tls_files[name] for option, name in files.items() if name in address.tls_files}
    # py-amqp verifies the host name only when it is told it.
    return {**options, "cert_reqs": ssl.CERT_REQUIRED, "server_hostname": address.host}
