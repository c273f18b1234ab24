"""Forgetting: an entry of the synchronised queue after which ids below an LSN no longer count, for every master from the same place on.

A write is ordered unless its id is in the queue already. Masters must decide that alike, so what is forgotten must not depend on the
clock, the memory or the settings of one of them. One master proposes it (master/retention.py), as a transaction without operations:

    at LSN 52,117    "forget-ids-below 41,000"      an id whose last LSN is below 41,000 is a new one, from LSN 52,118 on

The id says it all, so a log reads no body for it, and a page of ids that a returning master takes over brings it along. No client
can send such an id: theirs have no spaces (`model.ids.TX_ID`).

>>> forgotten_below(forgetting_id(41_000)), is_forgetting("order-41000")
(41000, False)
"""

from __future__ import annotations

from typing import Final

from brokerha.model.ids import Lsn, TxId
from brokerha.model.operations import NO_OPERATIONS

MARK: Final = "forget-ids-below "
"""Only ids of these entries begin with it."""
BODY: Final = NO_OPERATIONS


def forgetting_id(below: Lsn) -> TxId:
    """Return the id of the transaction that forgets ids below an LSN."""
    return f"{MARK}{below}"


def is_forgetting(txid: TxId) -> bool:
    """Tell whether an id is one of these."""
    return txid.startswith(MARK)


def forgotten_below(txid: TxId) -> Lsn:
    """Return the LSN below which ids are forgotten after an entry with this id; 0 for none."""
    below = txid.removeprefix(MARK)
    return int(below) if below != txid and below.isdecimal() else 0
