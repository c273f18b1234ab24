r"""SPARQL cut into tokens: just enough to find keywords, braces, names and variables reliably.

Strings, IRIs and comments can contain words that are not keywords, so these must be cut exactly. Other tokens must only be cut at
the same places as in the engine. SPARQL needs no space between two keywords, so ``FROMNAMED`` is cut into two. The engine's own
parser accepts less, but needs even fewer spaces: it reads ``SERVICE:x{`` as a keyword and a name. Where the two could disagree, the
text is refused with the advice to write a space. So an accepted text means the same to both.

Codepoint escapes (``\u0041``) are allowed in IRIs and strings only, as in the engine; anywhere else they are refused,
so that no keyword can hide behind them.

Tokens are kept as three arrays (9 bytes each), because a request of 8 MiB has more than a million of them.

    tokens = tokenize('SELECT * { ?s <urn:p> "}" }')
    [tokens.text_of(i) for i in range(len(tokens))]    ->  ['SELECT', '*', '{', '?s', '<urn:p>', '"}"', '}']
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Iterable
from functools import cache
from typing import Final

from brokerha.ingress.limits import DEPTH_LIMIT
from brokerha.model.errors import InvalidRequest

IRI: Final = 1
STRING: Final = 2
BLANK: Final = 3
VARIABLE: Final = 4
LANGUAGE: Final = 5
PREFIXED: Final = 6
NUMBER: Final = 7
WORD: Final = 8
SIGN: Final = 9
_UNKNOWN: Final = 10

RESERVED: Final = "urn:brokerha:"
"""Prefix of all of brokerha's own IRIs; no request can name one, no data can hold one."""

