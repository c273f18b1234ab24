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

from brokerha.model.ids import Lsn
from brokerha.model.invariants import invariant

Rewind = tuple[int, Lsn]
"""(lineage that began with it, LSN after which the one before is void)"""


class Lineages:
    """Every going back that can still matter, the oldest first; both numbers grow."""

    def __init__(self, rewinds: tuple[Rewind, ...] = ()) -> None:
        self.rewinds = rewinds

    @property
    def number(self) -> int:
        """The lineage of now; 0 if nobody ever went back."""
        return self.rewinds[-1][0] if self.rewinds else 0

    def rewind(self, lsn: Lsn, number: int) -> None:
        """A lineage begins: after ``lsn`` the one before is void."""
        invariant(number > self.number, "lineages grow", number=number)
        # What is void after a higher LSN by an earlier one is void after this one as well.
        self.rewinds = (*(each for each in self.rewinds if each[1] < lsn), (number, lsn))

    def agreed(self, lineage: int) -> Lsn | None:
        """Up to where a copy of this lineage followed the log of now; None for all of it, also of one that nobody here knows."""
        return next((lsn for number, lsn in self.rewinds if number > lineage), None)

    def problem(self, lineage: int, applied: Lsn, vouched: Lsn = 0) -> str:
        """What is wrong with a copy of this lineage at ``applied``; ``vouched`` is up to where somebody said that it is right."""
        if lineage > self.number:
            return f"it followed lineage {lineage} of the log, the last one here is {self.number}"
        agreed = self.agreed(lineage)
        if agreed is None or applied <= max(agreed, vouched):
            return ""
        return f"it is at LSN {applied}, and what it followed is void after {agreed}"
