"""A read of a repository in the form that an update can evaluate, for states that exist only in a transaction of the engine.

    SELECT ?s { ?s ?p ?o }     DELETE { } INSERT { } WHERE { { SELECT ?s { ?s ?p ?o } } BIND(<report>(?s) AS ?brokerha_reported) }

The engine passes each row to a function of this module. After the update (repository.py), `answer` turns the rows into the answer
of the plain read. DESCRIBE has no such form and is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from pyoxigraph import (
    BlankNode,
    DefaultGraph,
    Literal,
    NamedNode,
    Quad,
    QueryResultsFormat,
    QuerySolutions,
    Store,
    Triple,
    parse_query_results,
)

from brokerha.model.errors import InvalidRequest, TimedOut, TooLarge
from brokerha.stores.rdf import query as rdf_query
from brokerha.stores.rdf.change import AS_BLANK, AS_BLANK_FUNCTIONS, as_iri
from brokerha.stores.rdf.formats import BOOLEANS, QUADS, SOLUTIONS, TRIPLES, choose
from brokerha.stores.rdf.query import RESULT_LIMIT_BYTES, Answer, Pattern
from brokerha.stores.rdf.terms import REPORTED, Function, Term, bound, report_function, reporting_clause
from brokerha.stores.sparql.protocol import check_query
from brokerha.stores.sparql.request import QueryFacts, read_query
from brokerha.stores.sparql.tokens import VARIABLE, Tokens, in_full, tokenize
from brokerha.stores.sparql.unknown import failing

ROWS_LIMIT: Final = 2_000_000

Row = tuple[Term | None, ...]
Finish = Callable[[list[Row]], Answer]


class Question:
    """One read, and the rows that the engine reported for it."""

    def __init__(self, query: str, names: Sequence[str], finish: Finish, using: str = "", facts: QueryFacts | None = None) -> None:
        """``query`` is a SELECT with these variables; ``finish`` turns its rows into the answer; ``using`` is the dataset.

        ``facts`` are those of the client's query text, if there is one.
        """
        self.is_query = facts is not None
        """Whether it is a SPARQL text; other reads separate the default graph from named graphs themselves."""
        self._unknown = facts.unknown if facts is not None else ()
        self._query = query
        self._names = names
        self._finish = finish
        self._using = using
        self._rows: list[Row] = []
        self._size_bytes = 0
        self._fault: Exception | None = None
        self._may_go_on: Callable[[], bool] = lambda: True

    def text(self, number: int, using: str = "") -> str:
        """Return the operation for the engine; ``number`` identifies it among those in the same text.

        ``using`` is the dataset if the question names none itself.
        """
        clause = reporting_clause(self._query, self._names, ROWS_LIMIT + 1, report_function(number))
        return f"DELETE {{ }} INSERT {{ }}\n{self._using or using}\nWHERE {clause};\n"

    def functions(self, number: int, may_go_on: Callable[[], bool]) -> dict[NamedNode, Function]:
        """Return the functions that the text calls."""
        self._may_go_on = may_go_on
        return {**failing(self._unknown), report_function(number): self._take}

    def answer(self) -> Answer:
        """Return the answer after the text was run. Raises TooLarge, TimedOut, InvalidRequest, NotAcceptable."""
        if self._fault is not None:
            raise self._fault
        return self._finish(self._rows)

    def _take(self, *terms: Term) -> Literal | None:
        # The engine treats an error in here as an unbound value and goes on.
        if self._fault is not None:
            return None
        self._size_bytes += sum(len(str(term)) for term in terms)
        if self._size_bytes > RESULT_LIMIT_BYTES or len(self._rows) >= ROWS_LIMIT:
            self._fault = TooLarge(
                f"the result has more than {RESULT_LIMIT_BYTES} bytes or {ROWS_LIMIT} rows: ask for less, or use LIMIT and OFFSET"
            )
        elif not self._may_go_on():
            self._fault = TimedOut("the query did not finish in its time")
        else:
            self._rows.append(bound(terms))
            return REPORTED
        self._rows.clear()
        return None


def query_question(text: str, accept: str | None, default_graphs: Sequence[str], named_graphs: Sequence[str]) -> Question:
    """Return a read of kind ``query``. Raises InvalidRequest, NotAcceptable."""
    check_query(text)
    facts = read_query(text)
    kind = facts.kind
    if kind == "DESCRIBE":
        raise InvalidRequest("DESCRIBE cannot be evaluated within a transaction or in a read of kind together: use CONSTRUCT")
    tokens = tokenize(in_full(text))
    edits, using = _without_dataset(tokens)
    if default_graphs or named_graphs:
        using = "".join(f"USING {rdf_query.graph_of(iri)}\n" for iri in default_graphs)
        using += "".join(f"USING NAMED {rdf_query.graph_of(iri)}\n" for iri in named_graphs)
    if kind == "SELECT":
        chosen = choose(SOLUTIONS, accept)
        solutions = Store().query(text, custom_functions=failing(facts.unknown))
        names = [each.value for each in solutions.variables] if isinstance(solutions, QuerySolutions) else []
        return Question(
            tokens.slice(0, len(tokens), edits),
            names,
            lambda rows: rdf_query.written(_solutions(names, rows), chosen),
            using,
            facts,
        )
    if kind == "ASK":
        chosen = choose(BOOLEANS, accept)
        inner = f"SELECT (1 AS ?brokerha_any) {tokens.slice(1, len(tokens), edits)}"
        return Question(
            f"SELECT (1 AS ?brokerha_found) {{ {{ {inner}\n}} }} LIMIT 1",
            ["brokerha_found"],
            lambda rows: rdf_query.written(_boolean(is_true=bool(rows)), chosen),
            using,
            facts,
        )
    return _construct(tokens, edits, using, accept, facts)


def statements_question(pattern: Pattern, accept: str | None) -> Question:
    """Return a read of kind ``statements``. Raises NotAcceptable."""
    choose(QUADS, accept)

    def finish(rows: list[Row]) -> Answer:
        quads = [_quad(row) for row in rows]
        return rdf_query.statements(lambda: iter(quads), accept, lambda: True, RESULT_LIMIT_BYTES)

    return Question(f"SELECT ?s ?p ?o ?g {{ {_matching(pattern)} }}", ["s", "p", "o", "g"], finish)


def size_question(contexts: Sequence[str]) -> Question:
    """Return a read of kind ``size``."""
    clause = _matching(Pattern.read(None, None, None, contexts))

    def finish(rows: list[Row]) -> Answer:
        return "text/plain", iter([_text_of(rows[0][0]).encode()])

    return Question(f"SELECT (COUNT(*) AS ?n) {{ {clause} }}", ["n"], finish)


def contexts_question(as_json: Callable[[list[str]], Answer]) -> Question:
    """Return a read of kind ``contexts``."""

    def finish(rows: list[Row]) -> Answer:
        return as_json(sorted(str(row[0]) for row in rows))

    return Question("SELECT DISTINCT ?g { GRAPH ?g { } FILTER EXISTS { GRAPH ?g { ?s ?p ?o } } }", ["g"], finish)


def _construct(tokens: Tokens, edits: list[tuple[int, str]], using: str, accept: str | None, facts: QueryFacts) -> Question:
    chosen = choose(TRIPLES, accept)
    first = next(index for index in range(len(tokens)) if tokens.text_of(index) == "{")
    last, depth = first, 0
    while True:
        depth += (tokens.text_of(last) == "{") - (tokens.text_of(last) == "}")
        if not depth:
            break
        last += 1
    inside = range(first + 1, last)
    template = tokens.slice(first + 1, last)
    # CONSTRUCT WHERE { pattern } has one pair of braces for template and pattern.
    rest = tokens.slice(last + 1 if first == 1 else 1, len(tokens), edits)
    names = list(dict.fromkeys(tokens.text_of(at)[1:] for at in inside if tokens.kind_of(at) == VARIABLE))
    wanted = " ".join(f"?{name}" for name in names) or "(1 AS ?brokerha_found)"

    def finish(rows: list[Row]) -> Answer:
        return rdf_query.written(_over(f"CONSTRUCT {{ {template} }}", names, rows), chosen)

    return Question(f"SELECT {wanted} {rest}", names or ["brokerha_found"], finish, using, facts)


def _without_dataset(tokens: Tokens) -> tuple[list[tuple[int, str]], str]:
    """Return the edits that remove FROM clauses, and the same dataset as USING clauses."""
    edits: list[tuple[int, str]] = []
    using = ""
    for index in range(len(tokens)):
        if tokens.word_of(index) == "FROM":
            is_named = tokens.word_of(index + 1) == "NAMED"
            last = index + 1 + is_named
            edits += [(at, "") for at in range(index, last + 1)]
            using += f"USING {'NAMED ' if is_named else ''}{tokens.text_of(last)}\n"
    return edits, using


def _matching(pattern: Pattern) -> str:
    """Return a graph pattern that binds ?s ?p ?o ?g for each matching quad; ?g is unbound in the default graph."""
    ends = ((pattern.subject, "s"), (pattern.predicate, "p"), (pattern.value, "o"))
    places = [f"?{name}" if term is None or _has_blank(term) else str(term) for term, name in ends]
    before = "".join(_bind(term, name) for term, name in ends if term is not None and _has_blank(term))
    after = "".join(_bind(term, name) for term, name in ends if term is not None and not _has_blank(term))
    triple = f"{before}{' '.join(places)} {after}"
    if not pattern.graphs:
        return f"{{ {triple} }} UNION {{ GRAPH ?g {{ {triple} }} }}"
    return " UNION ".join(f"{{ {_in_graph(graph, triple)} }}" for graph in pattern.graphs)


def _in_graph(graph: Any, triple: str) -> str:
    if isinstance(graph, DefaultGraph):
        return triple
    if _has_blank(graph):
        return f"{_bind(graph, 'g')} GRAPH ?g {{ {triple} }}"
    return f"GRAPH {graph} {{ {triple} }} {_bind(graph, 'g')}"


def _has_blank(term: Any) -> bool:
    return "_:" in str(term)


def _bind(term: Any, name: str) -> str:
    """Return a clause that binds a variable to this value; a function makes a blank node."""
    return f"BIND({AS_BLANK}({as_iri(term)}) AS ?{name}) " if _has_blank(term) else f"BIND({term} AS ?{name}) "


def _over(form: str, names: list[str], rows: list[Row]) -> Any:
    """Return the result of a query over these rows; ``form`` is its text before WHERE."""
    columns = " ".join(f"?brokerha_{number}" for number in range(max(len(names), 1)))
    values = "\n".join(f"({' '.join('UNDEF' if term is None else as_iri(term) for term in row)})" for row in rows)
    binds = " ".join(f"BIND({AS_BLANK}(?brokerha_{number}) AS ?{name})" for number, name in enumerate(names))
    text = f"{form} WHERE {{ VALUES ({columns}) {{\n{values}\n}} {binds} }}"
    return Store().query(text, custom_functions=AS_BLANK_FUNCTIONS)


def _solutions(names: list[str], rows: list[Row]) -> Any:
    if any(isinstance(term, Triple) for row in rows for term in row):
        # The engine reads no triple terms from TSV, which is faster for all others.
        return _over(f"SELECT {' '.join(f'?{name}' for name in names)}", names, rows)
    lines = ["\t".join(f"?{name}" for name in names)]
    lines += ["\t".join("" if term is None else _tabular(term) for term in row) for row in rows]
    return parse_query_results("\n".join(lines) + "\n", QueryResultsFormat.TSV)


def _tabular(term: Term) -> str:
    return str(term).replace("\t", "\\t")


def _boolean(*, is_true: bool) -> Any:
    return parse_query_results(f'{{"head":{{}},"boolean":{str(is_true).lower()}}}', QueryResultsFormat.JSON)


def _quad(row: Row) -> Quad:
    subject, predicate, value, graph = row
    return Quad(subject, predicate, value, DefaultGraph() if graph is None else graph)  # type: ignore[arg-type]


def _text_of(term: Term | None) -> str:
    return term.value if isinstance(term, (Literal, NamedNode, BlankNode)) else ""
