"""Whole graphs: W3C's Graph Store Protocol at ``/repositories/{id}/gsp``, and RDF4J's at ``/repositories/{id}/rdf-graphs``.

                          gsp                                   rdf-graphs
    which graph           ?graph=IRI, ?default, gsp/{name}      service?graph=IRI, service?default, rdf-graphs/{name}
    GET, HEAD             200; 404 when it is not there         200, and empty when it is not there
    PUT                   201 when it was not there, else 204   204
    POST                  201 when it was not there, else 204   204
    POST without a graph  a new graph, 201 with its Location    400
    DELETE                204; 404 when it was not there        204

The two contradict each other, so each has its own path. A graph with a name in the path is named by the address of the request. A
graph exists while it holds statements; the default graph always does. Its existence is read just before the write, and another
writer can come in between; the write itself is one transaction.
"""

from __future__ import annotations

import hashlib
from email.message import Message
from email.parser import BytesParser
from email.policy import HTTP
from typing import Final

from pyoxigraph import DefaultGraph, NamedNode

from brokerha.http.door.answer import Answer
from brokerha.http.door.call import Call, address_of
from brokerha.http.door.passing import age_of, begin_write, done, read, result, write_to_repository
from brokerha.http.rdf import statements
from brokerha.ingress import rdf_bodies
from brokerha.ingress.rdf_bodies import context_text
from brokerha.model.errors import InvalidRequest, NotFound, UnsupportedType
from brokerha.model.ids import TxId
from brokerha.ports.front import ReadOutcome
from brokerha.stores.rdf.formats import TRIPLES

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
        cleared = statements.clearing(repository, [graph])
        nquads = await _nquads(call, graph, txid)
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
        operation = statements.clearing(repository, [graph])
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
        return _named(address_of(call))
    parameters = call.parameters()
    names, graph = parameters.names(), parameters.one("graph")
    if (graph is None) is ("default" not in names):
        raise InvalidRequest("name one graph: ?graph=IRI, or ?default")
    return DefaultGraph() if graph is None else _named(graph)


def _named(iri: str) -> NamedNode:
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
    nquads = await _nquads(call, graph, txid)
    return done(await write_to_repository(call, repository, [("add", repository, nquads)], txid), status)


async def _nquads(call: Call, graph: StoreGraph, txid: TxId) -> str:
    media_type = call.body_type(*rdf_bodies.FORMATS, _MULTIPART)
    body = await call.body()
    parts = [(media_type, body)]
    if media_type == _MULTIPART:
        parts = await call.door.by_size(len(body), parts_of, body, call.header(b"content-type"))
    base_iri = graph.value if isinstance(graph, NamedNode) else address_of(call)
    return "".join(
        [
            # Blank nodes of two documents must stay different.
            await statements.nquads_of(call, part_type, part, [graph], f"{txid}/{number}" if number else txid, base_iri=base_iri)
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
