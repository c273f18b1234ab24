"""The quarantine: messages that nodes could not use (rabbitmq/rejecting.py). A person looks at them, retries or drops them.

    with Quarantine(address) as quarantine:
        for message in quarantine.messages(1000):
            quarantine.retry(message)        # or drop, or nothing at all: then it stays in its place

Messages are taken from ``brokerha.rejected`` unacknowledged and return to their places at any end of the connection. `retry`
removes a message only after the broker has confirmed it at its origin. A crash in between leaves it in both places, and its id
makes it one write. Two people at once see different messages.

Must never lose a message that was not dropped explicitly.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from amqp.exceptions import AMQPError, MessageNacked, NotFound

from brokerha.model.errors import InvalidRequest
from brokerha.transports.config import TransportConfig
from brokerha.transports.rabbitmq.addresses import Address
from brokerha.transports.rabbitmq.connecting import explain, no_broker, open_connection
from brokerha.transports.rabbitmq.identity import TOOL_ROLE, Identity
from brokerha.transports.rabbitmq.properties import Message
from brokerha.transports.rabbitmq.rejecting import EXCHANGE_HEADER, HEADER_PREFIX, KEY_HEADER, NODE_HEADER, SEEN_HEADER
from brokerha.transports.topology import (
    ANY_MASTER,
    DEFAULT_EXCHANGE,
    READS_EXCHANGE,
    REASON_HEADER,
    WRITES_EXCHANGE,
    is_queue_of_apps,
    rejected_queue,
)

_IDENTITY: Final = Identity("brokerha quarantine", TOOL_ROLE)
_CONFIG: Final = TransportConfig(connect_timeout_s=5.0)
_CONFIRM_S: Final = 10.0
_OF_APPS: Final = (WRITES_EXCHANGE, READS_EXCHANGE)


@dataclass(frozen=True, slots=True)
class Quarantined:
    """One message."""

    id: str
    """From its content and origin, and so the same at each look. Two identical messages have one id."""
    node: str
    """Node that set it aside; empty when another program put it there."""
    reason: str
    exchange: str
    key: str
    seen_ms: int
    """Time in milliseconds since 1970; 0 when unknown."""
    body: bytes
    properties: dict[str, Any]
    """The original properties, with its own headers."""
    tag: int
    """The connection's own handle."""

    @property
    def is_of_app(self) -> bool:
        """Whether an app published it, to an exchange or by the name of a queue; otherwise it is between nodes."""
        return self.exchange in _OF_APPS or (self.exchange == DEFAULT_EXCHANGE and is_queue_of_apps(self.key))


class Quarantine:
    """The quarantine of one broker; see the head of the module."""

    def __init__(self, address: Address) -> None:
        """Connect. Raises Unreachable."""
        self._address = address
        try:
            self._connection = open_connection(address, _IDENTITY, _CONFIG)
        except (AMQPError, OSError) as error:
            raise no_broker(explain(error, address)) from None
        self._channel: Any = self._connection.channel()
        self._returned: list[str] = []
        self._publishing: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        # Unacknowledged messages return to their places.
        self._connection.release()

    def messages(self, limit: int) -> Iterator[Quarantined]:
        """Yield at most so many messages, the oldest first. Raises Unreachable."""
        for _ in range(limit):
            try:
                raw = self._channel.basic_get(rejected_queue())
            except NotFound:
                return  # No node has run here yet.
            except (AMQPError, OSError) as error:
                raise no_broker(explain(error, self._address)) from None
            if raw is None:
                return
            yield _quarantined(raw)

    def drop(self, message: Quarantined) -> None:
        """Remove a message for good. Raises Unreachable."""
        try:
            self._channel.basic_ack(message.tag)
        except (AMQPError, OSError) as error:
            raise no_broker(explain(error, self._address)) from None

    def retry(self, message: Quarantined, content_type: str = "", headers: Mapping[str, Any] | None = None) -> None:
        """Publish a message again at its origin, with another content type or other headers if given, then remove it.

        Raises InvalidRequest when it cannot go there, Unreachable; then it stays in its place.
        """
        if not message.is_of_app:
            why = "a message between nodes is said again by its sender as long as it matters, and this one was of no use: drop it"
            raise InvalidRequest(f"{message.id} cannot be retried: {why}")
        properties = {**message.properties, **({"content_type": content_type} if content_type else {})}
        if headers:
            properties["application_headers"] = {**properties.get("application_headers", {}), **headers}
        self._publish(message, Message(message.body, **properties))
        self.drop(message)

    def _publish(self, message: Quarantined, content: Message) -> None:
        self._returned.clear()
        try:
            if self._publishing is None:
                self._publishing = self._connection.channel()
                self._publishing.events["basic_return"].add(self._on_return)
            self._publishing.basic_publish_confirm(
                content, message.exchange, message.key or ANY_MASTER, mandatory=True, timeout=_CONFIRM_S
            )
        except MessageNacked:
            raise InvalidRequest(
                f"{message.id} cannot be retried now: the queue of {message.exchange or message.key} is full"
            ) from None
        except (AMQPError, OSError) as error:
            raise no_broker(explain(error, self._address)) from None
        if self._returned:
            self._returned.clear()
            raise InvalidRequest(
                f"{message.id} cannot be retried: no queue takes {message.key!r} of {message.exchange or 'the default exchange'}; start the node, or drop it"
            )

    def _on_return(self, _problem: Exception, _exchange: str, key: str, _message: Any) -> None:
        self._returned.append(key)


def _quarantined(raw: Any) -> Quarantined:
    properties = {name: value for name, value in raw.properties.items() if name != "user_id"}
    headers = dict(properties.get("application_headers") or {})
    node, reason = _text(headers.get(NODE_HEADER)), _text(headers.get(REASON_HEADER))
    exchange, key = _text(headers.get(EXCHANGE_HEADER)), _text(headers.get(KEY_HEADER))
    seen = headers.get(SEEN_HEADER)
    seen_ms = seen if isinstance(seen, int) else 0
    own = {name: value for name, value in headers.items() if not str(name).startswith(HEADER_PREFIX)}
    if own:
        properties["application_headers"] = own
    else:
        properties.pop("application_headers", None)
    body = raw.body if isinstance(raw.body, bytes) else str(raw.body or "").encode()
    about = [node, reason, exchange, key, str(seen_ms), _text(properties.get("message_id"))]
    digest = hashlib.blake2b("\0".join(about).encode() + b"\0" + body, digest_size=6).hexdigest()
    return Quarantined(digest, node, reason, exchange, key, seen_ms, body, properties, raw.delivery_info["delivery_tag"])


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
