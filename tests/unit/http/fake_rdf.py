"""RDF in the fake front: a repository is an engine in memory, and what is asked of it goes straight to that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyoxigraph import (
    DefaultGraph,
    NamedNode,
    Quad,
    QueryBoolean,
    QueryResultsFormat,
    QuerySolutions,
    RdfFormat,
    Store,
    parse,
)

from brokerha.http.door.call import preferred
from brokerha.model.errors import InvalidRequest, NotAcceptable
from brokerha.model.operations import Operation

RESULTS = {
    "application/sparql-results+json": QueryResultsFormat.JSON,
    "application/json": QueryResultsFormat.JSON,
    "application/sparql-results+xml": QueryResultsFormat.XML,
    "text/csv": QueryResultsFormat.CSV,
}
GRAPHS = {
    "application/n-triples": RdfFormat.N_TRIPLES,
    "application/n-quads": RdfFormat.N_QUADS,
    "text/turtle": RdfFormat.TURTLE,
}


def change(store: Store, kind: str, text: str) -> None:
    """Change it by one operation."""
    if kind == "update":
        store.update(text)
    elif kind == "add":
        store.extend(parse(text.encode(), format=RdfFormat.N_QUADS))
    else:
        for quad in parse(text.encode(), format=RdfFormat.N_QUADS):
            store.remove(quad)


def check(operation: Operation) -> None:
    """Raise InvalidRequest for a text that is malformed."""
    try:
        if operation[0] == "update":
            Store().update("CREATE GRAPH <urn:x>; CREATE GRAPH <urn:x>;\n" + operation[2])
        elif operation[0] in {"add", "remove"}:
            for _ in parse(operation[2].encode(), format=RdfFormat.N_QUADS):
                pass
    except SyntaxError as error:
        raise InvalidRequest(f"MALFORMED QUERY: {error}") from None
    except RuntimeError:
        pass


def query(store: Store, arguments: dict[str, Any]) -> tuple[str, bytes]:
    """Answer a query: content type and result."""
    dataset: dict[str, Any] = {}
    if arguments["default-graph-uri"] or arguments["named-graph-uri"]:
        dataset["default_graph"] = [NamedNode(iri) for iri in arguments["default-graph-uri"]]
        dataset["named_graphs"] = [NamedNode(iri) for iri in arguments["named-graph-uri"]]
    try:
        result = store.query(arguments["query"], **dataset)
    except SyntaxError as error:
        raise InvalidRequest(f"MALFORMED QUERY: {error}") from None
    if isinstance(result, (QuerySolutions, QueryBoolean)):
        media_type = chosen(arguments["accept"], RESULTS)
        return media_type, result.serialize(format=RESULTS[media_type]) or b""
    media_type = chosen(arguments["accept"], GRAPHS)
    return media_type, result.serialize(format=GRAPHS[media_type]) or b""


def chosen(accept: str | None, offers: dict[str, Any]) -> str:
    """The content type that is wanted. Raises NotAcceptable."""
    media_type = preferred(accept or "", list(offers))
    if media_type is None:
        raise NotAcceptable(f"the result can be had as {', '.join(offers)}")
    return media_type


def matching(store: Store, pattern: dict[str, Any], contexts: Sequence[str]) -> list[Quad]:
    """Quads that match terms and contexts."""

    def names(context: str) -> set[str]:
        return {str(DefaultGraph())} if context == "null" else {context}

    graphs = set().union(*[names(context) for context in contexts])
    return [
        quad
        for quad in store
        if (not graphs or str(quad.graph_name) in graphs)
        and pattern.get("subj") in {None, str(quad.subject)}
        and pattern.get("pred") in {None, str(quad.predicate)}
        and pattern.get("obj") in {None, str(quad.object)}
    ]
