"""Lineages of a log, for readers by LSN: which read lines are still valid, and where to continue if not.

After a split a log can go back (`Rewound`): later LSNs get other transactions, of another **lineage** (for copies:
replication/site/lineages.py). A **rewind** is (new lineage, LSN after which the former one is void). A reader keeps its place in
the log as LSN and lineage; only both together tell whether the log still has the lines it read.

    log of lineage 0    1 2 3 4 5 6 7 8
    rewind (5, 4)       1 2 3 4 a b c d         a reader at LSN 4 continues, a reader at LSN 5 is told

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
"""(new lineage, LSN after which the former one is void)"""

Rewinds = tuple[Rewind, ...]
"""All rewinds that can still matter, oldest first; both numbers grow."""

ANYWHERE: Lsn = 2**62
"""Placeholder for an unknown LSN of a rewind: no line counts as void."""


def after(rewinds: Rewinds, rewind: Rewind) -> Rewinds:
    """Add a rewind; it replaces earlier ones with the same or a higher LSN, because it covers them."""
    return (*(each for each in rewinds if each[1] < rewind[1]), rewind)


def rewinds_of(splits: Iterable[Split]) -> Rewinds:
    """Return the rewinds of the splits that a journal knows."""
    return reduce(after, ((split.lineage, split.lsn) for split in splits), ())


def read_rewinds(found: Any) -> Rewinds:
    """Return rewinds from a wire, in lists; none from a node of an earlier version."""
    return tuple((int(lineage), int(lsn)) for lineage, lsn in found or ())


def newest(rewinds: Rewinds) -> int:
    """Return the present lineage; 0 if the log never went back."""
    return rewinds[-1][0] if rewinds else 0


def agreed(rewinds: Rewinds, lineage: int) -> Lsn | None:
    """Return the last LSN of this lineage that is still valid; None when all are."""
    return next((lsn for number, lsn in rewinds if number > lineage), None)


def lineage_at(rewinds: Rewinds, lsn: Lsn) -> int:
    """Return the lineage of the line at an LSN; 0 if the log never went back before it."""
    return next((number for number, place in reversed(rewinds) if place < lsn), 0)


def problem(rewinds: Rewinds, lineage: int, lsn: Lsn) -> str:
    """Return the problem of a reader of this lineage up to an LSN; empty when the log still has all these lines."""
    place = agreed(rewinds, lineage)
    if place is None or lsn <= place:
        return ""
    return (
        f"the log went back to LSN {place} with lineage {newest(rewinds)} (split), and what was read up to LSN {lsn} is void from "
        f"LSN {place + 1} on: go on from {place + 1}"
    )


def history(journal: str, lineage: int) -> str:
    """Return the name of a journal's history; that of the journal until the first rewind."""
    return f"{journal}/{lineage}" if lineage else journal


def journal_of(name: str) -> str:
    """Return the journal in the name of a history."""
    return name.partition("/")[0]


def lineage_of(name: str) -> int:
    """Return the lineage in the name of a history."""
    number = name.partition("/")[2]
    return int(number) if number.isdecimal() else 0
