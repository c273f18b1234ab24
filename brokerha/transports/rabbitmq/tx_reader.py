"""The part of the reading half that reads queues of transactions, which come and go while it reads.

    loop ── Followed ──> channels beside the others, each for a few queues ──> inbox, lane tx

To read a queue that is not there closes the channel, and a deleted queue cancels its reader. Both are the normal end of
a transaction: it is noted and no more. The other queues of a closed channel, few, are read on through another one, and
what was not acknowledged comes twice.

Events are acknowledged when they are in the inbox and the inbox has room. That loses nothing that matters: an open
transaction is lost with its backup's process in any case, and a backup that misses an event asks its primary for it. What
the acknowledgement is for is to stop a primary that is faster than its backup.

Invariants: no more channels than ``followed_tx_queues`` need; a queue that is not there is left, until it is wanted anew;
nothing here waits, or ends the connection.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

from brokerha.model.ids import NodeId
from brokerha.transports.config import TransportConfig
from brokerha.transports.lanes.inbox import Inbox
from brokerha.transports.lanes.parcels import TX_LANE, Arrival, Counters, arrival_of
from brokerha.transports.rabbitmq.quiet_channel import OpenChannel
from brokerha.transports.rabbitmq.reader_wishes import Followed
from brokerha.transports.topology import consumer_tag

QUEUES_A_CHANNEL = 16
"""More would save channels, and cost more each time that a queue is not there."""
_ABOUT_A_TAG = "delivery tag"
"""In what the broker says when it closes a channel for an acknowledgement."""
_NO_GENERATION = 0
"""Events are not settled by the loop."""


class _Shelf:
    """One channel with the number of queues that it reads."""

    def __init__(self, owner: TxReader, open_channel: OpenChannel) -> None:
        self.asked: dict[str, str] = {}
        """Queues by the tags of readers of which the broker has not said yet that they read."""
        self.channel = open_channel(lambda tag: owner.began(self, tag), lambda reason: owner.closed(self, reason))
        self.queues = 0
        self.delivered = 0
        self.acknowledged = 0


class _Reader(NamedTuple):
    """One queue that is read."""

    queue: str
    tag: str
    shelf: _Shelf


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
        self._wishes: dict[str, int] = {}
        """Number of the wish for each queue, as it was last looked at."""
        self._reading: dict[str, _Reader] = {}
        self._leaving: dict[str, _Reader] = {}
        """By queue: no longer wanted, and not begun yet."""
        self._shelves: list[_Shelf] = []
        self._unacknowledged: list[_Shelf] = []
        self._numbers = itertools.count(1)

    def turn(self) -> None:
        """Begin to read what is wanted, end what is not, acknowledge what came."""
        if self._followed.version != self._version:
            self._compare()
        if self._unacknowledged and self._inbox.has_room(TX_LANE):
            for shelf in self._unacknowledged:
                shelf.channel.basic_ack(shelf.delivered, multiple=True)
                shelf.acknowledged = shelf.delivered
            self._unacknowledged.clear()

    def began(self, shelf: _Shelf, tag: str) -> None:
        """The broker reads that one for us."""
        shelf.asked.pop(tag, None)
        for reader in [reader for reader in self._leaving.values() if reader.tag == tag]:
            del self._leaving[reader.queue]
            reader.shelf.channel.cancel(tag)

    def closed(self, shelf: _Shelf, reason: str) -> None:
        """The queue that the reason names was not there, or may not be read; the others are to be looked for again."""
        self._shelves.remove(shelf)
        if shelf in self._unacknowledged:
            self._unacknowledged.remove(shelf)
        self._leaving = {queue: reader for queue, reader in self._leaving.items() if reader.shelf is not shelf}
        named = [tag for tag, queue in shelf.asked.items() if f"queue '{queue}'" in reason]
        # Without a name it is as good to give up the oldest as any, and better than to ask for ever; but a tag is about no queue.
        refused = next(iter(named or shelf.asked), "") if named or _ABOUT_A_TAG not in reason else ""
        for reader in [reader for reader in self._reading.values() if reader.shelf is shelf]:
            if reader.tag == refused:
                self._is_gone(reader)
            else:
                del self._reading[reader.queue]
        self._version = -1

    def _compare(self) -> None:
        self._version, self._wishes = self._followed.read()
        for queue in [queue for queue in self._reading if queue not in self._wishes]:
            reader = self._forget(queue)
            if reader.tag in reader.shelf.asked:
                # To cancel a reader that it has not begun yet makes RabbitMQ (3.10) give up the whole connection.
                self._leaving[queue] = reader
            else:
                reader.shelf.channel.cancel(reader.tag)
        for queue in self._wishes:
            if queue not in self._reading:
                self._follow(queue)

    def _follow(self, queue: str) -> None:
        reader = self._leaving.pop(queue, None)
        if reader is not None:
            self._reading[queue] = reader
            reader.shelf.queues += 1
            return
        shelf = next((shelf for shelf in self._shelves if shelf.queues < QUEUES_A_CHANNEL), None)
        if shelf is None:
            shelf = _Shelf(self, self._open_channel)
            self._shelves.append(shelf)
        # The same queue may be left and followed again: what is said of the old reader must not meet the new one.
        tag = f"{consumer_tag(self._node, queue)} {next(self._numbers)}"
        reader = self._reading[queue] = _Reader(queue, tag, shelf)
        shelf.queues += 1
        shelf.asked[tag] = queue
        shelf.channel.consume(
            queue, tag, lambda raw: self._collect(shelf, raw), lambda _tag: self._on_cancel(reader), self._prefetch
        )

    def _on_cancel(self, reader: _Reader) -> None:
        """The queue was deleted."""
        if self._reading.get(reader.queue) is reader:
            self._is_gone(reader)

    def _is_gone(self, reader: _Reader) -> None:
        self._counters.add("tx_queues_gone")
        self._forget(reader.queue)
        self._followed.gone(reader.queue, self._wishes.get(reader.queue, 0))

    def _forget(self, queue: str) -> _Reader:
        reader = self._reading.pop(queue)
        reader.shelf.queues -= 1
        return reader

    def _collect(self, shelf: _Shelf, raw: Any) -> None:
        arrival = arrival_of(raw, TX_LANE, _NO_GENERATION)
        if shelf.delivered == shelf.acknowledged:
            self._unacknowledged.append(shelf)
        shelf.delivered = arrival.tag.delivery_tag
        self._arrived.append(arrival)
