"""Reads an expression of PromQL as far as the rules and charts of this project use it: what it asks for, and how.

It knows the grammar (operators, matching, aggregations, functions, ranges), the functions by name and whether they take a
range, and nothing of values. Anything else raises ValueError.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<string>"(?:[^"\\]|\\.)*") | (?P<duration>\[(?:\d+(?:ms|[smhdwy])|\$__rate_interval)\]) | (?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?)
    | (?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*) | (?P<mark>=~|!~|!=|==|<=|>=|[-+*/%^<>=(){},])
    )""",
    re.VERBOSE,
)
RANGES = frozenset(
    {"rate", "increase", "irate", "changes", "resets", "delta", "deriv", "max_over_time", "min_over_time", "avg_over_time"}
)
COUNTERS = frozenset({"rate", "increase", "irate", "resets"})
"""Functions that suppose a number that only grows."""
FUNCTIONS = frozenset({"histogram_quantile", "vector", "time", "clamp_min", "absent", "label_replace"}) | RANGES
AGGREGATIONS = frozenset({"sum", "max", "min", "avg", "count", "topk"})
_OPERATORS = frozenset({"+", "-", "*", "/", "%", "^", "==", "!=", "<", ">", "<=", ">=", "and", "or", "unless"})
_COMPARES = frozenset({"==", "!=", "<", ">", "<=", ">="})


class Matcher(NamedTuple):
    """One condition on a label."""

    label: str
    operator: str
    value: str


class Selector(NamedTuple):
    """Series that are asked for."""

    name: str
    matchers: tuple[Matcher, ...]
    function: str
    """The function that has them as its range; empty for their newest values."""


@dataclass
class Expression:
    """What an expression is made of."""

    selectors: list[Selector] = field(default_factory=list)
    groupings: list[tuple[str, ...]] = field(default_factory=list)
    """Labels of each ``by``; what an aggregation without one keeps is nothing."""
    joined: list[str] = field(default_factory=list)
    """Labels in ``on`` and ``group_left``."""


def parse(text: str) -> Expression:
    """Raises ValueError."""
    parser = _Parser(text)
    parser.expression()
    if parser.at < len(parser.tokens):
        raise ValueError(f"something is left behind {parser.at} tokens of {text}")
    if not parser.found.selectors:
        raise ValueError(f"nothing is asked for: {text}")
    return parser.found


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        self.at = 0
        self.found = Expression()
        place, text = 0, text.strip()
        while place < len(text):
            token = _TOKEN.match(text, place)
            if token is None or not token.lastgroup:
                raise ValueError(f"no token: {text[place:]}")
            self.tokens.append((token.lastgroup, token[token.lastgroup]))
            place = token.end()

    def _next(self) -> tuple[str, str]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "")

    def _take(self, kind: str, *values: str) -> str:
        found, value = self._next()
        if found != kind or (values and value not in values):
            raise ValueError(f"{values or kind} expected, not {value!r}, as token {self.at} of {self.tokens}")
        self.at += 1
        return value

    def _is(self, *values: str) -> bool:
        kind, value = self._next()
        return kind in {"mark", "name"} and value in values

    def expression(self, function: str = "") -> None:
        self._operand(function)
        while self._is(*_OPERATORS):
            _, operator = self.tokens[self.at]
            self.at += 1
            if self._is("bool"):
                if operator not in _COMPARES:
                    raise ValueError(f"bool behind {operator}")
                self.at += 1
            if self._is("on", "ignoring"):
                self.at += 1
                self.found.joined += self._labels()
                if self._is("group_left", "group_right"):
                    self.at += 1
                    self.found.joined += self._labels()
            self._operand(function)

    def _operand(self, function: str) -> None:
        kind, value = self._next()
        if kind == "number":
            self.at += 1
        elif kind == "mark":
            self._take("mark", "(")
            self.expression(function)
            self._take("mark", ")")
        elif value in AGGREGATIONS:
            self.at += 1
            grouping: tuple[str, ...] = ()
            if self._is("by"):
                self.at += 1
                grouping = self._labels()
            self.found.groupings.append(grouping)
            self._arguments("")
        elif self.tokens[self.at + 1 : self.at + 2] == [("mark", "(")]:
            if value not in FUNCTIONS:
                raise ValueError(f"no function is called {value}")
            self.at += 1
            self._arguments(value)
        else:
            self._selector(function)

    def _arguments(self, function: str) -> None:
        self._take("mark", "(")
        while not self._is(")"):
            if self._next()[0] == "string":
                self.at += 1
            else:
                self.expression(function if function in RANGES else "")
            if not self._is(")"):
                self._take("mark", ",")
        self._take("mark", ")")

    def _labels(self) -> tuple[str, ...]:
        self._take("mark", "(")
        names = []
        while not self._is(")"):
            names.append(self._take("name"))
            if not self._is(")"):
                self._take("mark", ",")
        self._take("mark", ")")
        return tuple(names)

    def _selector(self, function: str) -> None:
        name = self._take("name")
        matchers = []
        if self._is("{"):
            self.at += 1
            while not self._is("}"):
                label, operator = self._take("name"), self._take("mark", "=", "!=", "=~", "!~")
                matchers.append(Matcher(label, operator, self._take("string")[1:-1]))
                if not self._is("}"):
                    self._take("mark", ",")
            self._take("mark", "}")
        if (self._next()[0] == "duration") is not bool(function):
            raise ValueError(f"{name} needs a range exactly where a function over time has it")
        self.at += bool(function)
        self.found.selectors.append(Selector(name, tuple(matchers), function))
