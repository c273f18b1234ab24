"""Names of the queues of transactions: one for each open transaction and each backup that takes part in it.

The coordinator names them, transports declare them; both take the name from here.

>>> tx_queue_name("m1", "m1.0a1b2c3d.1.7", "m1-b")
'brokerha.tx.m1.m1.0a1b2c3d.1.7.m1-b'

A backup that is invited again gets another one: the broker makes no queue anew whose node is down.

>>> tx_queue_name("m1", "m1.0a1b2c3d.1.7", "m1-b", 1)
'brokerha.tx.m1.m1.0a1b2c3d.1.7.m1-b+1'
"""

from __future__ import annotations

from brokerha.model.ids import NodeId, TxId

TX_QUEUE_PREFIX = "brokerha.tx."
"""All queues of transactions begin so, and no other queue does."""


def tx_queue_name(master: NodeId, txid: TxId, backup: NodeId, invitations: int = 0) -> str:
    """Name of the queue through which a backup of ``master`` gets the events of a transaction, after so many ``invitations`` in vain."""
    return f"{TX_QUEUE_PREFIX}{master}.{txid}.{backup}" + (f"+{invitations}" if invitations else "")
