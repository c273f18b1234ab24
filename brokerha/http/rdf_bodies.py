"""RDF in any syntax on its way to N-Quads, and terms as they stand in URLs.

Blank nodes of a body are renamed after the transaction, in the order in which they appear: the same body sent again with
the same key gives the same operations to the byte, while two bodies never share a blank node by accident.

>>> nquads_of(b"@prefix : <urn:x:> . :a :b [] .", "text/turtle", txid="t-1").splitlines()
['<urn:x:a> <urn:x:b> _:t3edc9b7a84fd8f05b1 .']
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

from pyoxigraph import BlankNode, DefaultGraph, Literal, NamedNode, Quad, RdfFormat, Triple, parse, serialize

from brokerha.http.call import utf8
from brokerha.model.errors import InvalidRequest
from brokerha.model.ids import TxId

FORMATS = {
    "application/n-triples": RdfFormat.N_TRIPLES,
    "text/plain": RdfFormat.N_TRIPLES,
    "application/n-quads": RdfFormat.N_QUADS,
    "text/x-nquads": RdfFormat.N_QUADS,
    "text/nquads": RdfFormat.N_QUADS,
    "text/turtle": RdfFormat.TURTLE,
    "application/x-turtle": RdfFormat.TURTLE,
    "text/n3": RdfFormat.N3,
    "text/rdf+n3": RdfFormat.N3,
    "application/trig": RdfFormat.TRIG,
    "application/x-trig": RdfFormat.TRIG,
    "application/rdf+xml": RdfFormat.RDF_XML,
    "application/xml": RdfFormat.RDF_XML,
    "text/xml": RdfFormat.RDF_XML,
    "application/ld+json": RdfFormat.JSON_LD,
}
"""Syntaxes that a body may have, by content type."""

NULL_CONTEXT = "null"
"""How RDF4J writes the default graph in a URL."""
_CONTEXT = re.compile(r"null|<[^<>\"{}|^`\\\s]*>|_:[^\s,]+")

Graph = NamedNode | BlankNode | DefaultGraph
Target = NamedNode | BlankNode | Literal | Triple
"""What may stand as the object of a quad."""


def nquads_of(
    body: bytes,
    media_type: str,
    *,
    txid: TxId,
    base_iri: str | None = None,
    contexts: Sequence[Graph] = (),
    keep_labels: bool = False,
) -> str:
    """The quads of a body as N-Quads; with contexts, in each of them instead of where the body puts them.

    Raises InvalidRequest: not UTF-8, bad syntax (with the line), a base IRI that is none.
    """
    utf8(body, "the body")
    prefix = prefix_of(txid)
    try:
        quads: Iterator[Quad] = parse(body, format=FORMATS[media_type], base_iri=base_iri)
        if not keep_labels:
            quads = _renamed(quads, prefix)
        if contexts:
            quads = (Quad(q.subject, q.predicate, q.object, graph) for q in quads for graph in contexts)
        data: bytes = serialize(quads, format=RdfFormat.N_QUADS) or b""
    except (SyntaxError, ValueError) as error:
        raise InvalidRequest(f"MALFORMED DATA: the body is not {media_type}: {error}") from None
    return data.decode()


def prefix_of(txid: TxId) -> str:
    """What labels of blank nodes begin with that come with a transaction."""
    return "t" + hashlib.blake2b(txid.encode(), digest_size=8).hexdigest()


def _renamed(quads: Iterator[Quad], prefix: str) -> Iterator[Quad]:
    names: dict[str, BlankNode] = {}

    def name_of(term: Any) -> Any:
        if isinstance(term, BlankNode):
            known = names.get(term.value)
            if known is None:
                known = names[term.value] = BlankNode(f"{prefix}b{len(names) + 1}")
            return known
        if isinstance(term, Triple):
            return Triple(*[name_of(part) for part in (term.subject, term.predicate, term.object)])
        return term

    for quad in quads:
        subject, target, graph = quad.subject, quad.object, quad.graph_name
        if (
            isinstance(subject, NamedNode)
            and not isinstance(target, (BlankNode, Triple))
            and not isinstance(graph, BlankNode)
        ):
            yield quad
        else:
            yield Quad(name_of(subject), quad.predicate, name_of(target), name_of(graph))


def contexts_of(values: Sequence[str]) -> list[Graph]:
    """Graphs named by ``context`` parameters: ``null``, ``<iri>`` or ``_:label``, repeated or joined by commas."""
    graphs: list[Graph] = []
    for value in values:
        place = 0
        while place < len(value):
            found = _CONTEXT.match(value, place)
            if found is None or value[found.end() : found.end() + 1] not in {"", ","}:
                raise InvalidRequest(
                    f"context {value!r} is not null, <iri> or _:label, or several of them with commas between"
                )
            graphs.append(_graph(found[0]))
            place = found.end() + 1
    return graphs


def _graph(text: str) -> Graph:
    if text == NULL_CONTEXT:
        return DefaultGraph()
    return _quad(f"<urn:s> <urn:p> <urn:o> {text} .", f"context {text!r} is no IRI and no blank node").graph_name


def context_text(graph: Graph) -> str:
    """A graph as reads want it."""
    return NULL_CONTEXT if isinstance(graph, DefaultGraph) else str(graph)


def term_of(name: str, text: str | None) -> str | None:
    """A term of a pattern (``subj``, ``pred``, ``obj``) in canonical N-Triples syntax. Raises InvalidRequest."""
    if text is None:
        return None
    problem = f'{name} is a term in N-Triples syntax, such as <iri>, _:label or "text", not {text!r}'
    if name == "subj":
        return str(_quad(f"{text} <urn:p> <urn:o> .", problem).subject)
    if name == "pred":
        return str(_quad(f"<urn:s> {text} <urn:o> .", problem).predicate)
    return str(_quad(f"<urn:s> <urn:p> {text} .", problem).object)


def base_iri_of(text: str | None) -> str | None:
    """``baseURI``, which RDF4J writes with angle brackets and others without."""
    return text[1:-1] if text and text.startswith("<") and text.endswith(">") else text or None


def _quad(line: str, problem: str) -> Quad:
    try:
        quads: list[Quad] = list(parse(line.encode(), format=RdfFormat.N_QUADS))
    except (SyntaxError, ValueError):
        raise InvalidRequest(problem) from None
    if len(quads) != 1:
        raise InvalidRequest(problem)
    return quads[0]
