"""Reads of an RDF repository: queries, statements, result formats and limits.

A result is evaluated and written at once in the calling thread. The engine's solutions must not change threads (that kills the
process), and an error in the middle must be an error, not half of an answer. The result is kept up to a limit and returned in
pieces. Only N-Triples and N-Quads of `statements` are written while the reader takes them (`stream.py`), for exports of all data.

The reserved graph stays invisible. No request can name it (`sparql/request.py`). Where a query could find it by itself (GRAPH ?g,
or a union of all graphs), the engine gets the list of the existing graphs.

The engine cannot be stopped while it computes; `may_go_on` is called whenever it writes, about every 8 KiB.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyoxigraph import (
    BlankNode,
    DefaultGraph,
    NamedNode,
    Quad,
    QueryBoolean,
    QueryResultsFormat,
    QuerySolutions,
    RdfFormat,
    Store,
    parse,
    serialize,
)

from brokerha.ingress.limits import refuse_deep_quads
from brokerha.model.errors import InvalidRequest, NotAcceptable, TimedOut, TooLarge
from brokerha.stores.rdf.errors import CANNOT_READ, engine_errors, is_of_files, store_error
from brokerha.stores.rdf.formats import BOOLEANS, QUADS, SOLUTIONS, TRIPLES, ResultFormat, check_results, choose, writable_triples
from brokerha.stores.rdf.stream import PIECE_BYTES, stream
from brokerha.stores.rdf.terms import SYSTEM_GRAPH, Graph
from brokerha.stores.sparql.request import QueryFacts, read_query, syntax_error
from brokerha.stores.sparql.tokens import MESSAGE_LIMIT, RESERVED
from brokerha.stores.sparql.unknown import failing

if TYPE_CHECKING:
    from typing_extensions import Buffer

RESULT_LIMIT_BYTES: Final = 64 * 1024 * 1024
Item = TypeVar("Item")
Answer = tuple[str, Iterator[bytes]]
"""Content type, and pieces of at most `PIECE_BYTES`."""
_QUAD_FORMATS: Final = frozenset({RdfFormat.N_QUADS, RdfFormat.TRIG, RdfFormat.JSON_LD})
_FORMATS: Final = {"SELECT": SOLUTIONS, "ASK": BOOLEANS, "CONSTRUCT": TRIPLES, "DESCRIBE": TRIPLES}
_NOT_IN_JSON_LD = "JSON-LD does not support RDF 1.2"
"""The engine's OSError for a triple term; it does not mean damage."""
_ESCAPED = re.compile(r"\\.")


@dataclass(frozen=True, slots=True)
class Dataset:
    """The dataset of a query, beside its own text."""

    default_graphs: tuple[str, ...] = ()
    """IRIs. If given, these and the next field replace FROM and FROM NAMED."""
    named_graphs: tuple[str, ...] = ()
    union_default_graph: bool = False
    """Whether the default graph is all graphs together, for a query without a dataset."""
    contexts: tuple[Graph, ...] = ()
    """If given, the query is evaluated as if there were no other graphs; FROM and FROM NAMED do not count."""

    def arguments(self, facts: QueryFacts, graphs: Iterable[Graph]) -> dict[str, Any]:
        """Return the dataset as arguments of the engine; `graphs` are the existing named graphs, also later on."""
        if self.default_graphs or self.named_graphs:
            return {
                "default_graph": [graph_of(iri) for iri in self.default_graphs],
                "named_graphs": [graph_of(iri) for iri in self.named_graphs],
            }
        if self.contexts:
            within = frozenset(self.contexts)
            named = _Late(lambda: [graph for graph in list(graphs) if graph in within])
            default = [graph for graph in self.contexts if isinstance(graph, DefaultGraph)]
            return {"default_graph": chain(default, named if self.union_default_graph else ()), "named_graphs": named}
        if facts.has_dataset:
            return {}
        arguments: dict[str, Any] = {}
        if self.union_default_graph:
            arguments["default_graph"] = _Late(lambda: [DefaultGraph(), *graphs])
        if facts.may_name_any_graph:
            arguments["named_graphs"] = _Late(lambda: list(graphs))
        return arguments


class _Late:
    """Graphs as they are when the engine asks for them: after it has parsed the query, and right before its snapshot.

    With an earlier list, a query could see the half of a commit that is in no new graph.
    """

    def __init__(self, found: Callable[[], list[Graph]]) -> None:
        self._found = found

    def __iter__(self) -> Iterator[Graph]:
        return iter(self._found())


