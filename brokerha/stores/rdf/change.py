"""Net changes of quads, and N-Quads text in and out.

Outside the engine a quad is a **line**: its canonical N-Quads text without the final dot, as the engine writes it after it has
stored the quad. Two quads are equal if and only if their lines are, on every site and in all versions that can run together (the
version of the engine is pinned for that reason):

    <urn:a> <urn:p> "01"^^<http://www.w3.org/2001/XMLSchema#integer>    given
    <urn:a> <urn:p> "1"^^<http://www.w3.org/2001/XMLSchema#integer>     the line

A change is **net**: it names quads that existed and are gone, and quads that are new. Successive changes add up in
`PendingQuads`, where a line that is removed and added again leaves nothing.

IRIs that begin with ``urn:brokerha:`` are brokerha's own. No line of data can hold one: the engine keeps the position in such a
graph, and blank nodes travel as such IRIs inside update texts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from pyoxigraph import BlankNode, DefaultGraph, NamedNode, Quad, RdfFormat, Store, Triple, parse

from brokerha.ingress.limits import refuse_deep_quads
from brokerha.model.errors import InvalidRequest, StoreDamaged
from brokerha.model.invariants import invariant
from brokerha.stores.rdf.terms import Function, Term
from brokerha.stores.sparql.tokens import MESSAGE_LIMIT, RESERVED

_BLANK: Final = f"{RESERVED}blank:"
AS_BLANK: Final = NamedNode(f"{RESERVED}as-blank")


class QuadChange(NamedTuple):
    """The net change of an operation or a transaction: `removed` lines existed and are gone, `added` lines are new.

    Both hold canonical N-Quads lines without the final dot, sorted and without duplicates; they have no line in common.
    """

    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()


class PendingQuads:
    """A growing net change that is not in the engine yet.

    Invariant: the engine has the `removed` lines, and not the `added` lines; they are disjoint.
    """

    __slots__ = ("added", "removed")

    def __init__(self) -> None:
        self.removed: set[str] = set()
        self.added: set[str] = set()

    def __bool__(self) -> bool:
        """Tell whether there are any changes."""
        return bool(self.removed or self.added)

    def include(self, change: QuadChange) -> None:
        """Add a change, which is net relative to the engine with the pending changes so far."""
        for line in change.removed:
            if line in self.added:
                self.added.remove(line)
            else:
                self.removed.add(line)
        for line in change.added:
            if line in self.removed:
                self.removed.remove(line)
            else:
                self.added.add(line)

    def change(self) -> QuadChange:
        """Return all pending changes as one net change."""
        return QuadChange(tuple(sorted(self.removed)), tuple(sorted(self.added)))

    def copy(self) -> PendingQuads:
        """Return an independent copy, for a transaction that can be rejected."""
        twin = PendingQuads()
        twin.removed = set(self.removed)
        twin.added = set(self.added)
        return twin


def check_nquads(text: str) -> None:
    """Check the text of an ``add`` or ``remove`` operation at admission. Raises InvalidRequest: bad syntax, reserved IRI."""
    read_nquads(text)


def read_nquads(text: str) -> dict[str, Quad]:
    """Return the quads of a client's text, by line; labels of blank nodes are kept. Raises InvalidRequest."""
    refuse_deep_quads(text)
    try:
        quads = list(parse(text.encode(), format=RdfFormat.N_QUADS))
    except (SyntaxError, ValueError) as error:
        raise InvalidRequest(f"MALFORMED DATA: {_first_line(error)}"[:MESSAGE_LIMIT]) from None
    lines = canonical(quads)
    check_not_reserved(lines)
    return lines


def parse_lines(lines: Iterable[str]) -> list[Quad]:
    """Return the quads of canonical lines, in order. Raises StoreDamaged for malformed lines."""
    text = " .\n".join(lines)
    try:
        refuse_deep_quads(text)
        return list(parse(f"{text} .", format=RdfFormat.N_QUADS)) if text else []
    except (InvalidRequest, SyntaxError, ValueError) as error:
        raise StoreDamaged(f"this is no quad of the log: {_first_line(error)}"[:MESSAGE_LIMIT]) from None


