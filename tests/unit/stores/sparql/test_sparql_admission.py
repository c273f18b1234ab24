"""What SPARQL is admitted: malformed texts, refused features, reserved names, texts that would end the process."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyoxigraph import RdfFormat, Store, parse

from brokerha.ingress.limits import DEPTH_LIMIT
from brokerha.model.errors import InvalidRequest
from brokerha.stores.rdf.change import canonical, check_nquads
from brokerha.stores.sparql.protocol import check_query, check_update
from brokerha.stores.sparql.request import CLAUSE_LIMIT_TOKENS, read_update
from brokerha.stores.sparql.template import read_plain_data, read_templates

MALFORMED_UPDATES = [
    ("FOO", "line 1, column 1"),
    ("INSERT DATA { <urn:a> <urn:b> 1", "line 1, column 32"),
    ("INSERT DATA { <urn:a> <urn:b> }", "line 1, column"),
    ("INSERT DATA { <urn:a> <urn:b> ?x }", "column 35: Variables are not allowed in INSERT DATA"),
    ("DELETE DATA { ?s <urn:b> 1 }", ": Variables and blank nodes are not allowed in DELETE DATA"),
    ("INSERT DATA { <a> <urn:b> 1 }", "line 1, column"),
    ("INSERT DATA { x:a <urn:b> 1 }", "line 1, column"),
    ("CLEAR ALL;\nINSERT DATA { <urn:a> }", "line 2, column"),
    ("PREFIX x: <urn:x:>\nINSERT DATA { x:a x:b 1 };\nPREFIX y: <urn:y:>\nINSERT DATA { y:a }", "line 4, column"),
    ("DELETE { ?s ?p _:b } WHERE { ?s ?p ?o }", "line 1, column 16: blank nodes are not allowed where quads are deleted"),
    ("DELETE { ?s ?p [] } INSERT { ?s ?p 1 } WHERE { ?s ?p ?o }", "line 1, column 16: blank nodes are not allowed where"),
    ("DELETE WHERE {\n?s ?p (1) }", "line 2, column 7: blank nodes are not allowed where quads are deleted"),
    ("CLEAR ALL; DELETE DATA { <urn:a> <urn:b> _:b }", "line 1, column 42: blank nodes are not allowed where"),
    ("DELETE { ?s ?p '_:b' } WHERE { ?s ?p [] ; }; INSERT DATA { <urn:a> <urn:b> }", "line 1, column 76"),
    ("INSERT { ?s ?p ?o }", "expected"),
    ("DELETE { ?s ?p ?o } WHERE { ?s ?p }", "line 1, column"),
    ("WITH <urn:g> CLEAR ALL", "expected DELETE or INSERT"),
    ("COPY <urn:a> <urn:b>", "expected TO"),
    ("COPY ALL TO <urn:b>", "line 1, column"),
    ("CREATE GRAPH DEFAULT", "line 1, column"),
    ("INSERTDATUM { <urn:a> <urn:b> 1 }", "expected an update operation"),
    ("SELECT * { ?s ?p ?o }", "expected an update operation"),
    ("INSERT DATA { <urn:a> <urn:b> 1 } garbage", "expected ;"),
    ("INSERT DATA { <urn:a> <urn:b> '\ud800' }", "line 1, column 32: not a character"),
    ('INSERT DATA { <urn:a> <urn:b> "\ud800" }', "line 1, column 32: not a character"),
    ("\ufeffINSERT DATA { <urn:a> <urn:b> [] }", "line 1, column 1"),
    ("INSERT DATA { <urn:a> <urn:b> '\\uD800' }", "line 1, column"),
]


@pytest.mark.parametrize(("text", "hint"), MALFORMED_UPDATES)
def test_a_malformed_update_is_refused_with_its_place(text: str, hint: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^MALFORMED QUERY: line") as caught:
        check_update(text)
    assert hint in str(caught.value)
    assert len(str(caught.value)) <= 300


@pytest.mark.parametrize(
    "text", ["", "SELECT * {", "SELECT ?x", "ASK { ?s ?p }", "INSERT DATA { <urn:a> <urn:b> 1 }", "SELECT (1 AS ?x) (2 AS ?x) {}"]
)
def test_a_malformed_query_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^MALFORMED QUERY: line"):
        check_query(text)


def test_what_the_engine_says_in_words_is_not_lost_among_the_signs_that_it_expected() -> None:
    with pytest.raises(InvalidRequest, match=r"^MALFORMED QUERY: line 1, column 31: Duplicated variable name in SELECT$"):
        check_query("SELECT (1 AS ?x) (2 AS ?x) { }")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing at all",
        "PREFIX x: <urn:x>",
        "INSERT DATA { }",
        "INSERT DATA { <urn:a> <urn:b> 'LOAD <http://x> SERVICE' } # SERVICE <http://x> {}",
        'INSERT DATA { <urn:LOAD> <urn:SERVICE> """} ; LOAD <http://x>""" }',
        "PREFIX service: <urn:s:> PREFIX load: <urn:l:> INSERT DATA { service:a load:b service:c }",
        "INSERT { ?load <urn:p> ?service } WHERE { ?load <urn:p> ?service }",
        "CLEAR ALL; PREFIX x: <urn:x:> INSERT DATA { x:a x:b x:c } ; PREFIX x: <urn:y:> CLEAR GRAPH x:g ;",
        "BASE <http://example.org/> INSERT DATA { <a> <b> <c> GRAPH <g> { <a> <b> (1 2) , [ <c> _:d ] . (3) } . <a> <b> 5. }",
        "INSERT DATA { <urn:a> <urn:b> 1 {| <urn:c> 2 |} }",
        'INSERT DATA { <urn:a> <urn:b> "\\u0041\\"" , <urn:\\u0041> }',
    ],
)
def test_a_well_formed_update_passes(text: str) -> None:
    check_update(text)


