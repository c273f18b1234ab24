"""Transactions that a master gave up when its synchronised queue went back: the lines of its split book (log/split_book.py)."""

from __future__ import annotations

from typing import NamedTuple

from brokerha.model.ids import Lsn, NodeId, Timestamp, TxId

UNKNOWN_OUTCOME = "unknown"


class Split(NamedTuple):
    """The head line of one rewind."""

    number: int
    """Number of the `Rewound`; identifies the split."""
    epoch: int
    """Number of the abandoned epoch."""
    lineage: int
    """Number of the epoch that followed."""
    keeps_content: bool
    """Whether the site kept its content: applied transactions are not executed again."""
    lsn: Lsn
    """The queue went back to this LSN."""
    total: int
    """Number of transactions given up."""
    stamped: Timestamp
    """Timestamp of the last of them."""
    held: int
    """Number of transactions, from the first on, that are still listed."""


class GivenUp(NamedTuple):
    """A transaction that lost its LSN."""

    lsn: Lsn
    """Its former LSN."""
    txid: TxId
    origin: NodeId
    outcome: str
    """Its outcome here: applied, rejected, or `UNKNOWN_OUTCOME`."""
