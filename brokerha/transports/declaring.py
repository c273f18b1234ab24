"""Declares the entries of topology.py, through a channel of py-amqp.

Declaring is idempotent, and every node repeatedly declares all exchanges and queues that it uses. So the order of starts does not
matter, and deleted entries come back.
"""

from __future__ import annotations

from typing import Any

from amqp.exceptions import PreconditionFailed, ResourceLocked

from brokerha.transports.lanes import CLIENT_LANE, DATA_LANE, SYNC_LANE
from brokerha.transports.topology import DATA_KIND, DEFAULT_EXCHANGE, READS_KIND, SYNC_KIND, WRITES_KIND, QueueRow, Topology

LANE_OF_KIND = {SYNC_KIND: SYNC_LANE, DATA_KIND: DATA_LANE, WRITES_KIND: CLIENT_LANE, READS_KIND: CLIENT_LANE}
"""Lane of the inbox for the messages of each queue."""


def declare(channel: Any, topology: Topology, *, nowait: bool = False) -> None:
    """Declare exchanges, queues and bindings; existing ones stay.

    Raises AMQPError when the broker refuses. With ``nowait`` a refusal closes the channel a little later instead.
    """
    for exchange in topology.exchanges:
        channel.exchange_declare(
            exchange=exchange.name,
            type=exchange.kind,
            durable=True,
            auto_delete=False,
            nowait=nowait,
            arguments=dict(exchange.arguments),
        )
    for row in topology.queues:
        try:
            _declare_queue(channel, row, nowait=nowait)
        except (PreconditionFailed, ResourceLocked):
            # Another version declared the queue. An inbox holds only repeated messages, so make it again, unless another connection
            # owns it: the broker refuses then. (py-amqp has reopened the channel.) The other queues need a person.
            if not row.is_exclusive:
                raise
            channel.queue_delete(queue=row.name)
            _declare_queue(channel, row, nowait=nowait)


def _declare_queue(channel: Any, row: QueueRow, *, nowait: bool) -> None:
    channel.queue_declare(
        queue=row.name,
        durable=not row.is_exclusive,
        exclusive=row.is_exclusive,
        auto_delete=False,
        nowait=nowait,
        arguments=dict(row.arguments),
    )
    if row.exchange != DEFAULT_EXCHANGE:
        channel.queue_bind(queue=row.name, exchange=row.exchange, routing_key=row.key, nowait=nowait)
