"""What RDF/XML cannot write: predicates whose IRI does not end in a name of XML, and characters that no XML document may hold.

A predicate becomes the name of an element, cut off from its IRI at the end; ``http://example.org/1`` and ``http://example.org/`` leave none. The
engine writes such a triple all the same, and nobody can read the document. So it is refused, before anything of it is sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

from brokerha.model.errors import NotAcceptable

_START: Final = "A-Z_a-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c-\u200d\u2070-\u218f\u2c00-\u2fef\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
_NAME_AT_END: Final = re.compile(f"[{_START}][{_START}0-9.\\-\u00b7\u0300-\u036f\u203f-\u2040]*\\Z")
"""NCName of Namespaces in XML 1.0, third edition."""
_NOT_IN_XML: Final = re.compile("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\ufffe\\uffff]")
"""Characters that XML 1.0 excludes, of those that a literal may have."""
_ELSE: Final = "ask for text/turtle or application/n-triples"


@lru_cache(1024)
def ends_in_name(iri: str) -> bool:
    """Whether an IRI ends in what XML takes for a name.

    >>> [ends_in_name(iri) for iri in ("urn:p", "http://example.org/a-1", "urn:x:1a", "http://example.org/1", "http://example.org/")]
    [True, True, True, False, False]
    """
    return _NAME_AT_END.search(iri) is not None


def writable_in_xml(triples: Iterable[Any]) -> Iterator[Any]:
    """The same triples. Raises NotAcceptable at the first one that RDF/XML cannot write."""
    for triple in triples:
        predicate = triple.predicate.value
        if not ends_in_name(predicate):
            raise NotAcceptable(
                f"RDF/XML cannot name the predicate {predicate[:200]!r}, whose IRI ends in no name of XML: {_ELSE}"
            )
        text = getattr(triple.object, "value", "")
        if isinstance(text, str) and _NOT_IN_XML.search(text):
            raise NotAcceptable(f"a literal of {predicate[:200]!r} has a character that no XML may hold: {_ELSE}")
        yield triple
