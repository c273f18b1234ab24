"""Quads between the braces of INSERT and DELETE, with variables and blank nodes to fill in.

Data blocks and templates of SPARQL are TriG except for three details: a dot before GRAPH can be missing, one after it is allowed,
and a collection can stand alone. So they are converted to TriG, with variables as reserved IRIs, and parsed as data. That keeps
the order of the text, which numbers blank nodes: `_:x`, `[]`, `( )` alike are n0, n1, ... in their order of appearance, on every
site.

    DELETE { ?s <urn:p> ?o } INSERT { ?s <urn:p> [ <urn:q> ?o ] }
        delete   ?s <urn:p> ?o
        insert   n0 <urn:q> ?o      ?s <urn:p> n0

Most updates are INSERT DATA or DELETE DATA without abbreviations; `read_plain_data` parses these without tokens. All others take
the long way. Both ways must agree on the meaning of a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Final, NamedTuple

from pyoxigraph import BlankNode, DefaultGraph, NamedNode, Quad, RdfFormat, Triple, parse

from brokerha.model.invariants import invariant
from brokerha.stores.rdf.change import canonical
from brokerha.stores.rdf.terms import Graph, Term
from brokerha.stores.sparql.request import Part, Request, Span
from brokerha.stores.sparql.tokens import RESERVED, VARIABLE, Tokens

_VARIABLE: Final = f"{RESERVED}variable:"
_NOTHING: Final = NamedNode(f"{RESERVED}nothing")
_IRI = r"<[^<>\"{}|^`\\\x00-\x20]++>"
# Without dots, escapes and second colons: the rest means the same in SPARQL and TriG, whatever is next to it.
_SHORT = r"[A-Za-z][A-Za-z0-9_-]*+:[A-Za-z0-9_][A-Za-z0-9_-]*+(?![.]?[\w:%\\-])|:[A-Za-z0-9_][A-Za-z0-9_-]*+(?![.]?[\w:%\\-])"
_NAME = rf"(?:{_IRI}|{_SHORT})"
_STRING = r'"(?!"")(?:[^"\\\r\n]|\\[tbnrf"\'\\])*+"'
_LITERAL = rf"{_STRING}(?:\^\^{_NAME}|@[A-Za-z]++(?:-[A-Za-z0-9]++)*+(?!-))?+"
_VALUE = rf"(?:{_NAME}|{_LITERAL}|[+-]?+[0-9]++(?:\.[0-9]++)?+(?![eE\w])|(?:true|false)(?![\w:.-]))"
_VERB = rf"(?:{_NAME}|a(?![\w:.-]))"
_VERB_AND_VALUES = rf"{_VERB}\s*+{_VALUE}(?:\s*+,\s*+{_VALUE})*+"
_ABOUT_ONE = rf"{_NAME}\s*+{_VERB_AND_VALUES}(?:\s*+;\s*+{_VERB_AND_VALUES})*+"


@cache
def _plain() -> re.Pattern[str]:
    return re.compile(
        rf"((?:\s*+(?i:PREFIX)\s++(?:[A-Za-z][A-Za-z0-9_-]*+)?+:\s*+{_IRI})*+)"
        rf"\s*+((?i:INSERT|DELETE))\s++(?i:DATA)\s*+\{{\s*+(?:((?i:GRAPH)\s*+{_NAME}\s*+)\{{\s*+)?+"
        rf"({_ABOUT_ONE}(?:\s*+\.\s*+{_ABOUT_ONE})*+)\s*+\.?+\s*+(?(3)\}}\s*+\.?+\s*+)\}}\s*+;?+\s*+\Z",
        re.ASCII,
    )


class PlainData(NamedTuple):
    """An INSERT DATA or DELETE DATA without blank nodes: quads by line."""

    is_insert: bool
    quads: dict[str, Quad]


class Templates(NamedTuple):
    """The quads of one operation as written; constants are canonical, variables and blank nodes are open."""

    delete: tuple[QuadTemplate, ...]
    insert: tuple[QuadTemplate, ...]
    variables: tuple[str, ...]
    """Names of the variables in both, sorted."""
    blanks: tuple[str, ...]
    """Names n0, n1, ... of the blank nodes to make for each solution."""


def read_plain_data(text: str) -> PlainData | None:
    """Return the quads of the plainest and most common update; None when the text needs the long way."""
    found = _plain().match(text)
    if found is None or RESERVED in text:
        return None
    prologue, verb, graph, triples = found.groups()
    data = f"{graph}{{{triples}}}" if graph else f"{triples} ."
    try:
        quads = parse(f"{prologue}\n{data}".encode(), format=RdfFormat.TRIG)
        return PlainData(verb[0] in "Ii", canonical(quads))
    except (SyntaxError, UnicodeError):
        return None  # The long way finds the same fault and its place.


def read_templates(request: Request, part: Part) -> Templates:
    """Return the templates, or the data, of one operation. Raises InvalidRequest."""
    blanks: dict[str, str] = {}
    delete = _read_quads(request.tokens, part.delete, part.prologue, blanks)
    if blanks:
        raise request.tokens.malformed(part.delete[0], "blank nodes are not allowed where quads are deleted")
    insert = _read_quads(request.tokens, part.insert, part.prologue, blanks)
    templates = [tuple(map(QuadTemplate, quads)) for quads in (delete, insert)]
    variables = sorted({name for quads in templates for quad in quads for name in quad.variables()})
    return Templates(templates[0], templates[1], tuple(variables), tuple(blanks.values()))


def read_iri(request: Request, part: Part, index: int) -> NamedNode:
    """Return the IRI of a token at this operation."""
    text = f"{part.prologue}{request.tokens.text_of(index)} {_NOTHING} {_NOTHING} ."
    quad = next(iter(parse(text, format=RdfFormat.TRIG)))
    iri = quad.subject
    if not isinstance(iri, NamedNode) or iri.value.startswith(RESERVED):
        raise request.tokens.malformed(index, f"IRIs that begin with {RESERVED} are brokerha's own")
    return iri


class QuadTemplate:
    """One quad with open variables and blank nodes."""

    __slots__ = ("quad",)

    def __init__(self, quad: Quad) -> None:
        self.quad = quad

    def variables(self) -> Iterable[str]:
        """Return the names of its variables."""
        return _variables(tuple(self.quad))

    def fill(self, values: Mapping[str, Term | None], blank: Callable[[str], BlankNode], default_graph: Graph) -> Quad | None:
        """Return the quad for these values; None when a variable is unbound or a term is not allowed in its place."""
        quad = self.quad
        subject = _fill(quad.subject, values, blank)
        predicate = _fill(quad.predicate, values, blank)
        value = _fill(quad.object, values, blank)
        graph = default_graph
        if not isinstance(quad.graph_name, DefaultGraph):
            filled = _fill(quad.graph_name, values, blank)
            if not isinstance(filled, (NamedNode, BlankNode)):
                return None
            graph = filled
        if value is None or not isinstance(predicate, NamedNode) or not isinstance(subject, (NamedNode, BlankNode)):
            return None
        return Quad(subject, predicate, value, graph)

    def named(self, label: Callable[[str], str]) -> Quad:
        """Return the quad of a data block, which has no variables, with labels for its blank nodes."""
        quad = self.fill({}, lambda name: BlankNode(label(name)), DefaultGraph())
        invariant(quad is not None, "a quad of a data block is complete", quad=self.quad)
        return quad or self.quad

    def text(self, names: Callable[[str], str]) -> str:
        """Return the template as SPARQL; `names` gives the variable for a variable or a blank node."""
        subject, predicate, value, graph = (_text(term, names) for term in tuple(self.quad))
        triple = f"{subject} {predicate} {value}"
        return f"{triple} ." if isinstance(self.quad.graph_name, DefaultGraph) else f"GRAPH {graph} {{ {triple} }}"


def _fill(term: Term, values: Mapping[str, Term | None], blank: Callable[[str], BlankNode]) -> Term | None:
    if isinstance(term, NamedNode):
        name = term.value
        return values.get(name[len(_VARIABLE) :]) if name.startswith(_VARIABLE) else term
    if isinstance(term, BlankNode):
        return blank(term.value)
    if isinstance(term, Triple):
        subject = _fill(term.subject, values, blank)
        predicate = _fill(term.predicate, values, blank)
        value = _fill(term.object, values, blank)
        if value is None or not isinstance(predicate, NamedNode) or not isinstance(subject, (NamedNode, BlankNode)):
            return None
        return Triple(subject, predicate, value)
    return term


def _text(term: object, names: Callable[[str], str]) -> str:
    if isinstance(term, NamedNode) and term.value.startswith(_VARIABLE):
        return names(term.value[len(_VARIABLE) :])
    if isinstance(term, BlankNode):
        return names(f"_:{term.value}")
    if isinstance(term, Triple):
        return f"<<( {' '.join(_text(inner, names) for inner in term)} )>>"
    return str(term)


def variable_of(term: object) -> str:
    """The name of the variable that this term of a template stands for; empty for another term."""
    return term.value[len(_VARIABLE) :] if isinstance(term, NamedNode) and term.value.startswith(_VARIABLE) else ""


def _variables(terms: Iterable[object]) -> Iterable[str]:
    for term in terms:
        if name := variable_of(term):
            yield name
        elif isinstance(term, Triple):
            yield from _variables(term)


def _read_quads(tokens: Tokens, span: Span, prologue: str, blanks: dict[str, str]) -> list[Quad]:
    """Return the quads of a span in canonical form; continues the numbers of blank nodes in `blanks`."""
    if span[0] >= span[1]:
        return []
    text = prologue + _as_trig(tokens, span)
    try:
        quads = list(parse(text, format=RdfFormat.TRIG))
    except SyntaxError as error:
        problem = str(error).partition("\n")[0]
        raise tokens.malformed(span[0], f"in the braces that open here: {problem}") from None
    numbered = []
    for quad in quads:
        subject, predicate, value, graph = (_number(term, blanks) for term in tuple(quad))
        if _NOTHING not in {subject, predicate}:
            numbered.append(Quad(subject, predicate, value, graph))  # type: ignore[arg-type]
    return list(canonical(numbered).values())


def _number(term: object, blanks: dict[str, str]) -> object:
    if isinstance(term, BlankNode):
        return BlankNode(blanks.setdefault(term.value, f"n{len(blanks)}"))
    if isinstance(term, Triple):
        subject, predicate, value = (_number(inner, blanks) for inner in term)
        return Triple(subject, predicate, value)  # type: ignore[arg-type]
    return term


def _as_trig(tokens: Tokens, span: Span) -> str:
    """Return the inside of the braces as TriG."""
    edits: list[tuple[int, str]] = []
    first, last = span
    before = "."
    open_brackets: list[int] = []
    for index in range(first, last):
        sign = tokens.text_of(index)
        word = tokens.word_of(index)
        if tokens.kind_of(index) == VARIABLE:
            edits.append((index, f"<{_VARIABLE}{sign[1:]}>"))
        elif word == "GRAPH" and before not in {".", "}"}:
            edits.append((index, f". {sign}"))
        elif sign == "." and before == "}":
            edits.append((index, ""))
        elif sign in {"(", "["}:
            open_brackets.append(index if before in {".", "{", "}"} else -1)
        elif sign in {")", "]"}:
            opened = open_brackets.pop() if open_brackets else -1
            following = tokens.text_of(index + 1) if index + 1 < last else "}"
            if sign == ")" and opened >= 0 and (following in {".", "}"} or tokens.word_of(index + 1) == "GRAPH"):
                edits.append((index, f") {_NOTHING} {_NOTHING}"))
        before = sign
    return f"{tokens.slice(first, last, edits)}\n{'' if before in {'.', '}'} else '.'}"
