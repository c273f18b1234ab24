"""Functions with a different value at each call, replaced by functions with the same values on every site.

NOW, RAND, UUID, STRUUID and BNODE in a WHERE clause become functions of this module, computed from a **seed** (of transaction id,
number of the operation, number of the part) and the transaction's timestamp:

    NOW()             the timestamp: one value for the whole transaction
    RAND() UUID() STRUUID()    hash(seed, place in the text, n) at the n-th call from that place
    BNODE()           a placeholder, new at each call; its final label comes from the solution that it ends up in
    BNODE("x")        a placeholder too, the same for equal strings in one solution

The engine on disk evaluates in an order that depends on the data only, so the n-th call is the same everywhere. Labels of blank
nodes do not depend on that order: they are hash(seed, solution, number of equal solutions before, name).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Final
from uuid import UUID

from pyoxigraph import BlankNode, Literal, NamedNode

from brokerha.model.ids import Timestamp, TxId
from brokerha.stores.rdf.terms import Function, Term
from brokerha.stores.sparql.refusals import FRESH_FUNCTIONS
from brokerha.stores.sparql.request import Span
from brokerha.stores.sparql.tokens import RESERVED, Tokens

_XSD: Final = "http://www.w3.org/2001/XMLSchema#"
_DATE_TIME: Final = NamedNode(f"{_XSD}dateTime")
_STRING: Final = NamedNode(f"{_XSD}string")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LABEL_DIGITS: Final = 31


def seed_of(txid: TxId, number: int, part: int) -> bytes:
    """Return the seed of all fresh values of one part of one operation."""
    return _hash(b"brokerha-1", txid.encode(), b"%d" % number, b"%d" % part)


def label_of(seed: bytes, *parts: str) -> str:
    """Return the label of a new blank node: 32 characters, `b` and 31 hexadecimal digits, which the engine stores as a number."""
    return "b" + _hash(seed, *(part.encode() for part in parts)).hex()[:_LABEL_DIGITS]


def now_literal(timestamp: Timestamp) -> Literal:
    """Return a timestamp, microseconds since 1970, as xsd:dateTime."""
    moment = _EPOCH + timedelta(microseconds=timestamp)
    return Literal(f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z", datatype=_DATE_TIME)


def _hash(*parts: bytes) -> bytes:
    framed = b"".join(b"%d:%s" % (len(part), part) for part in parts)
    return blake2b(framed, digest_size=16).digest()


class FreshFunctions:
    """The replacements for the calls in one WHERE clause."""

    def __init__(self, seed: bytes, timestamp: Timestamp) -> None:
        self.functions: dict[NamedNode, Function] = {}
        self.makes_blanks = False
        """Whether there is a BNODE call, so that solutions can hold placeholders."""
        self._seed = seed
        self._timestamp = timestamp
        self._space = f"{RESERVED}fresh:{seed.hex()}:"
        self._placeholder = f"p{seed.hex()}x"
        self._made = 0

    def rewrite(self, tokens: Tokens, span: Span) -> str:
        """Return the text of these tokens with calls of the replacements."""
        edits = []
        for index in range(*span):
            name = tokens.word_of(index)
            if name in FRESH_FUNCTIONS and tokens.text_of(index + 1) == "(":
                # The place counts from the beginning of the clause: the same text has the same values in any request.
                iri = NamedNode(f"{self._space}{index - span[0]}")
                self.functions[iri] = self._function(name, iri.value)
                edits.append((index, str(iri)))
        return tokens.slice(*span, edits)

    def is_placeholder(self, term: object) -> bool:
        """Tell whether a term is a blank node of BNODE without its final label."""
        return isinstance(term, BlankNode) and term.value.startswith(self._placeholder)

    def is_keyed(self, placeholder: str) -> bool:
        """Tell whether a placeholder came from BNODE with an argument: it is another node in each solution."""
        return placeholder.startswith("k", len(self._placeholder))

    def _function(self, name: str, place: str) -> Function:
        calls = 0

        def drawn() -> bytes:
            nonlocal calls
            calls += 1
            return _hash(self._seed, place.encode(), b"%d" % calls)

        def rand() -> Literal:
            return Literal((int.from_bytes(drawn()[:8], "big") >> 11) * 2.0**-53)

        def uuid() -> NamedNode:
            return NamedNode(f"urn:uuid:{UUID(bytes=drawn(), version=4)}")

        def struuid() -> Literal:
            return Literal(str(UUID(bytes=drawn(), version=4)))

        if name == "BNODE":
            self.makes_blanks = True
        now = now_literal(self._timestamp) if name == "NOW" else None
        functions: dict[str, Function] = {"NOW": lambda: now, "RAND": rand, "UUID": uuid, "STRUUID": struuid, "BNODE": self._bnode}
        return functions[name]

    def _bnode(self, *arguments: Term) -> BlankNode | None:
        if not arguments:
            self._made += 1
            return BlankNode(f"{self._placeholder}u{self._made}")
        key = arguments[0]
        if not isinstance(key, Literal) or key.datatype != _STRING:
            return None
        return BlankNode(f"{self._placeholder}k{_hash(key.value.encode()).hex()}")
