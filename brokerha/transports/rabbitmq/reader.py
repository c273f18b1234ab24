"""The reading half of a link: what the broker delivers goes into the inbox, acknowledgements go back.

    channel   queues                       prefetch        acknowledged
    sync      brokerha.<node>.sync         prefetch_sync   when it is in the inbox and the inbox has room, with others¹
    data      brokerha.<node>.data         prefetch_data   the same
    clients   writes and reads of apps     each its own    when the loop has settled it (client_reader.py)
    several   brokerha.tx.….<node>         prefetch_tx     as the first two, each (tx_reader.py)

¹ An eighth of the prefetch, 1 MiB or a second: nothing waits for it, and what was not acknowledged is gone with the inbox when the connection ends.

Invariants: acknowledgements are made in this thread, on the channel that delivered, and only there. A full lane withholds acknowledgements, and
prefetch stops the broker; the other lanes go on. A cancelled consumer (its queue was deleted) ends the session, and
the next one declares everything. A deleted exchange cancels nobody: so a silent sync inbox, and time, are reasons to
declare again, which costs nothing where all is as it was, and to ask the broker whether it still serves that channel (pulse.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from amqp.exceptions import ConsumerCancelled
from kombu import Connection

from brokerha.model.ids import NodeId
from brokerha.transports.config import TransportConfig
from brokerha.transports.declaring import LANE_OF_KIND, declare
from brokerha.transports.lanes.inbox import Inbox
from brokerha.transports.lanes.parcels import DATA_LANE, SYNC_LANE, Arrival, Counters, arrival_of
from brokerha.transports.rabbitmq.client_reader import ClientReader
from brokerha.transports.rabbitmq.lookout import Lookout
from brokerha.transports.rabbitmq.pulse import Pulse
from brokerha.transports.rabbitmq.quiet_channel import QuietChannel
from brokerha.transports.rabbitmq.reader_wishes import Doors, Followed, Settled, Sightings
from brokerha.transports.rabbitmq.tx_reader import TxReader
from brokerha.transports.topology import QueueRow, Topology, consumer_tag

_NO_GENERATION = 0
"""Messages of nodes are not settled by the loop."""
_TOGETHER_BYTES = 1024 * 1024
_TOGETHER_S = 1.0


class _NodeChannel:
    """Inbox of a node: what was delivered, and what of it was acknowledged."""

    def __init__(self, channel: Any, prefetch: int) -> None:
        self.channel = channel
        self.prefetch = prefetch
        self.delivered = self.acknowledged = 0
        self.size_bytes = 0
        """Of what was delivered and not acknowledged."""
        self.due_s: float | None = None
        """When that is acknowledged at the latest."""

    def acknowledge(self, now_s: float) -> float:
        """Acknowledge everything at once when it is much or old; returns until when nothing is owed."""
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
        settled: Settled,
        doors: Doors,
        followed: Followed,
        config: TransportConfig,
        counters: Counters,
        looks: set[NodeId],
        sightings: Sightings,
    ) -> None:
        """Declare and consume; ``looks`` are masters to ask the broker about. Raises what py-amqp raises."""
        self._looks = looks
        self._node = node
        self._topology = topology
        self._inbox = inbox
        self._settled = settled
        self._config = config
        self._counters = counters
        self._arrived: list[Arrival] = []
        self._control: Any = connection.channel()
        declare(self._control, topology)
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
        )
        self._tx = TxReader(
            partial(QuietChannel, connection.connection), node, followed, inbox, self._arrived, config, counters
        )
        self._pulse = Pulse(self._nodes[SYNC_LANE].channel.ask, config.answer_within_s)
        self._heard_s = self._declared_s = time.monotonic()
        open_channel = partial(QuietChannel, connection.connection)
        self._lookout = Lookout(open_channel, self._arrived, sightings, self._declared_s + config.look_after_s)

    def turn(self, now_s: float) -> float:
        """Hand over what came, acknowledge what may be, declare again when it is due."""
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
        """Whether everything settled is acknowledged; what is not settled comes again."""
        return not self._settled

    def end(self) -> None:
        """Nothing to save: the broker still has what was not acknowledged."""

    def _declare_again(self, now_s: float) -> float:
        quiet_s = self._config.redeclare_quiet_ms / 1000
        due_s = min(
            self._declared_s + self._config.redeclare_every_ms / 1000, max(self._heard_s, self._declared_s) + quiet_s
        )
        if is_due := now_s >= due_s:
            declare(self._control, self._topology, nowait=True)
            self._declared_s = now_s
            due_s = now_s + quiet_s
        return min(due_s, self._pulse.turn(now_s, is_used=is_due))

    def _consume_from(self, row: QueueRow) -> None:
        lane = LANE_OF_KIND[row.kind]
        channel = self._nodes[lane].channel
        # Counts for each consumer, as it must on RabbitMQ 4.
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
