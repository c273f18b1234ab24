"""Evaluation of the queries of the control suite on a state that is not committed, without a trace.

As with updates (sparql/update.py), the engine gets one text that never commits: the pending quads and the transaction's changes,
then each query as the WHERE clause of an update that changes nothing. The engine calls a function of this module with each row.

    DELETE DATA { ... } ; INSERT DATA { ... } ;
    DELETE { } INSERT { } WHERE { { SELECT ... } BIND(<report 0>(?a, ?b) AS ?brokerha_reported) } ;
    DELETE { } INSERT { } WHERE { ... <report 1> ... } ;
    CREATE SILENT GRAPH <x> ; CREATE GRAPH <x>                    fails: all of the above is undone
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from pyoxigraph import BlankNode, NamedNode, Store

from brokerha.model.control import ASK, Check, shortened
from brokerha.model.errors import InvalidRequest, Rejected
from brokerha.stores.control.sparql import Question, Row, canonical_rows, question_of
from brokerha.stores.rdf.change import AS_BLANK_FUNCTIONS, PendingQuads, parse_lines
from brokerha.stores.rdf.terms import REPORTED, Function, Term, bound, report_function
from brokerha.stores.rdf.view import state_text, undone
from brokerha.stores.sparql.unknown import failing


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
