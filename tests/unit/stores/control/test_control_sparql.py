"""Queries as checks: on a state that is nowhere yet they find what the engine's own queries find on a store that holds it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyoxigraph import Quad, QueryBoolean, QuerySolutions, RdfFormat, Store, parse

from brokerha.model.control import Check
from brokerha.model.errors import InvalidRequest, Rejected
from brokerha.stores.control.sparql import Row, canonical_rows, must_commit_first, problems, question_of, rows_found
from brokerha.stores.rdf.change import PendingQuads, canonical
from brokerha.stores.rdf.terms import SYSTEM_GRAPH

HELD = """
<urn:a> <urn:p> "1"^^<http://www.w3.org/2001/XMLSchema#integer> .
<urn:a> <urn:p> "2"^^<http://www.w3.org/2001/XMLSchema#integer> .
<urn:a> <urn:q> <urn:b> .
<urn:b> <urn:q> <urn:c> .
<urn:c> <urn:q> _:x .
_:x <urn:p> "x"@en .
<urn:d> <urn:p> "gone" .
<urn:a> <urn:q> <urn:b> <urn:g> .
<urn:e> <urn:p> "only here" <urn:gone> .
<urn:system> <urn:p> "4711" <urn:brokerha:system> .
"""
REMOVED = """
<urn:d> <urn:p> "gone" .
<urn:e> <urn:p> "only here" <urn:gone> .
"""
ADDED = """
<urn:b> <urn:p> "3"^^<http://www.w3.org/2001/XMLSchema#integer> .
<urn:b> <urn:p> "2.50"^^<http://www.w3.org/2001/XMLSchema#decimal> .
<urn:c> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <urn:x:T-1.5> .
_:x <urn:q> _:y .
<urn:f> <urn:p> "f"@en-gb <urn:h> .
<urn:a> <urn:r> <<( <urn:a> <urn:p> "1" )>> .
"""

SELECTS = [
    "PREFIX : <urn:> SELECT ?s ?o { ?s :p ?o }",
    "PREFIX u: <urn:> PREFIX x: <urn:x:> SELECT ?s { ?s a x:T\\-1.5 FILTER(?s!=u:a) }",
    "PREFIX p: <urn:wrong:> PREFIX p: <urn:> SELECT ?o { p:a p:p ?o }",
    "PREFIX xsd: <http://www.w3.org/2001/XMLSchema#> SELECT ?s { ?s ?p '2.5'^^xsd:decimal }",
    "PREFIX xsd: <http://www.w3.org/2001/XMLSchema#> SELECT (xsd:string(?o) AS ?t) { <urn:a> <urn:p> ?o }",
    "PREFIX u:<urn:> SELECT ?a ?b { ?a u:p ?x . ?b u:p ?y FILTER(?x<?y && ?x >u:nothing || ?x< 2) }",
    "SELECT ?s ?o { ?s <urn:q> ?o OPTIONAL { ?o <urn:p> ?v } }",
    "SELECT ?s ?v { ?s <urn:q> ?o OPTIONAL { ?o <urn:p> ?v FILTER(?v > 2) } }",
    "SELECT ?s { ?s <urn:q> ?o FILTER NOT EXISTS { ?o <urn:p> ?v } }",
    "SELECT ?s { ?s <urn:q> ?o FILTER EXISTS { ?o <urn:p> ?v FILTER(?v > 2.6) } }",
    "SELECT (COUNT(*) AS ?n) { ?s ?p ?o }",
    "SELECT (COUNT(*) AS ?n) { ?s <urn:nothing> ?o }",
    "SELECT ?s (COUNT(?o) AS ?n) (SUM(?o) AS ?sum) { ?s <urn:p> ?o } GROUP BY ?s",
    "SELECT ?s (MAX(?o) AS ?most) { ?s <urn:p> ?o } GROUP BY ?s HAVING (COUNT(*) > 1)",
    "SELECT (AVG(?o) AS ?mean) ?k { ?s <urn:p> ?o } GROUP BY (isNumeric(?o) AS ?k)",
    "SELECT ?s ?n { ?s <urn:q> ?t { SELECT ?s (COUNT(*) AS ?n) { ?s ?p ?o } GROUP BY ?s } }",
    "SELECT ?o { ?s <urn:p> ?o } ORDER BY DESC(?o) ?s",
    "SELECT ?s ?o { ?s <urn:p> ?o } ORDER BY ?s ?o LIMIT 3",
    "SELECT ?s ?o { ?s <urn:p> ?o } ORDER BY ?s ?o LIMIT 2 OFFSET 1",
    "SELECT DISTINCT ?s { ?s ?p ?o }",
    "SELECT REDUCED ?s { ?s <urn:q> ?o } ORDER BY ?s",
    "SELECT DISTINCT(?s AS ?t) { ?s ?p ?o }",
    "SELECT ?o { <urn:a> <urn:q>+ ?o }",
    "SELECT ?s ?o { ?s <urn:q>*/<urn:p> ?o }",
    "SELECT ?s ?o { ?s (^<urn:q>|<urn:p>) ?o }",
    "SELECT ?s ?o { ?s !(<urn:q>|^<urn:p>) ?o }",
    "SELECT ?s ?v { VALUES (?s ?v) { (<urn:a> UNDEF) (<urn:b> 3) (UNDEF 'x'@en) } ?s <urn:p> ?v }",
    "SELECT ?s ?o { ?s <urn:p> ?o } VALUES ?s { <urn:a> <urn:c> }",
    "SELECT ?s ?o ?v { { ?s <urn:p> ?o } UNION { ?s <urn:q> ?v } }",
    "SELECT ?s { ?s <urn:q> ?o MINUS { ?s <urn:p> ?v } }",
    "SELECT ?g ?s { GRAPH ?g { ?s ?p ?o } }",
    "SELECT ?g { GRAPH ?g { } }",
    "SELECT ?s { GRAPH <urn:g> { ?s ?p ?o } }",
    "SELECT ?s { GRAPH <urn:gone> { ?s ?p ?o } }",
    "SELECT ?s { GRAPH <urn:g> { ?s ?p ?o } ?o <urn:q> ?z }",
    "SELECT ?s ?o { ?s <urn:q> [ <urn:p> ?o ] }",
    "SELECT ?s { ?s <urn:q> _:n . _:n <urn:q> _:m }",
    "SELECT ?t { [] <urn:q> _:n . _:n <urn:p> ?t }",
    "SELECT ?s ?o { ?s ?p ?o FILTER(isBlank(?s) || isBlank(?o)) }",
    "SELECT ?o { ?s <urn:p> ?o FILTER(lang(?o) = 'en') }",
    "SELECT (STR(?o) AS ?t) ('01'^^<http://www.w3.org/2001/XMLSchema#integer> AS ?one) { <urn:a> ?p ?o }",
    "SELECT ?t { ?s <urn:r> ?t }",
    "SELECT (IF(?o > 1, ?nothing, 'small') AS ?t) { <urn:a> <urn:p> ?o }",
    "SELECT (GROUP_CONCAT(?t; SEPARATOR=',') AS ?all) { SELECT (STR(?o) AS ?t) { ?s <urn:p> ?o } ORDER BY ?t }",
    "SELECT $s { $s <urn:p> 1 } # a comment }",
    "SELECT ?s WHERE { ?s <urn:p> '} ORDER BY ?s' }",
    "SELECT ?s { { SELECT ?s { ?s <urn:p> ?o } ORDER BY DESC(?o) LIMIT 1 } }",
    "SELECT (BOUND(?v) AS ?is) { OPTIONAL { <urn:z> <urn:p> ?v } }",
    "SELECT ?s { ?s <urn:p> ?o BIND(?o * 2 AS ?v) FILTER(?v IN (2, 6)) }",
]
ASKS = [
    "ASK { ?s <urn:p> 3 }",
    "ASK{<urn:d> <urn:p> ?o}",
    "PREFIX x: <urn:> ASK WHERE { x:a x:q/x:q/x:q ?o . ?o x:q [] }",
    "ASK { FILTER NOT EXISTS { ?s <urn:q> ?o FILTER NOT EXISTS { ?o ?p ?v } } }",
    "ASK { { SELECT ?s { ?s <urn:p> ?o } GROUP BY ?s HAVING (COUNT(*) > 2) } }",
    "ASK { { SELECT ?s { ?s <urn:p> ?o } GROUP BY ?s HAVING (COUNT(*) > 1) } }",
    "ASK { ?s <urn:p> ?o } LIMIT 0",
    "ASK { ?s <urn:p> ?o } OFFSET 100",
    "ASK { ?s <urn:p> ?o } VALUES ?o { 7 8 }",
    "ASK { GRAPH <urn:gone> { ?s ?p ?o } }",
    "ASK { GRAPH ?g { <urn:f> ?p ?o } }",
    "ASK { GRAPH ?g { <urn:system> ?p ?o } }",
    "ASK { GRAPH ?g { } FILTER(?g = <urn:gone>) }",
    "ASK { }",
    "ASK { FILTER(false) }",
    "ASK { { SELECT ?s { ?s <urn:p> ?o } LIMIT 1 } ?s <urn:q> ?t }",
]

ONE: Row = ('"1"^^<http://www.w3.org/2001/XMLSchema#integer>',)
"""The row that stands for true."""


def lines_of(text: str) -> dict[str, Quad]:
    return canonical(parse(text.encode(), format=RdfFormat.N_QUADS))


def change(removed: str = "", added: str = "") -> PendingQuads:
    pending = PendingQuads()
    pending.removed.update(lines_of(removed))
    pending.added.update(lines_of(added))
    return pending


def check(text: str, expected: object = None) -> Check:
    """A check of a query; one that expects a hundred rows, of which none is there, when nothing is said."""
    if "ASK" in text:
        return Check("c", "ask", "main", text, "true" if expected is None else str(expected))
    width = len(_columns(text))
    rows = [[None] * width] * 100 if expected is None else expected
    return Check("c", "select", "main", text, json.dumps(rows))


def found_by(engine: Store, text: str, state: PendingQuads) -> list[Row]:
    (rows,) = rows_found(engine, [question_of(check(text))], state)
    return rows


def answered(store: Store, text: str) -> list[Row]:
    """What the engine itself says, in the same form."""
    result = store.query(text)
    if isinstance(result, QueryBoolean):
        return [ONE] if result else []
    assert isinstance(result, QuerySolutions)
    return canonical_rows([tuple(solution) for solution in result])


def _columns(text: str) -> list[str]:
    result = Store().query(text)
    assert isinstance(result, QuerySolutions)
    return [variable.value for variable in result.variables]


def _stores(directory: Path) -> tuple[Store, Store]:
    """An engine as it is while a transaction is evaluated, and one that holds the content after it."""
    engine, after = Store(str(directory / "engine")), Store(str(directory / "after"))
    engine.extend(lines_of(HELD).values())
    gone = lines_of(REMOVED)
    after.extend(quad for line, quad in lines_of(HELD).items() if line not in gone and quad.graph_name != SYSTEM_GRAPH)
    after.extend(lines_of(ADDED).values())
    return engine, after


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Store]:
    return _stores(tmp_path_factory.mktemp("stores"))


@pytest.mark.parametrize("text", SELECTS + ASKS)
def test_a_query_finds_what_it_finds_where_the_content_really_is(stores: tuple[Store, Store], text: str) -> None:
    engine, after = stores
    found, wanted = found_by(engine, text, change(REMOVED, ADDED)), answered(after, text)
    if question_of(check(text)).is_ordered:
        assert found == wanted
    assert sorted(map(str, found)) == sorted(map(str, wanted))


def test_many_queries_in_one_run_find_what_each_finds_alone_and_leave_no_trace(stores: tuple[Store, Store]) -> None:
    engine, _ = stores
    before = sorted(map(str, engine)), sorted(map(str, engine.named_graphs()))
    state = change(REMOVED, ADDED)
    texts = SELECTS + ASKS
    together = rows_found(engine, [question_of(check(text)) for text in texts], state)
    assert [sorted(map(str, rows)) for rows in together] == [sorted(map(str, found_by(engine, text, state))) for text in texts]
    assert (sorted(map(str, engine)), sorted(map(str, engine.named_graphs()))) == before


_TERMS = st.sampled_from(["<urn:a>", "<urn:b>", "_:x", "?s", "?o", "?v"])
_PATHS = st.sampled_from(["<urn:p>", "<urn:q>", "?p", "<urn:q>+", "^<urn:q>", "(<urn:p>|<urn:q>)"])
_PATTERNS = st.builds("{} {} {}".format, _TERMS, _PATHS, _TERMS)
_GROUPS = st.recursive(
    _PATTERNS,
    lambda inner: st.one_of(
        st.builds("{{ {} }} UNION {{ {} }}".format, inner, inner),
        st.builds("{} . OPTIONAL {{ {} }}".format, _PATTERNS, inner),
        st.builds("{} . MINUS {{ {} }}".format, _PATTERNS, inner),
        st.builds("{} . FILTER NOT EXISTS {{ {} }}".format, _PATTERNS, inner),
        st.builds("GRAPH {} {{ {} }}".format, st.sampled_from(["?g", "<urn:g>"]), inner),
        st.builds("{{ SELECT ?s (COUNT(*) AS ?v) {{ {} }} GROUP BY ?s }} {}".format, inner, _PATTERNS),
    ),
    max_leaves=4,
)


@settings(max_examples=150, deadline=None)
@given(body=_GROUPS, end=st.sampled_from(["", "ORDER BY ?s ?o ?v ?g", "VALUES ?s { <urn:a> <urn:b> }"]))
def test_random_queries_find_what_they_find_where_the_content_really_is(stores: tuple[Store, Store], body: str, end: str) -> None:
    engine, after = stores
    for text in (f"SELECT DISTINCT ?s ?o ?v ?g {{ {body} }} {end}", f"ASK {{ {body} }} {end}"):
        try:
            wanted = answered(after, text)
        except SyntaxError:
            with pytest.raises(InvalidRequest):
                question_of(Check("c", "ask", "main", text, "true"))
            continue
        found = found_by(engine, text, change(REMOVED, ADDED))
        assert sorted(map(str, found)) == sorted(map(str, wanted[:101]))


# ---- what is refused


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("SELECT * { ?s ?p ?o }", "name the variables"),
        ("ASK FROM <urn:g> { ?s ?p ?o }", "no FROM"),
        ("ASK { FILTER(NOW() > 1) }", "no NOW"),
        ("SELECT (rand() AS ?n) { }", "no RAND"),
        ("SELECT (UUID() AS ?n) { }", "no UUID"),
        ("SELECT (STRUUID () AS ?n) { }", "no STRUUID"),
        ("ASK { BIND(BNODE('x') AS ?b) }", "no BNODE"),
        ("ASK { SERVICE <http://x/> { ?s ?p ?o } }", "SERVICE is refused"),
        ("BASE <urn:x:> ASK { <a> ?p ?o }", "no BASE"),
        ("ASK { <urn:brokerha:system> ?p ?o }", "brokerha's own"),
        ("ASK { ?brokerha_found ?p ?o }", "brokerha's own"),
        ("ASK { ?s ?p }", "MALFORMED QUERY: line 1"),
        ("ASK { ?s x:p ?o }", "MALFORMED QUERY"),
        ("ASK { ?s ?p ?o } }", "MALFORMED QUERY"),
        ("SELECT ?s ?s { ?s ?p ?o }", "MALFORMED QUERY"),
        ("ASK { ?s ?p ?o } GROUP BY ?s HAVING (COUNT(*) > 1)", "MALFORMED QUERY"),
        ("SELECT (COUNT(*) { ?s ?p ?o }", "MALFORMED QUERY"),
    ],
)
def test_what_depends_on_more_than_the_content_is_refused(text: str, problem: str) -> None:
    kind = "ask" if "ASK" in text else "select"
    expected = "true" if kind == "ask" else "[]"
    with pytest.raises(InvalidRequest, match=problem):
        question_of(Check("c", kind, "main", text, expected))


@pytest.mark.parametrize(("kind", "text"), [("ask", "SELECT ?s { ?s ?p ?o }"), ("select", "ASK { }"), ("ask", "DESCRIBE <urn:a>")])
def test_a_check_has_the_form_of_its_kind(kind: str, text: str) -> None:
    with pytest.raises(InvalidRequest, match=f"a check of kind {kind} has the form {kind.upper()}"):
        question_of(Check("c", kind, "main", text, "true" if kind == "ask" else "[]"))


@pytest.mark.parametrize(
    ("expected", "problem"),
    [
        ('[["<urn:a>"]]', "row 1 of the expectation has 1 terms, the query has 2 variables"),
        ('[["<urn:a>", "urn:b"]]', "no term in N-Triples syntax: urn:b"),
        ('[["<urn:a>", "1 . <urn:x> <urn:y> 2"]]', "no term in N-Triples syntax"),
    ],
)
def test_an_expectation_must_fit_its_query(expected: str, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        question_of(Check("c", "select", "main", "SELECT ?s ?o { ?s ?p ?o }", expected))


# ---- what is expected and what is found

INTEGER = "^^<http://www.w3.org/2001/XMLSchema#integer>"


@pytest.mark.parametrize(
    ("text", "rows", "problem"),
    [
        ("SELECT ?o { <urn:a> <urn:p> ?o }", [[f'"2"{INTEGER}'], [f'"01"{INTEGER}']], ""),
        ("SELECT ?o { <urn:a> <urn:p> ?o } ORDER BY ?o", [[f'"1"{INTEGER}'], [f'"2"{INTEGER}']], ""),
        (
            "SELECT ?o { <urn:a> <urn:p> ?o } ORDER BY ?o",
            [[f'"2"{INTEGER}'], [f'"1"{INTEGER}']],
            f'expected row ["2"{INTEGER}], found ["1"{INTEGER}]',
        ),
        ("SELECT ?o ?v { <urn:a> <urn:q> ?o }", [["<urn:b>", None]], ""),
        ("SELECT ?o ?v { <urn:a> <urn:q> ?o }", [["<urn:b>", '"1"']], 'expected row [<urn:b>, "1"], found [<urn:b>, unbound]'),
        ("SELECT ?o { <urn:a> <urn:p> ?o }", [], "expected 0 rows, found more"),
        ("SELECT ?o { <urn:a> <urn:p> ?o }", [['"1"']] * 3, "expected 3 rows, found 2"),
        ("SELECT ?x { <urn:a> <urn:p> ?o }", [[None], [None]], ""),
        ("SELECT ?x { <urn:a> <urn:p> ?o }", [[None]], "expected 1 row, found more"),
    ],
)
def test_rows_are_compared_as_a_multiset_unless_they_are_ordered(
    stores: tuple[Store, Store], text: str, rows: list[list[str | None]], problem: str
) -> None:
    found = problems(stores[0], [check(text, rows)], PendingQuads())
    assert found == ({"c": problem} if problem else {})


@pytest.mark.parametrize(("expected", "problem"), [("true", "expected true, found false"), ("false", "")])
def test_an_ask_is_compared_with_its_answer(stores: tuple[Store, Store], expected: str, problem: str) -> None:
    found = problems(stores[0], [check("ASK { <urn:nobody> ?p ?o }", expected)], PendingQuads())
    assert found == ({"c": problem} if problem else {})


def test_a_check_that_another_version_let_in_is_a_rejection_and_no_fault(stores: tuple[Store, Store]) -> None:
    with pytest.raises(Rejected, match="name the variables"):
        problems(stores[0], [Check("c", "select", "main", "SELECT * { }", "[]")], PendingQuads())


def test_a_graph_named_by_a_blank_node_is_not_seen_once_it_is_empty(tmp_path: Path) -> None:
    engine = Store(str(tmp_path))
    line = "<urn:a> <urn:p> <urn:b> _:g .\n"
    engine.extend(lines_of(line).values())
    asks = [check("ASK { GRAPH ?g { } }", "false")]
    gone = change(removed=line)
    # What waits is to be committed first; what the transaction itself empties cannot be, so the check does not hold.
    assert must_commit_first(engine, asks, gone)
    assert "named by a blank node" in problems(engine, asks, gone)["c"]
    # Other checks, and other changes, do not mind.
    assert not must_commit_first(engine, [check("ASK { ?s ?p ?o }", "false")], gone)
    assert not must_commit_first(engine, asks, change(removed=line, added="<urn:c> <urn:p> <urn:b> _:g .\n"))
    assert not problems(engine, [check("ASK { ?s ?p ?o }", "false")], gone)