@pytest.mark.parametrize(
    "text",
    [
        "LOAD <http://127.0.0.1:1/x>",
        "load silent <http://127.0.0.1:1/x> into graph <urn:g>",
        "CLEAR ALL;LOAD<http://127.0.0.1:1/x>",
        "INSERT { ?s ?p ?o } WHERE { SERVICE <http://127.0.0.1:1/> { ?s ?p ?o } }",
        "INSERT { ?s ?p ?o } WHERE { { SERVICE SILENT ?x { ?s ?p ?o } } }",
        "INSERT { ?s ?p ?o } WHERE { ?s ?p ?o FILTER EXISTS { sErViCe<http://127.0.0.1:1/>{ } } }",
        "INSERT { ?s ?p ?o } WHERE { ?s ?p trueSERVICE<http://127.0.0.1:1/>{ } }",
        "PREFIX : <http://127.0.0.1:1/> PREFIX SERVICE: <urn:s> INSERT { } WHERE { SERVICE:x { } }",
    ],
)
def test_load_and_service_are_refused_however_they_are_written(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"(LOAD|SERVICE) is refused"):
        check_update(text)


def test_service_is_refused_in_a_query() -> None:
    with pytest.raises(InvalidRequest, match="SERVICE is refused"):
        check_query("SELECT * { SERVICE SILENT <http://127.0.0.1:1/> { ?s ?p ?o } }")


