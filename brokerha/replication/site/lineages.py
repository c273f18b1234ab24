"""Lineages: which log a copy followed, how it changes to the next, what its content keeps (replication, section 5).

Where masters go back after a split, entries after an LSN are void, and the same LSNs get other transactions afterwards. The
**lineage** counts that: it is the number of the last going back, of any master of the cluster, and a part of each copy. Of two
copies with the same lineage one followed a beginning of the other's log. A copy with an older lineage shares only the part that no
later rewind went below.

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
"""Number of entries read at once."""


class GoingOver:
    """The lineage of one worker's copy, and its change to the next.

        Coin of a later lineage -> told at once -> BeginLineage ... durable -> places of that lineage are taken

    A copy changes its lineage where it is not beyond the common part, or where its content is what the log has there because the
    master keeps the content of its site: then it stands there from now on. The worker tells the new lineage before it is durable,
    and applies nothing until then. After a crash it changes anew: an order for the lineage that it had told is not for it
    (`Coin.since`).
    """

    def __init__(self, lineage: int) -> None:
        self.lineage = lineage
        """The lineage that it follows, or is about to follow."""
        self.is_durable = True
        self._moves_to: Lsn = -1
        """LSN of the content in the lineage that is being written; -1 if it does not change."""

    def place(self, coin: Coin, end: Lsn, fingerprint: str, *, is_busy: bool) -> Lsn | None:
        """Return the LSN in the order's lineage of a copy at ``end`` after the store's decision; None if its lineage stays."""
        if coin.lineage <= self.lineage or self.lineage < coin.since:
            return None
        if end > coin.agreed_lsn:
            if is_busy or not coin.fingerprint or coin.fingerprint != fingerprint:
                return None
            end = self._moves_to = coin.agreed_lsn
        self.lineage, self.is_durable = coin.lineage, False
        return end

    def decision(self) -> BeginLineage:
        """Return the decision to write."""
        return BeginLineage(self.lineage, self._moves_to)

    def on_written(self, decision: object) -> None:
        """Note that the store carried out this decision."""
        if decision == self.decision():
            self.is_durable, self._moves_to = True, -1

    def on_opened(self, lineage: int) -> None:
        """Continue with another copy, which follows this lineage."""
        self.lineage, self.is_durable, self._moves_to = lineage, True, -1


def executed_before(history: History, executed: Lsn, since: int = 0) -> set[TxId]:
    """Return transactions that were applied here before a split and have no result in the present queue up to LSN ``executed``.

    They lost their places, but the content already holds them (strategy none): they must not be executed again. Splits up to number
    ``since`` do not count: the content of this site comes from another one since then.

    They are read from the split book, which loses none of them (log/split_book.py): for each split in which the site kept its
    content, transactions applied here without a result in the present queue yet. They come again, in another order, or were not
    synchronised again so far. A site that has taken another site's content holds nothing of what it had executed before.

    Ids of their new places are not forgotten while one of them still waits for its own (R20). So once some are, all had a place, and
    the next transaction under such an id is another one.

    Must never name a transaction that was only rejected or of unknown outcome: the content does not hold it.
    """
    found: set[TxId] = set()
    least, forgotten_below = executed, history.ids_from(executed)
    for split in reversed(history.splits()):
        # The queue went on from here, at this split or a later one: only what comes afterwards has one of these again.
        least = min(least, split.lsn)
        if split.number <= since or forgotten_below > least + 1:
            break
        first = split.lsn + 1
        while split.keeps_content and (page := history.given_up(split.number, first, PAGE_ENTRIES)):
            applied = [entry.txid for entry in page if entry.outcome == APPLIED]
            # Right after going back there is nothing to look up; later ones with a result are not executed again in any case.
            found.update(txid for txid in applied if executed <= least or (history.known_at(txid, executed) or 0) <= least)
            first = page[-1].lsn + 1
    return found


class Lineages:
    """Every going back that can still matter (model/log_lineages.py), and its meaning for copies."""

    def __init__(self, rewinds: Rewinds = ()) -> None:
        self.rewinds = rewinds
        self.number = newest(rewinds)
        """The present lineage; 0 if the log never went back."""

    def rewind(self, lsn: Lsn, number: int) -> None:
        """Begin a lineage: after ``lsn`` the one before is void."""
        invariant(number > self.number, "lineages grow", number=number)
        self.rewinds, self.number = after(self.rewinds, (number, lsn)), number

    def agreed(self, lineage: int) -> Lsn | None:
        """Return up to which LSN a copy of this lineage followed the present log; None for all of it, or for an unknown lineage."""
        return agreed(self.rewinds, lineage)

    def problem(self, lineage: int, applied: Lsn, vouched: Lsn = 0) -> str:
        """Return the problem of a copy of this lineage at ``applied``; it was found right up to ``vouched``."""
        if lineage > self.number:
            return f"it followed lineage {lineage} of the log, the last one here is {self.number}"
        place = agreed(self.rewinds, lineage)
        if place is None or applied <= max(place, vouched):
            return ""
        return f"it is at LSN {applied}, and what it followed is void after {place}"
