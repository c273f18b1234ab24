"""Strategies of split recovery: the needs of each, and the steps between them (rules R13 and R19).

    quorum             a majority decides, and nothing that it synchronised is ever given up
    none simple smart  any side of a split decides; sides come together later (splits/)
    to-...             a step between the two: a majority decides, and all else is as with ``smart``. As with Raft's joint
                       consensus, a master that follows quorum never meets one that lets any side decide

An epoch names its strategy; if it names none, the file of each master counts.
"""

from __future__ import annotations

NONE, SIMPLE, SMART, QUORUM = "none", "simple", "smart", "quorum"
SPLIT_RECOVERY = (NONE, SIMPLE, SMART, QUORUM)
"""Valid strategies in a file or a command."""
JOINT = {f"to-{mode}": mode for mode in SPLIT_RECOVERY}
"""Steps between strategies, with the strategy that follows as soon as all masters have taken the step."""


def needs_majority(mode: str) -> bool:
    """Tell whether only a majority can go on without the others; otherwise any side of a split can."""
    return mode == QUORUM or mode in JOINT


def keeps_sides(mode: str) -> bool:
    """Tell whether sides of a split can diverge, so that each one keeps what it needs to come together with the others."""
    return mode != QUORUM


def keeps_copies(mode: str) -> bool:
    """Tell whether workers may have to go back: each site keeps a copy before it goes on without a master (R14)."""
    return mode in (SIMPLE, SMART) or mode in JOINT


def are_alike(one: str, other: str) -> bool:
    """Tell whether masters with these strategies in force can decide an epoch together."""
    return keeps_sides(one) == keeps_sides(other) or needs_majority(one) == needs_majority(other)


def step_to(mode: str, wanted: str) -> str:
    """Return the next strategy on the way to a wanted one; the wanted one itself when no step is needed."""
    if mode == wanted or are_alike(mode, wanted):
        return wanted
    return next(step for step, target in JOINT.items() if target == wanted)
