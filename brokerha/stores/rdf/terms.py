"""Short names for the engine's terms, and the one graph that is brokerha's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyoxigraph import BlankNode, DefaultGraph, Literal, NamedNode, Triple

from brokerha.stores.sparql.tokens import RESERVED

Term = NamedNode | BlankNode | Literal | Triple
Graph = NamedNode | BlankNode | DefaultGraph
Function = Callable[..., Term | None]
"""A function that SPARQL text can call; None, or an exception, is an unbound value to the engine."""

SYSTEM_GRAPH: Final = NamedNode(f"{RESERVED}system")