def canonical(quads: Iterable[Quad]) -> dict[str, Quad]:
    """Return these quads by line, as the engine stores them: literals in their canonical form."""
    lines: dict[str, Quad] = {}
    raw = []
    for quad in quads:
        line = str(quad)
        # Only typed and language-tagged literals have more than one spelling.
        if '"^^' in line or '"@' in line:
            raw.append(quad)
        else:
            lines[line] = quad
    if raw:
        scratch = Store()
        scratch.extend(raw)
        for quad in scratch:
            lines[str(quad)] = quad
    return lines


def check_not_reserved(lines: dict[str, Quad]) -> None:
    """Raise InvalidRequest when one of these quads holds a reserved IRI."""
    for line, quad in lines.items():
        if RESERVED in line and any(map(_is_reserved, quad)):
            raise InvalidRequest(f"IRIs that begin with {RESERVED} are brokerha's own and may not be written")


def _is_reserved(term: object) -> bool:
    if isinstance(term, Triple):
        return any(map(_is_reserved, term))
    name = getattr(term, "datatype", term)
    return isinstance(name, NamedNode) and name.value.startswith(RESERVED)


def change_text(removed: Iterable[Quad], added: Iterable[Quad]) -> str:
    """Return SPARQL operations, each ended by ``;``, that remove and add exactly these quads, blank nodes by label.

    Run it with `AS_BLANK_FUNCTIONS`. DELETE DATA and INSERT DATA would make a fresh blank node for each label in a text. So quads
    with blank nodes go through VALUES and a function that returns the node of a label.
    """
    return _one_way("DELETE", removed) + _one_way("INSERT", added)


def _one_way(verb: str, quads: Iterable[Quad]) -> str:
    plain: list[str] = []
    rows: tuple[list[str], list[str]] = ([], [])
    for quad in quads:
        line = str(quad)
        graph = quad.graph_name
        is_default = isinstance(graph, DefaultGraph)
        if "_:" in line:
            terms = (quad.subject, quad.predicate, quad.object) if is_default else tuple(quad)
            rows[not is_default].append(f"({' '.join(map(as_iri, terms))})")
        else:
            plain.append(f"{quad.triple} ." if is_default else f"GRAPH {graph} {{ {quad.triple} }}")
    text = f"{verb} DATA {{\n" + "\n".join(plain) + "\n};\n" if plain else ""
    for has_graph, some in enumerate(rows):
        if some:
            text += _by_values(verb, some, has_graph=bool(has_graph))
    return text


def _by_values(verb: str, rows: list[str], *, has_graph: bool) -> str:
    template = "GRAPH ?g { ?s ?p ?o }" if has_graph else "?s ?p ?o"
    binds = f"BIND({AS_BLANK}(?a) AS ?s) BIND({AS_BLANK}(?c) AS ?o)"
    columns = "?a ?p ?c"
    if has_graph:
        binds += f" BIND({AS_BLANK}(?d) AS ?g)"
        columns += " ?d"
    values = "\n".join(rows)
    return f"{verb} {{ {template} }} WHERE {{ VALUES ({columns}) {{\n{values}\n}} {binds} }};\n"


def as_iri(term: object) -> str:
    """Return the term in a form for VALUES: a blank node becomes a reserved IRI for the function `AS_BLANK`."""
    if isinstance(term, BlankNode):
        return f"<{_BLANK}{term.value}>"
    if isinstance(term, Triple):
        return f"<<( {' '.join(map(as_iri, term))} )>>"
    return str(term)


def _as_blank(term: Term) -> Term:
    if isinstance(term, NamedNode) and term.value.startswith(_BLANK):
        return BlankNode(term.value[len(_BLANK) :])
    if isinstance(term, Triple):
        subject, predicate, value = map(_as_blank, term)
        invariant(isinstance(predicate, NamedNode), "the predicate of a triple term is an IRI")
        return Triple(subject, predicate, value)  # type: ignore[arg-type]
    return term


AS_BLANK_FUNCTIONS: Final[dict[NamedNode, Function]] = {AS_BLANK: _as_blank}


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
