"""RDF in any syntax on its way to N-Quads; terms and graphs of URLs.

Blank nodes of a body are renamed after the transaction, in order of appearance. So the same body with the same key gives identical
operations, and two bodies never share a blank node by accident.

>>> nquads_of(b"@prefix : <urn:x:> . :a :b [] .", "text/turtle", txid="t-1").splitlines()
['<urn:x:a> <urn:x:b> _:tc3415115f09b0bc2b1 .']
"""

from __future__ import annotations

import hashlib
import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from typing import Any, Final
from xml.parsers import expat

from pyoxigraph import BlankNode, DefaultGraph, Literal, NamedNode, Quad, RdfFormat, Triple, parse, serialize

from brokerha.ingress.limits import (
    DEPTH_LIMIT,
    ENTITIES_LIMIT,
    ENTITY_LIMIT_CHARS,
    EXPANDED_LIMIT_BYTES,
    Nesting,
    is_plain_data,
    is_plain_request,
    refuse_deep_json,
    refuse_deep_quads,
    refuse_deep_turtle,
)
from brokerha.model.errors import InvalidRequest
from brokerha.model.ids import TxId

_PIECE: Final = 1024 * 1024
_REFERENCE_BYTES: Final = 256
_PREFIX: Final = "MALFORMED DATA: "


_CUT_OFF: Final = frozenset(
    expat.errors.codes[name]
    for name in (
        expat.errors.XML_ERROR_NO_ELEMENTS,
        expat.errors.XML_ERROR_UNCLOSED_TOKEN,
        expat.errors.XML_ERROR_UNCLOSED_CDATA_SECTION,
    )
)
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
"""Syntaxes of a body, by content type."""
_OF_LINES = frozenset({RdfFormat.N_TRIPLES, RdfFormat.N_QUADS})
_OF_TURTLE = frozenset({RdfFormat.TURTLE, RdfFormat.TRIG, RdfFormat.N3})
NULL_CONTEXT = "null"
"""RDF4J's name of the default graph in a URL."""
_LABEL = re.compile(r"_:([^\s!-,/:-@\[-^`{-~]+)")
_CONTEXT = re.compile(r"null|<[^<>\"{}|^`\\\s]*>|_:[^\s,]+")
Graph = NamedNode | BlankNode | DefaultGraph
Target = NamedNode | BlankNode | Literal | Triple
"""Possible objects of a quad."""


def is_of_lines(media_type: str) -> bool:
    """Tell whether each line of such a body is complete in itself."""
    return FORMATS.get(media_type) in _OF_LINES


def check_xml(body: bytes) -> None:
    """Raise SyntaxError for XML that is not well-formed (with line and column), InvalidRequest beyond a limit."""
    scan = XmlScan()
    # In pieces, so that no single C call is long.
    for at in range(0, len(body), _PIECE):
        scan.feed(body[at : at + _PIECE])
    scan.end()