_BASE = (
    "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c-\u200d\u2070-\u218f\u2c00-\u2fef"
    "\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_FIRST = _BASE + "_"
_INNER = _FIRST + r"0-9\-\u00b7\u0300-\u036f\u203f-\u2040"
_ESCAPED = r"%[0-9A-Fa-f]{2}|\\[_~.\-!$&'()*+,;=/?\#@%]"
# Possessive, as prefixes and words are: a text without a colon is scanned once, not once for each dot in it.
_DOTTED = rf"[{_BASE}][{_INNER}]*+(?:\.++[{_INNER}]++)*+"
_CODEPOINT = r"\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8}"

_KEYWORD: Final = re.compile(
    "SELECT|DISTINCT|REDUCED|ASK|CONSTRUCT|DESCRIBE|FROM|NAMED|WHERE|USING|INSERT|DELETE|DATA|"
    "CLEAR|DROP|CREATE|ADD|MOVE|COPY|SILENT|GRAPH|DEFAULT|ALL|TO",
    re.IGNORECASE,
)
"""The keywords that can follow another one and that this package looks for."""
_KEYWORDS: Final = re.compile(f"(?:{_KEYWORD.pattern}){{2,}}", re.IGNORECASE)
_BACKSLASH: Final = re.compile(r"\\(.)")
_CODEPOINTS: Final = re.compile(_CODEPOINT)
_LOOKS_LIKE_COMPARISON: Final = re.compile(r"<[?$]|\(\)|&&")
CONSTANTS: Final = frozenset({IRI, STRING, BLANK, LANGUAGE, PREFIXED, NUMBER})
_OPERANDS: Final = frozenset({STRING, VARIABLE, LANGUAGE, PREFIXED, NUMBER})
_NESTING: Final = dict.fromkeys(("(", "[", "{", "<<(", "<<", "{|"), 1) | dict.fromkeys((")", "]", "}", ")>>", ">>", "|}"), -1)
MESSAGE_LIMIT: Final = 300


@cache
def _token() -> re.Pattern[str]:
    """Compile the pattern at the first text: with its wide classes it takes as long as all other imports of a store."""
    return re.compile(
        rf"""
        (?:[ \t\r\n]++|\#[^\r\n]*+)*+
        (?:
          (<(?!=)(?:[^<>"{{}}|^`\\\x00-\x20]|{_CODEPOINT})*+>)
        | (\"\"\"(?:\"{{0,2}}(?:[^"\\]|\\.))*+\"\"\"
          |'''(?:'{{0,2}}(?:[^'\\]|\\.))*+'''
          |"(?!"")(?:[^"\\\r\n]|\\.)*+"
          |'(?!'')(?:[^'\\\r\n]|\\.)*+')
        | (_:[{_FIRST}0-9][{_INNER}]*+(?:\.++[{_INNER}]++)*+)
        | ([?$][{_FIRST}0-9][{_FIRST}0-9\u00b7\u0300-\u036f\u203f-\u2040]*+)
        | (@[A-Za-z]++(?:-[A-Za-z0-9]++)*+(?:--[A-Za-z]++)?)
        | ((?:{_DOTTED})?+:(?:(?:[{_FIRST}:0-9]|{_ESCAPED})(?:[{_INNER}:]|{_ESCAPED})*+(?:\.++(?:[{_INNER}:]|{_ESCAPED})++)*+)?+)
        | ([0-9]++\.[0-9]*+[eE][+-]?[0-9]++|\.?[0-9]++[eE][+-]?[0-9]++|[0-9]*\.[0-9]++|[0-9]++)
        | ({_DOTTED})
        | (<<\(|\)>>|<<|>>|\{{\||\|\}}|\^\^|&&|\|\||!=|<=|>=|[{{}}()\[\].;,<>=!+\-*/|^?~])
        | (.)
        | \Z
        )
        """,
        re.VERBOSE | re.DOTALL,
    )


class Tokens:
    """The tokens of one text, by index, without comments and white space."""

    __slots__ = ("ends", "kinds", "starts", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.kinds = bytearray()
        self.starts = array("Q")
        self.ends = array("Q")

    def __len__(self) -> int:
        """Return the number of tokens."""
        return len(self.kinds)

    def text_of(self, index: int) -> str:
        """Return the token as written; empty after the end."""
        return self.text[self.starts[index] : self.ends[index]] if index < len(self.kinds) else ""

    def kind_of(self, index: int) -> int:
        """Return one of the kinds above; 0 after the end."""
        return self.kinds[index] if index < len(self.kinds) else 0

    def word_of(self, index: int) -> str:
        """Return the keyword at this index in capital letters; empty when it is not a word."""
        return self.text_of(index).upper() if self.kind_of(index) == WORD else ""

    def iri_of(self, index: int) -> str:
        """Return the inside of an IRI token with its codepoint escapes decoded."""
        inside = self.text_of(index)[1:-1]
        return _CODEPOINTS.sub(_decoded, inside) if "\\" in inside else inside

    def slice(self, first: int, last: int, edits: Iterable[tuple[int, str]] = ()) -> str:
        """Return the text from token `first` to before token `last`, including the text between tokens.

        `edits` are (token index, replacement), in order.
        """
        if first >= last:
            return ""
        pieces: list[str] = []
        place = self.starts[first]
        for index, instead in edits:
            pieces += (self.text[place : self.starts[index]], instead)
            place = self.ends[index]
        pieces.append(self.text[place : self.ends[last - 1]])
        return "".join(pieces)

    def malformed(self, index: int, problem: str) -> InvalidRequest:
        """Return the error for a fault at this token, with line and column."""
        place = self.starts[index] if index < len(self.kinds) else len(self.text)
        return malformed(self.text, place, problem)


def malformed(text: str, place: int, problem: str) -> InvalidRequest:
    """Return the error for a syntax fault at this character of the text."""
    line = text.count("\n", 0, place) + 1
    column = place - text.rfind("\n", 0, place)
    return InvalidRequest(f"MALFORMED QUERY: line {line}, column {column}: {problem}"[:MESSAGE_LIMIT])


def tokenize(text: str) -> Tokens:
    """Cut a text into tokens. Raises InvalidRequest where that is impossible or ambiguous."""
    _check_encodable(text)
    tokens = Tokens(text)
    kinds, starts, ends = tokens.kinds, tokens.starts, tokens.ends
    depth = parentheses = 0
    for match in _token().finditer(text):
        kind = match.lastindex
        if kind is None:
            break
        start, end = match.span(kind)
        if kind == SIGN:
            sign = text[start:end]
            depth += _NESTING.get(sign, 0)
            parentheses += (sign == "(") - (sign == ")")
            if depth > DEPTH_LIMIT:
                raise malformed(text, start, f"brackets are nested more than {DEPTH_LIMIT} deep")
        elif kind == IRI and parentheses > 0 and _may_be_comparison(tokens, text[start:end]):
            raise malformed(text, start, "unclear whether '<' compares or opens an IRI: put a space after it")
        elif kind == WORD and not text[start:end].isidentifier():
            raise malformed(text, start, f"no keyword and no prefixed name: {text[start:end][:50]}")
        elif kind == WORD and _KEYWORDS.fullmatch(text, start, end):
            for word in _KEYWORD.finditer(text, start, end):
                kinds.append(kind)
                starts.append(word.start())
                ends.append(word.end())
            continue
        elif kind == _UNKNOWN:
            raise malformed(text, start, f"unexpected {text[start]!r}")
        kinds.append(kind)
        starts.append(start)
        ends.append(end)
    return tokens


def in_full(text: str) -> str:
    """Return the request or query without PREFIX, so that texts of different origin can be joined. Raises InvalidRequest for
    BASE. Its syntax was checked before.

    >>> in_full("PREFIX x: <urn:x:> SELECT ?s { ?s x:p ?o }").strip()
    'SELECT ?s { ?s  <urn:x:p>  ?o }'
    """
    tokens = tokenize(text)
    prefixes: dict[str, str] = {}
    edits: list[tuple[int, str]] = []
    index = 0
    while index < len(tokens):
        word = tokens.word_of(index)
        if word in {"BASE", "VERSION"}:
            raise tokens.malformed(
                index, f"no {word} within a transaction or in a read of kind together: write IRIs in full or with PREFIX"
            )
        if word == "PREFIX" and tokens.kind_of(index + 2) == IRI:
            prefixes[tokens.text_of(index + 1)] = tokens.iri_of(index + 2)
            edits += [(index, ""), (index + 1, ""), (index + 2, "")]
            index += 3
            continue
        if tokens.kind_of(index) == PREFIXED:
            prefix, _, local = tokens.text_of(index).partition(":")
            local = _BACKSLASH.sub(r"\1", local)
            iri = f"<{prefixes[f'{prefix}:']}{local}>"
            # A space keeps ?a<x:b from becoming another token; after ^^ none is needed.
            edits.append((index, f"{iri} " if tokens.text_of(index - 1) == "^^" else f" {iri} "))
        index += 1
    return tokens.slice(0, len(tokens), edits)


def _check_encodable(text: str) -> None:
    """Raise InvalidRequest for half of a surrogate pair, which Python can hold and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise malformed(text, error.start, "not a character") from None


def _may_be_comparison(tokens: Tokens, body: str) -> bool:
    """Tell whether this could be ``?a<?b&&?c>?d``, where the longest match is an IRI and the engine sees a comparison."""
    before = len(tokens) - 1
    operand = tokens.kind_of(before) in _OPERANDS or tokens.text_of(before) == ")"
    return operand and _LOOKS_LIKE_COMPARISON.search(body) is not None


def _decoded(match: re.Match[str]) -> str:
    digits = match.group()[2:]
    code = int(digits, base=16)
    is_character = code <= sys.maxunicode and not 0xD800 <= code <= 0xDFFF
    return chr(code) if is_character else "\ufffd"
