"""Results of queries as plain Python values.

    SELECT, ASK     `Solutions`, a list of dictionaries; a bool
    CONSTRUCT       `Triples`, a list of N-Triples lines

A term is an `Iri` or a `BlankNode`, which are text, or a `Literal`, which is a tuple of (text, datatype, language). Numbers stay
text, because ``01`` and ``1`` are different terms; `Literal.native` converts them.

>>> Literal("1", XSD + "integer").native()
1
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, NamedTuple

from brokerha.model.errors import ProtocolError
from brokerha.model.ids import Lsn
from brokerha.ports.front import ReadOutcome

XSD = "http://www.w3.org/2001/XMLSchema#"
RESULTS_JSON = "application/sparql-results+json"
N_TRIPLES = "application/n-triples"
ACCEPT = f"{RESULTS_JSON}, {N_TRIPLES};q=0.9"
"""One format for each kind of result; the form of the query selects it."""

_INTEGERS = frozenset(
    XSD + name
    for name in (
        "integer", "int", "long", "short", "byte", "nonNegativeInteger", "positiveInteger", "nonPositiveInteger",
        "negativeInteger", "unsignedLong", "unsignedInt", "unsignedShort", "unsignedByte",
    )
)  # fmt: skip


class Iri(str):
    """An IRI, without angle brackets."""

    __slots__ = ()


class BlankNode(str):
    """The label of a blank node, without ``_:``."""

    __slots__ = ()


class Literal(NamedTuple):
    """A literal; ``datatype`` is empty for plain text and for text in a language."""

    value: str
    datatype: str = ""
    language: str = ""

    def native(self) -> str | int | float | bool | Decimal:
        """Return a number or a truth value if the datatype says so, else the text. Raises ValueError for ill-typed text."""
        if self.datatype in _INTEGERS:
            return int(self.value)
        if self.datatype == XSD + "decimal":
            return Decimal(self.value)
        if self.datatype in {XSD + "double", XSD + "float"}:
            return float(self.value)
        if self.datatype == XSD + "boolean":
            return self.value in {"true", "1"}
        return self.value


Term = Iri | BlankNode | Literal
Solution = dict[str, Term | tuple[Any, ...]]


class _Aged:
    """Facts about the answer that a result came from."""

    raw: ReadOutcome
    """The unchanged answer."""

    @property
    def lsn(self) -> Lsn:
        """The LSN of the content, or an earlier one."""
        return self.raw.lsn

    @property
    def apart(self) -> str:
        """State word of the asked master if it could not agree with the others, else empty."""
        return self.raw.apart

    @property
    def stale_ms(self) -> int | None:
        """For how long an apart master had not been known to be up to date, as far as it knew."""
        return self.raw.stale_ms


class Solutions(_Aged, list[Solution]):
    """Rows of a SELECT: one dictionary each, without unbound variables."""

    def __init__(self, rows: list[Solution], variables: tuple[str, ...], raw: ReadOutcome) -> None:
        super().__init__(rows)
        self.variables = variables
        self.raw = raw


class Triples(_Aged, list[str]):
    """Lines of a CONSTRUCT or DESCRIBE, in N-Triples."""

    def __init__(self, raw: ReadOutcome) -> None:
        super().__init__(line for line in raw.body.decode().split("\n") if line)
        self.raw = raw


def parsed(outcome: ReadOutcome) -> Solutions | bool | Triples:
    """Return the value of a result requested with `ACCEPT`. Raises ProtocolError for another format."""
    kind = outcome.content_type.partition(";")[0]
    if kind == N_TRIPLES:
        return Triples(outcome)
    if kind != RESULTS_JSON:
        raise ProtocolError(f"asked for {ACCEPT}, got {outcome.content_type}")
    document = json.loads(outcome.body)
    if "boolean" in document:
        return bool(document["boolean"])
    rows = [{name: term_of(cell) for name, cell in row.items()} for row in document["results"]["bindings"]]
    return Solutions(rows, tuple(document["head"]["vars"]), outcome)


def term_of(cell: dict[str, Any]) -> Term | tuple[Any, ...]:
    """Return a term of a JSON result; a triple term is a tuple of its three terms."""
    kind, value = cell["type"], cell["value"]
    if kind == "uri":
        return Iri(value)
    if kind == "bnode":
        return BlankNode(value)
    if kind == "triple":
        return tuple(term_of(value[part]) for part in ("subject", "predicate", "object"))
    return Literal(value, cell.get("datatype", ""), cell.get("xml:lang", ""))
