"""Prepared transactions that wait for their decision, and decisions that are remembered: what a restart brings back of both.

The record of a prepared transaction holds its body, which may be megabytes, so nothing here copies it: it stays where it is
in the log, and is pinned there until it is decided (trimming leaves it). Both journals use this, as they use current.py.

    TxPrepared                           -> prepared                       (its number pins its record)
    TxDecided  commit                    -> forgotten here: it is found by its LSN
               rollback                  -> decided, the last `DECIDED_KEPT` of them
               by hand, either way       -> decided, until TxForgotten

Invariants: an id is prepared at most once; both are in order of their numbers; what was decided by hand is never dropped by the
bound. Rows for the tables `prepared` and `decided` collect in `prepared_rows` and `decided_rows`.
"""

from __future__ import annotations

from typing import TypeVar

from brokerha.model.ids import TxId
from brokerha.model.invariants import invariant
from brokerha.model.records import DECIDED_KEPT, TxDecided, TxForgotten, TxPrepared

Row = TypeVar("Row")
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
        self.prepared_rows: dict[int, TxId | None] = {}
        """By number: a row to write, or None for one to delete."""
        self.decided_rows: dict[int, TxDecided | None] = {}

    def copy(self) -> Decisions:
        """Return an independent copy."""
        copy = Decisions()
        copy.prepared, copy.decided, copy._droppable = self.prepared.copy(), self.decided.copy(), self._droppable.copy()
        return copy

    def take(self, number: int, record: Decision) -> None:
        """Take over what record ``number`` says; InvariantBroken when a transaction is prepared twice."""
        match record:
            case TxPrepared(txid):
                invariant(txid not in self.prepared, "a transaction is prepared once", txid=txid, number=number)
                self.prepared[txid] = number
                self.prepared_rows[number] = txid
            case TxDecided(txid):
                self._settle(txid)
                if record.is_heuristic or not record.is_commit:
                    self._remember(number, record)
            case TxForgotten(txid):
                self._forget(txid)

    def _settle(self, txid: TxId) -> None:
        number = self.prepared.pop(txid, 0)
        if number:
            _take_back(self.prepared_rows, number)
        self._forget(txid)

    def _remember(self, number: int, record: TxDecided) -> None:
        self.decided[record.txid] = (number, record)
        self.decided_rows[number] = record
        if not record.is_heuristic:
            self._droppable[record.txid] = None
            while len(self._droppable) > DECIDED_KEPT:
                self._forget(next(iter(self._droppable)))

    def _forget(self, txid: TxId) -> None:
        number, _ = self.decided.pop(txid, (0, None))
        self._droppable.pop(txid, None)
        if number:
            _take_back(self.decided_rows, number)

    def load_prepared(self, number: int, txid: TxId) -> None:
        """Take over what a row of `prepared` says; in order of numbers."""
        self.prepared[txid] = number

    def load_decided(self, number: int, record: TxDecided) -> None:
        """Take over what a row of `decided` says; in order of numbers."""
        self.decided[record.txid] = (number, record)
        if not record.is_heuristic:
            self._droppable[record.txid] = None

    def remembered(self) -> dict[TxId, TxDecided]:
        """The decisions by transaction id, oldest first."""
        return {txid: record for txid, (_, record) in self.decided.items()}

    def forget_rows(self) -> None:
        """Forget the rows that have collected; they are written already."""
        self.prepared_rows.clear()
        self.decided_rows.clear()


def _take_back(rows: dict[int, Row | None], number: int) -> None:
    """Let a row be deleted, or not be written when it came in the same turn."""
    if rows.get(number) is None:
        rows[number] = None
    else:
        del rows[number]
