"""State machines as tables: ``{(state, event): state}``, of which documents and tests are made.

A table is the whole machine: a pair that is not in it changes nothing. Each machine has a module of its own, with the
meaning of its states and events.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

State = TypeVar("State", bound=StrEnum)
Event = TypeVar("Event", bound=StrEnum)


def mermaid(machine: Mapping[tuple[State, Event], State], start: State) -> str:
    """The machine as a Mermaid state diagram.

    >>> class Lamp(StrEnum):
    ...     OFF = "off"
    ...     ON = "on"
    >>> class Hand(StrEnum):
    ...     PRESSED = "pressed"
    >>> print(mermaid({(Lamp.OFF, Hand.PRESSED): Lamp.ON}, Lamp.OFF))
    stateDiagram-v2
        [*] --> OFF
        OFF --> ON: pressed
    """
    lines = ["stateDiagram-v2", f"    [*] --> {start.name}"]
    lines += [f"    {source.name} --> {target.name}: {event.value}" for (source, event), target in machine.items()]
    return "\n".join(lines)
