"""State machines are tables, ``{(state, event): state}``, from which the diagrams of documents are made."""

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
