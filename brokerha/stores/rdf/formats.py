"""The result format for a reader: the formats of the engine, and the preference in an Accept header.

    choose(SOLUTIONS, "text/csv;q=0.5, application/sparql-results+json")    ->  JSON
    choose(SOLUTIONS, "*/*")                                                ->  the first of the list
    choose(GRAPHS, "image/png")                                             ->  NotAcceptable

The most specific range that matches a format gives its quality. Among equal qualities the order of the lists below decides.

Refuses content that XML cannot express before any of it is sent: the engine would write documents that no reader can parse.

Refused in each format:

    RDF/XML            predicates, and classes that become elements, whose IRI does not end in a name of XML; names that RDF/XML
                       reserves for its own syntax; characters that XML forbids
    results in XML     such characters
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from pyoxigraph import NamedNode, QueryResultsFormat, RdfFormat, Triple

from brokerha.model.errors import NotAcceptable

_START: Final = "A-Z_a-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c-\u200d\u2070-\u218f\u2c00-\u2fef\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
_NAME_AT_END: Final = re.compile(f"[{_START}][{_START}0-9.\\-\u00b7\u0300-\u036f\u203f-\u2040]*\\Z")
"""NCName of Namespaces in XML 1.0, third edition."""
_NOT_IN_XML: Final = re.compile("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\ufffe\\uffff]")
"""Characters that XML 1.0 forbids, among those that a literal can have."""
_NOT_IN_UTF8: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]|\xef\xbf[\xbe\xbf]")
"""The same in UTF-8; none of these bytes is part of another character."""
_RDF: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_TYPE: Final = f"{_RDF}type"
_XMLNS: Final = "http://www.w3.org/2000/xmlns/"
_SYNTAX: Final = frozenset(
    f"{_RDF}{name}"
    for name in (
        *("RDF", "ID", "about", "parseType", "resource", "nodeID", "datatype", "Description", "li"),
        *("aboutEach", "aboutEachPrefix", "bagID"),
    )
)
"""Names that the grammar of RDF/XML excludes as names of properties."""
_ELSE: Final = "ask for text/turtle or application/n-triples"


class ResultFormat(NamedTuple):
    """A format: its media type, and its name in the engine."""

    media_type: str
    engine: QueryResultsFormat | RdfFormat | None
    """None stands for the plain word true or false."""


SOLUTIONS: Final = (
    ResultFormat("application/sparql-results+json", QueryResultsFormat.JSON),
    ResultFormat("application/json", QueryResultsFormat.JSON),
    ResultFormat("application/sparql-results+xml", QueryResultsFormat.XML),
    ResultFormat("application/xml", QueryResultsFormat.XML),
    ResultFormat("text/csv", QueryResultsFormat.CSV),
    ResultFormat("text/tab-separated-values", QueryResultsFormat.TSV),
)
"""Formats for SELECT."""

BOOLEANS: Final = (*SOLUTIONS, ResultFormat("text/boolean", None))
"""Formats for ASK."""

TRIPLES: Final = (
    ResultFormat("application/n-triples", RdfFormat.N_TRIPLES),
    ResultFormat("text/turtle", RdfFormat.TURTLE),
    ResultFormat("application/n-quads", RdfFormat.N_QUADS),
    ResultFormat("application/trig", RdfFormat.TRIG),
    ResultFormat("application/rdf+xml", RdfFormat.RDF_XML),
    ResultFormat("application/ld+json", RdfFormat.JSON_LD),
    ResultFormat("application/x-turtle", RdfFormat.TURTLE),
    ResultFormat("text/x-nquads", RdfFormat.N_QUADS),
    ResultFormat("application/x-trig", RdfFormat.TRIG),
    ResultFormat("text/n3", RdfFormat.N3),
    ResultFormat("text/plain", RdfFormat.N_TRIPLES),
)
"""Formats for CONSTRUCT and DESCRIBE."""

QUADS: Final = (TRIPLES[2], *TRIPLES)
"""Formats for statements: the same, but the default format keeps the graphs."""


def choose(formats: Sequence[ResultFormat], accept: str | None) -> ResultFormat:
    """Return the format that the header prefers. Raises NotAcceptable, which names the available ones."""
    ranges = _ranges(accept or "*/*")
    best: ResultFormat | None = None
    best_quality = 0.0
    for candidate in formats:
        quality = _quality(candidate.media_type, ranges)
        if quality > best_quality:
            best, best_quality = candidate, quality
    if best is None:
        offered = ", ".join(dict.fromkeys(candidate.media_type for candidate in formats))
        raise NotAcceptable(f"no format for Accept: {(accept or '')[:200]}; there are {offered}")
    return best


def _ranges(accept: str) -> list[tuple[str, float]]:
    found = []
    for item in accept.split(","):
        media_range, *parameters = (piece.strip().lower() for piece in item.split(";"))
        if media_range:
            found.append((media_range, _quality_parameter(parameters)))
    return found


def _quality_parameter(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return min(max(float(value), 0.0), 1.0)
            except ValueError:
                return 0.0
    return 1.0


def _quality(media_type: str, ranges: list[tuple[str, float]]) -> float:
    kind = media_type.partition("/")[0]
    for wanted in (media_type, f"{kind}/*", "*/*"):
        qualities = [quality for media_range, quality in ranges if media_range == wanted]
        if qualities:
            return max(qualities)
    return 0.0


@lru_cache(1024)
def names_an_element(iri: str) -> bool:
    """Tell whether an IRI ends in an XML name, in a namespace that XML allows.

    >>> [names_an_element(iri) for iri in ("urn:p", "http://example.org/a-1", "urn:x:1a", "http://example.org/1", "http://example.org/")]
    [True, True, True, False, False]
    """
    return _NAME_AT_END.search(iri) is not None and not iri.startswith(_XMLNS)


def writable_triples(triples: Iterable[Any]) -> Iterator[Any]:
    """Yield the same triples. Raises NotAcceptable at the first one that RDF/XML cannot write."""
    subject = None
    for triple in triples:
        _check(triple, is_first=triple.subject != subject)
        subject = triple.subject
        yield triple


def _check(triple: Any, *, is_first: bool) -> None:
    """``is_first``: it is the first triple of its subject, so its class becomes the element."""
    predicate, value = triple.predicate.value, triple.object
    if isinstance(value, Triple):
        _check(value, is_first=True)
    is_class = is_first and predicate == _TYPE and isinstance(value, NamedNode)
    name = value.value if is_class else predicate
    if not names_an_element(name) or predicate in _SYNTAX:
        # The end of the predicate's IRI becomes the name of an element; http://example.org/1 leaves none.
        raise NotAcceptable(f"RDF/XML cannot name the {'class' if is_class else 'predicate'} {name[:200]!r} by an element: {_ELSE}")
    text = getattr(value, "value", "")
    if isinstance(text, str) and _NOT_IN_XML.search(text):
        raise NotAcceptable(f"a literal of {predicate[:200]!r} has a character that no XML may hold: {_ELSE}")


def check_results(document: memoryview) -> None:
    """Raise NotAcceptable for results in XML that no XML reader accepts."""
    if _NOT_IN_UTF8.search(document):
        raise NotAcceptable("a literal of the result has a character that no XML may hold: ask for application/sparql-results+json")
