"""RDF4J statements at ``/repositories/{id}/statements``: read, add, replace, delete by pattern, update.

Each writing request is one transaction. ``context`` chooses graphs (``null`` is the default graph), and for sent data overrides the
graphs in the data, as in RDF4J.

    POST    RDF                       add                                 [add]; large N-Triples, N-Quads in parts (sparql.py)
    PUT     RDF                       clear all, or the contexts; add     [clear, or update CLEAR …, add]; parts without context
    DELETE  ?subj&pred&obj&context    remove matching quads               [update DELETE WHERE …] or [remove]
    POST    update                    SPARQL Update                       [update]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyoxigraph import BlankNode, DefaultGraph, RdfFormat, parse

from brokerha.http.door.answer import Answer
from brokerha.http.door.call import FORM, Call
from brokerha.http.door.passing import begin_write, done, read, result, write_to_repository
from brokerha.http.rdf import sparql
from brokerha.ingress import rdf_bodies
from brokerha.ingress.rdf_bodies import Graph, base_iri_of, context_text, contexts_of, term_of
from brokerha.model.errors import InvalidRequest
from brokerha.model.ids import TxId
from brokerha.model.operations import Operation

WILD_CARD: Final = "<http://www.openrdf.org/schema/sesame#wildcard>"
"""RDF4J's term for any term, also as a graph."""
_ANY = {"subj": "?s", "pred": "?p", "obj": "?o"}


async def get(call: Call) -> Answer:
    """Return the matching quads, in the RDF syntax that the caller accepts."""
    pattern, contexts = pattern_of(call)
    arguments = {
        **pattern,
        "context": tuple(context_text(graph) for graph in contexts),
        "accept": call.accept(),
    }
    return result(await read(call, "statements", call.path_text("id"), arguments))


async def post(call: Call) -> Answer:
    """Add RDF, or run an update."""
    media_type = call.media_type()
    if media_type == sparql.UPDATE_TYPE:
        return await sparql.update_of_body(call)
    if media_type == FORM:
        form = await call.form()
        if form.one("update") is None:
            raise InvalidRequest("the parameter 'update' is missing")
        return await sparql.update_of_form(call, form)
    txid, contexts = begin_write(call), contexts_of(call.parameters().all("context"))
    if await sparql.is_large(call, media_type):
        return done(await sparql.add(call, call.path_text("id"), media_type, contexts, txid))
    nquads = await _nquads(call, media_type, contexts, txid)
    return await _write(call, [("add", call.path_text("id"), nquads)], txid)


async def put(call: Call) -> Answer:
    """Replace everything, or the content of the contexts, by RDF."""
    txid = begin_write(call)
    contexts = contexts_of(call.parameters().all("context"))
    repository, media_type = call.path_text("id"), call.media_type()
    if not contexts and await sparql.is_large(call, media_type):
        return done(await sparql.add(call, repository, media_type, contexts, txid, is_cleared=True))
    cleared = clearing(repository, contexts)
    nquads = await _nquads(call, media_type, contexts, txid)
    operations = [cleared, ("add", repository, nquads)] if nquads else [cleared]
    return await _write(call, operations, txid)


async def delete(call: Call) -> Answer:
    """Remove the matching quads; all quads without a pattern."""
    txid = begin_write(call)
    pattern, contexts = pattern_of(call)
    return await _write(call, [removal(call.path_text("id"), pattern, contexts)], txid)


async def _write(call: Call, operations: Sequence[Operation], txid: TxId) -> Answer:
    return done(await write_to_repository(call, call.path_text("id"), operations, txid))


async def _nquads(call: Call, media_type: str, contexts: Sequence[Graph], txid: TxId) -> str:
    if media_type not in rdf_bodies.FORMATS:
        call.body_type(*rdf_bodies.FORMATS, *((sparql.UPDATE_TYPE,) if call.method == "POST" else ()))
    return await nquads_of(call, media_type, await call.body(), contexts, txid)


