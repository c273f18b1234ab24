"""Refuses content that XML cannot express before any of it is sent: the engine would write documents that no reader can parse.

Refused in each format:

    RDF/XML            predicates, and classes that become elements, whose IRI does not end in a name of XML; names that RDF/XML
                       reserves for its own syntax; characters that XML forbids
    results in XML     such characters
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

from pyoxigraph import NamedNode, Triple

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
