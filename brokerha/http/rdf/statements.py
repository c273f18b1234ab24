"""RDF4J statements at ``/repositories/{id}/statements``: read, add, replace, delete by pattern, update.

Each writing request is one transaction. ``context`` chooses graphs (``null`` is the default graph), and for sent data overrides the
graphs in the data, as in RDF4J.

    POST    RDF                       add                                 [add]; large N-Triples, N-Quads in parts (sparql.py)
    PUT     RDF                       clear all, or the contexts; add     [clear, or update CLEAR …, add]; parts without context
    DELETE  ?subj&pred&obj&context    remove matching quads               [update DELETE WHERE …] or [remove]
    POST    update                    SPARQL Update                       [update]
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from email.message import Message
from email.parser import BytesParser
from email.policy import HTTP
from typing import Final

from pyoxigraph import BlankNode, DefaultGraph, NamedNode, RdfFormat, parse

from brokerha.http.door.answer import Answer
from brokerha.http.door.call import FORM, Call, address_of
from brokerha.http.door.passing import age_of, begin_write, done, read, result, write_to_repository
from brokerha.http.rdf import sparql
from brokerha.ingress import rdf_bodies
from brokerha.ingress.rdf_bodies import Graph, base_iri_of, context_text, contexts_of, term_of
from brokerha.model.errors import InvalidRequest, NotFound, UnsupportedType
from brokerha.model.ids import TxId
from brokerha.model.operations import Operation
from brokerha.ports.front import ReadOutcome
from brokerha.stores.rdf.formats import TRIPLES

WILD_CARD: Final = "<http://www.openrdf.org/schema/sesame#wildcard>"
"""RDF4J's term for any term, also as a graph."""
_ANY = {"subj": "?s", "pred": "?p", "obj": "?o"}


async def get(call: Call) -> Answer:
    """Return the matching quads, in the RDF syntax that the caller accepts."""
    pattern, contexts = pattern_of(call)
    arguments = {**pattern, "context": tuple(context_text(graph) for graph in contexts), "accept": call.accept()}
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


# ---- Whole graphs: W3C's Graph Store Protocol at ``/repositories/{id}/gsp``, and RDF4J's at ``/repositories/{id}/rdf-graphs``.
#
#                           gsp                                   rdf-graphs
#     which graph           ?graph=IRI, ?default, gsp/{name}      service?graph=IRI, service?default, rdf-graphs/{name}
#     GET, HEAD             200; 404 when it is not there         200, and empty when it is not there
#     PUT                   201 when it was not there, else 204   204
#     POST                  201 when it was not there, else 204   204
#     POST without a graph  a new graph, 201 with its Location    400
#     DELETE                204; 404 when it was not there        204
#
# The two contradict each other, so each has its own path. A graph with a name in the path is named by the address of the request. A
# graph exists while it holds statements; the default graph always does. Its existence is read just before the write, and another
# writer can come in between; the write itself is one transaction.

OFFERS: Final = tuple(offered.media_type for offered in TRIPLES)
_MULTIPART: Final = "multipart/form-data"
_ASK: Final = {"accept": "application/sparql-results+json", "default-graph-uri": (), "named-graph-uri": ()}

StoreGraph = NamedNode | DefaultGraph


class Graphs:
    """The methods of one of the two protocols."""

    def __init__(self, *, is_w3c: bool) -> None:
        """``is_w3c``: the protocol reports whether a graph existed, and names new ones."""
        self._is_w3c = is_w3c

    async def get(self, call: Call) -> Answer:
        """Return the triples of a graph."""
        graph = _asked(call)
        await self._expect(call, graph)
        arguments = {"context": (context_text(graph),), "accept": call.format_of("a graph", OFFERS)}
        return result(await read(call, "statements", call.path_text("id"), arguments))

    async def put(self, call: Call) -> Answer:
        """Replace the triples of a graph."""
        txid, graph, repository = begin_write(call), _asked(call), call.path_text("id")
        status = await self._status(call, graph)
        cleared = clearing(repository, [graph])
        nquads = await _nquads_of_body(call, graph, txid)
        operations = [cleared, ("add", repository, nquads)] if nquads else [cleared]
        return done(await write_to_repository(call, repository, operations, txid), status)

    async def post(self, call: Call) -> Answer:
        """Add triples to a graph; in W3C's protocol without a named graph, to a new one."""
        txid = begin_write(call)
        if self._is_w3c and not call.parameters().pairs and "graph" not in call.scope["path_params"]:
            new = NamedNode(f"{address_of(call)}/{hashlib.blake2b(txid.encode(), digest_size=12).hexdigest()}")
            answer = await _add(call, new, txid, 201)
            answer.headers = {**answer.headers, "Location": new.value}
            return answer
        graph = _asked(call)
        return await _add(call, graph, txid, await self._status(call, graph))

    async def delete(self, call: Call) -> Answer:
        """Empty a graph, which ends its existence."""
        txid, graph, repository = begin_write(call), _asked(call), call.path_text("id")
        await self._expect(call, graph)
        operation = clearing(repository, [graph])
        return done(await write_to_repository(call, repository, [operation], txid))

    async def _expect(self, call: Call, graph: StoreGraph) -> None:
        """Raise NotFound for a missing graph, if the protocol reports that."""
        if self._is_w3c:
            outcome, is_there = await _is_there(call, graph)
            if not is_there:
                call.error_headers = dict(age_of(outcome))
                raise NotFound(f"there is no graph {graph}")

    async def _status(self, call: Call, graph: StoreGraph) -> int:
        return 201 if self._is_w3c and not (await _is_there(call, graph))[1] else 204


