r"""Statements that an RDF4J client wants removed: those without its wild card one by one, the others as patterns.

RDF4J writes ``<http://www.openrdf.org/schema/sesame#wildcard>`` where any term is meant, the graph included.

>>> removals_of("main", "<urn:a> <urn:b> <http://www.openrdf.org/schema/sesame#wildcard> .\n")
[('update', 'main', 'DELETE WHERE { <urn:a> <urn:b> ?o }')]
"""

from __future__ import annotations

from typing import Final

from pyoxigraph import DefaultGraph, RdfFormat, parse

from brokerha.http.rdf import statements
from brokerha.model.operations import Operation

WILD_CARD: Final = "<http://www.openrdf.org/schema/sesame#wildcard>"


def removals_of(repository: str, nquads: str) -> list[Operation]:
    """The operations that remove what these lines say."""
    if WILD_CARD not in nquads:
        return [("remove", repository, nquads)] if nquads else []
    exact: list[str] = []
    operations: list[Operation] = []
    for line in nquads.removesuffix("\n").split("\n"):
        if WILD_CARD in line:
            operations.append(_pattern(repository, line))
        else:
            exact.append(line + "\n")
    return [*operations, *([("remove", repository, "".join(exact))] if exact else [])]


def _pattern(repository: str, line: str) -> Operation:
    [quad] = parse(line.encode(), format=RdfFormat.N_QUADS)
    terms = {"subj": str(quad.subject), "pred": str(quad.predicate), "obj": str(quad.object)}
    pattern = {name: None if term == WILD_CARD else term for name, term in terms.items()}
    graph = quad.graph_name
    is_any = not isinstance(graph, DefaultGraph) and str(graph) == WILD_CARD
    return statements.removal(repository, pattern, [] if is_any else [graph])
