"""SPARQL text without declarations: names in full instead of prefixes, so that texts of different origin fit into one.

>>> in_full("PREFIX x: <urn:x:> SELECT ?s { ?s x:p ?o }").strip()
'SELECT ?s { ?s  <urn:x:p>  ?o }'
"""

from __future__ import annotations

import re
from typing import Final

from brokerha.stores.sparql.tokens import IRI, PREFIXED, tokenize

_ESCAPED: Final = re.compile(r"\\(.)")


def in_full(text: str) -> str:
    """The same request or query without PREFIX. Its syntax was checked before. Raises InvalidRequest for BASE."""
    tokens = tokenize(text)
    prefixes: dict[str, str] = {}
    edits: list[tuple[int, str]] = []
    index = 0
    while index < len(tokens):
        word = tokens.word_of(index)
        if word in {"BASE", "VERSION"}:
            raise tokens.malformed(
                index,
                f"no {word} within a transaction or in a read of kind together: write IRIs in full or with PREFIX",
            )
        if word == "PREFIX" and tokens.kind_of(index + 2) == IRI:
            prefixes[tokens.text_of(index + 1)] = tokens.iri_of(index + 2)
            edits += [(index, ""), (index + 1, ""), (index + 2, "")]
            index += 3
            continue
        if tokens.kind_of(index) == PREFIXED:
            prefix, _, local = tokens.text_of(index).partition(":")
            local = _ESCAPED.sub(r"\1", local)
            iri = f"<{prefixes[f'{prefix}:']}{local}>"
            # A space keeps ?a<x:b from becoming another sign; after ^^ none is needed.
            edits.append((index, f"{iri} " if tokens.text_of(index - 1) == "^^" else f" {iri} "))
        index += 1
    return tokens.slice(0, len(tokens), edits)
