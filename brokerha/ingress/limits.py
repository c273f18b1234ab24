"""Limits of the ingress; each has a reason, and a refusal that names it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from brokerha.model.errors import InvalidRequest
from brokerha.model.invariants import invariant

DEPTH_LIMIT: Final = 100
"""Deepest nesting of brackets, elements and JSON. Parsers, terms and algebra of the engine recurse: at some hundred times that
depth (ten for SPARQL) they overflow the stack, which ends the process; before that, memory and time grow with its square."""
PLAIN_LIMIT_BYTES: Final = 32 * 1024
"""Longer input is not plain. Parsing this much takes about a millisecond, as much as passing it to a process."""
PLAIN_BRACKETS: Final = 16
"""Input with more opening brackets is not plain: the engine takes milliseconds for thirty nested collections."""
ENTITY_LIMIT_CHARS: Final = 1024
"""Longest value of an XML entity; ontologies use them for namespaces."""
ENTITIES_LIMIT: Final = 256
EXPANDED_LIMIT_BYTES: Final = 32 * 1024 * 1024
"""Highest total size of the expanded entities of one body."""


@dataclass(frozen=True, slots=True)
class ParserLimits:
    """Limits of a parser process for one body."""

    processes: int = 2
    """Most processes; a started one stays warm."""
    cpu_s: int = 5
    cpu_s_per_mib: int = 2
    """Processor time for a body, and for each MiB of it."""
    memory_bytes: int = 384 * 1024 * 1024
    memory_per_byte: int = 24
    """Memory beyond that of the process at its start, and per byte of the body: a parsed quad takes about 20 times its text."""
    wait_s: float = 20.0
    """Longest wait for a free process; then NotReady."""
    wall_factor: int = 6
    """Wall time as a multiple of the processor time, because the machine can be busy; then NotReady."""

    def check(self) -> None:
        """Check that the numbers are consistent."""
        invariant(min(self.processes, self.cpu_s, self.memory_bytes, self.wall_factor) > 0, "a parser may do something")

    def cpu_s_of(self, size_bytes: int) -> int:
        """Return the seconds of processor time for a body of this size."""
        return self.cpu_s + self.cpu_s_per_mib * size_bytes // (1024 * 1024)

    def memory_of(self, size_bytes: int) -> int:
        """Return the bytes of memory for a body of this size."""
        return self.memory_bytes + self.memory_per_byte * size_bytes


# ---- The nesting depth of brackets, found without recursion, before a recursive parser sees the text.
#
# In a text that is no valid RDF or JSON a scanner can count too much, never too little: it skips brackets only where the parser is
# sure to see a string, an IRI or a comment. The line formats are a separate case, because ``'`` opens no string there. A body with
# fewer opening brackets than the limit is not scanned at all: nearly every one.

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
    """Return the deepest nesting of triple terms in N-Triples or N-Quads.

    >>> depth_of_quads('<urn:s> <urn:p> <<( <urn:a> <urn:b> "<<( <<( <<(" )>> .')
    1
    """
    return _depth(_QUADS, text)


def depth_of_turtle(text: str) -> int:
    """Return the deepest nesting of brackets in Turtle, TriG or N3.

    >>> depth_of_turtle('<urn:s> <urn:p> ( 1 [ <urn:a> "[[[" ] ) . # [[[')
    2
    """
    return _depth(_TURTLE, text)


def depth_of_json(text: str) -> int:
    """Return the deepest nesting of lists and objects.

    >>> depth_of_json('{"a": [1, "[[[", [2]]}')
    3
    """
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
