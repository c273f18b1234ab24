"""The link of an embedded cluster: no thread, no socket; what the loop calls is done in that call.

Publishing puts a message straight into the queue of the other node, where the limits of that queue count; taking
sleeps on the bell of this node's own connection. So nine nodes in one process have nine loops and nothing else, and
none of them wakes up without a reason.

The sync inbox is registered first and therefore served first (see transport.py). Messages of nodes are acknowledged
when they are taken, messages of apps when they are settled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from amqp.exceptions import ChannelError
from kombu import Connection

from brokerha.model.ids import NodeId
from brokerha.model.wire.tx_queues import TX_QUEUE_PREFIX
from brokerha.transports.config import TransportConfig
from brokerha.transports.declaring import LANE_OF_KIND, declare
from brokerha.transports.in_process.transport import EVENT_DROP, EVENT_NACK, EVENT_RETURN, InProcessTransport
from brokerha.transports.lanes.parcels import (
    CLIENT_LANE,
    TX_LANE,
    Arrival,
    ClientTag,
    Counters,
    Publication,
    absence_of,
    arrival_of,
)
from brokerha.transports.link import CONNECTED
from brokerha.transports.rabbitmq.properties import Message
from brokerha.transports.topology import (
    DEFAULT_EXCHANGE,
    MASTER_ROLE,
    QueueRow,
    consumer_tag,
    sync_queue,
    topology_of,
    tx_queue_row,
)


class DirectLink:
    """Fulfils `link.Link` for ``embedded://``."""

    def __init__(
        self, url: str, node: NodeId, role: str, config: TransportConfig, counters: Counters, master: NodeId = ""
    ) -> None:
        self._node = node
        self._counters = counters
        self._config = config
        self._topology = topology_of(node, role, master)
        self._is_sharing = True
        self._is_serving = role == MASTER_ROLE
        self._generation = 1
        """Of messages of apps: a new one begins when those that were not settled were given back."""
        self._arrived: list[Arrival] = []
        self._connection = Connection(url, transport=InProcessTransport)
        self._connection.connect()
        self._in_process: Any = self._connection.connection
        self._out: Any = self._connection.channel()
        self._out.events[EVENT_RETURN].add(self._on_return)
        self._out.events[EVENT_NACK].add(lambda *_facts: counters.add("nacked"))
        self._out.events[EVENT_DROP].add(lambda count: counters.add("dropped", count))
        self._inboxes: Any = self._connection.channel()
        self._tx: Any = self._connection.channel()
        self._followed: set[str] = set()
        self._clients: Any = self._client_channel()
        self._subscribe()

    def publish(self, publications: Sequence[Publication]) -> None:
        """Put each publication into its queue; what has none is counted as returned."""
        for publication in publications:
            try:
                self._publish(publication)
            except ChannelError:
                # Somebody deleted the exchange: make everything again, as after a deleted queue.
                declare(self._out, self._topology)
                self._publish(publication)
            if publication.settles is not None:
                self.settle([publication.settles])
        self._counters.add("sent", sum(not publication.opens for publication in publications))

    def take(self, limit: int, timeout_s: float) -> list[Arrival]:
        """Up to ``limit`` arrivals; waits on the bell of the connection."""
        deadline_s = time.monotonic() + timeout_s
        while not self._arrived:
            try:
                self._in_process.drain_events(self._in_process, timeout=deadline_s - time.monotonic())
            except TimeoutError:
                break
        while len(self._arrived) < limit and self._in_process.deliver_one():
            pass
        taken, self._arrived = self._arrived, []
        return taken

    def wake(self) -> None:
        """Ring the bell."""
        self._in_process.wake()

    def settle(self, tags: Iterable[ClientTag]) -> None:
        """Acknowledge messages of apps."""
        for tag in tags:
            if tag.generation == self._generation:
                self._clients.basic_ack(tag.delivery_tag)

    def serve_shared(self, is_open: bool) -> None:
        """Begin or end to consume what any master may take."""
        self._is_sharing = is_open
        for row in self._topology.queues_of_apps():
            if row.is_shared_writes:
                self._clients.basic_cancel(consumer_tag(self._node, row.name))
                if self._is_wanted(row):
                    self._consume_from(row)

    def serve_clients(self, is_open: bool) -> None:
        """Begin to consume messages of apps, or give them back with their channel."""
        self._is_serving = is_open
        if is_open:
            for row in filter(self._is_wanted, self._topology.queues_of_apps()):
                self._consume_from(row)
            return
        self._clients.close()
        self._arrived = [arrival for arrival in self._arrived if arrival.lane != CLIENT_LANE]
        self._generation += 1
        self._clients = self._client_channel()

    def look(self, masters: Iterable[NodeId]) -> None:
        """Look who reads the inboxes of masters; one that is not there says nothing."""
        for master in masters:
            with suppress(ChannelError):
                if not self._inboxes.queue_declare(sync_queue(master), passive=True).consumer_count:
                    self._arrived.append(absence_of(master))

    has_other_nodes = False

    def leave_broker_node(self, directions: Iterable[str]) -> None:
        """There is only one."""

    def hear(self, node: NodeId) -> None:
        """Every node here is at this broker."""

    def follow(self, queue: str) -> None:
        """Read the queue of a transaction, made anew when it is not there."""
        if queue in self._followed:
            return
        if len(self._followed) >= self._config.followed_tx_queues:
            self._counters.add("tx_queues_too_many")
            return
        self._declare_tx(queue)
        self._tx.basic_consume(
            queue=queue,
            consumer_tag=consumer_tag(self._node, queue),
            no_ack=True,
            callback=self._collector(TX_LANE),
            on_cancel=lambda _tag: self._on_gone(queue),
        )
        self._followed.add(queue)

    def leave(self, queue: str) -> None:
        """Read it no longer."""
        self._followed.discard(queue)
        self._tx.basic_cancel(consumer_tag(self._node, queue))

    def state(self) -> tuple[str, str]:
        """Always connected: there is nothing that could be lost."""
        return CONNECTED, ""

    def waiting(self) -> int:
        """Nothing ever waits here."""
        return 0

    def close(self, timeout_s: float) -> None:  # The port's signature; nothing takes time here.
        """Bring back what was not settled, and leave. Idempotent."""
        self._connection.release()

    def _subscribe(self) -> None:
        """Declare everything and consume from the queues, the sync inbox first."""
        declare(self._out, self._topology)
        for row in filter(self._is_wanted, self._topology.queues_to_consume()):
            self._consume_from(row)

    def _is_wanted(self, row: QueueRow) -> bool:
        if not row.is_of_apps:
            return True
        return self._is_serving and (self._is_sharing or not row.is_shared_writes)

    def _client_channel(self) -> Any:
        channel: Any = self._connection.channel()
        channel.basic_qos(prefetch_count=self._config.prefetch_clients)
        return channel

    def _consume_from(self, row: QueueRow) -> None:
        lane = LANE_OF_KIND[row.kind]
        channel = self._clients if lane == CLIENT_LANE else self._inboxes
        tag = consumer_tag(self._node, row.name)
        channel.basic_cancel(tag)
        channel.basic_consume(
            queue=row.name,
            consumer_tag=tag,
            no_ack=lane != CLIENT_LANE,
            callback=self._collector(lane),
            on_cancel=self._on_cancel,
        )

    def _collector(self, lane: str) -> Callable[[Any], None]:
        def collect(raw: Any) -> None:
            self._arrived.append(arrival_of(raw, lane, self._generation))

        return collect

    def _publish(self, publication: Publication) -> None:
        if publication.opens:
            self._declare_tx(publication.tx_queue)
            self._counters.add("tx_queues_opened")
            return
        message = Message(publication.body, **publication.properties)
        is_mandatory = publication.exchange == DEFAULT_EXCHANGE
        for key in (publication.routing_key, *publication.also):
            self._out.basic_publish(message, publication.exchange, key, mandatory=is_mandatory)

    def _declare_tx(self, queue: str) -> None:
        row = tx_queue_row(queue, self._config.tx_queue_expires_ms)
        self._out.queue_declare(queue=row.name, arguments=row.arguments, auto_delete=True)

    def _on_cancel(self, _tag: str) -> None:
        self._counters.add("cancelled")
        self._subscribe()

    def _on_gone(self, queue: str) -> None:
        self._followed.discard(queue)
        self._counters.add("tx_queues_gone")

    def _on_return(self, _problem: Exception, exchange: str, key: str, _message: Any) -> None:
        is_reply = exchange == DEFAULT_EXCHANGE and not key.startswith(TX_QUEUE_PREFIX)
        self._counters.add("returned_replies" if is_reply else "returned")
