"""Which lineage of the log one worker follows, and how it goes over to the next (lineages.py has what a lineage is).

    Coin of a later lineage -> told at once -> BeginLineage ... durable -> places of that lineage are taken

A copy goes over where it is not beyond what both lineages agree on; or where its content is what the log has there, because the master
keeps the content of its site: then it stands there from now on. Told before it is durable, but nothing is applied before that: a
crash only has it told anew.
"""

from __future__ import annotations

from brokerha.model.ids import Lsn
from brokerha.model.ready import BeginLineage
from brokerha.model.wire.messages import Coin


class GoingOver:
    """The lineage of one worker's copy."""

    def __init__(self, lineage: int) -> None:
        self.lineage = lineage
        """The one that it follows, or is about to."""
        self.is_durable = True
        self._moves_to: Lsn = -1
        """Where the content stands in the lineage that is being written down; -1 for where it stood."""

    def place(self, coin: Coin, end: Lsn, fingerprint: str, *, is_busy: bool) -> Lsn | None:
        """Where a copy that stands at ``end`` after what its store is doing stands in the lineage of that order; None if it stays."""
        if coin.lineage <= self.lineage:
            return None
        if end > coin.agreed_lsn:
            if is_busy or not coin.fingerprint or coin.fingerprint != fingerprint:
                return None
            end = self._moves_to = coin.agreed_lsn
        self.lineage, self.is_durable = coin.lineage, False
        return end

    def decision(self) -> BeginLineage:
        """What is to be written down."""
        return BeginLineage(self.lineage, self._moves_to)

    def on_written(self, decision: object) -> None:
        """The store did this."""
        if decision == self.decision():
            self.is_durable, self._moves_to = True, -1

    def on_opened(self, lineage: int) -> None:
        """There is another copy, which follows this one."""
        self.lineage, self.is_durable, self._moves_to = lineage, True, -1
