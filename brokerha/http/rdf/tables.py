"""Small SPARQL result tables: what RDF4J answers as a list of repositories or contexts.

The engine writes them, so that they look like every other result in each of the formats. The rows go through a store in
memory, because that is the only way to hand it terms of every kind, blank nodes included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyoxigraph import NamedNode, Quad, QueryResultsFormat, QuerySolutions, Store

from brokerha.http.door.answer import Answer
from brokerha.http.door.call import Call
from brokerha.ingress.rdf_bodies import Target
from brokerha.model.invariants import InvariantBroken

FORMATS = {
    "application/sparql-results+json": QueryResultsFormat.JSON,
    "application/json": QueryResultsFormat.JSON,
    "application/sparql-results+xml": QueryResultsFormat.XML,
    "application/xml": QueryResultsFormat.XML,
    "text/csv": QueryResultsFormat.CSV,
    "text/tab-separated-values": QueryResultsFormat.TSV,
}


def table(
    call: Call, variables: Sequence[str], rows: Sequence[Sequence[Target]], headers: Mapping[str, str | int]
) -> Answer:
    """A result table with these rows, in their order. Raises NotAcceptable."""
    media_type = call.format_of("a table", list(FORMATS))
    store = Store()
    store.extend(
        Quad(NamedNode(f"urn:row:{number:09}"), NamedNode(f"urn:column:{name}"), cell)
        for number, row in enumerate(rows)
        for name, cell in zip(variables, row, strict=True)
    )
    columns = " ".join(f"?{name}" for name in variables)
    pattern = " . ".join(f"?row <urn:column:{name}> ?{name}" for name in variables)
    solutions = store.query(f"SELECT {columns} WHERE {{ {pattern} }} ORDER BY ?row")
    if not isinstance(solutions, QuerySolutions):
        raise InvariantBroken("a SELECT has solutions")
    body = solutions.serialize(format=FORMATS[media_type]) or b""
    return Answer(200, body, media_type, {**headers, "Vary": "Accept"})
