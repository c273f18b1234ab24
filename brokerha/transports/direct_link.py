"""The link of an embedded cluster: no thread, no socket; what the loop calls is done in that call.

Publishing puts a message straight into the queue of the other node, where the limits of that queue count; taking
sleeps on the bell of this node's own connection. So nine nodes in one process have nine loops and nothing else, and
none of them wakes up without a reason.

The sync inbox is registered first and therefore served first (see in_process.py). Messages of nodes are acknowledged
when they are taken, messages of apps when they are settled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from amqp.basic_message import Message
from amqp.exceptions import ChannelError
from kombu import Connection

from brokerha.model.ids import NodeId
from brokerha.transports.config import TransportConfig
from brokerha.transports.declaring import LANE_OF_KIND, declare
from brokerha.transports.in_process import EVENT_DROP, EVENT_NACK, EVENT_RETURN, InProcessTransport
from brokerha.transports.link import CONNECTED
from brokerha.transports.parcels import CLIENT_LANE, Arrival, ClientTag, Counters, Publication, arrival_of
from brokerha.transports.topology import DEFAULT_EXCHANGE, QueueRow, consumer_tag, topology_of

_GENERATION = 1
"""An in-process connection is never lost, so there is only one."""


class DirectLink:
    """Fulfils `link.Link` for ``embedded://``."""

    def __init__(self, url: str, node: NodeId, role: str, config: TransportConfig, counters: Counters) -> None:
        self._node = node
        self._counters = counters
        self._topology = topology_of(node, role)
        self._is_sharing = True
        self._arrived: list[Arrival] = []
        self._connection = Connection(url, transport=InProcessTransport)
        self._connection.connect()
        self._in_process: Any = self._connection.connection
        self._out: Any = self._connection.channel()
        self._out.events[EVENT_RETURN].add(self._on_return)
        self._out.events[EVENT_NACK].add(lambda *_facts: counters.add("nacked"))
        self._out.events[EVENT_DROP].add(lambda count: counters.add("dropped", count))
        self._inboxes: Any = self._connection.channel()
        self._clients: Any = self._connection.channel()
        self._clients.basic_qos(prefetch_count=config.prefetch_clients)
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
        self._counters.add("sent", len(publications))

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
            self._clients.basic_ack(tag.delivery_tag)

    def serve_shared(self, is_open: bool) -> None:
        """Begin or end to consume what any master may take."""
        self._is_sharing = is_open
        for row in self._topology.queues_to_consume():
            if row.is_shared_writes:
                self._clients.basic_cancel(consumer_tag(self._node, row.name))
                if is_open:
                    self._consume_from(row)

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
        for row in self._topology.queues_to_consume():
            if self._is_sharing or not row.is_shared_writes:
                self._consume_from(row)

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
            self._arrived.append(arrival_of(raw, lane, _GENERATION))

        return collect

    def _publish(self, publication: Publication) -> None:
        message = Message(publication.body, **publication.properties)
        self._out.basic_publish(message, publication.exchange, publication.routing_key, mandatory=True)

    def _on_cancel(self, _tag: str) -> None:
        self._counters.add("cancelled")
        self._subscribe()

    def _on_return(self, _problem: Exception, exchange: str, _key: str, _message: Any) -> None:
        self._counters.add("returned_replies" if exchange == DEFAULT_EXCHANGE else "returned")
