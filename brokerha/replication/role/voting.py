"""Whether a process gives its vote to a candidate (replication, section 4): the rules, one after the other.

    view          nothing at or above it was promised to anybody else
    journal       whole, and of the same name; an empty one says nothing about what was confirmed
    liveness      no primary was heard lately, unless an operator wants another one
    reach         the candidate's last (view, number) is at or above the voter's own

An empty journal may belong to a process that lost its disk, and its promises with it. So it counts only for the very first
election, that of place 0 whose journal has not seen a view yet; and afterwards, if it promised in that one and still knows
it. Where every vote is needed (sync-N 0) it counts always: nobody else has more.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from brokerha.model.ids import NodeId
from brokerha.model.wire.process_messages import Candidate
from brokerha.replication.role.config import FIRST_VIEW, PLACES, place_of


@dataclass(slots=True)
class Candidacy:
    """One time that a process asks for votes."""

    view: int = 0
    is_by_hand: bool = False
    """Whether an operator wants it: then a live primary is no hindrance, and is followed meanwhile."""
    ends_ms: int = 0
    ask_at_ms: int = 0
    votes: set[NodeId] = field(default_factory=set)
    refusals: dict[NodeId, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Standing:
    """What a voter knows of itself."""

    promised: int
    """Highest view that it promised to, acts in or has records of."""
    journal: str
    last: tuple[int, int]
    may_vote: bool
    live_primary: str
    """Name of the primary that it hears; empty when it hears none."""
    are_all_asked: bool = False
    """Whether a candidate needs the vote of every process."""
    own_view: int = 0
    """View that it stands for itself with a journal as good as the candidate's; 0 when it does not."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the question."""

    is_granted: bool
    reason: str = ""
    is_behind: bool = False
    """Whether it was refused because its journal ends before the voter's."""


def judge(candidate: Candidate, own: Standing) -> Verdict:
    """The vote of a process, with the reason when it is refused."""
    if candidate.view < own.promised:
        return Verdict(is_granted=False, reason=f"promised to view {own.promised}")
    if candidate.view < own.own_view and not candidate.is_by_hand:
        return Verdict(is_granted=False, reason=f"it stands for view {own.own_view} itself")
    if not own.may_vote:
        return Verdict(is_granted=False, reason="its journal is not whole")
    is_begin = place_of(candidate.view) == 0 and candidate.last[0] <= FIRST_VIEW
    is_known = own.promised >= PLACES or own.are_all_asked
    if own.last[1] == 0 and not is_begin and not is_known:
        return Verdict(is_granted=False, reason="its journal is empty")
    if own.last[1] and candidate.last[1] and candidate.journal != own.journal:
        return Verdict(is_granted=False, reason=f"its journal is {own.journal}, not {candidate.journal}")
    if own.live_primary and not candidate.is_by_hand:
        return Verdict(is_granted=False, reason=f"it hears {own.live_primary} as primary")
    if own.last[1] and candidate.last < own.last:
        reason = f"its journal ends with record {own.last[1]} of view {own.last[0]}"
        return Verdict(is_granted=False, reason=reason, is_behind=True)
    return Verdict(is_granted=True)
