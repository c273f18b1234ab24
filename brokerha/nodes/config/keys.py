"""What a key of the cluster file is, and how a table of keys is read off a dataclass.

The entries of the cluster file are frozen dataclasses (cluster.py), and they are the one table of keys: a field is a key
when its type is ``Annotated[type, Key(...)]``. Loading, checks of single values, environment names and the reference page
all read that table, so none of them can fall behind the others.

>>> @dataclass(frozen=True)
... class Lamp:
...     glow_ms: Annotated[int, Key("How long it glows.", unit="milliseconds", low=1)] = 20
>>> keys_of(Lamp)["glow-ms"].default
20

A key is written with hyphens in the file, with underscores in Python, and in capitals in the environment.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

WORDS = {str: "text", Path: "path", bool: "true or false", int: "whole number", float: "number"}
"""How types are called towards the user."""


@dataclass(frozen=True, slots=True)
class Key:
    """What a key means and which values it takes."""

    meaning: str
    """One or two sentences for the reference page."""
    unit: str = ""
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    """Allowed words, in lower case; the file may write them in any case."""
    default_text: str = ""
    """What the reference page says where the default depends on other values."""
    example: str = ""
    """What an error message proposes for a key that has no default."""


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One key of one section, ready to be read, checked and printed."""

    name: str
    field: str
    type: type
    key: Key
    is_required: bool
    default: Any

    @property
    def bounds(self) -> str:
        """Allowed values in words; empty when there is nothing to say."""
        if self.key.choices:
            return ", ".join(self.key.choices)
        low, high = self.key.low, self.key.high
        if low is not None and high is not None:
            return f"{low:.15g} to {high:.15g}"
        return f"at least {low:.15g}" if low is not None else ""

    @property
    def proposal(self) -> str:
        """A line that may be written for this key."""
        if self.key.example:
            return f"{self.name} = {self.key.example}"
        return f"{self.name} = {in_file(self.default)}"


def in_file(value: object) -> str:
    """How a value is written in the file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.15g}"
    return f'"{value}"' if isinstance(value, str | Path) else str(value)


def keys_of(entry: type) -> dict[str, KeyRow]:
    """The table of keys of a dataclass, in the order of its fields."""
    hints = get_type_hints(entry, include_extras=True)
    rows: dict[str, KeyRow] = {}
    # What has to be written comes first, then the entry's own keys in their order.
    for each in sorted(dataclasses.fields(entry), key=lambda each: each.default is not dataclasses.MISSING):
        hint = hints[each.name]
        if get_origin(hint) is not Annotated:
            continue
        kind, key = get_args(hint)
        is_required = each.default is dataclasses.MISSING
        name = each.name.replace("_", "-")
        rows[name] = KeyRow(name, each.name, kind, key, is_required, None if is_required else each.default)
    return rows
