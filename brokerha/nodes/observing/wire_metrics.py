"""Metrics of a node's connection to its broker, the same for masters, workers and standby processes.

>>> numbers = wire_metrics(TransportStatus("connected", "", 3, {"sent": 7, "undecodable": 2}))
>>> numbers["outbox_messages"], numbers["transport_total", "sent"], numbers["rejected_messages_total", "undecodable"]
(3, 7, 2)
"""

from __future__ import annotations

from brokerha.model.numbers import Numbers
from brokerha.ports.transport import TransportStatus
from brokerha.transports.rabbitmq.rejecting import OF_NODES


def wire_metrics(status: TransportStatus) -> Numbers:
    """Return numbers by name. Messages between nodes that were set aside have the same metric as those of apps.

    Each reason is there from the start: for Prometheus, a counter that first appears as 1 has not increased.
    """
    counters = status.counters
    return {
        "outbox_messages": status.outbox,
        **{("rejected_messages_total", reason): counters.get(reason, 0) for reason in OF_NODES},
        **{("transport_total", what): count for what, count in counters.items() if what not in OF_NODES},
    }
