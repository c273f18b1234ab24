"""The follower's machine: four states, and what makes a follower change from one to another (PROTOCOL.md, section 4).

| state | does |
|---|---|
| IDLE | refuses everything but questions about its state and orders of its primary; the state of a new process |
| BASIC | takes the next record, confirms it, sends heartbeats |
| REQUEST | asks for exactly the range that it lacks, takes it in LSN order, then the record that showed the gap |
| LOAD | replaces its copy by a snapshot; the old files stay until the new ones are open |

`TRANSITIONS` is the machine: the diagram in PROTOCOL.md and the test of all pairs are made from it. A pair that is not in
it changes nothing. Workers follow the log of their site with it, backups follow a journal.

>>> TRANSITIONS[State.BASIC, Event.GAP]
<State.REQUEST: 'request'>
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a follower stands."""

    IDLE = "idle"
    BASIC = "basic"
    REQUEST = "request"
    LOAD = "load"


class Event(StrEnum):
    """What may change that."""

    COINED = "coined"
    """A primary says: obey me."""
    PAUSED = "paused"
    """The primary says: stop following."""
    GAP = "gap"
    """A record came that is not the next one."""
    FILLED = "filled"
    """Everything up to the record that showed the gap is there."""
    MISSING = "missing"
    """Nobody has the range that is lacking."""
    DAMAGED = "damaged"
    """The copy, or a record, is not what it should be."""
    TOLD = "told"
    """The primary says: take a snapshot of one of these."""
    LOADED = "loaded"
    """The snapshot is open as the copy."""
    FAILED = "failed"
    """No source gave a snapshot."""


TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.IDLE, Event.COINED): State.BASIC,
    (State.IDLE, Event.TOLD): State.LOAD,
    (State.BASIC, Event.GAP): State.REQUEST,
    (State.BASIC, Event.DAMAGED): State.LOAD,
    (State.BASIC, Event.TOLD): State.LOAD,
    (State.BASIC, Event.PAUSED): State.IDLE,
    (State.REQUEST, Event.COINED): State.BASIC,
    (State.REQUEST, Event.FILLED): State.BASIC,
    (State.REQUEST, Event.MISSING): State.LOAD,
    (State.REQUEST, Event.DAMAGED): State.LOAD,
    (State.REQUEST, Event.TOLD): State.LOAD,
    (State.REQUEST, Event.PAUSED): State.IDLE,
    (State.LOAD, Event.LOADED): State.BASIC,
    (State.LOAD, Event.FAILED): State.IDLE,
    (State.LOAD, Event.PAUSED): State.IDLE,
}
"""Every change there is. A new primary that coins a follower in REQUEST begins anew: its records show the gap again."""

FOLLOWING = frozenset({State.BASIC, State.REQUEST})
"""States in which records are taken and reads are served."""


def after(state: State, event: Event) -> State:
    """The state after an event; the same one when the event means nothing there."""
    return TRANSITIONS.get((state, event), state)
