"""Lineages: which log a copy followed, and up to where that is the log of now (replication, section 5).

Where masters go back after a split, what was synchronised after an LSN is void, and the same LSNs are other transactions
afterwards. The **lineage** counts that: it is the number that came with the last going back, of any master of the cluster, and a part of
each copy. Of two copies with the same lineage one followed a beginning of what the other one followed; of a copy with an older one only
what no later rewind went below.

    lineage 0    1 2 3 4 5 6 7 8
    lineage 5    1 2 3 4 a b c d         rewind(4, 5)
    lineage 7    1 2 3 4 a b x           rewind(6, 7)      a copy of lineage 0 agrees up to 4, one of lineage 5 up to 6

>>> lineages = Lineages(((5, 4), (7, 6)))
>>> lineages.number, lineages.agreed(0), lineages.agreed(5), lineages.agreed(7)
(7, 4, 6, None)
"""

from __future__ import annotations

from brokerha.model.ids import Lsn, TxId
from brokerha.model.invariants import invariant
from brokerha.model.log_lineages import Rewinds, after, agreed, newest
from brokerha.model.operations import APPLIED
from brokerha.model.ready import BeginLineage
from brokerha.model.records import History
from brokerha.model.wire.messages import Coin

PAGE_ENTRIES = 1_000
"""Entries read at once."""


class GoingOver:
    """The lineage of one worker's copy.

    Which lineage of the log one worker follows, and how it goes over to the next.

        Coin of a later lineage -> told at once -> BeginLineage ... durable -> places of that lineage are taken

    A copy goes over where it is not beyond what both lineages agree on; or where its content is what the log has there, because the master
    keeps the content of its site: then it stands there from now on. Told before it is durable, but nothing is applied before that, and after
    a crash the copy goes over anew: an order that was made for what it had told is not for it (`Coin.since`).
    """

    def __init__(self, lineage: int) -> None:
        self.lineage = lineage
        """The one that it follows, or is about to."""
        self.is_durable = True
        self._moves_to: Lsn = -1
        """Where the content stands in the lineage that is being written down; -1 for where it stood."""

    def place(self, coin: Coin, end: Lsn, fingerprint: str, *, is_busy: bool) -> Lsn | None:
        """Where a copy that stands at ``end`` after what its store is doing stands in the lineage of that order; None if it stays."""
        if coin.lineage <= self.lineage or self.lineage < coin.since:
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


def executed_before(history: History, executed: Lsn, since: int = 0) -> set[TxId]:
    """Transactions that were applied here before a split; those up to LSN ``executed`` have a result in the queue of now already.

    Splits up to number ``since`` do not count: the content of this site comes from elsewhere since then.

    What the content holds already although its place in the queue was taken back (strategy none): it must not be executed again.

    Read from the split book: of each split in which the site kept its content, transactions that were applied here and have no result in the
    queue of now yet. They come again, in another order, or were not synchronised again so far. The book loses none of these
    (log/split_book.py). A site that has taken the content of another one holds nothing of what it had executed itself by then.

    Must never name a transaction that was rejected or of unknown outcome only: the content does not hold it.
    """
    found: set[TxId] = set()
    for split in history.splits():
        if split.number <= since:
            continue
        first = split.lsn + 1
        while split.keeps_content and (page := history.given_up(split.number, first, PAGE_ENTRIES)):
            applied = [entry.txid for entry in page if entry.outcome == APPLIED]
            # Right after going back there is nothing to look up; later ones that have a result are not executed again in any case.
            found.update(txid for txid in applied if executed <= split.lsn or not _has_result(history, txid, executed))
            first = page[-1].lsn + 1
    return found


def _has_result(history: History, txid: TxId, executed: Lsn) -> bool:
    lsn = history.lsn_of(txid)
    return lsn is not None and lsn <= executed


class Lineages:
    """Every going back that can still matter (model/log_lineages.py), and what it says of copies."""

    def __init__(self, rewinds: Rewinds = ()) -> None:
        self.rewinds = rewinds
        self.number = newest(rewinds)
        """The lineage of now; 0 if nobody ever went back."""

    def rewind(self, lsn: Lsn, number: int) -> None:
        """A lineage begins: after ``lsn`` the one before is void."""
        invariant(number > self.number, "lineages grow", number=number)
        self.rewinds, self.number = after(self.rewinds, (number, lsn)), number

    def agreed(self, lineage: int) -> Lsn | None:
        """Up to where a copy of this lineage followed the log of now; None for all of it, also of one that nobody here knows."""
        return agreed(self.rewinds, lineage)

    def problem(self, lineage: int, applied: Lsn, vouched: Lsn = 0) -> str:
        """What is wrong with a copy of this lineage at ``applied``; ``vouched`` is up to where somebody said that it is right."""
        if lineage > self.number:
            return f"it followed lineage {lineage} of the log, the last one here is {self.number}"
        place = agreed(self.rewinds, lineage)
        if place is None or applied <= max(place, vouched):
            return ""
        return f"it is at LSN {applied}, and what it followed is void after {place}"