W3C = Graphs(is_w3c=True)
RDF4J = Graphs(is_w3c=False)


def _asked(call: Call) -> StoreGraph:
    """Return the graph of a request. Raises InvalidRequest."""
    if "graph" in call.scope["path_params"]:
        return _iri_of(address_of(call))
    parameters = call.parameters()
    names, graph = parameters.names(), parameters.one("graph")
    if (graph is None) is ("default" not in names):
        raise InvalidRequest("name one graph: ?graph=IRI, or ?default")
    return DefaultGraph() if graph is None else _iri_of(graph)


def _iri_of(iri: str) -> NamedNode:
    try:
        node = NamedNode(iri)
    except ValueError:
        raise InvalidRequest(f"{iri!r} is no absolute IRI of a graph") from None
    if node.value.startswith("urn:brokerha:"):
        raise InvalidRequest("IRIs that begin with urn:brokerha: are brokerha's own")
    return node


async def _is_there(call: Call, graph: StoreGraph) -> tuple[ReadOutcome, bool]:
    """Return whether a graph holds anything; the default graph always counts. Raises UnknownRepository."""
    pattern, named = (f"GRAPH {graph} {{ ?s ?p ?o }}", (graph.value,)) if isinstance(graph, NamedNode) else ("", ())
    outcome = await read(call, "query", call.path_text("id"), {**_ASK, "named-graph-uri": named, "query": f"ASK {{ {pattern} }}"})
    return outcome, b"true" in outcome.body


async def _add(call: Call, graph: StoreGraph, txid: TxId, status: int) -> Answer:
    repository = call.path_text("id")
    nquads = await _nquads_of_body(call, graph, txid)
    return done(await write_to_repository(call, repository, [("add", repository, nquads)], txid), status)


async def _nquads_of_body(call: Call, graph: StoreGraph, txid: TxId) -> str:
    media_type = call.body_type(*rdf_bodies.FORMATS, _MULTIPART)
    body = await call.body()
    parts = [(media_type, body)]
    if media_type == _MULTIPART:
        parts = await call.door.by_size(len(body), parts_of, body, call.header(b"content-type"))
    base_iri = graph.value if isinstance(graph, NamedNode) else address_of(call)
    return "".join(
        [
            # Blank nodes of two documents must stay different.
            await nquads_of(call, part_type, part, [graph], f"{txid}/{number}" if number else txid, base_iri=base_iri)
            for number, (part_type, part) in enumerate(parts)
        ]
    )


def parts_of(body: bytes, content_type: str) -> list[tuple[str, bytes]]:
    """Return the documents of a ``multipart/form-data`` body, with content types. Raises InvalidRequest, UnsupportedType."""
    message: Message = BytesParser(policy=HTTP).parsebytes(b"Content-Type: %b\r\n\r\n%b" % (content_type.encode(), body))
    if not message.is_multipart():
        raise InvalidRequest("MALFORMED DATA: the body has no parts of the boundary that its content type names")
    found = []
    for part in message.walk():
        if part.is_multipart():
            continue
        media_type = part.get_content_type()
        if media_type not in rdf_bodies.FORMATS:
            raise UnsupportedType(f"a part of the body is {media_type}: send one of {', '.join(rdf_bodies.FORMATS)}")
        payload = part.get_payload(decode=True)
        found.append((media_type, payload if isinstance(payload, bytes) else b""))
    return found
