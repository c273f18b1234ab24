"""Checks that are ASK or SELECT queries: what is allowed, and the form that an update can evaluate.

A check must have the same answer on every site at any time: it depends on the content of its repository alone. So NOW, RAND,
UUID, STRUUID, BNODE and SERVICE are refused, as are FROM and BASE. A SELECT must name its variables, because the order of ``*``
is the engine's. The query goes into a WHERE clause as a subquery, with full names instead of prefixes, so that many checks fit
into one text:

    PREFIX x: <urn:x:>  ASK { ?s x:p ?o }       { SELECT (1 AS ?brokerha_found) { ?s <urn:x:p> ?o } }
    SELECT ?s { ?s a <urn:T> } ORDER BY ?s      { SELECT ?s { ?s a <urn:T> } ORDER BY ?s }

A subquery is evaluated independently of its context, so its rows are those of the query. At admission the engine checks the
syntax of both forms; brokerha refuses a query whose second form the engine does not parse.

They are evaluated on a state that is not committed, without a trace: as with updates (sparql/update.py), the engine gets one text
that never commits: the pending quads and the transaction's changes, then each query as the WHERE clause of an update that changes
nothing. The engine calls a function of this module with each row.

    DELETE DATA { ... } ; INSERT DATA { ... } ;
    DELETE { } INSERT { } WHERE { { SELECT ... } BIND(<report 0>(?a, ?b) AS ?brokerha_reported) } ;
    DELETE { } INSERT { } WHERE { ... <report 1> ... } ;
    CREATE SILENT GRAPH <x> ; CREATE GRAPH <x>                    fails: all of the above is undone
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from pyoxigraph import BlankNode, NamedNode, Quad, RdfFormat, Store, parse

from brokerha.ingress.limits import refuse_deep_quads
from brokerha.model.control import ASK, Check, rows_of, shortened
from brokerha.model.errors import InvalidRequest, Rejected
from brokerha.stores.rdf.change import AS_BLANK_FUNCTIONS, PendingQuads, parse_lines
from brokerha.stores.rdf.terms import REPORTED, Function, Term, bound, report_function, reporting_clause
from brokerha.stores.rdf.view import state_text, undone
from brokerha.stores.sparql.protocol import check_query
from brokerha.stores.sparql.refusals import FRESH_FUNCTIONS
from brokerha.stores.sparql.request import prologue_end, read_query
from brokerha.stores.sparql.tokens import MESSAGE_LIMIT, VARIABLE, Tokens, in_full, tokenize
from brokerha.stores.sparql.unknown import failing

Row = tuple[str | None, ...]
"""Terms as canonical N-Triples text; None is an unbound variable."""

FOUND: Final = "brokerha_found"
_NEVER_RUN: Final = "CREATE GRAPH <urn:x>; CREATE GRAPH <urn:x>; "
"""Prefix of an update that stops the engine between parsing and running it."""
_SUBJECT: Final = "urn:s:"
_PREDICATE: Final = NamedNode("urn:p")


@dataclass(frozen=True, slots=True)
class Question:
    """A parsed check."""

    check: Check
    query: str
    """The query as a subquery."""
    variables: tuple[str, ...]
    """Names of the variables of its rows."""
    is_ordered: bool
    """Whether the order of its rows counts."""
    names_graphs: bool
    """Whether it asks for the names of graphs."""
    rows: tuple[Row, ...]
    """Expected rows of a SELECT."""
    unknown: tuple[NamedNode, ...]
    """Functions that it calls and that the engine does not have."""

    def clause(self, report: NamedNode) -> str:
        """Return a WHERE clause that calls the function `report` with each row, up to the number needed for the judgement."""
        return reporting_clause(self.query, self.variables, 1 if self.check.kind == ASK else len(self.rows) + 1, report)


def check_fields(name: str, kind: str, target: str, text: str, expected: str) -> None:
    """Check the fields of a check of kind ``ask`` or ``select`` at admission. Raises InvalidRequest."""
    question_of(Check(name, kind, target, text, expected))


@lru_cache(maxsize=256)
def question_of(check: Check) -> Question:
    """Parse an ASK or SELECT check. Raises InvalidRequest."""
    facts = read_query(check.text)
    tokens = tokenize(check.text)
    if facts.kind != check.kind.upper():
        raise InvalidRequest(f"a check of kind {check.kind} has the form {check.kind.upper()}, not {facts.kind}")
    for index in range(len(tokens)):
        _refuse(tokens, index)
    check_query(check.text)
    first = prologue_end(tokens, 0)
    variables: tuple[str, ...] = (FOUND,)
    rows: tuple[Row, ...] = ()
    where = first + 1
    if check.kind == ASK:
        without_word = check.text[: tokens.starts[first]] + check.text[tokens.ends[first] :]
        query = f"SELECT (1 AS ?{FOUND}) {in_full(without_word)}"
    else:
        variables, where = _variables(tokens, first + 1)
        query, rows = in_full(check.text), _expected(check, len(variables))
    if tokens.text_of(where) != "{" and tokens.word_of(where) != "WHERE":
        raise tokens.malformed(where, "expected WHERE or a brace")
    question = Question(check, query, variables, _has_order(tokens), facts.may_name_any_graph, rows, facts.unknown)
    _check_second_form(question)
    return question


def canonical_rows(rows: list[tuple[Term | None, ...]]) -> list[Row]:
    """Return rows with each literal in the spelling that the engine stores."""
    # Only typed and language-tagged literals, and triple terms that hold them, have more than one spelling.
    cells = [cell for row in rows for cell in row]
    raw = {number: cell for number, cell in enumerate(cells) if cell is not None and '"' in str(cell)}
    texts: list[str | None] = [None if cell is None else str(cell) for cell in cells]
    if raw:
        scratch = Store()
        scratch.extend(Quad(NamedNode(f"{_SUBJECT}{number}"), _PREDICATE, cell) for number, cell in raw.items())
        for quad in scratch:
            texts[int(str(quad.subject)[len(_SUBJECT) + 1 : -1])] = str(quad.object)
    ends = iter(texts)
    return [tuple(next(ends) for _ in row) for row in rows]


def _refuse(tokens: Tokens, index: int) -> None:
    word = tokens.word_of(index)
    if word in {"FROM", "BASE", "VERSION"}:
        raise tokens.malformed(index, f"a check has no {word}: write graphs as GRAPH, and IRIs in full or with PREFIX")
    if word in FRESH_FUNCTIONS and tokens.text_of(index + 1) == "(":
        raise tokens.malformed(index, f"a check has no {word}: it must depend on the content only")


def _variables(tokens: Tokens, index: int) -> tuple[tuple[str, ...], int]:
    """Return the variables that a SELECT names, and the index of the first token after them."""
    names: list[str] = []
    if tokens.word_of(index) in {"DISTINCT", "REDUCED"}:
        index += 1
    while True:
        sign = tokens.text_of(index)
        if sign == "*":
            raise tokens.malformed(index, "name the variables of the check instead of *: its rows need an order of columns")
        if sign == "(":
            depth = 1
            while depth:
                index += 1
                depth += {"(": 1, ")": -1, "": -depth}.get(tokens.text_of(index), 0)
            names.append(tokens.text_of(index - 1)[1:])
        elif tokens.kind_of(index) == VARIABLE:
            names.append(sign[1:])
        else:
            return tuple(names), index
        index += 1


def _has_order(tokens: Tokens) -> bool:
    """Tell whether the query itself, not a query inside it, has ORDER BY."""
    depth = 0
    for index in range(len(tokens)):
        sign = tokens.text_of(index)
        depth += (sign == "{") - (sign == "}")
        if not depth and tokens.word_of(index).startswith("ORDER"):
            return True
    return False


def _expected(check: Check, width: int) -> tuple[Row, ...]:
    """Return the expected rows in canonical spelling."""
    rows = rows_of(check.expected)
    if rows is None:
        raise InvalidRequest("a select check expects a JSON list of rows, each a list of N-Triples terms or null")
    for number, row in enumerate(rows, 1):
        if len(row) != width:
            raise InvalidRequest(f"row {number} of the expectation has {len(row)} terms, the query has {width} variables")
    return tuple(canonical_rows([tuple(None if cell is None else _term(cell) for cell in row) for row in rows]))


def _term(text: str) -> Term:
    found: list[Quad] = []
    try:
        refuse_deep_quads(text)
        found = list(parse(f"<urn:s> <urn:p> {text} .".encode(), format=RdfFormat.N_TRIPLES))
    except (SyntaxError, UnicodeError, InvalidRequest):
        found = []
    if len(found) != 1:
        raise InvalidRequest(f"the expectation holds no term in N-Triples syntax: {text}"[:MESSAGE_LIMIT])
    return found[0].object


def _check_second_form(question: Question) -> None:
    """Let the engine parse the query in the form that it will evaluate."""
    try:
        Store().update(f"{_NEVER_RUN}DELETE {{ }} INSERT {{ }} WHERE {question.clause(report_function(0))}")
    except SyntaxError as error:
        raise InvalidRequest(f"this query cannot be used as a check: {error}"[:MESSAGE_LIMIT]) from None
    except RuntimeError:
        return  # The query was parsed; the CREATE before it failed as intended.


def problems(engine: Store, checks: Sequence[Check], state: PendingQuads) -> dict[str, str]:
    """Return the failed checks on the engine with `state` on top: name -> reason. Raises Rejected, StoreError."""
    try:
        questions = [question_of(check) for check in checks]
    except InvalidRequest as error:
        raise Rejected(str(error)) from None
    if any(question.names_graphs for question in questions) and _empties_blank_graph(engine, state):
        problem = "cannot be evaluated in a transaction that empties a graph named by a blank node"
        return {question.check.name: problem for question in questions if question.names_graphs}
    found = rows_found(engine, questions, state)
    judged = {q.check.name: _problem_of(q, rows) for q, rows in zip(questions, found, strict=True)}
    return {name: problem for name, problem in judged.items() if problem}


def must_commit_first(engine: Store, checks: Sequence[Check], pending: PendingQuads) -> bool:
    """Tell whether these checks could see in GRAPH ?g a graph that is empty once the pending quads are committed.

    SPARQL text cannot drop a graph named by a blank node, so the graph would exist until the commit.
    """
    return _empties_blank_graph(engine, pending) and any(question_of(check).names_graphs for check in checks)


def rows_found(engine: Store, questions: Sequence[Question], state: PendingQuads) -> list[list[Row]]:
    """Return the rows of each query, on the engine with `state` on top; for an ASK one row when it is true, else none.

    A SELECT returns at most one row more than it expects. Raises Rejected, StoreError.
    """
    removed, added = parse_lines(state.removed), parse_lines(state.added)
    names_graphs = any(question.names_graphs for question in questions)
    pieces = [state_text(engine, removed, added, names_graphs=names_graphs)]
    functions: dict[NamedNode, Function] = dict(AS_BLANK_FUNCTIONS)
    found: list[list[tuple[Term | None, ...]]] = []
    for number, question in enumerate(questions):
        report = report_function(number)
        rows: list[tuple[Term | None, ...]] = []
        functions.update(failing(question.unknown))
        functions[report] = _reporter(rows)
        found.append(rows)
        pieces.append(f"DELETE {{ }} INSERT {{ }} WHERE {question.clause(report)};\n")
    names = ", ".join(repr(question.check.name) for question in questions)
    undone(engine, "".join(pieces), functions, lambda error: Rejected(f"check {names} cannot be evaluated: {error}"))
    return [canonical_rows(rows) for rows in found]


def _empties_blank_graph(engine: Store, change: PendingQuads) -> bool:
    """Tell whether a change removes the last quad of a graph named by a blank node."""
    if not any(" _:" in line for line in change.removed):
        return False
    names = {quad.graph_name for quad in parse_lines(change.removed)}
    names -= {quad.graph_name for quad in parse_lines(change.added)}
    return any(
        isinstance(name, BlankNode)
        and all(str(quad) in change.removed for quad in engine.quads_for_pattern(None, None, None, name))
        for name in names
    )


def _problem_of(question: Question, found: list[Row]) -> str:
    """Return an empty string when the rows are as expected, else the expected and the found rows."""
    if question.check.kind == ASK:
        answer = "true" if found else "false"
        return "" if answer == question.check.expected else f"expected {question.check.expected}, found {answer}"
    expected = list(question.rows)
    if len(found) != len(expected):
        count = "more" if len(found) > len(expected) else str(len(found))
        return f"expected {len(expected)} row{'s' * (len(expected) != 1)}, found {count}"
    for wanted, there in _differences(expected, found, is_ordered=question.is_ordered):
        return f"expected row {_shown(wanted)}, found {_shown(there)}"
    return ""


def _differences(expected: list[Row], found: list[Row], *, is_ordered: bool) -> Iterator[tuple[Row, Row]]:
    """Yield pairs of a missing row and the row found instead."""
    if is_ordered:
        yield from ((wanted, there) for wanted, there in zip(expected, found, strict=True) if wanted != there)
        return
    wanted_rows, found_rows = Counter(expected), Counter(found)
    missing, unexpected = wanted_rows - found_rows, found_rows - wanted_rows
    yield from zip(sorted(missing, key=_shown), sorted(unexpected, key=_shown), strict=False)


def _shown(row: Row) -> str:
    return shortened("[" + ", ".join(term or "unbound" for term in row) + "]", 200)


def _reporter(rows: list[tuple[Term | None, ...]]) -> Callable[..., Term]:
    def report(*terms: Term) -> Term:
        rows.append(bound(terms))
        return REPORTED

    return report
