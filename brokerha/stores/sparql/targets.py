"""The graphs that an operation or a query names: for rights by graph at a door (http/guard.py).

    INSERT DATA { GRAPH <urn:a> { ... } }                               changes urn:a
    WITH <urn:a> DELETE { ... } WHERE { ... GRAPH <urn:b> { ... } }     changes urn:a, reads urn:a and urn:b
    INSERT { GRAPH <urn:a> { ... } } USING <urn:b> WHERE { ... }        changes urn:a, reads urn:b: the engine sees to that
    DELETE { GRAPH ?g { ... } } WHERE { ... }                           can change any graph

Changed graphs come from the same templates and terms as those of the execution. A WHERE clause without USING can read any graph,
unless each GRAPH in it has an IRI, and nothing outside GRAPH reads a default graph that WITH does not name. A variable that has one
value only counts as any.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from pyoxigraph import DefaultGraph, NamedNode, Quad

from brokerha.model.errors import InvalidRequest
from brokerha.stores.rdf.change import read_nquads
from brokerha.stores.rdf.query import graph_of
from brokerha.stores.rdf.terms import Graph
from brokerha.stores.sparql.protocol import closing
from brokerha.stores.sparql.request import GRAPH_WORDS, Part, Request, prologue_end, read_update
from brokerha.stores.sparql.template import read_iri, read_plain_data, read_templates, variable_of
from brokerha.stores.sparql.tokens import IRI, PREFIXED, STRING, WORD, Tokens, tokenize

DEFAULT: Final = "default"
"""The name of the default graph, which no IRI can be; all other graphs have their IRI as name."""
_NAMES: Final = frozenset({IRI, PREFIXED})


class Targets(NamedTuple):
    """Names of graphs."""

    read: Sequence[str]
    changed: Sequence[str]
    reads_any: str
    """Why it can read others too; empty if it cannot."""
    changes_any: str
    """Why it can change others too; empty if it cannot."""


class _Found:
    """The targets found so far."""

    def __init__(self) -> None:
        self.read: set[str] = set()
        self.changed: set[str] = set()
        self.reads_any = self.changes_any = ""

    def change(self, quads: Iterable[Quad], home: Graph, *, is_delete: bool) -> None:
        """Add the graphs of quads or of a template; ``home`` is that of quads without GRAPH."""
        for quad in quads:
            graph = home if isinstance(quad.graph_name, DefaultGraph) else quad.graph_name
            if name := variable_of(graph):
                self.changes_any = f"GRAPH ?{name} can change any graph"
            if is_delete and isinstance(graph, DefaultGraph):
                self.changes_any = "DELETE without GRAPH or WITH changes all graphs where the default graph is the union of all"
            self.changed.add(name_of(graph))


def name_of(graph: Graph) -> str:
    """Return the name of a graph; that of a blank node is no IRI."""
    return DEFAULT if isinstance(graph, DefaultGraph) else graph.value if isinstance(graph, NamedNode) else str(graph)


def is_name(graph: str) -> bool:
    """Tell whether this names a graph that a user can be given: an absolute IRI, or the default graph."""
    try:
        return graph == DEFAULT or bool(graph_of(graph))
    except InvalidRequest:
        return False


def targets_of(kind: str, text: str) -> Targets:
    """Return the targets of an operation ``add``, ``remove`` or ``update``. Raises InvalidRequest."""
    found = _Found()
    if kind != "update":
        # A removed line without a graph is of the default graph itself, everywhere.
        found.change(read_nquads(text).values(), DefaultGraph(), is_delete=False)
    elif (plain := read_plain_data(text)) is not None:
        found.change(plain.quads.values(), DefaultGraph(), is_delete=not plain.is_insert)
    else:
        request = read_update(text)
        for part in request.parts:
            (_graph_operation if part.kind in GRAPH_WORDS else _quads)(request, part, found)
    return Targets(sorted(found.read), sorted(found.changed), found.reads_any, found.changes_any)


def dataset_of(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the IRIs of FROM, and of FROM NAMED, in a query. Raises InvalidRequest."""
    tokens = tokenize(text)
    request, part = Request(tokens, ()), Part("", (0, 0), f"{tokens.slice(0, prologue_end(tokens, 0))}\n")
    found: tuple[list[str], list[str]] = ([], [])
    for at in range(len(tokens)):
        if tokens.word_of(at) == "FROM":
            is_named = tokens.word_of(at + 1) == "NAMED"
            found[is_named].append(_iri(request, part, at + 1 + is_named))
    return tuple(found[0]), tuple(found[1])


def _iri(request: Request, part: Part, at: int) -> str:
    if request.tokens.kind_of(at) not in _NAMES:
        raise request.tokens.malformed(at, "expected an IRI")
    try:
        return read_iri(request, part, at).value
    except SyntaxError as error:
        raise request.tokens.malformed(at, str(error)) from None


def _graph_operation(request: Request, part: Part, found: _Found) -> None:
    names = [each if isinstance(each, str) else _iri(request, part, each) for each in part.graphs]
    for word in {"ALL", "NAMED"} & set(names):
        found.changes_any = f"{part.kind} {word} can change any graph"
    names = [DEFAULT if name == "DEFAULT" else name for name in names]
    if part.kind in {"ADD", "COPY"}:
        found.read.add(names.pop(0))
    found.changed.update(names)


def _quads(request: Request, part: Part, found: _Found) -> None:
    home: Graph = DefaultGraph() if part.with_graph is None else NamedNode(_iri(request, part, part.with_graph))
    templates = read_templates(request, part)
    found.change((each.quad for each in templates.delete), home, is_delete=True)
    found.change((each.quad for each in templates.insert), home, is_delete=False)
    if part.using[0] < part.using[1]:
        found.read.update(_iri(request, part, at) for at in range(*part.using) if request.tokens.kind_of(at) in _NAMES)
    elif part.kind == "MODIFY":
        if part.with_graph is not None:
            found.read.add(name_of(home))
        _read_by(request, part, found)


def _read_by(request: Request, part: Part, found: _Found) -> None:
    """Add the graphs that the WHERE clause of an operation without USING can read, beside that of WITH."""
    tokens = request.tokens
    first, last = part.where
    end_of_graph = first
    for at in range(first, last):
        if _may_be_graph(tokens, at):
            if tokens.word_of(at) != "GRAPH" or tokens.kind_of(at + 1) not in _NAMES or tokens.text_of(at + 2) != "{":
                written = f"{tokens.text_of(at)} {tokens.text_of(at + 1)}"
                found.reads_any = f"{written} in WHERE can read any graph: name those that it reads with USING and USING NAMED"
                return
            found.read.add(_iri(request, part, at + 1))
            end_of_graph = max(end_of_graph, closing(tokens, at + 2) + 1)
        elif at >= end_of_graph and part.with_graph is None and tokens.text_of(at) != ".":
            found.reads_any = "WHERE reads the default graph: name the graphs that it reads with USING, or put all of it into GRAPH"
            return


def _may_be_graph(tokens: Tokens, at: int) -> bool:
    """Tell whether the engine could find the keyword GRAPH here: it reads ``GRAPHx:b {`` as GRAPH x:b."""
    if tokens.kind_of(at) in {IRI, STRING} or "GRAPH" not in tokens.text_of(at).upper():
        return False
    return tokens.kind_of(at) == WORD or "{" in {tokens.text_of(at + 1), tokens.text_of(at + 2)}
