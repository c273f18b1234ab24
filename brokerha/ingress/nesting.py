r"""The nesting depth of brackets, found without recursion, before a recursive parser sees the text.

In a text that is no valid RDF or JSON a scanner can count too much, never too little: it skips brackets only where the parser is
sure to see a string, an IRI or a comment. The line formats are a separate case, because ``'`` opens no string there. A body with
fewer opening brackets than the limit is not scanned at all: nearly every one.

>>> depth_of_quads('<urn:s> <urn:p> <<( <urn:a> <urn:b> "<<( <<( <<(" )>> .')
1
>>> depth_of_turtle('<urn:s> <urn:p> ( 1 [ <urn:a> "[[[" ] ) . # [[[')
2
>>> depth_of_json('{"a": [1, "[[[", [2]]}')
3
"""

from __future__ import annotations

import re
from typing import Final

from brokerha.ingress.limits import DEPTH_LIMIT, PLAIN_BRACKETS, PLAIN_LIMIT_BYTES
from brokerha.model.errors import InvalidRequest

_IRI: Final = r'<[^<>"{}|^`\x00-\x20]*+>'
_COMMENT: Final = r"\#[^\r\n]*+"
_SHORT: Final = r'"(?:[^"\\\r\n]|\\.)*+"'
_LONG: Final = r'"""(?:"{0,2}(?:[^"\\]|\\.))*+"""' + r"|'''(?:'{0,2}(?:[^'\\]|\\.))*+'''"
_ESCAPED: Final = r"\\."
_QUADS: Final = re.compile(rf"(<<\(?)|(\)?>>)|{_IRI}|{_SHORT}|{_ESCAPED}|{_COMMENT}", re.DOTALL)
_TURTLE: Final = re.compile(
    rf"(<<\(?|[\[({{])|(\)?>>|[\])}}])|{_IRI}|{_LONG}|{_SHORT}|'(?:[^'\\\r\n]|\\.)*+'|{_ESCAPED}|{_COMMENT}", re.DOTALL
)
_BRACKETS: Final = re.compile(rb"<<|>>")
_JSON: Final = re.compile(r'([\[{])|([\]}])|"(?:[^"\\]|\\.)*+"', re.DOTALL)


def is_plain_data(text: str) -> bool:
    """Tell whether N-Quads are so short and flat that parsing them at once is safe."""
    return len(text) <= PLAIN_LIMIT_BYTES and text.count("<<") <= PLAIN_BRACKETS


def is_plain_request(text: str) -> bool:
    """Tell whether Turtle or SPARQL is so short and flat that parsing it at once is safe."""
    if len(text) > PLAIN_LIMIT_BYTES:
        return False
    return text.count("<<") + text.count("(") + text.count("[") + text.count("{") <= PLAIN_BRACKETS


def depth_of_quads(text: str) -> int:
    """Return the deepest nesting of triple terms in N-Triples or N-Quads."""
    return _depth(_QUADS, text)


def depth_of_turtle(text: str) -> int:
    """Return the deepest nesting of brackets in Turtle, TriG or N3."""
    return _depth(_TURTLE, text)


def depth_of_json(text: str) -> int:
    """Return the deepest nesting of lists and objects."""
    return _depth(_JSON, text)


def _depth(tokens: re.Pattern[str], text: str) -> int:
    depth = deepest = 0
    for match in tokens.finditer(text):
        kind = match.lastindex
        if kind == 1:
            depth += 1
            deepest = max(deepest, depth)
        elif kind == 2 and depth:
            depth -= 1
    return deepest


class Nesting:
    """The nesting of triple terms in a text that comes in pieces; counts brackets in strings as well."""

    def __init__(self) -> None:
        self._depth = 0
        self._rest = b""

    def feed(self, piece: bytes) -> None:
        """Raise InvalidRequest when it becomes too deep."""
        text, end = self._rest + piece, 0
        if b"<<" in text or self._depth:
            for bracket in _BRACKETS.finditer(text):
                end = bracket.end()
                self._depth = self._depth + 1 if bracket.group() == b"<<" else max(0, self._depth - 1)
                if self._depth > DEPTH_LIMIT:
                    raise InvalidRequest(f"triple terms are nested more than {DEPTH_LIMIT} deep: write them flat")
        # The first half of a bracket is kept for the next piece.
        self._rest = text[max(end, len(text) - 1) :] if text[-1:] in {b"<", b">"} else b""


def refuse_deep_quads(text: str) -> None:
    """Raise InvalidRequest when triple terms of N-Triples or N-Quads are nested too deep. Without any it costs only a search."""
    if text.count("<<") > DEPTH_LIMIT and depth_of_quads(text) > DEPTH_LIMIT:
        raise InvalidRequest(f"MALFORMED DATA: triple terms are nested more than {DEPTH_LIMIT} deep: write them flat")


def refuse_deep_turtle(text: str) -> None:
    """Raise InvalidRequest when brackets of Turtle, TriG or N3 are nested too deep."""
    brackets = text.count("<<") + text.count("[") + text.count("(") + text.count("{")
    if brackets > DEPTH_LIMIT and depth_of_turtle(text) > DEPTH_LIMIT:
        raise InvalidRequest(f"MALFORMED DATA: brackets are nested more than {DEPTH_LIMIT} deep: name the nodes between")


def refuse_deep_json(text: str) -> None:
    """Raise InvalidRequest when JSON is nested too deep."""
    if text.count("[") + text.count("{") > DEPTH_LIMIT and depth_of_json(text) > DEPTH_LIMIT:
        raise InvalidRequest(f"MALFORMED DATA: the JSON is nested more than {DEPTH_LIMIT} deep")