class XmlScan:
    """Checks one XML body with expat before the engine parses it: complete, flat enough, and without growing entities.

    Raises as `check_xml`.

    The engine takes an early end as the end, and expands entities without a limit. expat is a parser without recursion that checks
    both. It follows the syntax of XML, so only limits refuse valid XML:

        an entity inside of an entity, of a file or a URL, a parameter entity     refused: namespaces need none of them
        an entity of more than ENTITY_LIMIT_CHARS, all together more than EXPANDED_LIMIT_BYTES
        elements nested more than DEPTH_LIMIT deep

    >>> check_xml(b"<a><b/></a>")
    >>> check_xml(b"<a><b>")
    Traceback (most recent call last):
    ...
    SyntaxError: line 1, column 7: no element found: the XML is not whole
    """

    def __init__(self) -> None:
        self._depth = 0
        self._entities: dict[bytes, int] = {}
        self._grown = 0
        self._piece = b""
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._on_start
        self._parser.EndElementHandler = self._on_end
        self._parser.EntityDeclHandler = self._on_entity
        self._parser.EndDoctypeDeclHandler = self._grow

    def feed(self, piece: bytes) -> None:
        """Check the next bytes."""
        # A reference cut in two is found together with the piece before it.
        self._piece = self._piece[-_REFERENCE_BYTES:] + piece
        self._grow()
        self._parse(piece, is_last=False)

    def end(self) -> None:
        """Check the end."""
        self._parse(b"", is_last=True)

    def _parse(self, piece: bytes, *, is_last: bool) -> None:
        try:
            self._parser.Parse(piece, is_last)
        except expat.ExpatError as error:
            problem = expat.ErrorString(error.code)
            whole = ": the XML is not whole" if error.code in _CUT_OFF else ""
            raise SyntaxError(f"line {error.lineno}, column {error.offset + 1}: {problem}{whole}") from None

    def _on_start(self, _name: str, _attributes: Any) -> None:
        self._depth += 1
        if self._depth > DEPTH_LIMIT:
            raise InvalidRequest(f"{_PREFIX}elements are nested more than {DEPTH_LIMIT} deep")

    def _on_end(self, _name: str) -> None:
        self._depth -= 1

    def _on_entity(
        self, name: str, is_parameter: int, value: str | None, _base: Any, _system: Any, _public: Any, _notation: Any
    ) -> None:
        if is_parameter or value is None:
            raise InvalidRequest(f"{_PREFIX}the entity {name[:50]!r} is a parameter or lies elsewhere: write its text")
        if "&" in value:
            raise InvalidRequest(f"{_PREFIX}the entity {name[:50]!r} holds another entity: write its text")
        if len(value) > ENTITY_LIMIT_CHARS:
            raise InvalidRequest(f"{_PREFIX}the entity {name[:50]!r} has more than {ENTITY_LIMIT_CHARS} characters")
        if len(self._entities) >= ENTITIES_LIMIT:
            raise InvalidRequest(f"{_PREFIX}more than {ENTITIES_LIMIT} entities")
        self._entities[b"&%b;" % name.encode()] = len(value.encode())

    def _grow(self) -> None:
        """Count the expanded size of the entities in this piece before they are expanded."""
        self._grown += sum(self._piece.count(reference) * size for reference, size in self._entities.items())
        if self._grown > EXPANDED_LIMIT_BYTES:
            raise InvalidRequest(f"{_PREFIX}its entities grow to more than {EXPANDED_LIMIT_BYTES} bytes")


def utf8(data: bytes, what: str) -> str:
    """Decode bytes as text. Raises InvalidRequest with the place of the first wrong byte."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{what} is not UTF-8 (at byte {error.start})") from None


def is_plain(body: bytes, media_type: str) -> bool:
    """Tell whether a body is so short and flat that it can be parsed at once, without a parser process."""
    syntax = FORMATS[media_type]
    if syntax in _OF_LINES:
        return is_plain_data(body.decode("latin-1"))
    return syntax in _OF_TURTLE and is_plain_request(body.decode("latin-1"))


def quads_of(body: bytes, media_type: str, base_iri: str | None = None) -> Iterator[Quad]:
    """Return the quads of a body, after a check for input that could crash or mislead the engine's parser.

    Raises InvalidRequest (not UTF-8, nested too deep, growing entities), SyntaxError and ValueError (cut off, bad syntax), also
    while quads are taken.
    """
    body = body.removeprefix(BOM_UTF8)
    text, syntax = utf8(body, "the body"), FORMATS[media_type]
    if syntax in _OF_LINES:
        refuse_deep_quads(text)
    elif syntax in _OF_TURTLE:
        refuse_deep_turtle(text)
    elif syntax == RdfFormat.RDF_XML:
        check_xml(body)
    else:
        refuse_deep_json(text)
    quads: Iterator[Quad] = parse(body, format=syntax, base_iri=base_iri)
    return quads


class Watched:
    """A long file that is checked while it is parsed.

    `read` raises InvalidRequest and SyntaxError, as `quads_of`. Brackets count everywhere, even in strings: this only protects the
    process of the file's author.
    """

    def __init__(self, source: Any, syntax: RdfFormat) -> None:
        self._source = source
        self._xml = XmlScan() if syntax == RdfFormat.RDF_XML else None
        self._nesting = Nesting()
        self._is_begin = True

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        data = self._source.read(size)
        piece: bytes = data.encode() if isinstance(data, str) else data
        if self._is_begin:
            self._is_begin, piece = False, piece.removeprefix(BOM_UTF8)
        if self._xml is not None:
            self._xml.feed(piece)
            if not piece:
                self._xml.end()
        else:
            self._nesting.feed(piece)
        return piece


def nquads_of(
    body: bytes,
    media_type: str,
    *,
    txid: TxId,
    base_iri: str | None = None,
    contexts: Sequence[str] = (),
    keep_labels: bool = False,
    part: int = 0,
) -> str:
    """Convert a body to N-Quads; with contexts (in the form of `context_text`), into each of them instead of the body's graphs.

    ``part`` numbers a part of a body; parts share labels. Raises InvalidRequest: not UTF-8, cut, too deep, bad syntax (with line).
    """
    prefix, graphs = prefix_of(txid), [_graph(text) for text in contexts]
    try:
        quads = quads_of(body, media_type, base_iri)
        if not keep_labels:
            labels = _labels_of(body, media_type) if part else frozenset()
            quads = _renamed(quads, f"{prefix}p{part}" if part else prefix, f"{prefix}x", labels)
        if graphs:
            quads = (Quad(q.subject, q.predicate, q.object, graph) for q in quads for graph in graphs)
        data: bytes = serialize(quads, format=RdfFormat.N_QUADS) or b""
    except (SyntaxError, ValueError) as error:
        raise InvalidRequest(f"MALFORMED DATA: the body is not {media_type}: {error}") from None
    return data.decode()


def prefix_of(txid: TxId) -> str:
    """Return the prefix of the labels of a transaction's blank nodes."""
    return "t" + hashlib.blake2b(txid.encode(), digest_size=8).hexdigest()


