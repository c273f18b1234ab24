"""A channel for short-lived queues: it waits for no answer, and its end does not affect the rest of the connection.

py-amqp's calls wait for the broker's answer, and an error that closes a channel is raised in the code that reads the connection. A
broker needs milliseconds to make a queue, and a queue of a transaction can be gone at any time. Both would block or break other
work on the connection. So here every call only writes; answers come as events:

    declare, consume ── frames ──> broker ──> on_answer(queue or tag: the name in its answer)
                                         └──> on_closed(reason)    the channel is gone

Answers to declare come in the order of the calls, and the first one without an answer is the one that closed the channel.

Invariants: belongs to the connection's thread; it is not used after `on_closed`.

Whether the broker still serves a channel: it is asked at intervals while the channel is in use, and answers in order.

Heartbeats show that the connection is alive. In a cluster of RabbitMQ a channel can stall on a live connection: when another node
dies, for five seconds and longer (seen with 3.10 under load, until the broker closed the connection with INTERNAL_ERROR). Without
confirmations, publishing then gives no sign, and the node is cut off. If the broker has other nodes, one of them is better.

Invariants: at most one question is open; an unused channel is not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from amqp import spec
from amqp.exceptions import RecoverableConnectionError

from brokerha.transports.rabbitmq.connecting import RabbitChannel

EVERY_S = 1.0
"""Seconds between two questions."""
_FAR_S = 3600.0


class Pulse:
    """The check of one channel; belongs to the thread of its connection."""

    def __init__(self, ask: Callable[[Callable[[], None]], None], within_s: float) -> None:
        """``ask`` sends the question, and calls its argument when the answer comes, within ``within_s`` seconds."""
        self._ask = ask
        self._within_s = within_s
        self._asked_s = -_FAR_S
        self._is_open = False

    def turn(self, now_s: float, *, is_used: bool) -> float:
        """Ask when it is time; return when the answer is due. Raises RecoverableConnectionError when it did not come."""
        if self._is_open:
            if now_s >= self._asked_s + self._within_s:
                raise RecoverableConnectionError("the broker does not answer on a channel, though its connection lives")
        elif is_used and now_s >= self._asked_s + EVERY_S:
            self._asked_s = now_s
            self._is_open = True
            self._ask(self._on_answer)
        return self._asked_s + self._within_s if self._is_open else now_s + _FAR_S

    def pause(self, now_s: float) -> None:
        """Expect no answer now: the broker takes nothing, or the socket is full."""
        self._asked_s = max(self._asked_s, now_s)

    def _on_answer(self) -> None:
        self._is_open = False


class QuietChannel(RabbitChannel):
    """See the head of the module; publishing is as on every `RabbitChannel`."""

    def __init__(
        self,
        wire: Any,
        on_answer: Callable[[str], None],
        on_closed: Callable[[str], None],
        on_counted: Callable[[str, int], None] | None = None,
    ) -> None:
        """Open a channel on py-amqp's connection; calls can follow at once. ``on_counted`` gets the readers of a queue."""
        super().__init__(wire)
        self.close_code = 0
        """Why the broker closed it: a reply code of AMQP."""
        self._on_closed = on_closed
        for answer in (spec.Queue.DeclareOk, spec.Basic.ConsumeOk):
            self._callbacks[answer] = lambda what, *_facts: on_answer(str(what))
        if on_counted is not None:
            self._callbacks[spec.Queue.DeclareOk] = lambda what, _messages, readers: on_counted(str(what), int(readers))
        self.dispatch_method = self._dispatch_from_opening
        self.send_method(spec.Channel.Open, "s", ("",))

    def declare(self, queue: str, arguments: Mapping[str, Any]) -> None:
        """Make a durable queue that is removed with its last reader, unless it exists; answered."""
        flags = {"passive": False, "durable": True, "exclusive": False, "auto_delete": True, "nowait": False}
        self.send_method(spec.Queue.Declare, "BsbbbbbF", (0, queue, *flags.values(), dict(arguments)))

    def look(self, queue: str) -> None:
        """Ask for a queue: a missing one, or one of another connection, closes the channel; others are answered."""
        flags = {"passive": True, "durable": True, "exclusive": False, "auto_delete": False, "nowait": False}
        self.send_method(spec.Queue.Declare, "BsbbbbbF", (0, queue, *flags.values(), {}))

    def consume(
        self, queue: str, tag: str, callback: Callable[[Any], None], on_cancel: Callable[[str], None], prefetch: int
    ) -> None:
        """Start to read a queue; answered. ``on_cancel`` is called when the queue is deleted."""
        self.callbacks[tag] = callback
        self.cancel_callbacks[tag] = on_cancel
        self.send_method(spec.Basic.Qos, "lBb", (0, prefetch, False))
        flags = {"no_local": False, "no_ack": False, "exclusive": False, "nowait": False}
        self.send_method(spec.Basic.Consume, "BssbbbbF", (0, queue, tag, *flags.values(), None))

    def _dispatch_from_opening(self, method: tuple[int, int], payload: Any, content: Any) -> None:
        """Ignore frames before the channel is open: they were for an older one of the same number."""
        if method == spec.Channel.OpenOk:
            del self.dispatch_method
            self.dispatch_method(method, payload, content)

    def _on_basic_deliver(
        self, consumer_tag: str, delivery_tag: int, redelivered: bool, exchange: str, routing_key: str, msg: Any
    ) -> None:
        """Ignore a delivery without a consumer: it is of an older channel of the same number, whose writer in RabbitMQ was late.

        py-amqp would reject it here, where its tag is of another message or none: the broker closes a channel for that.
        """
        if consumer_tag in self.callbacks:
            super()._on_basic_deliver(consumer_tag, delivery_tag, redelivered, exchange, routing_key, msg)

    def _on_close(self, code: int, reason: str, _class_id: int, _method_id: int) -> None:
        """Take the end of this channel: py-amqp would open it again, waiting, and raise."""
        self.close_code = code
        self.send_method(spec.Channel.CloseOk)
        self.collect()
        self._on_closed(reason)


OpenChannel = Callable[[Callable[[str], None], Callable[[str], None]], QuietChannel]
"""Makes a channel from (on_answer, on_closed)."""
