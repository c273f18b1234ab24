"""The part of the reading half that reads queues of transactions, which come and go while it reads.

    loop ── Followed ──> one channel for each queue, used again for the next ──> inbox, lane tx

To read a queue that is not there closes the channel, and a deleted queue cancels its reader. Both are the normal end of
a transaction, so each queue has a channel of its own, and its end is noted and no more.

Events are acknowledged when they are in the inbox and the inbox has room. That loses nothing that matters: an open
transaction is lost with its backup's process in any case, and a backup that misses an event asks its primary for it. What
the acknowledgement is for is to stop a primary that is faster than its backup.

Invariants: no more than ``followed_tx_queues`` channels, since no more queues are wanted; a queue that is not there is
left, until it is wanted anew; nothing here waits, or ends the connection.
"""

from __future__ import annotations

from typing import Any

from brokerha.model.ids import NodeId
from brokerha.transports.config import TransportConfig
from brokerha.transports.inbox import Inbox
from brokerha.transports.parcels import TX_LANE, Arrival, Counters, arrival_of
from brokerha.transports.quiet_channel import OpenChannel
from brokerha.transports.reader_wishes import Followed
from brokerha.transports.topology import consumer_tag

_NO_GENERATION = 0
"""Events are not settled by the loop."""


class _Place:
    """One channel, and the queue that it reads now."""

    def __init__(self, owner: TxReader, open_channel: OpenChannel) -> None:
        self.channel = open_channel(lambda: owner.began(self), lambda _reason: owner.closed(self))
        self.queue = ""
        self.number = 0
        self.has_begun = False
        """Whether the broker has said that it reads."""
        self.delivered = 0
        self.acknowledged = 0


class TxReader:
    """See the head of the module; ``arrived`` is where its session collects what came."""

    def __init__(
        self,
        open_channel: OpenChannel,
        node: NodeId,
        followed: Followed,
        inbox: Inbox,
        arrived: list[Arrival],
        config: TransportConfig,
        counters: Counters,
    ) -> None:
        """Nothing is opened before a queue is wanted."""
        self._open_channel = open_channel
        self._node = node
        self._followed = followed
        self._inbox = inbox
        self._arrived = arrived
        self._prefetch = config.prefetch_tx
        self._counters = counters
        self._version = -1
        self._reading: dict[str, _Place] = {}
        self._idle: list[_Place] = []
        self._unacknowledged: list[_Place] = []

    def turn(self) -> None:
        """Begin to read what is wanted, end what is not, acknowledge what came."""
        if self._followed.version != self._version:
            self._compare()
        if self._unacknowledged and self._inbox.has_room(TX_LANE):
            for place in self._unacknowledged:
                place.channel.basic_ack(place.delivered, multiple=True)
                place.acknowledged = place.delivered
            self._unacknowledged.clear()

    def began(self, place: _Place) -> None:
        """The broker reads that queue for us."""
        place.has_begun = True
        if not place.queue:
            self._idle.append(place)

    def closed(self, place: _Place) -> None:
        """The queue was not there; or else the channel is of no use."""
        if place in self._idle:
            self._idle.remove(place)
        if place in self._unacknowledged:
            self._unacknowledged.remove(place)
        self._is_gone(place)

    def cancelled(self, place: _Place, queue: str) -> None:
        """The queue was deleted."""
        if place.queue == queue:
            self._is_gone(place)
            self._idle.append(place)

    def _is_gone(self, place: _Place) -> None:
        if place.queue:
            self._counters.add("tx_queues_gone")
            del self._reading[place.queue]
            self._followed.gone(place.queue, place.number)
            place.queue = ""

    def _compare(self) -> None:
        self._version, wanted = self._followed.read()
        for queue in [queue for queue in self._reading if queue not in wanted]:
            self._leave(queue)
        for queue, number in wanted.items():
            if queue not in self._reading:
                self._follow(queue)
            self._reading[queue].number = number

    def _follow(self, queue: str) -> None:
        place = self._idle.pop() if self._idle else _Place(self, self._open_channel)
        place.queue = queue
        place.has_begun = False
        self._reading[queue] = place
        place.channel.consume(
            queue,
            consumer_tag(self._node, queue),
            lambda raw: self._collect(place, raw),
            lambda _tag: self.cancelled(place, queue),
            self._prefetch,
        )

    def _leave(self, queue: str) -> None:
        place = self._reading.pop(queue)
        place.queue = ""
        place.channel.cancel(consumer_tag(self._node, queue))
        if place.has_begun:
            self._idle.append(place)

    def _collect(self, place: _Place, raw: Any) -> None:
        arrival = arrival_of(raw, TX_LANE, _NO_GENERATION)
        if place.delivered == place.acknowledged:
            self._unacknowledged.append(place)
        place.delivered = arrival.tag.delivery_tag
        self._arrived.append(arrival)
