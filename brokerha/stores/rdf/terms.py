"""Short names for the engine's terms, the reserved graph, and the passing of variables to functions of this package."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from pyoxigraph import BlankNode, DefaultGraph, Literal, NamedNode, Triple

from brokerha.stores.sparql.tokens import RESERVED

Term = NamedNode | BlankNode | Literal | Triple
Graph = NamedNode | BlankNode | DefaultGraph
Function = Callable[..., Term | None]
"""A function that SPARQL text can call; the engine treats None, or an exception, as an unbound value."""

SYSTEM_GRAPH: Final = NamedNode(f"{RESERVED}system")
UNBOUND: Final = NamedNode(f"{RESERVED}unbound")
"""Type of the literal for an unbound variable: the engine calls a function only with a value for each argument."""
REPORTED: Final = Literal(True)
"""Return value of a function that got a row."""


def arguments_of(names: Iterable[str]) -> str:
    """Return these variables as the arguments of a function, unbound ones too."""
    return ", ".join(f'COALESCE(?{name}, ""^^{UNBOUND})' for name in names)


def bound(terms: tuple[Term, ...]) -> tuple[Term | None, ...]:
    """Return the values from the arguments of such a call."""
    return tuple(None if isinstance(term, Literal) and term.datatype == UNBOUND else term for term in terms)


def report_function(number: int) -> NamedNode:
    """Return the name of the function that takes the rows of one of several queries in a text."""
    return NamedNode(f"{RESERVED}report:{number}")


def reporting_clause(query: str, names: Sequence[str], limit: int, report: NamedNode) -> str:
    """Return a WHERE clause that passes at most ``limit`` rows of a SELECT to a function; without names all variables."""
    variables = " ".join(f"?{name}" for name in names) or "*"
    inner = f"{{ SELECT {variables} {{ {{ {query}\n}} }} LIMIT {limit} }}"
    return f"{{ {inner} BIND({report}({arguments_of(names)}) AS ?brokerha_reported) }}"