async def nquads_of(
    call: Call,
    media_type: str,
    body: bytes,
    contexts: Sequence[Graph],
    txid: TxId,
    *,
    base_iri: str | None = None,
    keep_labels: bool = False,
) -> str:
    """Convert an RDF document to N-Quads, by the parameters of the request; ``txid`` names blank nodes. Raises InvalidRequest."""
    parameters = call.parameters()
    return await call.door.parsed(
        rdf_bodies.is_plain(body, media_type),
        rdf_bodies.nquads_of,
        body,
        media_type,
        txid=txid,
        base_iri=base_iri_of(parameters.one("baseURI")) or base_iri,
        contexts=[context_text(graph) for graph in contexts],
        keep_labels=keep_labels or parameters.flag("preserveNodeId"),
    )


def pattern_of(call: Call) -> tuple[dict[str, str | None], list[Graph]]:
    """Return the terms of the pattern by name (None for any), and the contexts. Raises InvalidRequest."""
    parameters = call.parameters()
    pattern = {name: term_of(name, parameters.one(name)) for name in _ANY}
    return pattern, contexts_of(parameters.all("context"))


def clearing(repository: str, contexts: Sequence[Graph]) -> Operation:
    """Return the operation that empties these graphs, or all without any. Raises InvalidRequest."""
    if not contexts:
        return ("clear", repository)
    updates = ("CLEAR DEFAULT" if isinstance(graph, DefaultGraph) else f"CLEAR SILENT GRAPH {_named(graph)}" for graph in contexts)
    return ("update", repository, " ;\n".join(updates))


def removal(repository: str, pattern: dict[str, str | None], contexts: Sequence[Graph]) -> Operation:
    """Return the operation that removes the matching quads, in all graphs or in some. Raises InvalidRequest."""
    terms = [term for term in pattern.values() if term is not None]
    if not terms and not any(isinstance(graph, BlankNode) for graph in contexts):
        return clearing(repository, contexts)
    if any(term.startswith("_:") for term in terms) or any(isinstance(graph, BlankNode) for graph in contexts):
        if len(terms) < 3 or not contexts:
            raise InvalidRequest("SPARQL cannot name a blank node: give subj, pred, obj and context in full, or delete without it")
        triple = " ".join(terms)
        lines = [f"{triple} ." if isinstance(graph, DefaultGraph) else f"{triple} {graph} ." for graph in contexts]
        return ("remove", repository, "\n".join(lines) + "\n")
    triple = " ".join(pattern[name] or variable for name, variable in _ANY.items())
    everywhere = [f"DELETE WHERE {{ {triple} }}", f"DELETE WHERE {{ GRAPH ?g {{ {triple} }} }}"]
    named = [
        f"DELETE WHERE {{ {triple} }}" if isinstance(graph, DefaultGraph) else f"DELETE WHERE {{ GRAPH {graph} {{ {triple} }} }}"
        for graph in contexts
    ]
    return ("update", repository, " ;\n".join(named or everywhere))


def _named(graph: Graph) -> str:
    if isinstance(graph, BlankNode):
        raise InvalidRequest(f"SPARQL cannot name the graph {graph}: only graphs with an IRI can be cleared one by one")
    return str(graph)


def removals_of(repository: str, nquads: str) -> list[Operation]:
    r"""Return the operations that remove the quads of these lines: exact lines together, lines with RDF4J's wild card as patterns.

    >>> removals_of("main", "<urn:a> <urn:b> <http://www.openrdf.org/schema/sesame#wildcard> .\n")
    [('update', 'main', 'DELETE WHERE { <urn:a> <urn:b> ?o }')]
    """
    if WILD_CARD not in nquads:
        return [("remove", repository, nquads)] if nquads else []
    exact: list[str] = []
    operations: list[Operation] = []
    for line in nquads.removesuffix("\n").split("\n"):
        if WILD_CARD in line:
            operations.append(_matching(repository, line))
        else:
            exact.append(line + "\n")
    return [*operations, *([("remove", repository, "".join(exact))] if exact else [])]


def _matching(repository: str, line: str) -> Operation:
    [quad] = parse(line.encode(), format=RdfFormat.N_QUADS)
    terms = {"subj": str(quad.subject), "pred": str(quad.predicate), "obj": str(quad.object)}
    pattern = {name: None if term == WILD_CARD else term for name, term in terms.items()}
    graph = quad.graph_name
    is_any = not isinstance(graph, DefaultGraph) and str(graph) == WILD_CARD
    return removal(repository, pattern, [] if is_any else [graph])
