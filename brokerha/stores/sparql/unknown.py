"""Functions that a text calls by their IRI and that the engine does not have: an error in SPARQL (17.3.1, 17.6).

    BIND(<urn:f>(?o) AS ?x)  FILTER(<urn:f>(?o))      unbound, and false, as for any other error
    COALESCE(<urn:f>(?o), 0)  IF  ||                   handle it as any other error

The engine refuses the whole text. So it gets a function without a value for each such name. The engine itself tells which
functions it has (casts of XML Schema, GeoSPARQL), and how a prefix or a BASE resolves.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from pyoxigraph import NamedNode, QuerySolutions, Store

from brokerha.stores.rdf.terms import Function
from brokerha.stores.sparql.tokens import IRI, PREFIXED, Tokens

_NAMES: Final = frozenset({IRI, PREFIXED})


def unknown_functions(tokens: Tokens, span: tuple[int, int], prologue: str) -> tuple[NamedNode, ...]:
    """Return the names before a bracket between these tokens that no function of the engine has.

    ``prologue`` has the declarations there. A name before an RDF list is included too, without effect.
    """
    called = dict.fromkeys(
        tokens.text_of(index) for index in range(*span) if tokens.kinds[index] in _NAMES and tokens.text_of(index + 1) == "("
    )
    return tuple(name for name in _named(prologue, called) if not _is_known(str(name)))


def failing(names: Iterable[NamedNode]) -> dict[NamedNode, Function]:
    """Return a function for each name; every call of it is an error."""
    return {name: lambda *_arguments: None for name in names}


def _named(prologue: str, texts: Iterable[str]) -> list[NamedNode]:
    """Return the IRIs of names; empty when the engine cannot parse them: it then refuses their text too."""
    listed = " ".join(texts)
    if not listed:
        return []
    try:
        found = Store().query(f"{prologue}\nSELECT ?brokerha_name {{ VALUES ?brokerha_name {{ {listed} }} }}")
    except SyntaxError:
        return []
    rows = found if isinstance(found, QuerySolutions) else ()
    return [name for row in rows if isinstance(name := row["brokerha_name"], NamedNode)]


@lru_cache(maxsize=1024)
def _is_known(name: str) -> bool:
    try:
        for _ in Store().query(f"SELECT ({name}(1) AS ?brokerha_value) {{ }}"):  # type: ignore[union-attr]  # It is a SELECT.
            pass
    except RuntimeError:
        return False
    return True
