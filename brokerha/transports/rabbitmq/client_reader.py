"""The part of the reading half that takes messages of apps, as long as this process speaks for its master.

    brokerha.<master>.{writes,reads}, brokerha.{writes,reads}.any ──> inbox, lane client ──> loop ── Settled ──> here

A message stays with the broker until the loop has settled it. When the door is closed, all that was not settled goes
back with its channel, in its place, for the process that takes over; a later acknowledgement of it means nothing.

Nobody reads these queues exclusively: a process that is frozen, or cut off, still has its reader, and the one that acts in
its stead must not wait for the broker to notice. What goes to one master goes first to the reader that began last.

Invariants: acknowledgements are made on the channel that delivered, and only there; what is consumed while the door is
open is what the topology says.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kombu import Connection

from brokerha.model.ids import NodeId
from brokerha.transports.lanes.inbox import Inbox
from brokerha.transports.lanes.parcels import CLIENT_LANE, Arrival, arrival_of
from brokerha.transports.lanes.unsettled import Unsettled
from brokerha.transports.rabbitmq.reader_wishes import Doors, Settled
from brokerha.transports.topology import QueueRow, Topology, consumer_arguments, consumer_tag


class ClientReader:
    """See the head of the module; ``arrived`` is where its session collects what came."""

    def __init__(
        self,
        connection: Connection,
        node: NodeId,
        topology: Topology,
        doors: Doors,
        settled: Settled,
        inbox: Inbox,
        arrived: list[Arrival],
        next_generation: Callable[[], int],
        on_cancel: Callable[[str], None],
        prefetch: int,
    ) -> None:
        """Begin to consume, if the door is open. Raises what py-amqp raises."""
        self._connection = connection
        self._node = node
        self._rows = topology.queues_of_apps()
        self._doors = doors
        self._settled = settled
        self._inbox = inbox
        self._arrived = arrived
        self._next_generation = next_generation
        self._on_cancel = on_cancel
        self._prefetch = prefetch
        self._consumed: set[str] = set()
        self._served = (False, False)
        """What was wanted when it was last looked what to consume."""
        self._begin()

    def turn(self) -> None:
        """Acknowledge what is settled, and see to the doors."""
        if self._settled:
            for tag, multiple in self._unsettled.settle(self._settled.take(self._generation)):
                self._channel.basic_ack(tag, multiple=multiple)
        if self._closings != self._doors.closings:
            self._give_back()
        elif self._served != (self._doors.is_serving, self._doors.is_sharing):
            self._consume()

    def _begin(self) -> None:
        self._closings = self._doors.closings
        self._generation = self._next_generation()
        self._inbox.drop_clients_before(self._generation)
        self._unsettled = Unsettled()
        self._channel: Any = self._connection.channel()
        # Counts for each consumer, as it must on RabbitMQ 4.
        self._channel.basic_qos(0, self._prefetch, False)
        self._consume()

    def _give_back(self) -> None:
        """What was not settled goes back with the channel; what this process has not looked at yet is forgotten."""
        self._channel.leave()
        self._consumed.clear()
        self._arrived[:] = [arrival for arrival in self._arrived if arrival.lane != CLIENT_LANE]
        self._begin()

    def _consume(self) -> None:
        self._served = self._doors.is_serving, self._doors.is_sharing
        for row in self._rows:
            is_wanted = self._doors.is_serving and (self._doors.is_sharing or not row.is_shared_writes)
            if is_wanted and row.name not in self._consumed:
                self._consume_from(row)
            elif not is_wanted and row.name in self._consumed:
                # What was delivered already stays with this node.
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
        )

    def _collector(self) -> Callable[[Any], None]:
        arrived, unsettled, generation = self._arrived, self._unsettled, self._generation

        def collect(raw: Any) -> None:
            arrival = arrival_of(raw, CLIENT_LANE, generation)
            unsettled.deliver(arrival.tag.delivery_tag)
            arrived.append(arrival)

        return collect
