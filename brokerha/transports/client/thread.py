"""One connection of a client program, in its own thread: pika's loop, with a channel that publishes and receives answers.

    connect ─> channel ─> consume reply-to ─> exchanges exist ─> up(channel) … lost(reason) ─> pause ─> connect …

Answers come through RabbitMQ's direct reply-to: without a queue, and without a clean-up. An answer to an older connection is lost,
so the owner publishes its open requests again after each `up`.

pika's `SelectConnection` never blocks: a broker that stops reading, or a silent host, delays no deadline. Everything but `call` and
`close` runs in the thread. The loop sleeps until there is something to do, at most five seconds.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
from collections.abc import Callable, Sequence
from ssl import create_default_context
from typing import Any, Final, Protocol

import pika
import structlog
from pika.adapters.select_connection import IOLoop
from pika.exceptions import AMQPError, ProbableAccessDeniedError, ProbableAuthenticationError

from brokerha.ports.transport import Problem
from brokerha.transports.config import TransportConfig
from brokerha.transports.rabbitmq.addresses import Address, explain_os_error, refused
from brokerha.transports.rabbitmq.identity import CLIENT_ROLE, Identity
from brokerha.transports.topology import READS_EXCHANGE, REPLY_ADDRESS, WRITES_EXCHANGE

_REFUSALS: Final = (ProbableAuthenticationError, ProbableAccessDeniedError)
"""Refusals of a user, and of a virtual host."""
log = structlog.get_logger(__name__)
# pika logs every failed attempt several times; a program that wants these lines configures logging.
logging.getLogger("pika").addHandler(logging.NullHandler())


class Owner(Protocol):
    """Receiver of the events; called only in the thread."""

    def up(self, channel: Any) -> None:
        """Note that publishing is possible now, on this channel."""

    def lost(self, reason: str, remedy: str = "") -> None:
        """Note that it no longer is; answers to earlier messages will not come. ``remedy``: as that of `Unreachable`."""

    def answered(self, correlation_id: str, body: bytes) -> None:
        """Take an answer."""

    def returned(self, correlation_id: str) -> None:
        """Note that no queue took a message."""

    def blocked(self, is_blocked: bool) -> None:
        """Note whether the broker takes publications now."""


class PikaThread:
    """See the head of the module."""

    def __init__(self, addresses: Sequence[Address], name: str, config: TransportConfig, owner: Owner) -> None:
        """``name`` is shown in the dashboard."""
        self._addresses = list(addresses)
        self._name = name
        self._config = config.for_nodes(len(self._addresses))
        self._owner = owner
        self._jitter = random.Random()
        self.user = ""
        """User of the present or last address; the broker accepts no other ``user_id``."""
        self._attempts = 0
        self._pause_ms = 0
        self._is_closing = False
        self._dropped_for = ""
        """Why this side closes the connection; pika only reports that it was closed."""
        self._connection: Any = None
        self._retry: Any = None
        """Timer of the next attempt to connect."""
        self._loop = IOLoop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start to connect; return at once."""
        self._thread.start()

    def call(self, what: Callable[[], None]) -> None:
        """Call something in the thread, soon. Any thread can call this."""
        self._loop.add_callback_threadsafe(what)

    def call_later(self, delay_s: float, what: Callable[[], None]) -> Any:
        """Call something after a time; return the handle for `forget`. Only in the thread."""
        return self._loop.call_later(max(0.0, delay_s), what)

    def forget(self, timer: Any) -> None:
        """Undo `call_later`. Only in the thread."""
        self._loop.remove_timeout(timer)

    def close(self, timeout_s: float) -> None:
        """Disconnect and end the thread; must not be called in the thread."""
        if self._thread.is_alive():
            self.call(self._say_goodbye)
            self._thread.join(timeout_s)

    def _run(self) -> None:
        self._loop.add_callback_threadsafe(self._connect)
        while not self._is_closing:
            try:
                self._loop.start()
            except Exception as error:  # noqa: BLE001  # A fault in one callback must not leave every caller waiting.
                self._fault(error)
        self._loop.close()

    def _fault(self, error: Exception) -> None:
        # pika fails when it is closed during a connect; no caller waits any more.
        if not self._is_closing:
            # Without the traceback: local variables on the way hold the password.
            log.error("fault in a client connection", connection=self._name, error=repr(error))
            self.renew(f"fault: {error!r}")

    def _connect(self) -> None:
        self._retry = None
        address = self._addresses[self._attempts % len(self._addresses)]
        self._attempts += 1
        self.user = address.user
        self._connection = pika.SelectConnection(
            parameters=_parameters(address, self._name, self._config),
            on_open_callback=self._on_open,
            on_open_error_callback=lambda _connection, error: self._lost(*explain(error, address)),
            on_close_callback=lambda _connection, error: self._lost(*explain(error, address)),
            custom_ioloop=self._loop,
        )

    def _on_open(self, connection: Any) -> None:
        connection.add_on_connection_blocked_callback(lambda *_facts: self._owner.blocked(True))
        connection.add_on_connection_unblocked_callback(lambda *_facts: self._owner.blocked(False))
        connection.channel(on_open_callback=self._on_channel)

    def _on_channel(self, channel: Any) -> None:
        channel.add_on_close_callback(self._on_channel_closed)
        channel.add_on_return_callback(
            lambda _channel, _method, properties, _body: self._owner.returned(properties.correlation_id or "")
        )
        channel.basic_consume(
            REPLY_ADDRESS,
            lambda _channel, _method, properties, body: self._owner.answered(properties.correlation_id or "", body),
            auto_ack=True,
            callback=lambda _frame: self._look_for_exchanges(channel),
        )

    def _look_for_exchanges(self, channel: Any) -> None:
        """Check the exchanges: publishing to a missing one would close the channel with all messages under way."""
        channel.exchange_declare(
            WRITES_EXCHANGE,
            passive=True,
            callback=lambda _writes: channel.exchange_declare(
                READS_EXCHANGE, passive=True, callback=lambda _reads: self._on_ready(channel)
            ),
        )

    def _on_ready(self, channel: Any) -> None:
        self._pause_ms = 0
        self._owner.blocked(False)
        self._owner.up(channel)

    def _on_channel_closed(self, _channel: Any, error: Exception) -> None:
        # The usual reason is an exchange that no node has declared yet, or that was deleted.
        self.renew(str(getattr(error, "reply_text", "") or error))

    def _lost(self, reason: str, remedy: str = "") -> None:
        self._connection = None
        if self._is_closing:
            self._loop.stop()
            return
        if self._dropped_for:
            reason, remedy = self._dropped_for, ""
        self._owner.lost(reason, remedy)
        self._dropped_for = ""
        if self._retry is not None:
            return
        self._retry = self.call_later(self._jitter.uniform(0.5, 1.0) * self._pause_ms / 1000, self._connect)
        first_ms, most_ms = self._config.retry_first_ms, self._config.retry_most_ms
        self._pause_ms = min(most_ms, max(first_ms, self._pause_ms * 2))

    def renew(self, reason: str) -> None:
        """Close the connection; `_lost` follows once pika has closed it, or at once when there is none. Only in the thread."""
        self._owner.lost(reason)
        self._dropped_for = reason
        connection = self._connection
        if connection is None:
            self._lost(reason)
        elif not connection.is_closing:
            # A closing connection calls back by itself; a second close makes pika log an error that users would see.
            with contextlib.suppress(AMQPError):
                connection.close()

    def _say_goodbye(self) -> None:
        self._is_closing = True
        connection = self._connection
        try:
            if connection is None or connection.is_closed:
                self._loop.stop()
            elif not connection.is_closing:
                connection.close()
        except AMQPError:
            self._loop.stop()
        # A silent broker must not block the thread.
        self.call_later(1.0, self._loop.stop)


