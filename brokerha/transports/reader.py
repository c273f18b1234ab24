"""The reading half of a threaded link: what the broker delivers goes into the inbox, acknowledgements go back.

    channel   queues                       prefetch        acknowledged
    sync      brokerha.<node>.sync         prefetch_sync   when it is in the inbox and the inbox has room
    data      brokerha.<node>.data         prefetch_data   the same
    clients   writes and reads of apps     each its own    when the loop has settled it

Invariants: acknowledgements are made in this thread, on the channel that delivered, and only there: a tag of an older
connection is ignored, because the broker delivers that message again. A full lane withholds acknowledgements, and
prefetch stops the broker; the other lanes go on. A cancelled consumer (its queue was deleted) ends the session, and
the next one declares everything. A deleted exchange cancels nobody: so a silent sync inbox, and time, are reasons to
declare again, which costs nothing where all is as it was.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from amqp.exceptions import ConsumerCancelled
from kombu import Connection

from brokerha.model.ids import NodeId
from brokerha.transports.config import TransportConfig
from brokerha.transports.declaring import LANE_OF_KIND, declare
from brokerha.transports.inbox import Inbox
from brokerha.transports.parcels import (
    CLIENT_LANE,
    DATA_LANE,
    SYNC_LANE,
    Arrival,
    ClientTag,
    Counters,
    arrival_of,
)
from brokerha.transports.topology import QueueRow, Topology, consumer_tag
from brokerha.transports.unsettled import Unsettled


class Settled:
    """Tags of settled messages on their way from the loop to the reading thread."""

    def __init__(self) -> None:
        self._tags: deque[ClientTag] = deque()

    def add(self, tags: Iterable[ClientTag]) -> None:
        """Callable from any thread; wake the reader afterwards."""
        self._tags.extend(tags)

    def __len__(self) -> int:
        """How many wait to be acknowledged."""
        return len(self._tags)

    def take(self, generation: int) -> list[int]:
        """Delivery tags of this generation; older ones are dropped."""
        taken = []
        while self._tags:
            tag = self._tags.popleft()
            if tag.generation == generation:
                taken.append(tag.delivery_tag)
        return taken


class SharedDoor:
    """Whether writes that any master may take are consumed; set by the loop, read by the reading thread."""

    def __init__(self) -> None:
        self.is_open = True


class _NodeChannel:
    """Inbox of a node: what was delivered, and what of it was acknowledged."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.delivered = 0
        self.acknowledged = 0


class ReaderSession:
    """One connection's reading; fulfils `connection_thread.Session`."""

    def __init__(
        self,
        connection: Connection,
        generation: int,
        node: NodeId,
        topology: Topology,
        inbox: Inbox,
        settled: Settled,
        shared_door: SharedDoor,
        config: TransportConfig,
        counters: Counters,
    ) -> None:
        """Declare and consume. Raises what py-amqp raises."""
        self._generation = generation
        self._node = node
        self._topology = topology
        self._inbox = inbox
        self._settled = settled
        self._shared_door = shared_door
        self._is_sharing = shared_door.is_open
        self._config = config
        self._counters = counters
        self._arrived: list[Arrival] = []
        self._unsettled = Unsettled()
        inbox.drop_clients_before(generation)
        self._control: Any = connection.channel()
        declare(self._control, topology)
        self._nodes = {lane: _NodeChannel(connection.channel()) for lane in (SYNC_LANE, DATA_LANE)}
        self._clients: Any = connection.channel()
        self._consume()
        self._heard_s = self._declared_s = time.monotonic()

    def turn(self, now_s: float) -> float:
        """Hand over what came, acknowledge what may be, declare again when it is due."""
        if self._arrived:
            if any(arrival.lane == SYNC_LANE for arrival in self._arrived):
                self._heard_s = now_s
            self._inbox.put(self._arrived)
            self._arrived.clear()
        for lane, node_channel in self._nodes.items():
            if node_channel.delivered > node_channel.acknowledged and self._inbox.has_room(lane):
                node_channel.channel.basic_ack(node_channel.delivered, multiple=True)
                node_channel.acknowledged = node_channel.delivered
        for tag, multiple in self._unsettled.settle(self._settled.take(self._generation)):
            self._clients.basic_ack(tag, multiple=multiple)
        if self._is_sharing is not self._shared_door.is_open:
            self._share(self._shared_door.is_open)
        return self._declare_again(now_s)

    def _share(self, is_open: bool) -> None:
        """Begin or end to consume what any master may take; what was delivered already stays with this node."""
        self._is_sharing = is_open
        for row in self._topology.queues_to_consume():
            if row.is_shared_writes and is_open:
                self._consume_from(row)
            elif row.is_shared_writes:
                self._clients.basic_cancel(consumer_tag(self._node, row.name), nowait=True)

    def is_idle(self) -> bool:
        """Whether everything settled is acknowledged; what is not settled comes again."""
        return not self._settled

    def end(self) -> None:
        """Nothing to save: the broker still has what was not acknowledged."""

    def _declare_again(self, now_s: float) -> float:
        quiet_s = self._config.redeclare_quiet_ms / 1000
        due_s = min(
            self._declared_s + self._config.redeclare_every_ms / 1000, max(self._heard_s, self._declared_s) + quiet_s
        )
        if now_s < due_s:
            return due_s
        declare(self._control, self._topology, nowait=True)
        self._declared_s = now_s
        return now_s + quiet_s

    def _consume(self) -> None:
        for row in self._topology.queues_to_consume():
            if self._is_sharing or not row.is_shared_writes:
                self._consume_from(row)

    def _consume_from(self, row: QueueRow) -> None:
        prefetch = {
            SYNC_LANE: self._config.prefetch_sync,
            DATA_LANE: self._config.prefetch_data,
            CLIENT_LANE: self._config.prefetch_clients,
        }
        lane = LANE_OF_KIND[row.kind]
        channel = self._clients if lane == CLIENT_LANE else self._nodes[lane].channel
        # Counts for each consumer, as it must on RabbitMQ 4; set again it counts for the consumers that follow.
        channel.basic_qos(0, prefetch[lane], False)
        channel.basic_consume(
            queue=row.name,
            consumer_tag=consumer_tag(self._node, row.name),
            callback=self._collector(lane),
            on_cancel=self._on_cancel,
            # A second process under this node id is refused, instead of taking half of the messages away.
            exclusive=lane == SYNC_LANE,
        )

    def _collector(self, lane: str) -> Callable[[Any], None]:
        arrived, generation, unsettled, nodes = self._arrived, self._generation, self._unsettled, self._nodes

        def collect_client(raw: Any) -> None:
            arrival = arrival_of(raw, lane, generation)
            unsettled.deliver(arrival.tag.delivery_tag)
            arrived.append(arrival)

        def collect(raw: Any) -> None:
            arrival = arrival_of(raw, lane, generation)
            nodes[lane].delivered = arrival.tag.delivery_tag
            arrived.append(arrival)

        return collect_client if lane == CLIENT_LANE else collect

    def _on_cancel(self, tag: str) -> None:
        self._counters.add("cancelled")
        raise ConsumerCancelled(f"the queue of consumer {tag!r} was deleted")
