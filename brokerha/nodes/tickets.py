"""Tickets: who gets the reply of which write.

A front door makes a ticket for each write that it hands to the loop. The reply comes back in the loop's thread, once, and
goes to a future (HTTP, embedded) or into the answer of an AMQP message that may have carried many writes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import Future

from brokerha.model.requests import Reply

Receiver = Callable[[Reply], None]


class Tickets:
    """Open tickets of one node. `for_future` may be called from any thread, the rest from the loop's."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._receivers: dict[int, Receiver] = {}

    def open(self, receiver: Receiver) -> int:
        """Return a new ticket whose reply goes to ``receiver``."""
        ticket = next(self._numbers)
        self._receivers[ticket] = receiver
        return ticket

    def for_future(self) -> tuple[int, Future[Reply]]:
        """Return a new ticket and the future that its reply completes."""
        future: Future[Reply] = Future()

        def receive(reply: Reply) -> None:
            if future.set_running_or_notify_cancel():
                future.set_result(reply)

        return self.open(receive), future

    def on_reply(self, reply: Reply) -> None:
        """Hand a reply to whoever waits for it."""
        receiver = self._receivers.pop(reply.ticket, None)
        if receiver is not None:
            receiver(reply)

    def close(self, reply_for: Callable[[int], Reply]) -> None:
        """Answer every open ticket: the node stops."""
        for ticket in list(self._receivers):
            self.on_reply(reply_for(ticket))

    def __len__(self) -> int:
        return len(self._receivers)
