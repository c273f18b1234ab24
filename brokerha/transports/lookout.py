"""Asks the broker who reads the inboxes of other masters: a process that has ended, however it did, reads nothing any more.

    look ──> queue.declare, passive ──> broker ──> number of consumers: none is an absence
                                           └────> no such queue: nobody knows

A broker that was just there again has not all its nodes back: answers count once the own connection is as old as the others may need
to come back (`TransportConfig.look_after_s`). On a channel of its own, because a queue that is not there closes it.
"""

from __future__ import annotations

from collections.abc import Iterable

from brokerha.model.ids import NodeId
from brokerha.transports.parcels import Arrival, absence_of
from brokerha.transports.quiet_channel import OpenChannel, QuietChannel
from brokerha.transports.topology import sync_queue


class Lookout:
    """Of one connection; belongs to its thread."""

    def __init__(self, open_channel: OpenChannel, arrived: list[Arrival], from_s: float) -> None:
        """``arrived`` takes the absences; nothing is asked before the monotonic time ``from_s``."""
        self._open_channel = open_channel
        self._arrived = arrived
        self._from_s = from_s
        self._channel: QuietChannel | None = None
        self._asked: dict[str, NodeId] = {}

    def look(self, masters: Iterable[NodeId], now_s: float) -> None:
        """Ask about each, unless it is too early."""
        if now_s < self._from_s:
            return
        for master in masters:
            if self._channel is None:
                self._channel = self._open_channel(lambda _queue: None, self._on_closed)
            self._asked[sync_queue(master)] = master
            self._channel.look(sync_queue(master), self._on_looked)

    def _on_looked(self, queue: str, consumers: int) -> None:
        master = self._asked.pop(queue, None)
        if master is not None and not consumers:
            self._arrived.append(absence_of(master))

    def _on_closed(self, _reason: str) -> None:
        self._channel = None
        self._asked.clear()
