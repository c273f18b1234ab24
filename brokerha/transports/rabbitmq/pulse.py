"""Whether the broker still serves a channel: it is asked at intervals while the channel is in use, and answers in order.

Heartbeats show that the connection is alive. In a cluster of RabbitMQ a channel can stall on a live connection: when another node
dies, for five seconds and longer (seen with 3.10 under load, until the broker closed the connection with INTERNAL_ERROR). Without
confirmations, publishing then gives no sign, and the node is cut off. If the broker has other nodes, one of them is better.

Invariants: at most one question is open; an unused channel is not asked.
"""

from __future__ import annotations

from collections.abc import Callable

from amqp.exceptions import RecoverableConnectionError

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
