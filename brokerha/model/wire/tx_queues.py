"""Names of the queues of transactions: one for each open transaction and each backup that takes part in it.

The coordinator names them, transports declare them; both take the name from here.

>>> tx_queue_name("m1", "m1.0a1b2c3d.1.7", "m1-b")
'brokerha.tx.m1.m1.0a1b2c3d.1.7.m1-b'
"""

from __future__ import annotations

from brokerha.model.ids import NodeId, TxId

TX_QUEUE_PREFIX = "brokerha.tx."
"""All queues of transactions begin so, and no other queue does."""


def tx_queue_name(master: NodeId, txid: TxId, backup: NodeId) -> str:
    """Name of the queue through which a backup of ``master`` gets the events of a transaction."""
    return f"{TX_QUEUE_PREFIX}{master}.{txid}.{backup}"
