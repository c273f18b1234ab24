"""Looks at a broker as one user, and changes nothing: for `brokerha doctor`.

It declares existing entries again in the wanted form, which the broker refuses when they differ; it does not make missing ones. To
test the right to publish, it publishes in a transaction and rolls back: the broker checks rights at once, and routes nothing.

    seen = look(address, topology, writes=("brokerha.sync",), topic="brokerha.changes")

Must never leave a message, a queue or a consumer behind.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from amqp.exceptions import AccessRefused, AMQPError, ChannelError, NotAllowed, NotFound, PreconditionFailed

from brokerha.transports.config import TransportConfig
from brokerha.transports.rabbitmq.addresses import Address
from brokerha.transports.rabbitmq.connecting import explain, open_connection
from brokerha.transports.rabbitmq.identity import TOOL_ROLE, Identity
from brokerha.transports.rabbitmq.properties import Message
from brokerha.transports.topology import ExchangeRow, QueueRow

_IDENTITY: Final = Identity("brokerha doctor", TOOL_ROLE)
MISSING: Final = "missing"
NO_SUCH_KEY: Final = "doctor.no-such-key"
"""A routing key that no node and no app uses."""
_CONFIG: Final = TransportConfig(connect_timeout_s=5.0)
_BLOCKED_WITHIN_S: Final = 0.3
_LONGEST_S: Final = 30.0
"""After this time the connection is cut: a broker that only sends heartbeats would block for ever."""


class _Blocked(Exception):
    """The broker takes no message, and reads nothing more from this connection, so that no answer comes."""


@dataclass(slots=True)
class Seen:
    """The findings; brokerha/doctor/facts.py has the same words."""

    unreachable: str = ""
    remedy: str = ""
    refused: str = ""
    product: str = ""
    version: str = ""
    capabilities: tuple[str, ...] = ()
    exchanges: dict[str, str] = field(default_factory=dict)
    queues: list[tuple[str, str, int, int]] = field(default_factory=list)
    """Name, problem, messages, consumers."""
    unwritable: dict[str, str] = field(default_factory=dict)
    topic_is_open: bool | None = None
    blocked: str | None = None


def look(
    address: Address, exchanges: Sequence[ExchangeRow], queues: Sequence[QueueRow], writes: Sequence[str], topic: str = ""
) -> Seen:
    """Return everything that this user can see; never raises for answers of the broker, or for their absence."""
    seen = Seen()

    def on_blocked(reason: str) -> None:
        raise _Blocked(reason)

    try:
        connection = open_connection(address, _IDENTITY, _CONFIG, on_blocked, lambda *_: None)
    except (AMQPError, OSError) as error:
        seen.unreachable, seen.remedy = explain(error, address)
        seen.refused = _refused(error)
        return seen
    guard = threading.Timer(_LONGEST_S, _cut, (connection,))
    guard.daemon = True
    guard.start()
    try:
        _properties(connection, seen)
        for exchange in exchanges:
            if problem := _exchange(connection, exchange):
                seen.exchanges[exchange.name] = problem
        seen.queues = [_queue(connection, row) for row in queues]
        _publish(connection, seen, [name for name in writes if seen.exchanges.get(name) != MISSING])
        if topic in writes and seen.exchanges.get(topic) != MISSING and topic not in seen.unwritable:
            seen.topic_is_open = not _refusal(connection, topic, NO_SUCH_KEY)
    except _Blocked as blocked:
        seen.blocked = str(blocked) or "it says no reason"
    except (AMQPError, OSError) as error:
        seen.unreachable, seen.remedy = explain(error, address)
    finally:
        guard.cancel()
        if seen.blocked or seen.unreachable:
            # It would not answer a clean close.
            connection.collect()
        else:
            _leave(connection)
    return seen


def comes_in(address: Address) -> bool:
    """Tell whether this user gets a connection."""
    try:
        connection = open_connection(address, _IDENTITY, _CONFIG)
    except (AMQPError, OSError):
        return False
    _leave(connection)
    return True


def _refused(error: BaseException) -> str:
    if isinstance(error, NotAllowed):
        return "vhost"
    return "user" if isinstance(error, AccessRefused) else ""


def _properties(connection: Any, seen: Seen) -> None:
    found = connection.connection.server_properties
    seen.product, seen.version = str(found.get("product", "")), str(found.get("version", ""))
    seen.capabilities = tuple(sorted(name for name, has in found.get("capabilities", {}).items() if has))


@contextlib.contextmanager
def _channel(connection: Any) -> Iterator[Any]:
    """Open a channel for one question: a refusal closes it."""
    channel = connection.channel()
    yield channel
    channel.close()


def _exchange(connection: Any, row: ExchangeRow) -> str:
    try:
        with _channel(connection) as channel:
            channel.exchange_declare(exchange=row.name, type=row.kind, durable=True, auto_delete=False, passive=True)
            arguments = dict(row.arguments)
            channel.exchange_declare(exchange=row.name, type=row.kind, durable=True, auto_delete=False, arguments=arguments)
    except NotFound:
        return MISSING
    except ChannelError as error:
        return str(error.reply_text)
    return ""


def _queue(connection: Any, row: QueueRow) -> tuple[str, str, int, int]:
    messages, consumers = 0, 0
    try:
        with _channel(connection) as channel:
            _, messages, consumers = channel.queue_declare(queue=row.name, passive=True)
            channel.queue_declare(queue=row.name, durable=True, exclusive=False, auto_delete=False, arguments=dict(row.arguments))
    except NotFound:
        return row.name, MISSING, 0, 0
    except (AccessRefused, PreconditionFailed, ChannelError) as error:
        return row.name, str(error.reply_text), messages, consumers
    return row.name, "", messages, consumers


def _publish(connection: Any, seen: Seen, writes: Sequence[str]) -> None:
    """Test each exchange; only a publisher learns that the broker is blocked."""
    for name in writes:
        if problem := _refusal(connection, name, ""):
            seen.unwritable[name] = problem
    deadline = time.monotonic() + _BLOCKED_WITHIN_S
    while writes and time.monotonic() < deadline:
        with contextlib.suppress(TimeoutError):
            connection.drain_events(timeout=0.05)
    seen.blocked = "" if writes else None


def _refusal(connection: Any, exchange: str, key: str) -> str:
    """Return why a message cannot be published, or an empty string. The message is rolled back."""
    try:
        with _channel(connection) as channel:
            channel.tx_select()
            channel.basic_publish(Message(b""), exchange=exchange, routing_key=key or "doctor")
            channel.tx_rollback()
    except AccessRefused as error:
        if exchange and not key and "topic" in str(error.reply_text):
            return ""
        return str(error.reply_text)
    except ChannelError as error:
        return str(error.reply_text)
    return ""


def _cut(connection: Any) -> None:
    """End the waits of all callers on the connection."""
    with contextlib.suppress(Exception):
        connection.connection.transport.sock.shutdown(socket.SHUT_RDWR)


def _leave(connection: Any) -> None:
    with contextlib.suppress(AMQPError, OSError):
        connection.release()
