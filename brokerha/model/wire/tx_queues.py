"""Names of the queues of transactions: one for each open transaction and each backup that takes part in it.

The coordinator names them, transports declare them; both use the function here.

>>> tx_queue_name("m1", "m1.0a1b2c3d.1.7", "m1-b")
'brokerha.tx.m1.m1.0a1b2c3d.1.7.m1-b'

A backup that is invited again gets another queue: the broker cannot recreate a queue whose node is down.

>>> tx_queue_name("m1", "m1.0a1b2c3d.1.7", "m1-b", 1)
'brokerha.tx.m1.m1.0a1b2c3d.1.7.m1-b+1'
"""

from __future__ import annotations

from brokerha.model.ids import NodeId, TxId

TX_QUEUE_PREFIX = "brokerha.tx."
"""Prefix of all queues of transactions, and of no other queue."""


def tx_queue_name(master: NodeId, txid: TxId, backup: NodeId, invitations: int = 0) -> str:
    """Return the queue for a backup of ``master`` and a transaction, after this many unsuccessful ``invitations``."""
    return f"{TX_QUEUE_PREFIX}{master}.{txid}.{backup}" + (f"+{invitations}" if invitations else "")