def test_a_query_may_name_the_graphs_it_reads() -> None:
    check_query("SELECT * FROM <urn:g> FROM NAMED <urn:h> { ?s ?p 'SERVICE' # SERVICE\n }")


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (check_update, "INSERT DATA { GRAPH <urn:brokerha:system> { <urn:a> <urn:b> 1 } }"),
        (check_update, "CLEAR GRAPH <urn:brokerha:system>"),
        (check_update, "CLEAR GRAPH <urn:\\u0062rokerha:system>"),
        (check_update, "INSERT DATA { <urn:a> <urn:b> 'x'^^<urn:brokerha:blank> }"),
        (check_update, "PREFIX b: <urn:brok> INSERT DATA { <urn:a> <urn:b> b:erha:system }"),
        (check_update, "PREFIX b: <urn:> INSERT DATA { <urn:a> <urn:b> b:brokerha:sys\\-tem }"),
        (check_update, "BASE <urn:x> INSERT DATA { <./brokerha:system> <urn:b> 1 }"),
        (check_update, "BASE <urn:x> CLEAR GRAPH <./brokerha:system>"),
        (check_update, "WITH <urn:brokerha:system> DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }"),
        (check_update, "INSERT { } WHERE { BIND(<urn:brokerha:solution>(1) AS ?x) }"),
        (check_query, "SELECT * { GRAPH <urn:brokerha:system> { ?s ?p ?o } }"),
        (check_query, "SELECT * FROM <urn:brokerha:system> { ?s ?p ?o }"),
        (check_nquads, "<urn:a> <urn:b> <urn:c> <urn:brokerha:system> ."),
        (check_nquads, "<urn:a> <urn:b> <urn:\\u0062rokerha:system> ."),
        (check_nquads, '<urn:a> <urn:b> "x"^^<urn:brokerha:y> .'),
    ],
)
def test_reserved_names_are_refused(check: Callable[[str], None], text: str) -> None:
    with pytest.raises(InvalidRequest, match="brokerha's own"):
        check(text)


def test_a_reserved_name_in_a_string_is_just_a_string() -> None:
    check_update("INSERT DATA { <urn:a> <urn:b> 'urn:brokerha:system <urn:brokerha:system>' }")
    check_nquads('<urn:a> <urn:b> "<urn:brokerha:system>" .')


def test_variables_of_our_own_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="brokerha_"):
        check_update("INSERT { ?s ?p ?brokerha_solution } WHERE { ?s ?p ?brokerha_solution }")


def test_a_function_that_the_engine_would_see_in_one_word_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="put a space"):
        check_update("INSERT { } WHERE { { SELECT (COUNT(DISTINCTRAND()) AS ?n) { ?s ?p ?o } } }")


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (check_query, "PREFIX x: <urn:> SELECT * FROMx:b { ?s ?p ?o }"),
        (check_query, "PREFIX x: <urn:> SELECT * { GRAPHx:b { ?s ?p ?o } }"),
        (check_update, "PREFIX x: <urn:> CLEAR GRAPHx:b"),
    ],
)
def test_a_keyword_that_the_engine_would_see_in_a_name_is_refused(check: Callable[[str], None], text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"(FROM|GRAPH)x: is not declared.* put a space"):
        check(text)


# Each of these ends the engine's process when it is some ten times larger.
@pytest.mark.parametrize(
    ("check", "text"),
    [
        (check_query, f"SELECT * {'{' * 5000}{'}' * 5000}"),
        (check_query, f"SELECT * {{ FILTER{'(' * 5000}1{')' * 5000} }}"),
        (check_query, f"SELECT * {{ FILTER({'!' * 5000}true) }}"),
        (check_query, f"SELECT * {{ FILTER(1{'||1' * 5000}) }}"),
        (check_query, f"SELECT * {{ {'OPTIONAL{}' * 5000} }}"),
        (check_update, f"INSERT {{ }} WHERE {{ {'BIND(1 AS ?x)' * 5000} }}"),
        (check_update, f"DELETE WHERE {{ {'<urn:a> <urn:b> 1 .' * 5000} }}"),
        (check_update, f"INSERT DATA {{ <urn:a> <urn:b> {'[<urn:b> ' * 5000}1{']' * 5000} }}"),
        (check_update, f"INSERT DATA {{ <urn:a> <urn:b> {'(' * 5000}{')' * 5000} }}"),
        (check_nquads, f"<urn:a> <urn:b> {'<<( <urn:a> <urn:b> ' * 5000}<urn:c>{' )>>' * 5000} ."),
    ],
)
def test_a_text_that_could_overflow_the_stack_is_refused(check: Callable[[str], None], text: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"{DEPTH_LIMIT} deep|{CLAUSE_LIMIT_TOKENS} words"):
        check(text)