@dataclass(frozen=True, slots=True)
class Pattern:
    """The quads that `statements` returns; None matches any term."""

    subject: NamedNode | BlankNode | None
    predicate: NamedNode | None
    value: Any
    graphs: tuple[Graph, ...]
    """Empty for all."""

    @classmethod
    def read(cls, subj: str | None, pred: str | None, obj: str | None, contexts: Sequence[str]) -> Pattern:
        """Read terms in N-Triples syntax. Raises InvalidRequest."""
        subject, predicate = _term(subj, "subj"), _term(pred, "pred")
        if subject is not None and not isinstance(subject, (NamedNode, BlankNode)):
            raise InvalidRequest(f"subj must be an IRI or a blank node, not {subj}"[:MESSAGE_LIMIT])
        if predicate is not None and not isinstance(predicate, NamedNode):
            raise InvalidRequest(f"pred must be an IRI, not {pred}"[:MESSAGE_LIMIT])
        graphs: list[Graph] = []
        for context in dict.fromkeys(contexts):
            graph = DefaultGraph() if context == "null" else _term(context, "context")
            if not isinstance(graph, (NamedNode, BlankNode, DefaultGraph)):
                raise InvalidRequest(f"context must be an IRI, a blank node or null, not {context}"[:MESSAGE_LIMIT])
            graphs.append(graph)
        return cls(subject, predicate, _term(obj, "obj"), tuple(graphs))


def query(
    store: Store,
    graphs: Iterable[Graph],
    text: str,
    accept: str | None,
    dataset: Dataset,
    may_go_on: Callable[[], bool],
    limit_bytes: int,
) -> Answer:
    """Evaluate a query. Raises InvalidRequest, NotAcceptable, TooLarge, TimedOut, StoreError."""
    facts = read_query(text)
    chosen = choose(_FORMATS[facts.kind], accept)
    arguments = dataset.arguments(facts, graphs)
    output = _Output(limit_bytes, may_go_on)
    try:
        _write(store.query(text, **arguments, custom_functions=failing(facts.unknown)), chosen, output)
    except SyntaxError as error:
        raise syntax_error(error, text, text) from None
    except (OSError, RuntimeError, ValueError) as error:
        if is_of_files(error):
            raise store_error(error, CANNOT_READ) from error
        raise InvalidRequest(f"the query cannot be evaluated: {error}"[:MESSAGE_LIMIT]) from None
    return chosen.media_type, output.pieces()


def matching(store: Store, pattern: Pattern) -> Iterator[Quad]:
    """Yield the matching quads. The iterators are opened here, under the caller's lock. Raises StoreError."""
    asked: tuple[Graph | None, ...] = pattern.graphs or (None,)
    with engine_errors(CANNOT_READ):
        opened = [
            store.quads_for_pattern(pattern.subject, pattern.predicate, pattern.value, graph)
            for graph in asked
            if graph != SYSTEM_GRAPH
        ]
    return readable(quad for quad in chain.from_iterable(opened) if quad.graph_name != SYSTEM_GRAPH)


def size(store: Store, graphs: Sequence[Graph]) -> int:
    """Return the number of quads in these graphs, at one moment. Raises StoreError."""
    default: list[Graph] = [graph for graph in graphs if isinstance(graph, DefaultGraph)]
    named = [graph for graph in graphs if not isinstance(graph, DefaultGraph) and graph != SYSTEM_GRAPH]
    with engine_errors(CANNOT_READ):
        # The engine counts twenty times as fast as Python takes quads. Without a limit a count never returns from a damaged table;
        # it leaves room for a commit meanwhile.
        most = 2 * len(store) + 100_000
        text = f"SELECT (COUNT(*) AS ?n) {{ SELECT * {{ {{ ?s ?p ?o }} UNION {{ GRAPH ?g {{ ?s ?p ?o }} }} }} LIMIT {most} }}"
        rows: Any = store.query(text, default_graph=default, named_graphs=named)
        return int(next(rows)[0].value)


def readable(items: Iterator[Item]) -> Iterator[Item]:
    """Yield the same items of the engine. Raises StoreDamaged, StoreError when it cannot read one."""
    with engine_errors(CANNOT_READ):
        yield from items


def spelled(line: str) -> str:
    """Return a line in the canonical spelling of RDF 1.1 N-Triples: of control characters it escapes only line feed and return.

    The engine also escapes tab, backspace and form feed, which means the same but differs from what others publish.
    """
    return _ESCAPED.sub(_unescaped, line) if "\\" in line else line


