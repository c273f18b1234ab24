"""A kombu transport whose broker lives in this process: what stands behind ``embedded://<name>``.

    kombu.Connection("embedded://orders", transport=InProcessTransport)

It behaves as py-amqp does against RabbitMQ, in the calls that kombu and brokerha use: channels with their own delivery
tags, prefetch for each channel, messages that come back in their order and marked when a channel closes, `mandatory`
returns, a refusal (nack) of a full queue, and a cancelled consumer when its queue is deleted. Bodies are passed on as
they are. Nothing polls: `drain_events` sleeps on a condition that publishing into one of its queues rings.

Two rules of its own:
- consumers are served in the order in which they were registered: as long as the first one has messages, the others
  wait. So a node that registers its sync inbox first never lets bulk stand in front of agreement;
- `InProcessTransport.wake` ends a `drain_events` that waits, from any thread.

Like every kombu connection, one connection belongs to one thread; only `wake` is for others.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from amqp.basic_message import Message as WireMessage
from amqp.exceptions import ConsumerCancelled, NoConsumers
from amqp.protocol import queue_declare_ok_t
from kombu.transport import base, virtual
from kombu.transport.pyamqp import Message

from brokerha.transports.in_process import local_broker
from brokerha.transports.in_process.local_broker import Bell, LocalBroker, LocalMessage

EVENT_RETURN = "basic_return"
EVENT_NACK = "basic_nack"
EVENT_DROP = "drop"
"""Raised on the publishing channel with the number of older messages that gave way; RabbitMQ does not tell that."""

_NO_ROUTE = 312


class _Consumer:
    """One subscription of a channel."""

    def __init__(self, tag: str, queue: str, callback: Callable[[Any], None], *, no_ack: bool) -> None:
        self.tag = tag
        self.queue = queue
        self.callback = callback
        self.no_ack = no_ack
        self.on_cancel: Callable[[str], None] | None = None


class Channel(base.StdChannel):
    """A channel with the calls of py-amqp's that kombu and brokerha use."""

    def __init__(self, connection: InProcessTransport, broker: LocalBroker) -> None:
        self.connection: Any = connection
        self.channel_id = connection.next_channel_id()
        self.events: dict[str, set[Callable[..., None]]] = defaultdict(set)
        self.no_ack_consumers: Any = set()
        self.is_open = True
        self._broker = broker
        self._consumers: dict[str, _Consumer] = {}
        self._unsettled: dict[int, tuple[str, LocalMessage]] = {}
        self._last_tag = 0
        self._prefetch = 0

    def exchange_declare(self, exchange: str = "", type: str = "direct", **_options: Any) -> None:  # noqa: A002
        """Make an exchange unless it is there."""
        self._broker.declare_exchange(exchange, type or "direct")

    def exchange_delete(self, exchange: str, **_options: Any) -> None:
        """Remove an exchange with its bindings."""
        self._broker.delete_exchange(exchange)

    def queue_declare(
        self,
        queue: str = "",
        *,
        passive: bool = False,
        auto_delete: bool = False,
        arguments: dict[str, Any] | None = None,
        **_options: Any,
    ) -> Any:
        """Make a queue unless it is there; with ``passive`` only look. Raises ChannelError when it is missing then."""
        if not passive:
            self._broker.declare_queue(queue, arguments or {}, auto_delete=auto_delete)
        return queue_declare_ok_t(queue, self._broker.size(queue), self._broker.readers(queue))

    def queue_bind(self, queue: str = "", exchange: str = "", routing_key: str = "", **_options: Any) -> None:
        """Let the exchange route the key to the queue."""
        self._broker.bind(queue, exchange, routing_key)

    def queue_delete(self, queue: str = "", **_options: Any) -> None:
        """Remove a queue; its consumers are cancelled."""
        self._broker.delete_queue(queue)

    def queue_purge(self, queue: str = "", **_options: Any) -> int:
        """Drop what is ready; return how many messages."""
        return self._broker.purge(queue)

    def confirm_select(self, **_options: Any) -> None:
        """Nothing to do: what `basic_publish` returned from is in the queue, returned or refused."""

    def prepare_message(
        self,
        body: bytes,
        priority: int | None = None,
        content_type: str | None = None,
        content_encoding: str | None = None,
        headers: dict[str, Any] | None = None,
        properties: dict[str, Any] | None = None,
    ) -> Any:
        """The same message object that py-amqp's channel makes."""
        return WireMessage(
            body,
            priority=priority,
            content_type=content_type,
            content_encoding=content_encoding,
            application_headers=headers,
            **(properties or {}),
        )

    def message_to_python(self, raw_message: Any) -> Any:
        """What kombu's Consumer hands to its callbacks."""
        return Message(raw_message, channel=self)

    def basic_publish(
        self, message: Any, exchange: str = "", routing_key: str = "", *, mandatory: bool = False, **_options: Any
    ) -> None:
        """Put a message into the queues of its key. Raises ChannelError when the exchange is missing."""
        properties = {name: value for name, value in message.properties.items() if value is not None}
        # kombu's Producer gives text for some serializers; on a socket py-amqp would encode it.
        body = message.body.encode() if isinstance(message.body, str) else message.body
        outcome = self._broker.publish(exchange, routing_key, body, properties)
        if mandatory and not outcome.routed and not outcome.refused:
            problem = NoConsumers("NO_ROUTE", reply_code=_NO_ROUTE)
            self._tell(EVENT_RETURN, problem, exchange, routing_key, message)
        if outcome.refused:
            self._tell(EVENT_NACK, 0, False)
        if outcome.dropped:
            self._tell(EVENT_DROP, outcome.dropped)

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, a_global: bool = False) -> None:  # noqa: FBT002
        """At most so many unsettled messages; 0 is no limit. Here it counts for the channel as a whole."""
        self._prefetch = prefetch_count

    def basic_consume(
        self,
        queue: str = "",
        consumer_tag: str = "",
        *,
        no_ack: bool = False,
        callback: Callable[[Any], None],
        on_cancel: Callable[[str], None] | None = None,
        **_options: Any,
    ) -> str:
        """Deliver from a queue. Raises ChannelError when it is missing."""
        self._broker.subscribe(queue, self.connection.bell)
        tag = consumer_tag or f"{self.channel_id}.{len(self._consumers) + 1}"
        self._consumers[tag] = _Consumer(tag, queue, callback, no_ack=no_ack)
        self._consumers[tag].on_cancel = on_cancel
        if no_ack:
            self.no_ack_consumers.add(tag)
        return tag

    def basic_cancel(self, consumer_tag: str, **_options: Any) -> None:
        """Stop delivering; what was delivered stays unsettled."""
        consumer = self._consumers.pop(consumer_tag, None)
        if consumer is not None:
            self.no_ack_consumers.discard(consumer_tag)
            self._broker.unsubscribe(consumer.queue, self.connection.bell)

    def basic_get(self, queue: str = "", *, no_ack: bool = False, **_options: Any) -> Any:
        """The oldest message of a queue as kombu's Message, or None."""
        taken = self._broker.take(queue)
        return None if taken is None else self.message_to_python(self._delivery(queue, taken, "", no_ack=no_ack))

    def basic_ack(self, delivery_tag: int, multiple: bool = False) -> None:  # noqa: FBT002
        """Settle one message, or all up to this one."""
        for tag in [t for t in self._unsettled if t <= delivery_tag] if multiple else [delivery_tag]:
            self._unsettled.pop(tag, None)

    def basic_reject(self, delivery_tag: int, requeue: bool = False) -> None:  # noqa: FBT002
        """Drop a message, or bring it back to its place."""
        queue, message = self._unsettled.pop(delivery_tag)
        if requeue:
            self._broker.give_back(queue, [message])

    def close(self) -> None:
        """Cancel the consumers and bring back what was not settled. Idempotent."""
        if not self.is_open:
            return
        self.is_open = False
        for tag in list(self._consumers):
            self.basic_cancel(tag)
        by_queue: dict[str, list[LocalMessage]] = defaultdict(list)
        for queue, message in self._unsettled.values():
            by_queue[queue].append(message)
        self._unsettled.clear()
        for queue, messages in by_queue.items():
            self._broker.give_back(queue, messages)
        self.connection.close_channel(self)

    def has_work(self) -> bool:
        """Whether `deliver_one` would do something."""
        if self._prefetch and len(self._unsettled) >= self._prefetch:
            return False
        return any(self._broker.has_ready(consumer.queue) for consumer in self._consumers.values())

    def deliver_one(self) -> bool:
        """Hand one message to its consumer, the first registered first; False when there is none to hand out.

        A consumer whose queue is gone is cancelled. Raises ConsumerCancelled when it did not ask to be told.
        """
        if self._prefetch and len(self._unsettled) >= self._prefetch:
            return False
        for consumer in list(self._consumers.values()):
            taken = self._broker.take(consumer.queue)
            if taken is not None:
                consumer.callback(self._delivery(consumer.queue, taken, consumer.tag, no_ack=consumer.no_ack))
                return True
            if not self._broker.has_queue(consumer.queue):
                self.basic_cancel(consumer.tag)
                if consumer.on_cancel is None:
                    raise ConsumerCancelled(consumer.tag, (60, 30))
                consumer.on_cancel(consumer.tag)
                return True
        return False

    def _delivery(self, queue: str, taken: LocalMessage, consumer_tag: str, *, no_ack: bool) -> Any:
        self._last_tag += 1
        if not no_ack:
            self._unsettled[self._last_tag] = (queue, taken)
        message = WireMessage(taken.body, channel=self, **taken.properties)
        message.delivery_info = {
            "consumer_tag": consumer_tag,
            "delivery_tag": self._last_tag,
            "redelivered": taken.redelivered,
            "exchange": taken.exchange,
            "routing_key": taken.routing_key,
        }
        return message

    def _tell(self, event: str, *facts: Any) -> None:
        for callback in self.events.get(event, ()):
            callback(*facts)


