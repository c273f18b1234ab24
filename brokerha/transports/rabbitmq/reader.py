"""The reading half of a link: deliveries go into the inbox, acknowledgements go back.

    channel   queues                       prefetch        acknowledged
    sync      brokerha.<node>.sync         prefetch_sync   when in the inbox and the inbox has room, with others¹
    data      brokerha.<node>.data         prefetch_data   the same
    clients   writes and reads of apps     each its own    when the loop has settled it
    each      brokerha.tx.….<node>         prefetch_tx     as the first two, without others

¹ An eighth of the prefetch, 1 MiB or a second: no sender waits for it, and at the end of the connection the inbox ends as well.

Invariants: this thread acknowledges, and only on the delivering channel. A full lane withholds acknowledgements, and the prefetch
limit stops the broker; the other lanes go on. A cancelled consumer (its queue was deleted) ends the session, and the next one
declares everything. A deleted exchange cancels no consumer. So a silent sync inbox, and time, are reasons to declare again, which
costs nothing in the normal case, and to ask the broker whether it still serves that channel (quiet_channel.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from amqp.exceptions import ConsumerCancelled, ResourceError
from kombu import Connection

from brokerha.model.ids import NodeId
from brokerha.transports.config import TransportConfig
from brokerha.transports.declaring import LANE_OF_KIND, declare
from brokerha.transports.lanes import (
    CLIENT_LANE,
    DATA_LANE,
    SYNC_LANE,
    TX_LANE,
    Arrival,
    ClientTag,
    Counters,
    Inbox,
    Unsettled,
    absence_of,
    arrival_of,
)
from brokerha.transports.rabbitmq.quiet_channel import OpenChannel, Pulse, QuietChannel
from brokerha.transports.rabbitmq.reader_wishes import Doors, Followed, Sightings
from brokerha.transports.topology import QueueRow, Topology, consumer_arguments, consumer_tag, sync_queue, tx_queue_row

LOOKS_S = (0.3, 0.8, 2.0, 4.0, 8.0, 15.0)
"""Times at which a new connection checks its inboxes. RabbitMQ deletes inboxes of connections to a dead node by name, and so also
one that was just declared again elsewhere: that has its reader, but no message reaches it."""
_LOOKS_AT_CLIENTS = 4
"""The last checks also cover queues of apps: a queue that was read again during its deletion has no reader after its next
declaration, and no event reports that."""
_NOT_FOUND = 404
_RESOURCE_LOCKED = 405
_NO_GENERATION = 0
"""The loop does not settle messages of nodes and events of transactions."""
_TOGETHER_BYTES = 1024 * 1024
_TOGETHER_S = 1.0


class _Reading:
    """One queue with the channel that reads it."""

    def __init__(self, owner: TxReader, queue: str, open_channel: OpenChannel) -> None:
        self.queue = queue
        self.channel = open_channel(lambda _what: None, lambda _reason: owner.closed(self))
        self.delivered = 0
        self.acknowledged = 0


class TxReader:
    """The part of the reading half that reads queues of transactions, which are short-lived.

    ``arrived`` collects the arrivals of its session; see the head of the module.

        loop ── Followed ──> a channel for each queue ──> inbox, lane tx

    Such a queue is removed with its reader, even after a lost connection. So it is declared again before it is read, and events
    that were lost with it are requested. A queue whose broker node is down cannot be declared, and a deleted one cancels its
    reader: both are noted, and the primary invites to another one. Closing its channel leaves a queue, so a silent node delays no
    other queue.

    Events are acknowledged when they are in the inbox and the inbox has room. That loses nothing important: an open transaction is
    lost with its backup's process in any case, and a backup that misses an event asks its primary for it. The acknowledgement only
    slows a primary that is faster than its backup.

    Invariants: at most ``followed_tx_queues`` channels; an unreadable queue is left, until it is wanted again; this class never
    waits, nor ends the connection.
    """

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
        """Opens nothing before a queue is wanted."""
        self._open_channel = open_channel
        self._node = node
        self._followed = followed
        self._inbox = inbox
        self._arrived = arrived
        self._prefetch = config.prefetch_tx
        self._expires_ms = config.tx_queue_expires_ms
        self._counters = counters
        self._version = -1
        self._wishes: dict[str, int] = {}
        """Number of the wish for each queue, as of the last look."""
        self._reading: dict[str, _Reading] = {}
        self._unacknowledged: list[_Reading] = []

    def turn(self) -> None:
        """Start to read wanted queues, stop reading others, acknowledge arrivals."""
        if self._followed.version != self._version:
            self._compare()
        if self._unacknowledged and self._inbox.has_room(TX_LANE):
            for reading in self._unacknowledged:
                if self._reading.get(reading.queue) is reading:
                    reading.channel.basic_ack(reading.delivered, multiple=True)
                    reading.acknowledged = reading.delivered
            self._unacknowledged.clear()

    def closed(self, reading: _Reading) -> None:
        """Note that a queue could not be declared or read, and that its channel is gone."""
        if self._reading.get(reading.queue) is reading:
            del self._reading[reading.queue]
            self._counters.add("tx_queues_gone")
            self._followed.gone(reading.queue, self._wishes.get(reading.queue, 0))
            # It is possibly wanted again since.
            self._version = -1

    def _compare(self) -> None:
        self._version, self._wishes = self._followed.read()
        for queue in [queue for queue in self._reading if queue not in self._wishes]:
            self._reading.pop(queue).channel.leave()
        for queue in self._wishes:
            if queue not in self._reading:
                self._follow(queue)

    def _follow(self, queue: str) -> None:
        try:
            reading = self._reading[queue] = _Reading(self, queue, self._open_channel)
        except ResourceError:
            # The broker allows fewer channels than the limit of followed queues.
            self._counters.add("tx_queues_too_many")
            self._followed.gone(queue, self._wishes[queue])
            return
        reading.channel.declare(queue, tx_queue_row(queue, self._expires_ms).arguments)
        reading.channel.consume(
            queue,
            consumer_tag(self._node, queue),
            lambda raw: self._collect(reading, raw),
            lambda _tag: self._on_cancel(reading),
            self._prefetch,
        )

    def _on_cancel(self, reading: _Reading) -> None:
        """Note that the queue was deleted."""
        reading.channel.leave()
        self.closed(reading)

    def _collect(self, reading: _Reading, raw: Any) -> None:
        arrival = arrival_of(raw, TX_LANE, _NO_GENERATION)
        if reading.delivered == reading.acknowledged:
            self._unacknowledged.append(reading)
        reading.delivered = arrival.tag.delivery_tag
        self._arrived.append(arrival)


class Lookout:
    """Asks the broker whether the inbox of another master still exists: it ends with its process's connection, however that ended.

    Belongs to one connection and its thread.

        hear ──> queue.declare, passive ──> broker ──> it belongs to a connection: seen
        look ──> queue.declare, passive ──> broker ──> no such queue: an absence, if the master was seen here; otherwise unknown

    Both answers close the channel of the question; the next question gets another. About the own inbox, whose name a process with
    backups hears, there is nothing to learn. An inbox that was never seen is possibly at another broker that passes messages on
    (federation). A restarted broker does not have all its nodes yet. So the absence of an inbox not seen through this connection
    counts only once the connection is as old as the others can need to come back (`TransportConfig.look_after_s`).
    """

    def __init__(self, open_channel: OpenChannel, arrived: list[Arrival], sightings: Sightings, from_s: float) -> None:
        """``arrived`` takes the absences; before the monotonic time ``from_s`` only those of nodes seen through this connection."""
        self._open_channel = open_channel
        self._arrived = arrived
        self._sightings = sightings
        self._from_s = from_s
        self._channel: QuietChannel | None = None
        self._seen_here: set[NodeId] = set()
        """Nodes whose inbox was there since this connection began."""
        self._question: tuple[NodeId, bool] | None = None
        """Node of the open question, and whether it is missed."""
        self._waiting: dict[NodeId, bool] = {}
        """Nodes to ask about, in order, and whether each is missed."""
        sightings.begin()

    def turn(self, now_s: float) -> None:
        """Ask about nodes that were heard for the first time."""
        if self._sightings.is_new:
            for node in self._sightings.take():
                self._waiting.setdefault(node, False)
            self._ask(now_s)

    def look(self, masters: Iterable[NodeId], now_s: float) -> None:
        """Ask about each missed node, unless it is too early to believe an absence."""
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
        """Go on after an inbox of this very connection: there is nothing to learn, and the channel stays open."""
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


class ClientReader:
    """The part of the reading half that takes messages of apps, while this process speaks for its master.

    ``arrived`` collects the arrivals of its session; see the head of the module.

        brokerha.<master>.{writes,reads}, brokerha.{writes,reads}.any ──> inbox, lane client ──> loop ── settled ──> here

    A message stays with the broker until the loop has settled it. When the door is closed, all unsettled messages go back with the
    channel, to their places, for the process that takes over; a later acknowledgement has no effect.

    No reader of these queues is exclusive: a frozen or cut-off process still has its reader, and its successor must not wait until
    the broker notices. Messages for one master go first to its newest reader.

    Invariants: acknowledgements are made only on the delivering channel; while the door is open, the topology lists the consumed
    queues.
    """

    def __init__(
        self,
        connection: Connection,
        node: NodeId,
        topology: Topology,
        doors: Doors,
        settled: list[ClientTag],
        inbox: Inbox,
        arrived: list[Arrival],
        next_generation: Callable[[], int],
        on_cancel: Callable[[str], None],
        prefetch: int,
        *,
        waits: bool,
    ) -> None:
        """Start to consume, if the door is open; ``waits`` for each answer, and then raises the errors of py-amqp."""
        self._connection = connection
        self._node = node
        self._topology = topology.to_serve()
        self._waits = waits
        self._doors = doors
        self._settled = settled
        self._inbox = inbox
        self._arrived = arrived
        self._next_generation = next_generation
        self._on_cancel = on_cancel
        self._prefetch = prefetch
        self._consumed: set[str] = set()
        self._lookout: QuietChannel | None = None
        self._unread: set[str] = set()
        """Queues of this process without any reader at the last look."""
        self._served = (False, False)
        """Wishes at the last decision what to consume."""
        self._begin()
        self._waits = False

    def turn(self) -> None:
        """Acknowledge settled messages, and follow the doors."""
        if self._settled:
            # Tags of an older generation have no meaning on this channel.
            tags = [tag.delivery_tag for tag in self._settled if tag.generation == self._generation]
            self._settled.clear()
            for tag, multiple in self._unsettled.settle(tags):
                self._channel.basic_ack(tag, multiple=multiple)
        if self._closings != self._doors.closings:
            self._give_back()
        elif self._served != (self._doors.is_serving, self._doors.is_sharing):
            self._consume()

    def look(self) -> None:
        """Ask the broker whether the queues of this process have a reader."""
        if self._lookout is None:
            self._lookout = QuietChannel(
                self._connection.connection, lambda _queue: None, self._on_lookout_closed, self._on_counted
            )
        for name in sorted(self._consumed):
            self._lookout.look(name)

    def _on_counted(self, queue: str, readers: int) -> None:
        if readers or queue not in self._consumed:
            self._unread.discard(queue)
        elif queue in self._unread:
            self._on_cancel(consumer_tag(self._node, queue))
        else:
            self._unread.add(queue)

    def _on_lookout_closed(self, _reason: str) -> None:
        """Forget the channel after a missing queue; the next declaration makes it, and the next look finds it without a reader."""
        self._lookout = None

    def _begin(self) -> None:
        self._closings = self._doors.closings
        self._generation = self._next_generation()
        self._inbox.drop_clients_before(self._generation)
        self._unsettled = Unsettled()
        self._channel: Any = self._connection.channel()
        # Counts for each consumer, as RabbitMQ 4 requires.
        self._channel.basic_qos(0, self._prefetch, False)
        if not self._waits:
            # The answer for a queue whose leader is down takes seconds, and must not delay other work.
            declare(self._channel, self._topology, nowait=True)
        self._consume()

    def _give_back(self) -> None:
        """Give unsettled messages back with the channel; forget those that this process has not read yet."""
        self._channel.leave()
        self._consumed.clear()
        self._arrived[:] = [arrival for arrival in self._arrived if arrival.lane != CLIENT_LANE]
        self._begin()

    def _consume(self) -> None:
        self._served = self._doors.is_serving, self._doors.is_sharing
        for row in self._topology.queues:
            is_wanted = self._doors.is_serving and (self._doors.is_sharing or not row.is_shared_writes)
            if is_wanted and row.name not in self._consumed:
                self._consume_from(row)
            elif not is_wanted and row.name in self._consumed:
                # Messages that were delivered already stay with this node.
                self._consumed.remove(row.name)
                self._channel.basic_cancel(consumer_tag(self._node, row.name), nowait=True)

    def _consume_from(self, row: QueueRow) -> None:
        self._consumed.add(row.name)
        self._channel.basic_consume(
            queue=row.name,
            consumer_tag=consumer_tag(self._node, row.name),
            callback=self._collector(),
            on_cancel=self._on_cancel,
            arguments=consumer_arguments(row, time.time()),
            nowait=not self._waits,
        )

    def _collector(self) -> Callable[[Any], None]:
        arrived, unsettled, generation = self._arrived, self._unsettled, self._generation

        def collect(raw: Any) -> None:
            arrival = arrival_of(raw, CLIENT_LANE, generation)
            unsettled.deliver(arrival.tag.delivery_tag)
            arrived.append(arrival)

        return collect


class _NodeChannel:
    """Inbox of a node: the last delivered and the last acknowledged message."""

    def __init__(self, channel: Any, prefetch: int) -> None:
        self.channel = channel
        self.prefetch = prefetch
        self.delivered = self.acknowledged = 0
        self.size_bytes = 0
        """Size of delivered, unacknowledged messages."""
        self.due_s: float | None = None
        """Latest time of their acknowledgement."""

    def acknowledge(self, now_s: float) -> float:
        """Acknowledge everything at once when it is much or old; return until when nothing is owed."""
        if self.due_s is None:
            self.due_s = now_s + _TOGETHER_S
        is_much = 8 * (self.delivered - self.acknowledged) >= self.prefetch or self.size_bytes >= _TOGETHER_BYTES
        if is_much or now_s >= self.due_s:
            self.channel.basic_ack(self.delivered, multiple=True)
            self.acknowledged, self.size_bytes, self.due_s = self.delivered, 0, None
            return now_s + _TOGETHER_S
        return self.due_s


class ReaderSession:
    """One connection's reading; fulfils `kept_connection.Session`."""

    def __init__(
        self,
        connection: Connection,
        next_generation: Callable[[], int],
        node: NodeId,
        topology: Topology,
        inbox: Inbox,
        settled: list[ClientTag],
        doors: Doors,
        followed: Followed,
        config: TransportConfig,
        counters: Counters,
        looks: set[NodeId],
        sightings: Sightings,
        *,
        is_first: bool,
    ) -> None:
        """Declare and consume; ``looks`` are masters to ask the broker about. Raises the errors of py-amqp.

        The first session checks all declarations; a later one hears other nodes before queues of apps exist.
        """
        self._looks = looks
        self._node = node
        self._topology = topology
        self._inbox = inbox
        self._settled = settled
        self._config = config
        self._counters = counters
        self._arrived: list[Arrival] = []
        self._control: Any = connection.channel()
        declare(self._control, topology if is_first else topology.to_hear())
        prefetch = {SYNC_LANE: config.prefetch_sync, DATA_LANE: config.prefetch_data}
        self._nodes = {lane: _NodeChannel(connection.channel(), most) for lane, most in prefetch.items()}
        for row in topology.inboxes():
            self._consume_from(row)
        self._clients = ClientReader(
            connection,
            node,
            topology,
            doors,
            settled,
            inbox,
            self._arrived,
            next_generation,
            self._on_cancel,
            config.prefetch_clients,
            waits=is_first,
        )
        self._tx = TxReader(partial(QuietChannel, connection.connection), node, followed, inbox, self._arrived, config, counters)
        self._pulse = Pulse(self._nodes[SYNC_LANE].channel.ask, config.answer_within_s)
        self._heard_s = self._declared_s = time.monotonic()
        self._looks_s = [] if is_first else [self._declared_s + after_s for after_s in LOOKS_S]
        open_channel = partial(QuietChannel, connection.connection)
        self._lookout = Lookout(open_channel, self._arrived, sightings, self._declared_s + config.look_after_s)

    def turn(self, now_s: float) -> float:
        """Pass arrivals on, acknowledge where possible, declare again when due."""
        if self._arrived:
            if any(arrival.lane == SYNC_LANE for arrival in self._arrived):
                self._heard_s = now_s
            self._inbox.put(self._arrived)
            self._arrived.clear()
        self._lookout.turn(now_s)
        if self._looks:
            self._lookout.look(self._looks, now_s)
            self._looks.clear()
        due_s = self._declare_again(now_s)
        for lane, node_channel in self._nodes.items():
            if node_channel.delivered > node_channel.acknowledged and self._inbox.has_room(lane):
                due_s = min(due_s, node_channel.acknowledge(now_s))
        self._clients.turn()
        self._tx.turn()
        return due_s

    def is_idle(self) -> bool:
        """Tell whether every settled message is acknowledged; unsettled ones come again."""
        return not self._settled

    def end(self) -> None:
        """Do nothing: the broker still has the unacknowledged messages."""

    def _declare_again(self, now_s: float) -> float:
        quiet_s = self._config.redeclare_quiet_ms / 1000
        due_s = min(self._declared_s + self._config.redeclare_every_ms / 1000, max(self._heard_s, self._declared_s) + quiet_s)
        if is_due := now_s >= due_s:
            declare(self._control, self._topology, nowait=True)
            self._declared_s = now_s
            due_s = now_s + quiet_s
        if self._looks_s:
            if now_s >= self._looks_s[0]:
                del self._looks_s[0]
                for row in self._topology.inboxes():
                    self._control.queue_declare(queue=row.name, passive=True, nowait=True)
                if len(self._looks_s) < _LOOKS_AT_CLIENTS:
                    self._clients.look()
            due_s = min([due_s, *self._looks_s])
        return min(due_s, self._pulse.turn(now_s, is_used=is_due))

    def _consume_from(self, row: QueueRow) -> None:
        lane = LANE_OF_KIND[row.kind]
        channel = self._nodes[lane].channel
        # Counts for each consumer, as RabbitMQ 4 requires.
        channel.basic_qos(0, self._nodes[lane].prefetch, False)
        channel.basic_consume(
            queue=row.name,
            consumer_tag=consumer_tag(self._node, row.name),
            callback=self._collector(lane),
            on_cancel=self._on_cancel,
        )

    def _collector(self, lane: str) -> Callable[[Any], None]:
        arrived, node_channel = self._arrived, self._nodes[lane]

        def collect(raw: Any) -> None:
            arrival = arrival_of(raw, lane, _NO_GENERATION)
            node_channel.delivered = arrival.tag.delivery_tag
            node_channel.size_bytes += len(arrival.body)
            arrived.append(arrival)

        return collect

    def _on_cancel(self, tag: str) -> None:
        self._counters.add("cancelled")
        raise ConsumerCancelled(f"the queue of consumer {tag!r} was deleted")
