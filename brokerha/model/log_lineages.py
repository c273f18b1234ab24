"""Lineages of a log for those who read it by LSN: which lines are still those of now, and where to go on if not.

After a split a log may go back (`Rewound`): the LSNs after that place are other transactions from then on, of another **lineage**
(replication/site/lineages.py says the same of copies). A **rewind** is (lineage that began, LSN after which the one before is void). Who
keeps a place in the log keeps two numbers, LSN and lineage; only both together say whether the log still has what was read.

    log of lineage 0    1 2 3 4 5 6 7 8
    rewind (5, 4)       1 2 3 4 a b c d         who has read up to 4 goes on, who has read up to 5 is told

The **history** of a log is the name of its journal and, from the first rewind on, its lineage: ``3f2a`` and then ``3f2a/5``.

>>> rewinds = after(((5, 9),), (7, 4))
>>> rewinds, agreed(rewinds, 0), agreed(rewinds, 7), lineage_at(rewinds, 4), lineage_at(rewinds, 5)
(((7, 4),), 4, None, 0, 7)
>>> problem(rewinds, 5, 6)
'the log went back to LSN 4 with lineage 7 (split), and what was read up to LSN 6 is void from LSN 5 on: go on from 5'
>>> history("3f2a", 5), journal_of("3f2a/5"), lineage_of("3f2a/5"), lineage_of("3f2a")
('3f2a/5', '3f2a', 5, 0)
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any

from brokerha.model.given_up import Split
from brokerha.model.ids import Lsn

Rewind = tuple[int, Lsn]
"""(lineage that began with it, LSN after which the one before is void)"""

Rewinds = tuple[Rewind, ...]
"""Every one that can still matter, the oldest first; both numbers grow."""

ANYWHERE: Lsn = 2**62
"""Stands for the LSN of a rewind where it is not known: nothing counts as void then."""


def after(rewinds: Rewinds, rewind: Rewind) -> Rewinds:
    """One more: what is void after a higher LSN by an earlier one is void after this one as well."""
    return (*(each for each in rewinds if each[1] < rewind[1]), rewind)


def rewinds_of(splits: Iterable[Split]) -> Rewinds:
    """Those of the splits that a journal knows."""
    return reduce(after, ((split.lineage, split.lsn) for split in splits), ())


def read_rewinds(found: Any) -> Rewinds:
    """Rewinds as they came over a wire, in lists; none from a node of an earlier version."""
    return tuple((int(lineage), int(lsn)) for lineage, lsn in found or ())


def newest(rewinds: Rewinds) -> int:
    """The lineage of now; 0 if the log never went back."""
    return rewinds[-1][0] if rewinds else 0


def agreed(rewinds: Rewinds, lineage: int) -> Lsn | None:
    """Up to where the log was the one of now when it was of this lineage; None for all of it."""
    return next((lsn for number, lsn in rewinds if number > lineage), None)


def lineage_at(rewinds: Rewinds, lsn: Lsn) -> int:
    """The lineage with which the line of an LSN came; 0 if the log never went back before it."""
    return next((number for number, place in reversed(rewinds) if place < lsn), 0)


def problem(rewinds: Rewinds, lineage: int, lsn: Lsn) -> str:
    """What is wrong with having read the log up to an LSN when it was of this lineage; empty when the log still has all of that."""
    place = agreed(rewinds, lineage)
    if place is None or lsn <= place:
        return ""
    return (
        f"the log went back to LSN {place} with lineage {newest(rewinds)} (split), and what was read up to LSN {lsn} is void from "
        f"LSN {place + 1} on: go on from {place + 1}"
    )


def history(journal: str, lineage: int) -> str:
    """Name of what a journal tells; that of the journal until it went back for the first time."""
    return f"{journal}/{lineage}" if lineage else journal


def journal_of(name: str) -> str:
    """The journal in the name of a history."""
    return name.partition("/")[0]


def lineage_of(name: str) -> int:
    """The lineage in the name of a history."""
    number = name.partition("/")[2]
    return int(number) if number.isdecimal() else 0
