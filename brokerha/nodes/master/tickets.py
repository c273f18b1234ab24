"""Tickets that connect each reply to the caller of its write.

A front door makes a ticket for each write that it hands to the loop. The reply comes back in the loop's thread, once, and
goes to a future (HTTP, embedded) or into the answer of an AMQP message, which can have many writes.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from concurrent.futures import Future

from brokerha.model.ids import TxId
from brokerha.model.numbers import Histogram, Numbers
from brokerha.model.requests import APPLIED_LEVEL, UNKNOWN, Reply

Receiver = Callable[[Reply], None]


class Tickets:
    """Open tickets of one node. Any thread can call `for_future`; only the loop calls the rest."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._numbers = itertools.count(1)
        self._receivers: dict[int, tuple[TxId, Receiver, float]] = {}
        self._clock_s = clock_s
        self._commits = Histogram()

    def open(self, txid: TxId, receiver: Receiver) -> int:
        """Return a new ticket for a transaction; its reply goes to ``receiver``."""
        ticket = next(self._numbers)
        self._receivers[ticket] = (txid, receiver, self._clock_s())
        return ticket

    def for_future(self, txid: TxId) -> tuple[int, Future[Reply]]:
        """Return a new ticket for a transaction, and the future that its reply completes."""
        future: Future[Reply] = Future()

        def receive(reply: Reply) -> None:
            if future.set_running_or_notify_cancel():
                future.set_result(reply)

        return self.open(txid, receive), future

    def on_reply(self, reply: Reply) -> None:
        """Hand a reply to the caller that waits for it."""
        _, receiver, since_s = self._receivers.pop(reply.ticket, ("", None, 0.0))
        if receiver is None:
            return
        if reply.status == APPLIED_LEVEL:
            self._commits.observe(self._clock_s() - since_s)
        receiver(reply)

    def close(self, reason: str) -> None:
        """Answer every open ticket with *unknown*: the node stops."""
        for ticket, (txid, _, _) in list(self._receivers.items()):
            self.on_reply(Reply(ticket, txid, UNKNOWN, 0, "OutcomeUnknown", reason, is_parting=True))

    def metrics(self) -> Numbers:
        """Return the numbers for /metrics; a commit lasts from the submission of a write until its answer as applied."""
        return {"open_tickets": len(self), **self._commits.numbers("commit_duration_seconds")}

    def __len__(self) -> int:
        return len(self._receivers)
