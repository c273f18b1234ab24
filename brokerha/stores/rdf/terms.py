"""Short names for the engine's terms, the one graph that is brokerha's own, and how variables are handed to functions of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from pyoxigraph import BlankNode, DefaultGraph, Literal, NamedNode, Triple

from brokerha.stores.sparql.tokens import RESERVED

Term = NamedNode | BlankNode | Literal | Triple
Graph = NamedNode | BlankNode | DefaultGraph
Function = Callable[..., Term | None]
"""A function that SPARQL text can call; None, or an exception, is an unbound value to the engine."""

SYSTEM_GRAPH: Final = NamedNode(f"{RESERVED}system")
UNBOUND: Final = NamedNode(f"{RESERVED}unbound")
"""Type of the literal that stands for an unbound variable: the engine calls no function without a value for each argument."""
REPORTED: Final = Literal(True)
"""What a function returns that was handed a row."""


def arguments_of(names: Iterable[str]) -> str:
    """These variables as the arguments of a function, unbound ones too."""
    return ", ".join(f'COALESCE(?{name}, ""^^{UNBOUND})' for name in names)


def bound(terms: tuple[Term, ...]) -> tuple[Term | None, ...]:
    """The values that a function was called with so."""
    return tuple(None if isinstance(term, Literal) and term.datatype == UNBOUND else term for term in terms)


def report_function(number: int) -> NamedNode:
    """The name of the function that takes the rows of one of several queries in a text."""
    return NamedNode(f"{RESERVED}report:{number}")


def reporting_clause(query: str, names: Sequence[str], limit: int, report: NamedNode) -> str:
    """A WHERE clause that hands rows of a SELECT to a function, at most ``limit`` of them: these variables, unbound ones too; all without names."""
    variables = " ".join(f"?{name}" for name in names) or "*"
    inner = f"{{ SELECT {variables} {{ {{ {query}\n}} }} LIMIT {limit} }}"
    return f"{{ {inner} BIND({report}({arguments_of(names)}) AS ?brokerha_reported) }}"
