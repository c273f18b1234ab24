"""One setting of the cluster file: its name, type, bounds, default and description; the check of a value.

    round_timeout_ms: int = at_run_time(500, "A master that is silent for this long is late.")

The sections of the cluster file are frozen dataclasses (cluster.py), and their fields are the only table of settings.
Reading, checks of single values, defaults, names in the environment and the reference page come from it, so they always agree.

>>> @dataclass(frozen=True)
... class Lamp:
...     glow_ms: int = number(20, "milliseconds", 1, 60, "How long it glows.")
>>> settings_of(Lamp)["glow-ms"].checked(0, "lamp.toml:3")
Traceback (most recent call last):
brokerha.model.errors.ConfigurationError: lamp.toml:3: glow-ms = 0 is out of bounds: write a whole number of milliseconds, 1 to 60

A setting is written with hyphens in the file, with underscores in Python, and in capitals in the environment. Any problem is one
ConfigurationError: place, problem, remedy.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar, get_type_hints

from brokerha.model.errors import ConfigurationError
from brokerha.model.reserved.settings import SETTINGS, Limits

WORDS = {str: "text", Path: "path", bool: "true or false", int: "whole number", float: "number"}
"""Names of types in messages to the user."""
_ABOUT = "setting"
_AT_RUN_TIME = "at run time"
T = TypeVar("T")
N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of one section."""

    name: str
    """Spelt as in the file."""
    field: str
    type: type
    default: Any
    """None when the setting is required."""
    meaning: str
    """One or two sentences for the reference page."""
    unit: str = ""
    low: float = -math.inf
    high: float = math.inf
    choices: tuple[str, ...] = ()
    """Allowed words, in lower case; the file can write them in any case."""
    default_text: str = ""
    """Text of the reference page for a default that depends on other values."""
    example: str = ""
    """Proposal of an error message when there is no default."""
    is_live: bool | None = None
    """Whether a running node applies a change at once, or else at its next start. None: it cannot be changed at run time."""

    @property
    def is_required(self) -> bool:
        """Whether the file must set it."""
        return self.default is None

    @property
    def bounds(self) -> str:
        """Allowed values in words; empty for any value."""
        if self.choices:
            return ", ".join(self.choices)
        if self.low == -math.inf:
            return ""
        return f"at least {self.low:.15g}" if self.high == math.inf else f"{self.low:.15g} to {self.high:.15g}"

    @property
    def wanted(self) -> str:
        """Kind of value, in words."""
        return f"{WORDS[self.type]} of {self.unit}" if self.unit else WORDS[self.type]

    @property
    def proposal(self) -> str:
        """Example of a correct line for it."""
        return f"{self.name} = {self.example or in_file(self.default)}"

    def checked(self, value: object, where: str) -> Any:
        """Return the value in the setting's type, within its bounds. Raises ConfigurationError, which begins with ``where``."""
        if self.type in {str, Path}:
            return self._checked_text(value, where)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if self.type is bool:
            if not isinstance(value, bool):
                fail(where, f"{self.name} is {in_file(value)}, and must be {self.wanted}", f"write {self.proposal}")
        elif not is_number or (self.type is int and not isinstance(value, int)):
            remedy = f"write {self._without_quotes(value)}"
            fail(where, f"{self.name} is {in_file(value)}, and must be a {self.wanted}", remedy)
        elif not self.low <= value <= self.high or value == math.inf:  # type: ignore[operator]
            fail(where, f"{self.name} = {value} is out of bounds", f"write a {self.wanted}, {self.bounds}")
        return self.type(value)

    def from_text(self, text: str, where: str) -> Any:
        """Return the value of a text, for sources with only texts. Raises ConfigurationError, which begins with ``where``."""
        if self.type is bool:
            return self.checked({"true": True, "false": False}.get(text.lower(), text), where)
        for number in (int, float) if self.type in {int, float} else ():
            try:
                value = number(text)
            except ValueError:
                continue
            return self.checked(value, where)
        return self.checked(text, where)

    def _checked_text(self, value: object, where: str) -> str:
        if not isinstance(value, str):
            remedy = self.proposal if self.choices else f'{self.name} = "{value}"'
            fail(where, f"{self.name} is {value!r}, and must be a text", f"write {remedy}")
        if not value.strip():
            fail(where, f"{self.name} is empty", f"write {self.proposal}")
        if self.choices and value.lower() not in self.choices:
            close = nearest(value.lower(), self.choices)
            remedy = f'{self.name} = "{close}"' if close in self.choices else close
            fail(where, f'{self.name} = "{value}" is not known', f"write {remedy}")
        return value.lower() if self.choices else value

    def _without_quotes(self, value: object) -> str:
        """Propose the same number without its quotes or its fraction, when it is one."""
        try:
            return f"{self.name} = {self.type(str(value).strip())}"
        except ValueError:
            return self.proposal


def setting(default: T, meaning: str, *, is_secret: bool = False, **about: Any) -> T:
    """Define a field of a section; keywords are further attributes of `Setting`. A secret is never shown."""
    field: T = dataclasses.field(default=default, repr=not is_secret, metadata={_ABOUT: {"meaning": meaning, **about}})
    return field


def number(default: N, unit: str, low: float, high: float, meaning: str, **about: Any) -> N:
    """Define a setting that is a number in a unit, between bounds."""
    return setting(default, meaning, unit=unit, low=low, high=high, **about)


def word(default: str, choices: tuple[str, ...], meaning: str, **about: Any) -> str:
    """Define a setting that is one of some words."""
    return setting(default, meaning, choices=choices, **about)


def at_run_time(default: T, meaning: str) -> T:
    """Define a setting that can change at run time; model/reserved/settings.py has its unit, bounds and words for all stores."""
    return setting(default, meaning, **{_AT_RUN_TIME: True})


def required(meaning: str, example: str, *, is_secret: bool = False) -> Any:
    """Define a required field of a section."""
    return dataclasses.field(repr=not is_secret, metadata={_ABOUT: {"meaning": meaning, "example": example}})


def settings_of(section: type) -> dict[str, Setting]:
    """Return the settings of a section by name: required ones first, the rest in the order of its fields."""
    hints = get_type_hints(section)
    found = []
    for each in dataclasses.fields(section):
        if _ABOUT in each.metadata:
            default = None if each.default is dataclasses.MISSING else each.default
            name, about = each.name.replace("_", "-"), dict(each.metadata[_ABOUT])
            if about.pop(_AT_RUN_TIME, False):
                about |= _at_run_time(SETTINGS[name])
            found.append(Setting(name, each.name, hints[each.name], default, **about))
    return {each.name: each for each in sorted(found, key=lambda each: not each.is_required)}


def _at_run_time(limits: Limits) -> dict[str, Any]:
    low = -math.inf if limits.low is None else limits.low
    high = math.inf if limits.high is None else limits.high
    return {"unit": limits.unit, "low": low, "high": high, "choices": limits.choices, "is_live": limits.is_live}


def in_file(value: object) -> str:
    """Return the spelling of a value in the file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.15g}"
    return f'"{value}"' if isinstance(value, str | Path) else str(value)


def fail(where: str, problem: str, remedy: str) -> NoReturn:
    """Raise the one ConfigurationError: place, problem, remedy."""
    raise ConfigurationError(f"{where}: {problem}: {remedy}")


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word that was probably meant, or *one of* all of them."""
    names = list(known)
    close = difflib.get_close_matches(word.lower().replace("_", "-"), names, n=1, cutoff=0.5)
    return close[0] if close else f"one of {', '.join(names)}"
