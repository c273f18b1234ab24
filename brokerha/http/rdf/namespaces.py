"""RDF4J namespaces at ``/repositories/{id}/namespaces``: short names of IRIs that clients share; they change no query.

    GET     …/namespaces            all of them, as a result table        DELETE    removes all, 204
    GET     …/namespaces/{prefix}   the IRI as text, or 404               PUT       the body is the IRI, 204
                                                                          DELETE    204, even when it was missing

They are keys of a reserved table (model/reserved/about.py), so they are in the log and in every copy. The prefix can be empty.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pyoxigraph import Literal, NamedNode, Quad, QueryResultsFormat, QuerySolutions, Store

from brokerha.http.door.answer import TEXT, Answer
from brokerha.http.door.call import Call
from brokerha.http.door.passing import age_of, begin_write, done, read, result, write_to_repository
from brokerha.ingress.rdf_bodies import Target
from brokerha.model.errors import InvalidRequest, NotFound
from brokerha.model.invariants import InvariantBroken
from brokerha.model.operations import Operation
from brokerha.model.outside.levels import LATEST_LSN
from brokerha.model.reserved import about
from brokerha.ports.front import ReadOutcome

FORMATS = {
    "application/sparql-results+json": QueryResultsFormat.JSON,
    "application/json": QueryResultsFormat.JSON,
    "application/sparql-results+xml": QueryResultsFormat.XML,
    "application/xml": QueryResultsFormat.XML,
    "text/csv": QueryResultsFormat.CSV,
    "text/tab-separated-values": QueryResultsFormat.TSV,
}


def table(call: Call, variables: Sequence[str], rows: Sequence[Sequence[Target]], outcome: ReadOutcome) -> Answer:
    """Return a result table with these rows, in order. Raises NotAcceptable.

    These are small SPARQL result tables, RDF4J's form of a list of repositories or contexts. The engine writes them, so that they
    look like other results in each format. The rows go through a store in memory, because only that way takes terms of every kind,
    including blank nodes.
    """
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
    return result(outcome._replace(content_type=media_type, body=body))


async def listed(call: Call) -> Answer:
    """Return all namespaces, as a result table."""
    namespaces, outcome = await _known(call)
    rows = [(Literal(prefix), Literal(iri)) for prefix, iri in sorted(namespaces.items())]
    return table(call, ("prefix", "namespace"), rows, outcome)


async def clear(call: Call) -> Answer:
    """Delete all present namespaces."""
    txid = begin_write(call)
    repository = call.path_text("id")
    namespaces, outcome = await _known(call, LATEST_LSN)
    operations: list[Operation] = [
        ("delete", about.TABLE, about.namespace_key(repository, prefix)) for prefix in sorted(namespaces)
    ]
    if not operations:
        return Answer(204, headers=age_of(outcome))
    return done(await write_to_repository(call, repository, operations, txid))


async def get(call: Call) -> Answer:
    """Return the IRI of one prefix."""
    namespaces, outcome = await _known(call)
    prefix = call.path_text("prefix")
    if prefix not in namespaces:
        raise NotFound(f"repository {call.path_text('id')!r} has no namespace with the prefix {prefix!r}")
    # Without a new line at the end: clients take the whole body as the IRI.
    return Answer(200, namespaces[prefix].encode(), TEXT, age_of(outcome))


async def put(call: Call) -> Answer:
    """Set the IRI of one prefix."""
    txid = begin_write(call)
    repository, prefix = call.path_text("id"), call.path_text("prefix")
    iri = (await call.text()).strip()
    if problem := about.prefix_problem(prefix) or about.iri_problem(iri):
        raise InvalidRequest(problem)
    operation = ("put", about.TABLE, about.namespace_key(repository, prefix), iri.encode())
    return done(await write_to_repository(call, repository, [operation], txid))


async def delete(call: Call) -> Answer:
    """Delete one prefix."""
    txid = begin_write(call)
    repository, prefix = call.path_text("id"), call.path_text("prefix")
    if problem := about.prefix_problem(prefix):
        raise InvalidRequest(problem)
    operation = ("delete", about.TABLE, about.namespace_key(repository, prefix))
    return done(await write_to_repository(call, repository, [operation], txid))


async def _known(call: Call, min_lsn: int | None = None) -> tuple[dict[str, str], ReadOutcome]:
    repository = call.path_text("id")
    outcome = await read(call, "about", repository, {}, min_lsn=min_lsn)
    found: dict[str, Any] = json.loads(outcome.body)
    return found[repository]["namespaces"], outcome
