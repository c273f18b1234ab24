"""Strategies of split recovery, and the steps between them (rules R13 and R19).

    quorum             a majority decides, and nothing that it synchronised is ever given up
    none simple smart  any side of a split decides; sides come together later (splits/)
    to-...             between the two: a majority decides, and does everything else as with ``smart``. As the joint consensus of Raft: two masters
                       of which one follows quorum and the other lets any side decide never meet

An epoch names its strategy; where none does, the file of each master counts.
"""

from __future__ import annotations

NONE, SIMPLE, SMART, QUORUM = "none", "simple", "smart", "quorum"
SPLIT_RECOVERY = (NONE, SIMPLE, SMART, QUORUM)
"""What a file or a command may say."""
JOINT = {f"to-{mode}": mode for mode in SPLIT_RECOVERY}
"""Steps between, with what each leads to as soon as all masters have taken it."""


def needs_majority(mode: str) -> bool:
    """Whether only a majority may go on without the others; else any side of a split may."""
    return mode == QUORUM or mode in JOINT


def keeps_sides(mode: str) -> bool:
    """Whether sides of a split may have gone different ways, so that each one keeps what it needs to come together with the others."""
    return mode != QUORUM


def keeps_copies(mode: str) -> bool:
    """Whether workers may have to go back: each site keeps a copy before it goes on without a master (R14)."""
    return mode in (SIMPLE, SMART) or mode in JOINT


def are_alike(one: str, other: str) -> bool:
    """Whether masters with these strategies in force may decide an epoch together."""
    return keeps_sides(one) == keeps_sides(other) or needs_majority(one) == needs_majority(other)


def step_to(mode: str, wanted: str) -> str:
    """The strategy that comes next on the way to a wanted one; itself when that is in force."""
    if mode == wanted or are_alike(mode, wanted):
        return wanted
    return next(step for step, target in JOINT.items() if target == wanted)
