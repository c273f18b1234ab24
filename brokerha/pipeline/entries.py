"""One entry of the log as the pipeline sees it.

An entry is a line of the log with the additional knowledge of masters. Sources differ in what they know:

| source | origin | epoch |
|---|---|---|
| a master over HTTP, the journal of a stopped one | yes | yes |
| a log stream in RabbitMQ | yes | since it is published there |
| lines of a backup | unknown | unknown |

The **entry hash** is the SHA-256 of the msgpack list ``[lsn, txid, timestamp, outcome, reason, effect, fingerprint]``: the fields
that are the same at every master and in every source. (A backup has no origin and epoch, so the hash excludes them.)

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
    """The master that stamped it; empty when the source does not know it."""
    timestamp: Timestamp
    """Microseconds since 1970, of the hybrid clock of its origin."""
    epoch: int
    """0 when the source does not know it."""
    outcome: str
    reason: str
    effect: bytes
    fingerprint: bytes
    """Fingerprint of the whole content after the entry (model/fingerprints.py)."""


def entry_hash(entry: LogEntry) -> bytes:
    """Return the SHA-256 of an entry, 32 bytes; see the head of the module."""
    return sha256(msgpack.packb((*entry[:2], entry.timestamp, *entry[5:]))).digest()