def _labels_of(body: bytes, media_type: str) -> frozenset[str] | None:
    """Return blank node labels of a Turtle-like text, and lookalikes, not the parser's labels for ``[]``. None: all are labels."""
    if FORMATS[media_type] in _OF_LINES:
        return None
    return frozenset(label.rstrip(".") for label in _LABEL.findall(body.decode()))


def _renamed(quads: Iterator[Quad], prefix: str, label_prefix: str, labels: frozenset[str] | None) -> Iterator[Quad]:
    """Rename blank nodes by their order; those with one of these labels (None: all) by the label."""
    names: dict[str, BlankNode] = {}

    def name_of(term: Any) -> Any:
        if isinstance(term, BlankNode) and (labels is None or term.value in labels):
            return BlankNode(f"{label_prefix}{term.value}")
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
        if isinstance(subject, NamedNode) and not isinstance(target, (BlankNode, Triple)) and not isinstance(graph, BlankNode):
            yield quad
        else:
            yield Quad(name_of(subject), quad.predicate, name_of(target), name_of(graph))


def contexts_of(values: Sequence[str]) -> list[Graph]:
    """Return the graphs of ``context`` parameters: ``null``, ``<iri>`` or ``_:label``, repeated or joined by commas."""
    graphs: list[Graph] = []
    for value in values:
        place = 0
        while place < len(value):
            found = _CONTEXT.match(value, place)
            if found is None or value[found.end() : found.end() + 1] not in {"", ","}:
                raise InvalidRequest(f"context {value!r} is not null, <iri> or _:label, or several of them with commas between")
            graphs.append(_graph(found[0]))
            place = found.end() + 1
    return graphs


def _graph(text: str) -> Graph:
    if text == NULL_CONTEXT:
        return DefaultGraph()
    return _quad(f"<urn:s> <urn:p> <urn:o> {text} .", f"context {text!r} is no IRI and no blank node").graph_name


def context_text(graph: Graph) -> str:
    """Return a graph in the form for reads."""
    return NULL_CONTEXT if isinstance(graph, DefaultGraph) else str(graph)


def term_of(name: str, text: str | None) -> str | None:
    """Return a term of a pattern (``subj``, ``pred``, ``obj``) in canonical N-Triples syntax. Raises InvalidRequest."""
    if text is None:
        return None
    problem = f'{name} is a term in N-Triples syntax, such as <iri>, _:label or "text", not {text!r}'
    if name == "subj":
        return str(_quad(f"{text} <urn:p> <urn:o> .", problem).subject)
    if name == "pred":
        return str(_quad(f"<urn:s> {text} <urn:o> .", problem).predicate)
    return str(_quad(f"<urn:s> <urn:p> {text} .", problem).object)


def base_iri_of(text: str | None) -> str | None:
    """Return ``baseURI``, which RDF4J writes with angle brackets and others without."""
    return text[1:-1] if text and text.startswith("<") and text.endswith(">") else text or None


def _quad(line: str, problem: str) -> Quad:
    refuse_deep_quads(line)
    try:
        quads: list[Quad] = list(parse(line.encode(), format=RdfFormat.N_QUADS))
    except (SyntaxError, ValueError):
        raise InvalidRequest(problem) from None
    if len(quads) != 1:
        raise InvalidRequest(problem)
    return quads[0]
