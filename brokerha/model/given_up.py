"""What a master gave up when its synchronised queue went back: the lines of its split book (log/split_book.py)."""

from __future__ import annotations

from typing import NamedTuple

from brokerha.model.ids import Lsn, NodeId, Timestamp, TxId

UNKNOWN_OUTCOME = "unknown"


class Split(NamedTuple):
    """The head line of what was given up at once."""

    number: int
    """Of the `Rewound`; names the split."""
    epoch: int
    """Number of the epoch that was given up."""
    lineage: int
    """Number of the epoch with which it went on."""
    keeps_content: bool
    """Whether the site kept its content: what it had applied is not executed again."""
    lsn: Lsn
    """The queue went back to this LSN."""
    total: int
    """Transactions that were given up."""
    stamped: Timestamp
    """Of the last of them."""
    held: int
    """How many of them, from the first on, are still listed."""


class GivenUp(NamedTuple):
    """A transaction that lost its LSN."""

    lsn: Lsn
    """The one that it had."""
    txid: TxId
    origin: NodeId
    outcome: str
    """What had become of it here: applied, rejected, or `UNKNOWN_OUTCOME`."""