class InProcessTransport(virtual.Transport):
    """Connections to the brokers of this process; the host part of the URL names the broker."""

    driver_type = "in-process"
    driver_name = "brokerha"
    implements = virtual.Transport.implements.extend(exchange_type=frozenset(["direct", "fanout"]))

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self._broker: LocalBroker | None = None
        self._woken = False
        self._channels_made = 0
        self.bell: Bell = threading.Condition()

    def establish_connection(self) -> InProcessTransport:
        """Enter the namespace."""
        client: Any = self.client
        self._broker = local_broker.enter(client.hostname or "")
        self.bell = threading.Condition(self._broker.lock)
        return self

    def verify_connection(self, connection: Any) -> bool:
        """Whether `close_connection` was not called yet."""
        return self._broker is not None

    def next_channel_id(self) -> int:
        """A number for a channel, used once."""
        self._channels_made += 1
        return self._channels_made

    def create_channel(self, connection: Any) -> Channel:
        """Open a channel."""
        if self._broker is None:
            raise ConnectionError("the connection is closed")
        channel = Channel(self, self._broker)
        self.channels.append(channel)
        return channel

    def close_channel(self, channel: Channel) -> None:
        """Forget a channel that closed itself."""
        if channel in self.channels:
            self.channels.remove(channel)

    def close_connection(self, connection: Any) -> None:
        """Close the channels and leave the namespace. Idempotent."""
        broker, self._broker = self._broker, None
        if broker is None:
            return
        for channel in list(self.channels):
            channel.close()
        local_broker.leave(broker)

    def drain_events(self, connection: Any, timeout: float | None = None, **_options: Any) -> None:
        """Deliver one message, waiting for it. Raises TimeoutError after ``timeout`` seconds, or when woken."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.deliver_one():
            with self.bell:
                if self._woken:
                    self._woken = False
                    raise TimeoutError
                if any(channel.has_work() for channel in self.channels):
                    continue
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError
                self.bell.wait(left)

    def deliver_one(self) -> bool:
        """Deliver one message without waiting; False when there is none."""
        return any(channel.deliver_one() for channel in list(self.channels))

    def wake(self) -> None:
        """End a `drain_events` that waits, or the next one. Callable from any thread."""
        with self.bell:
            self._woken = True
            self.bell.notify_all()
