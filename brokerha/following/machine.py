"""The follower's machine: four states, and the events that change them (PROTOCOL.md, section 4).

| state | does |
|---|---|
| IDLE | only answers questions about its state and takes orders of its primary; the state of a new process |
| BASIC | takes the next record, confirms it, sends heartbeats |
| REQUEST | requests exactly the missing range, takes it in LSN order, then the record that showed the gap |
| LOAD | replaces its copy by a snapshot; the old files stay until the new ones are open |

`TRANSITIONS` is the machine: the diagram in PROTOCOL.md and the test of all pairs are made from it. A pair that is not in it
changes nothing. Workers follow the log of their site with it, backups follow a journal.

>>> TRANSITIONS[State.BASIC, Event.GAP]
<State.REQUEST: 'request'>
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """The state of a follower."""

    IDLE = "idle"
    BASIC = "basic"
    REQUEST = "request"
    LOAD = "load"


class Event(StrEnum):
    """Events that change the state."""

    COINED = "coined"
    """A primary says: obey me."""
    PAUSED = "paused"
    """The primary says: stop following."""
    GAP = "gap"
    """A record came that is not the next one."""
    FILLED = "filled"
    """All records up to the one that showed the gap are there."""
    MISSING = "missing"
    """No node has the missing range."""
    DAMAGED = "damaged"
    """The copy, or a record, is damaged."""
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
"""All transitions. A new primary that coins a follower in REQUEST begins anew: its records show the gap again."""

FOLLOWING = frozenset({State.BASIC, State.REQUEST})
"""States in which records are taken and reads are served."""


def after(state: State, event: Event) -> State:
    """Return the state after an event; the same one when the event has no effect there."""
    return TRANSITIONS.get((state, event), state)
