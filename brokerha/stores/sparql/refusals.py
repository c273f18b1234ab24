"""Refused parts of SPARQL requests, wherever they are and however they are written.

    LOAD, SERVICE            they fetch over the network in the middle of a transaction: each site would get other data
    IRIs urn:brokerha:...    brokerha's own: the position of a repository, functions, labels in transit
    variables ?brokerha_...  brokerha's own

Comments and strings do not count. The engine's parser needs no space after a keyword: where it could find a keyword in a single
token of this module, the request is refused too.

An IRI relative to a BASE is not resolved here; other checks cover it: no reserved IRI is ever written (`check_not_reserved`), and
with a BASE the engine gets the list of graphs.
"""

from __future__ import annotations

import re
from typing import Final

from brokerha.model.errors import InvalidRequest
from brokerha.stores.sparql.tokens import IRI, PREFIXED, RESERVED, VARIABLE, WORD, Tokens

FRESH_FUNCTIONS: Final = frozenset({"NOW", "RAND", "UUID", "STRUUID", "BNODE"})
"""Functions with a different value at each call or on each site."""
_TOUCHING: Final = re.compile("(?:NOW|RAND|UUID|BNODE)$")


def refuse(tokens: Tokens) -> None:
    """Raise InvalidRequest for refused parts, and where the engine could find keywords that this module does not."""
    kinds, text = tokens.kinds, tokens.text
    prefixes: dict[str, str] = {}
    for index, kind in enumerate(kinds):
        if kind == WORD:
            _refuse_word(tokens, index)
        elif kind == IRI:
            iri = tokens.iri_of(index)
            if iri.startswith(RESERVED):
                raise tokens.malformed(index, f"IRIs that begin with {RESERVED} are brokerha's own")
            if index > 1 and tokens.word_of(index - 2) == "PREFIX":
                prefixes[tokens.text_of(index - 1)] = iri
        elif kind == PREFIXED:
            _refuse_prefixed(tokens, index, prefixes)
        elif kind == VARIABLE and text.startswith("brokerha_", tokens.starts[index] + 1):
            raise tokens.malformed(index, "variables that begin with brokerha_ are brokerha's own")


def _refuse_word(tokens: Tokens, index: int) -> None:
    word = tokens.word_of(index)
    if "SERVICE" in word or "LOAD" in word:
        name = "SERVICE" if "SERVICE" in word else "LOAD"
        raise _refused(tokens, index, name)
    if word == "DISTINCT" and tokens.text_of(index - 1) == "(" and tokens.kind_of(index - 2) in {IRI, PREFIXED}:
        raise tokens.malformed(index, "there is no aggregate that an IRI names: only COUNT, SUM and the like take DISTINCT")
    if word not in FRESH_FUNCTIONS and _TOUCHING.search(word) and tokens.text_of(index + 1) == "(":
        raise tokens.malformed(index, f"put a space before the name of the function in {word}")


def _refuse_prefixed(tokens: Tokens, index: int, prefixes: dict[str, str]) -> None:
    prefix, _, local = tokens.text_of(index).partition(":")
    # The engine reads SERVICE:x { as the keyword and the name :x.
    if "SERVICE" in prefix.upper() and tokens.text_of(index + 1) == "{":
        raise _refused(tokens, index, "SERVICE")
    start = prefixes.get(f"{prefix}:")
    if start is None and tokens.word_of(index - 1) != "PREFIX":
        # The engine reads FROMx:b as FROM x:b.
        raise tokens.malformed(index, f"the prefix {prefix}: is not declared; if it begins with a keyword, put a space after that")
    if start is not None and (start + local.replace("\\", "")).startswith(RESERVED):
        raise tokens.malformed(index, f"IRIs that begin with {RESERVED} are brokerha's own")


def _refused(tokens: Tokens, index: int, name: str) -> InvalidRequest:
    problem = f"{name} is refused: it fetches over the network, and each site would see something else"
    return tokens.malformed(index, f"{problem}; fetch the data first and send it")