def _parameters(address: Address, name: str, config: TransportConfig) -> pika.ConnectionParameters:
    options: dict[str, Any] = {}
    if address.is_tls:
        files = address.tls_files
        context = create_default_context(cafile=files.get("cacertfile"))
        if "certfile" in files:
            context.load_cert_chain(files["certfile"], files.get("keyfile"))
        options["ssl_options"] = pika.SSLOptions(context, address.host)
    return pika.ConnectionParameters(
        host=address.host,
        port=address.port,
        virtual_host=address.vhost,
        credentials=pika.PlainCredentials(address.user, address.password),
        heartbeat=config.heartbeat_s,
        socket_timeout=config.connect_timeout_s,
        stack_timeout=min(config.connect_timeout_s * 2, config.answer_within_s),
        client_properties=Identity(name, CLIENT_ROLE).properties(),
        tcp_options={"TCP_USER_TIMEOUT": config.tcp_user_timeout_ms},
        **options,
    )


def _cause(error: BaseException) -> BaseException | None:
    """Return the wrapped error: pika wraps a failed attempt in up to three of its own errors."""
    candidates = (getattr(error, "exception", None), *reversed(getattr(error, "exceptions", ())), *error.args)
    return next((each for each in candidates if isinstance(each, BaseException)), None)


def explain(error: BaseException, address: Address) -> Problem:
    """Explain an error of pika: why there is no connection."""
    cause: BaseException | None = error
    while cause is not None:
        error, cause = cause, _cause(cause)
    if isinstance(error, OSError):
        return explain_os_error(error, address)
    text = str(getattr(error, "reply_text", "")) or str(error) or type(error).__name__
    if isinstance(error, _REFUSALS):
        # pika keeps the broker's words only as text.
        said = str(error.args[0]).partition("'")[2].rstrip("'.") if error.args else ""
        return refused(said or text, address)
    return Problem(f"{text} ({address.host}:{address.port})", "")
