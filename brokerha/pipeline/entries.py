"""One entry of the log as the pipeline sees it.

An entry is a line of the log with what masters know beside it. Sources differ in what they can say:

| source | origin | epoch |
|---|---|---|
| a master over HTTP, the journal of a stopped one | yes | yes |
| a log stream in RabbitMQ | yes | since it is published there |
| lines of a backup | unknown | unknown |

The **entry hash** is the SHA-256 of the msgpack list ``[lsn, txid, timestamp, outcome, reason, effect, fingerprint]``: of what is the same
at every master and in every source. (Origin and epoch are not in it, because a backup does not have them.)

>>> entry = LogEntry(1, "t1", "m1", 1_000, 1, "applied", "", b"", b"")
>>> entry_hash(entry).hex()[:16]
'116bd1a02318a12f'
"""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple

import msgpack

from brokerha.model.ids import Lsn, NodeId, Timestamp, TxId

UNKNOWN_ORIGIN = ""
UNKNOWN_EPOCH = 0


class LogEntry(NamedTuple):
    """One transaction of the log with its result."""

    lsn: Lsn
    txid: TxId
    origin: NodeId
    """The master that stamped it; empty where the source does not know."""
    timestamp: Timestamp
    """Microseconds since 1970, of the hybrid clock of its origin."""
    epoch: int
    """0 where the source does not know."""
    outcome: str
    reason: str
    effect: bytes
    fingerprint: bytes
    """Of the whole content after it (model/fingerprints.py)."""


def entry_hash(entry: LogEntry) -> bytes:
    """SHA-256 of an entry, 32 bytes; see the head of the module."""
    return sha256(
        msgpack.packb(
            (
                entry.lsn,
                entry.txid,
                entry.timestamp,
                entry.outcome,
                entry.reason,
                entry.effect,
                entry.fingerprint,
            )
        )
    ).digest()
