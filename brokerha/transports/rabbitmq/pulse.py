"""Whether the broker still serves a channel: it is asked now and then, while the channel is used, and answers in the order of all that came before.

Heartbeats say that the connection lives. In a cluster of RabbitMQ a channel may stand still on a connection that does: when another node
dies, for five seconds and longer (seen with 3.10 under load, until the broker closed the connection with INTERNAL_ERROR). What is published without
confirms says nothing then, and the node is as good as gone. Where the broker has other nodes, one of them is a better place.

Invariants: at most one question is open; nothing is asked for a channel that is not used.
"""

from __future__ import annotations

from collections.abc import Callable

from amqp.exceptions import RecoverableConnectionError

EVERY_S = 1.0
"""Seconds between two questions."""
_FAR_S = 3600.0


class Pulse:
    """Of one channel; belongs to the thread of its connection."""

    def __init__(self, ask: Callable[[Callable[[], None]], None], within_s: float) -> None:
        """``ask`` sends the question, and calls what it is given when the answer comes; that may take ``within_s`` seconds."""
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
        """No answer is due: the broker takes nothing now, or the socket is full."""
        self._asked_s = max(self._asked_s, now_s)

    def _on_answer(self) -> None:
        self._is_open = False
