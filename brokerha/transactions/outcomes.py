"""Outcomes of transactions that are over: remembered ends, and the presumption for forgotten ones.

A transaction that was open when its primary died leaves no trace, so a rollback needs no record: an id that this master made, and
that is neither open nor in the log, was rolled back. This master says so only where it is certain: the incarnation that made the id
is known to have begun at an LSN from which on the log still knows every id. An id that a client made (an idempotency key) may be
used at any master, so nothing is presumed of it.

    m1.0a1b2c3d.2.1f        made by incarnation 2 of the master m1 with the journal 0a1b2c3d…, number 1f
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from brokerha.model.ids import BEGUN_MARK, Lsn, NodeId, TxId
from brokerha.model.records import MasterState

OPEN = "open"
PREPARED = "prepared"
COMMITTED = "committed"
ABORTED = "aborted"


class End(NamedTuple):
    """The end of a transaction."""

    state: str
    """`COMMITTED` or `ABORTED`."""
    reason: str


class Finished:
    """The last ends, up to a limit; the oldest go first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._ends: OrderedDict[TxId, End] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, txid: TxId, state: str, reason: str) -> None:
        """Remember an end; a later one replaces it."""
        self._ends[txid] = End(state, reason)
        self._ends.move_to_end(txid)
        while len(self._ends) > self._limit:
            self._ends.popitem(last=False)

    def get(self, txid: TxId) -> End | None:
        """Return how a transaction ended; None when it is not remembered."""
        return self._ends.get(txid)


class Presumption:
    """The ids that this master made, and whether a rollback can be presumed of them."""

    def __init__(self, node: NodeId, state: MasterState) -> None:
        """Take ``state`` of the journal, with the incarnation that begins now."""
        self._prefix = f"{node}.{state.journal[:8]}."
        self._incarnation = state.incarnation
        self._starts = {**dict(state.starts), state.incarnation: state.lsn}
        self._begun = -1
        """Highest number of an id that was begun in this incarnation."""

    def made_here(self, txid: TxId) -> tuple[int, int] | None:
        """Return (incarnation, number) of an id that this master made for a transaction; None for any other id."""
        is_own = txid.startswith(self._prefix) and txid.endswith(BEGUN_MARK)
        parts = txid.removeprefix(self._prefix).removesuffix(BEGUN_MARK).split(".") if is_own else []
        try:
            return (int(parts[0], 16), int(parts[1], 16)) if len(parts) == 2 else None
        except ValueError:
            return None

    def on_begin(self, txid: TxId) -> None:
        """Note that an id was used to begin a transaction."""
        made = self.made_here(txid)
        if made is not None and made[0] == self._incarnation:
            self._begun = max(self._begun, made[1])

    def is_over(self, txid: TxId, ids_from: Lsn) -> bool:
        """Tell whether an id that is neither open nor in the log was certainly rolled back."""
        made = self.made_here(txid)
        if made is None:
            return False
        incarnation, number = made
        start = self._starts.get(incarnation)
        if start is None or start + 1 < ids_from:
            return False
        return incarnation < self._incarnation or number <= self._begun
