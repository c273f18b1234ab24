"""Asks the broker whether the inbox of another master is still there: it goes with the connection of its process, however that ended.

    hear ──> queue.declare, passive ──> broker ──> it belongs to somebody: seen
    look ──> queue.declare, passive ──> broker ──> no such queue: of a master that was seen here, an absence; of others nobody knows

Both answers of the broker close the channel of the question; the next one has another. Of the own inbox, which a process hears of where it has backups, there is nothing to learn. What was never seen may live at another broker, from which
messages are passed on (federation). A broker that was just there again has not all its nodes back: the absence of one that was not seen through this
connection counts once the connection is as old as the others may need to come back (`TransportConfig.look_after_s`).
"""

from __future__ import annotations

from collections.abc import Iterable

from brokerha.model.ids import NodeId
from brokerha.transports.lanes.parcels import Arrival, absence_of
from brokerha.transports.rabbitmq.quiet_channel import OpenChannel, QuietChannel
from brokerha.transports.rabbitmq.reader_wishes import Sightings
from brokerha.transports.topology import sync_queue

_NOT_FOUND = 404
_RESOURCE_LOCKED = 405


class Lookout:
    """Of one connection; belongs to its thread."""

    def __init__(
        self, open_channel: OpenChannel, arrived: list[Arrival], sightings: Sightings, from_s: float
    ) -> None:
        """``arrived`` takes the absences; that of a node that was not seen through this connection is not believed before the monotonic time ``from_s``."""
        self._open_channel = open_channel
        self._arrived = arrived
        self._sightings = sightings
        self._from_s = from_s
        self._channel: QuietChannel | None = None
        self._seen_here: set[NodeId] = set()
        """Nodes whose inbox was there since this connection began."""
        self._question: tuple[NodeId, bool] | None = None
        """Whom the broker is asked about now, and whether it is missed."""
        self._waiting: dict[NodeId, bool] = {}
        """Whom to ask about, in this order: whether it is missed."""
        sightings.begin()

    def turn(self, now_s: float) -> None:
        """Ask about nodes that were heard for the first time."""
        if self._sightings.is_new:
            for node in self._sightings.take():
                self._waiting.setdefault(node, False)
            self._ask(now_s)

    def look(self, masters: Iterable[NodeId], now_s: float) -> None:
        """Ask about each that is missed, unless it is too early to believe an absence."""
        known = masters if now_s >= self._from_s else self._seen_here.intersection(masters)
        self._waiting.update(dict.fromkeys(known, True))
        self._ask(now_s)

    def _ask(self, now_s: float) -> None:
        if self._question is not None or not self._waiting:
            return
        # One at a time: most answers of the broker close the channel.
        node = next(iter(self._waiting))
        self._question = node, self._waiting.pop(node)
        if self._channel is None:
            self._channel = self._open_channel(lambda _queue: self._on_answer(now_s), lambda _reason: self._on_closed(now_s))
        self._channel.look(sync_queue(node))

    def _on_answer(self, now_s: float) -> None:
        """It is an inbox of this very connection: there is nothing to learn of it, and the channel stays."""
        self._question = None
        self._ask(now_s)

    def _on_closed(self, now_s: float) -> None:
        code = 0 if self._channel is None else self._channel.close_code
        self._channel = None
        if self._question is not None:
            (node, is_missed), self._question = self._question, None
            if code == _RESOURCE_LOCKED:
                self._sightings.see(node)
                self._seen_here.add(node)
            elif code == _NOT_FOUND and is_missed and self._sightings.was_seen(node):
                self._arrived.append(absence_of(node))
        self._ask(now_s)
