"""The machine of roles: which process of a master acts for it, and what changes its role (replication, section 4).

| state | does |
|---|---|
| IDLE | only answers questions about its state and accepts changes of its role; votes, but never stands |
| STANDBY | follows the primary, votes, and stands when no primary is heard for long enough |
| CANDIDATE | asks the other processes for their votes |
| PRIMARY | runs the core of the master |

`TRANSITIONS` is the machine: the diagram in PROTOCOL.md and the test of all pairs are made from it. A pair that is not in it
changes nothing.

>>> TRANSITIONS[RoleState.CANDIDATE, RoleEvent.ELECTED]
<RoleState.PRIMARY: 'primary'>
"""

from __future__ import annotations

from enum import StrEnum


class RoleState(StrEnum):
    """The role of a process of a master."""

    IDLE = "idle"
    STANDBY = "standby"
    CANDIDATE = "candidate"
    PRIMARY = "primary"


class RoleEvent(StrEnum):
    """Events that change the role."""

    ALONE = "alone"
    """The master has only one process."""
    STANDS = "stands"
    """No primary was heard for long enough, or an operator asks for it."""
    ELECTED = "elected"
    """Enough processes gave their votes."""
    REFUSED = "refused"
    """Not enough votes came in time, or the journal of another process reaches further."""
    GRANTED = "granted"
    """It gave its own vote to another process."""
    HEARD = "heard"
    """A primary sent records."""
    OUTRANKED = "outranked"
    """A view higher than its own was seen."""
    FORCED = "forced"
    """An operator made it primary without votes."""
    PAUSED = "paused"
    """An operator, or the loss of sync-N, stopped it."""
    RESUMED = "resumed"
    """An operator lets it continue."""
    HANDED_OVER = "handed over"
    """An operator wants another process to be primary, and that process holds all records."""
    DECLARED = "declared"
    """A new primary came while it waited for one."""


TRANSITIONS: dict[tuple[RoleState, RoleEvent], RoleState] = {
    (RoleState.STANDBY, RoleEvent.ALONE): RoleState.PRIMARY,
    (RoleState.STANDBY, RoleEvent.STANDS): RoleState.CANDIDATE,
    (RoleState.STANDBY, RoleEvent.FORCED): RoleState.PRIMARY,
    (RoleState.STANDBY, RoleEvent.PAUSED): RoleState.IDLE,
    (RoleState.CANDIDATE, RoleEvent.ELECTED): RoleState.PRIMARY,
    (RoleState.CANDIDATE, RoleEvent.REFUSED): RoleState.STANDBY,
    (RoleState.CANDIDATE, RoleEvent.GRANTED): RoleState.STANDBY,
    (RoleState.CANDIDATE, RoleEvent.HEARD): RoleState.STANDBY,
    (RoleState.CANDIDATE, RoleEvent.OUTRANKED): RoleState.STANDBY,
    (RoleState.CANDIDATE, RoleEvent.FORCED): RoleState.PRIMARY,
    (RoleState.CANDIDATE, RoleEvent.PAUSED): RoleState.IDLE,
    (RoleState.PRIMARY, RoleEvent.GRANTED): RoleState.STANDBY,
    (RoleState.PRIMARY, RoleEvent.OUTRANKED): RoleState.STANDBY,
    (RoleState.PRIMARY, RoleEvent.HANDED_OVER): RoleState.STANDBY,
    (RoleState.PRIMARY, RoleEvent.PAUSED): RoleState.IDLE,
    (RoleState.IDLE, RoleEvent.RESUMED): RoleState.STANDBY,
    (RoleState.IDLE, RoleEvent.DECLARED): RoleState.STANDBY,
    (RoleState.IDLE, RoleEvent.FORCED): RoleState.PRIMARY,
}
"""All transitions."""


def after(state: RoleState, event: RoleEvent) -> RoleState:
    """Return the state after an event; the same one when the event has no effect there."""
    return TRANSITIONS.get((state, event), state)
