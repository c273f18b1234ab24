"""Prepared transactions that wait for their decision, and decisions that are remembered: what a restart brings back of both.

The record of a prepared transaction holds its body, which may be megabytes, so nothing here copies it: it stays where it is
in the log, and is pinned there until it is decided (trimming leaves it).

    TxPrepared                           -> prepared                       (its number pins its record)
    TxDecided  commit                    -> forgotten here: it is found by its LSN
               rollback                  -> decided, the last `DECIDED_KEPT` of them
               by hand, either way       -> decided, until TxForgotten

Invariants: an id is prepared at most once; both are in order of their numbers; what was decided by hand is never dropped by the
bound.
"""

from __future__ import annotations

from brokerha.model.ids import TxId
from brokerha.model.invariants import invariant
from brokerha.model.records import DECIDED_KEPT, TxDecided, TxForgotten, TxPrepared

Decision = TxPrepared | TxDecided | TxForgotten


class Decisions:
    """What is prepared and what was decided, moved on by each record about it."""

    def __init__(self) -> None:
        self.prepared: dict[TxId, int] = {}
        """Number of the `TxPrepared` of each transaction without a decision, oldest first."""
        self.decided: dict[TxId, tuple[int, TxDecided]] = {}
        """Decisions that are remembered, with their numbers, oldest first."""
        self._droppable: dict[TxId, None] = {}
        """Those of them that the bound may drop, oldest first."""

    def take(self, number: int, record: Decision) -> None:
        """Take over what record ``number`` says; InvariantBroken when a transaction is prepared twice."""
        match record:
            case TxPrepared(txid):
                invariant(txid not in self.prepared, "a transaction is prepared once", txid=txid, number=number)
                self.prepared[txid] = number
            case TxDecided(txid):
                self.prepared.pop(txid, None)
                self._forget(txid)
                if record.is_heuristic or not record.is_commit:
                    self._remember(number, record)
            case TxForgotten(txid):
                self._forget(txid)

    def _remember(self, number: int, record: TxDecided) -> None:
        self.decided[record.txid] = (number, record)
        if not record.is_heuristic:
            self._droppable[record.txid] = None
            while len(self._droppable) > DECIDED_KEPT:
                self._forget(next(iter(self._droppable)))

    def _forget(self, txid: TxId) -> None:
        self.decided.pop(txid, None)
        self._droppable.pop(txid, None)

    def load_prepared(self, number: int, txid: TxId) -> None:
        """Take over what a checkpoint says is prepared; in order of numbers."""
        self.prepared[txid] = number

    def load_decided(self, number: int, record: TxDecided) -> None:
        """Take over what a checkpoint says was decided; in order of numbers."""
        self.decided[record.txid] = (number, record)
        if not record.is_heuristic:
            self._droppable[record.txid] = None

    def remembered(self) -> dict[TxId, TxDecided]:
        """The decisions by transaction id, oldest first."""
        return {txid: record for txid, (_, record) in self.decided.items()}