def test_long_lists_of_constants_and_long_data_are_no_matter() -> None:
    values = "(<urn:a> 'x'^^<urn:b>) " * 3000
    check_query(f"SELECT * {{ VALUES (?x ?y) {{ {values} }} ?x ?p ?y FILTER(?y IN (1{', <urn:b>' * 3000})) }}")
    check_update(f"INSERT DATA {{ {'_:s <urn:p> 5e1 . ' * 3000} }}")
    with pytest.raises(InvalidRequest, match="words"):
        check_query(f"SELECT * {{ FILTER(?y IN (1{', 1+1' * 3000})) }}")


@pytest.mark.parametrize(
    "text", ["<urn:a> <urn:b>", "<a> <urn:b> 1 .", '<urn:a> <urn:b> "x .', "<urn:a> _:b 'x' .", '<urn:a> <urn:b> "\ud800" .']
)
def test_malformed_nquads_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^MALFORMED DATA"):
        check_nquads(text)


_NAMES = st.sampled_from(["<urn:a>", "<http://e/x#y>", "x:a", ":b", "x:9-z", "<urn:\u00e9>"])
_OBJECTS = st.one_of(
    _NAMES,
    st.sampled_from(['"v"', '"v"@en-GB', '"01"^^<http://www.w3.org/2001/XMLSchema#integer>', '"x"^^x:t', "05", "-1.50", "true"]),
    st.text(alphabet="ab \u00e9", max_size=4).map(lambda text: f'"{text}"'),
)
_SPACES = st.sampled_from(["", " ", "\n", "\t "])


@st.composite
def _data(draw: st.DrawFn) -> str:
    def spaced(*parts: str) -> str:
        return "".join(part + draw(_SPACES) for part in parts)

    about = []
    for _ in range(draw(st.integers(1, 3))):
        verbs = []
        for _ in range(draw(st.integers(1, 2))):
            objects = draw(st.lists(_OBJECTS, min_size=1, max_size=3))
            verbs.append(f"{draw(st.one_of(_NAMES, st.just('a')))} {spaced(','.join(objects))}")
        about.append(f"{draw(_NAMES)} {spaced(';'.join(verbs))}")
    body = f"{' .'.join(about)} {draw(st.sampled_from(['', '.']))}"
    if draw(st.booleans()):
        body = f"GRAPH {draw(_NAMES)} {{ {body} }}"
    verb = draw(st.sampled_from(["INSERT DATA", "delete  data"]))
    return spaced("PREFIX x: <urn:x:>", "PREFIX : <urn:e:>", verb, f"{{ {body} }}")


@given(_data())
def test_the_short_way_for_plain_data_reads_as_the_long_way(text: str) -> None:
    plain = read_plain_data(text)
    (part,) = (request := read_update(text)).parts
    templates = read_templates(request, part)
    long_way = canonical(template.quad for template in (*templates.insert, *templates.delete))
    assert plain is not None
    assert sorted(plain.quads) == sorted(long_way)
    assert plain.is_insert == (part.kind == "INSERT DATA")


@given(_data())
def test_data_is_read_as_the_engine_reads_it(text: str) -> None:
    store = Store()
    plain = read_plain_data(text)
    assert plain is not None
    if plain.is_insert:
        store.update(text)
        assert sorted(plain.quads) == sorted(map(str, store))
    else:
        store.extend(plain.quads.values())
        store.update(text)
        assert len(store) == 0


def test_canonical_lines_are_read_back_as_they_are() -> None:
    text = '<urn:a> <urn:p> "01"^^<http://www.w3.org/2001/XMLSchema#integer>, "x"@EN-gb, "a\\nb\\u0001", 1.0, 1e3 .'
    lines = sorted(canonical(parse(text, format=RdfFormat.TURTLE)))
    again = canonical(parse("".join(f"{line} .\n" for line in lines), format=RdfFormat.N_QUADS))
    assert sorted(again) == lines
    assert '<urn:a> <urn:p> "1"^^<http://www.w3.org/2001/XMLSchema#integer>' in lines


@pytest.mark.parametrize("text", ["<urn:>", "<urn:brokerha>", "x:y", "<>"])
def test_a_text_of_one_word_is_malformed_and_no_fault(text: str) -> None:
    for check in (check_query, check_update):
        with pytest.raises(InvalidRequest, match="MALFORMED QUERY"):
            check(text)