def _unescaped(escape: re.Match[str]) -> str:
    return {"\\t": "\t", "\\b": "\b", "\\f": "\f"}.get(escape[0], escape[0])


def statements(
    open_quads: Callable[[], Iterator[Quad]], accept: str | None, may_go_on: Callable[[], bool], limit_bytes: int
) -> Answer:
    """Write quads. Raises NotAcceptable, TooLarge, TimedOut, StoreError, also while the pieces are taken."""
    chosen = choose(QUADS, accept)
    if chosen.engine == RdfFormat.N_QUADS:
        return chosen.media_type, stream(lambda: (spelled(str(quad)) for quad in open_quads()), may_go_on)
    if chosen.engine == RdfFormat.N_TRIPLES:
        return chosen.media_type, stream(lambda: (spelled(str(quad.triple)) for quad in open_quads()), may_go_on)
    output = _Output(limit_bytes, may_go_on)
    quads = open_quads()
    wanted: Any = quads if chosen.engine in _QUAD_FORMATS else (quad.triple for quad in quads)
    _write(wanted, chosen, output)
    return chosen.media_type, output.pieces()


def written(results: Any, chosen: ResultFormat) -> Answer:
    """Return complete results in a format. Raises TooLarge."""
    output = _Output(RESULT_LIMIT_BYTES, lambda: True)
    _write(results, chosen, output)
    return chosen.media_type, output.pieces()


def _write(results: Any, chosen: ResultFormat, output: _Output) -> None:
    if isinstance(results, QueryBoolean) and chosen.engine is None:
        output.write(b"true" if results else b"false")
    elif isinstance(results, (QueryBoolean, QuerySolutions)) and isinstance(chosen.engine, QueryResultsFormat):
        results.serialize(output, format=chosen.engine)
        if chosen.engine == QueryResultsFormat.XML:
            check_results(output.getbuffer())
    elif isinstance(chosen.engine, RdfFormat):
        try:
            if chosen.engine == RdfFormat.RDF_XML:
                results = writable_triples(results)
            serialize(results, output, format=chosen.engine)
        except OSError as error:
            if _NOT_IN_JSON_LD not in str(error):
                raise
            raise NotAcceptable(
                f"the result holds triple terms or texts with a direction, which {chosen.media_type} cannot write: ask for text/turtle or application/n-quads"
            ) from None


class _Output(BytesIO):
    """A file for the engine: keeps the written bytes, up to a limit, while the client waits."""

    def __init__(self, limit_bytes: int, may_go_on: Callable[[], bool]) -> None:
        super().__init__()
        self._limit_bytes = limit_bytes
        self._may_go_on = may_go_on

    def write(self, data: Buffer, /) -> int:
        if self.tell() + len(memoryview(data)) > self._limit_bytes:
            raise TooLarge(f"the result is larger than {self._limit_bytes} bytes: ask for less, or use LIMIT and OFFSET")
        if not self._may_go_on():
            raise TimedOut("the query did not finish in its time")
        return super().write(data)

    def pieces(self) -> Iterator[bytes]:
        whole = self.getbuffer()
        return (bytes(whole[start : start + PIECE_BYTES]) for start in range(0, len(whole), PIECE_BYTES))


def graph_of(iri: str) -> NamedNode:
    """Return the graph of a reader's IRI. Raises InvalidRequest."""
    try:
        graph = NamedNode(iri)
    except ValueError as error:
        raise InvalidRequest(f"{iri!r} is no IRI of a graph: {error}"[:MESSAGE_LIMIT]) from None
    if iri.startswith(RESERVED):
        raise InvalidRequest(f"IRIs that begin with {RESERVED} are brokerha's own")
    return graph


def _term(text: str | None, name: str) -> Any:
    """Return the term of a text in N-Triples syntax; None for None."""
    if text is None:
        return None
    refuse_deep_quads(text)
    try:
        found = list(parse(f"<urn:s> <urn:p> {text} .".encode(), format=RdfFormat.N_TRIPLES))
    except (SyntaxError, UnicodeError) as error:
        problem = str(error).partition("\n")[0]
        raise InvalidRequest(f"{name} is no term in N-Triples syntax: {text}: {problem}"[:MESSAGE_LIMIT]) from None
    if len(found) != 1:
        raise InvalidRequest(f"{name} is not one term in N-Triples syntax: {text}"[:MESSAGE_LIMIT])
    return found[0].object
