"""What protocols say beside the text of a query or update is written into the text, and means there what it should."""

from __future__ import annotations

import pytest
from pyoxigraph import QueryBoolean, QuerySolutions, QueryTriples, Store

from brokerha.model.errors import InvalidRequest
from brokerha.stores.sparql.protocol import (
    check_binding,
    check_update,
    sliced,
    update_with,
    with_base,
    with_bindings,
    with_template_graphs,
)

DATA = """
INSERT DATA {
  <urn:a> <urn:p> 1 , 2 . <urn:b> <urn:p> 2 , 3 . <urn:b> <urn:q> <urn:a> .
  GRAPH <urn:g> { <urn:c> <urn:p> 7 } GRAPH <urn:h> { <urn:d> <urn:p> 8 }
}"""
TWO = '"2"^^<http://www.w3.org/2001/XMLSchema#integer>'
A = "<urn:a>"


@pytest.fixture
def store() -> Store:
    found = Store()
    found.update(DATA)
    return found


def answer(store: Store, text: str) -> list[str] | bool:
    """Rows as texts, sorted; triples as texts, sorted; or yes and no."""
    found = store.query(text)
    if isinstance(found, QueryBoolean):
        return bool(found)
    if isinstance(found, QueryTriples):
        return sorted(str(triple) for triple in found)
    assert isinstance(found, QuerySolutions)
    names = found.variables
    return sorted(" ".join(str(row[name]).partition("^")[0] for name in names) for row in found)


@pytest.mark.parametrize(
    ("text", "bindings", "wanted"),
    [
        ("SELECT ?s { ?s <urn:p> ?o }", {"o": TWO}, ["<urn:a>", "<urn:b>"]),
        ("SELECT ?s ?o { ?s <urn:p> ?o }", {"o": TWO, "s": A}, ['<urn:a> "2"']),
        ("SELECT * { ?s <urn:p> ?o }", {"s": A}, ['"1" <urn:a>', '"2" <urn:a>']),
        ("SELECT (COUNT(?o) AS ?n) WHERE { ?s <urn:p> ?o }", {"s": A}, ['"2"']),
        ("SELECT ?s (EXISTS { ?s <urn:q> ?x } AS ?e) { ?s <urn:p> 2 }", {"s": A}, ['<urn:a> "false"']),
        ("SELECT ?o { ?t <urn:p> ?o FILTER(?t = ?s) }", {"s": A}, ['"1"', '"2"']),
        ("SELECT ?o FROM <urn:g> { ?s <urn:p> ?o } # { ?x }", {"s": "<urn:c>"}, ['"7"']),
        ("PREFIX : <urn:> SELECT ?o { ?s :p ?o } ORDER BY ?o LIMIT 1 # end", {"s": A}, ['"1"']),
        ("ASK { ?s <urn:q> ?o }", {"o": A}, True),
        ("ASK { ?s <urn:q> ?o }", {"o": "<urn:b>"}, False),
        ("CONSTRUCT { ?o <urn:of> ?s } WHERE { ?s <urn:q> ?o }", {"o": A}, ["<urn:a> <urn:of> <urn:b>"]),
        ("CONSTRUCT { ?o <urn:of> ?s } { ?s <urn:q> ?o }", {"o": "<urn:b>"}, []),
        ("CONSTRUCT WHERE { ?s <urn:q> ?o }", {"s": "<urn:b>"}, ["<urn:b> <urn:q> <urn:a>"]),
        ("CONSTRUCT FROM <urn:g> WHERE { ?s <urn:p> ?o }", {"s": A}, []),
        ("DESCRIBE ?s", {"s": "<urn:c>"}, []),
        ("DESCRIBE ?s WHERE { ?s <urn:q> ?o }", {"o": A}, 3),
        ("DESCRIBE <urn:a>", {"o": A}, 2),
        ("SELECT ?s { ?s <urn:p> ?o }", {}, 4),
    ],
)
def test_a_variable_that_is_bound_has_that_term(
    store: Store, text: str, bindings: dict[str, str], wanted: list[str] | bool | int
) -> None:
    found = answer(store, with_bindings(text, bindings))
    assert found == wanted or (isinstance(found, list) and not isinstance(wanted, bool) and len(found) == wanted)


@pytest.mark.parametrize(
    ("text", "limit", "offset", "distinct", "wanted"),
    [
        ("SELECT ?o { ?s <urn:p> ?o } ORDER BY ?o", 2, 0, False, ['"1"', '"2"']),
        ("SELECT ?o { ?s <urn:p> ?o } ORDER BY ?o", None, 3, False, ['"3"']),
        ("SELECT ?o { ?s <urn:p> ?o } ORDER BY ?o LIMIT 2", 9, 1, False, ['"2"']),
        ("SELECT ?s { ?s <urn:p> ?o }", None, 0, True, ["<urn:a>", "<urn:b>"]),
        ("SELECT ?s { ?s <urn:p> ?o }", 0, 0, False, []),
        ("PREFIX : <urn:> SELECT ?s ?o FROM :g FROM <urn:h> WHERE { ?s :p ?o } ORDER BY ?s", 1, 1, False, ['<urn:d> "8"']),
        ("SELECT ?o FROM NAMED <urn:g> { GRAPH ?g { ?s ?p ?o } } # end", 5, 0, False, ['"7"']),
        ("SELECT*FROMNAMED<urn:g>WHERE{GRAPH?g{?s?p?o}}", 5, 0, True, ['<urn:g> "7" <urn:p> <urn:c>']),
        ("PREFIX a:<urn:>SELECT?o FROM#x\n<urn:h>{?s a:p?o}", 5, 0, False, ['"8"']),
        ("SELECTDISTINCT?s WHERE{?s<urn:p>?o}", 5, 0, False, ["<urn:a>", "<urn:b>"]),
        ("SELECT(1 AS?x){}", 5, 0, True, ['"1"']),
        ("ASKWHERE{}", 5, 0, True, True),
        ("CONSTRUCTWHERE{?s<urn:q>?o}", 5, 0, True, ["<urn:b> <urn:q> <urn:a>"]),
        ("SELECT (COUNT(*) AS ?n) { ?s <urn:p> ?o } VALUES ?o { 2 }", 1, 0, False, ['"4"']),
        ("SELECT * { ?s <urn:q> ?o }", 1, 0, False, ["<urn:a> <urn:b>"]),
        ("ASK { }", 1, 0, True, True),
        ("CONSTRUCT WHERE { ?s <urn:q> ?o }", 0, 0, True, ["<urn:b> <urn:q> <urn:a>"]),
    ],
)
def test_a_select_gives_only_some_of_its_rows(
    store: Store, text: str, limit: int | None, offset: int, distinct: bool, wanted: list[str] | bool
) -> None:
    assert answer(store, sliced(text, limit, offset, distinct=distinct)) == wanted


@pytest.mark.parametrize(
    ("text", "bindings", "using", "named", "gone", "come"),
    [
        ("DELETE { ?s ?p ?o } INSERT { ?s <urn:new> ?o } WHERE { ?s ?p ?o }", {}, ["urn:g"], [], [], ["<urn:c> <urn:new>"]),
        ("INSERT { ?s <urn:new> ?o } WHERE { GRAPH ?g { ?s ?p ?o } }", {}, [], ["urn:h"], [], ["<urn:d> <urn:new>"]),
        ("DELETE WHERE # short\n { ?s <urn:q> ?o . }", {}, ["urn:g"], [], [], []),
        ("DELETE WHERE { ?s <urn:q> ?o }", {"s": "<urn:b>"}, [], [], ["<urn:b> <urn:q>"], []),
        ("DELETE WHERE { ?s <urn:q> ?o }", {"s": A}, [], [], [], []),
        ("PREFIX : <urn:> INSERT { ?s :new ?x } WHERE { ?s :q ?o }", {"x": TWO}, [], [], [], ["<urn:b> <urn:new>"]),
        (
            "INSERT DATA { <urn:x> <urn:y> 1 } ; INSERT { ?s <urn:new> ?o } WHERE { ?s ?p ?o } # end",
            {},
            ["urn:g", "urn:h"],
            [],
            [],
            ["<urn:c> <urn:new>", "<urn:d> <urn:new>", "<urn:x> <urn:y>"],
        ),
    ],
)
def test_an_update_has_its_dataset_and_bindings(
    store: Store, text: str, bindings: dict[str, str], using: list[str], named: list[str], gone: list[str], come: list[str]
) -> None:
    def lines() -> set[str]:
        return {f"{quad.subject} {quad.predicate}" for quad in store}

    before = lines()
    store.update(update_with(text, bindings, using, named))
    assert (sorted(before - lines()), sorted(lines() - before)) == (gone, come)


@pytest.mark.parametrize(
    "text",
    [
        "WITH <urn:g> DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }",
        "INSERT { ?s ?p ?o } USING <urn:g> WHERE { ?s ?p ?o }",
        "INSERT { ?s ?p ?o } USING NAMED <urn:g> WHERE { GRAPH ?g { ?s ?p ?o } }",
    ],
)
def test_a_dataset_that_is_given_twice_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="given twice"):
        update_with(text, {}, ["urn:g"])


def test_what_is_malformed_is_said_of_the_text_as_it_was_sent() -> None:
    for rewritten in (
        lambda: with_bindings("SELECT ?s {\n ?s ?p }", {"s": A}),
        lambda: sliced("SELECT ?s {\n ?s ?p }", 1, 0, distinct=False),
        lambda: update_with("DELETE WHERE {\n ?s ?p }", {"s": A}),
    ):
        with pytest.raises(InvalidRequest, match="MALFORMED QUERY: line 2"):
            rewritten()


@pytest.mark.parametrize(("name", "term"), [("a b", A), ("", A), ("brokerha_x", A), ("x", "_:b"), ("x", "<urn:brokerha:position>")])
def test_a_binding_that_no_text_can_hold_is_refused(name: str, term: str) -> None:
    with pytest.raises(InvalidRequest):
        check_binding(name, term)


def test_a_dataset_of_something_else_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        update_with("DELETE WHERE { ?s ?p ?o }", {}, ["relative"])
    with pytest.raises(InvalidRequest):
        update_with("DELETE WHERE { ?s ?p ?o }", {}, ["urn:brokerha:system"])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("SELECT ?o { <a> <urn:p> ?o }", "SELECT ?o { <http://b/a> <urn:p> ?o }"),
        ("PREFIX : <#> ASK { :x <../y> <> } # <c>", "PREFIX : <http://b/c#> ASK { :x <http://b/y> <http://b/c> } # <c>"),
        ("BASE <http://z/> ASK { <a> ?p ?o }", "BASE <http://z/> ASK { <a> ?p ?o }"),
        ("ASK { ?s ?p '<a>' FILTER(?s < 1 && ?o > 2) }", "ASK { ?s ?p '<a>' FILTER(?s < 1 && ?o > 2) }"),
        ("ASK { ?s ?p ?o FILTER(?s <= 1 || ?o >= 2) }", "ASK { ?s ?p ?o FILTER(?s <= 1 || ?o >= 2) }"),
    ],
)
def test_relative_iris_become_absolute(text: str, wanted: str) -> None:
    assert with_base(text, "http://b/c") == wanted


@pytest.mark.parametrize("escape", [r"\uD800", r"\U0000DFFF", r"\u003E", r"\U00110000"])
def test_a_base_leaves_escapes_to_who_reads_them(escape: str) -> None:
    text = f"DELETE WHERE {{ <{escape}> ?p ?o }}"
    assert with_base(text, "http://b/c").encode() == f"DELETE WHERE {{ <http://b/{escape}> ?p ?o }}".encode()
    with pytest.raises(InvalidRequest):
        check_update(with_base(text, "http://b/c"))


@pytest.mark.parametrize(
    ("text", "insert", "remove", "gone", "come"),
    [
        (
            "INSERT DATA { <urn:x> <urn:y> 1 . GRAPH <urn:h> { <urn:x> <urn:y> 2 } . <urn:x> <urn:y> 3 }",
            "urn:g",
            [],
            [],
            ["x 1 g", "x 2 h", "x 3 g"],
        ),
        ("INSERT DATA { GRAPH <urn:h> { <urn:x> <urn:y> 2 } <urn:x> <urn:y> 3 . }", "urn:g", [], [], ["x 2 h", "x 3 g"]),
        ("DELETE DATA { <urn:c> <urn:p> 7 . <urn:d> <urn:p> 8 }", None, ["urn:g", "urn:h"], ["c 7 g", "d 8 h"], []),
        (
            "DELETE { ?s ?p ?o } INSERT { ?s ?p 9 } WHERE { GRAPH ?g { ?s ?p ?o } }",
            "urn:new",
            ["urn:g"],
            ["c 7 g"],
            ["c 9 new", "d 9 new"],
        ),
        ("DELETE WHERE { GRAPH <urn:g> { ?s ?p ?o } }", None, ["urn:h"], ["c 7 g"], []),
        ("DELETE WHERE { <urn:a> <urn:p> ?o }", None, ["urn:h"], [], []),
        ("WITH <urn:g> INSERT { ?s ?p 9 } WHERE { ?s ?p ?o }", "urn:h", [], [], ["c 9 g"]),
        ("CLEAR GRAPH <urn:g> ; INSERT DATA { <urn:x> <urn:y> 1 } # end", "urn:g", [], ["c 7 g"], ["x 1 g"]),
        ("INSERT DATA { }", "urn:g", ["urn:g"], [], []),
        ("", "urn:g", ["urn:g"], [], []),
    ],
)
def test_templates_without_graph_mean_the_graph_that_is_given(
    store: Store, text: str, insert: str | None, remove: list[str], gone: list[str], come: list[str]
) -> None:
    def lines() -> set[str]:
        def short(term: object) -> str:
            return str(getattr(term, "value", "")).removeprefix("urn:")

        return {f"{short(quad.subject)} {short(quad.object)} {short(quad.graph_name)}".strip() for quad in store}

    before = lines()
    store.update(with_template_graphs(text, insert, remove))
    assert (sorted(before - lines()), sorted(lines() - before)) == (gone, come)


def test_a_text_without_an_operation_is_left_as_it_is() -> None:
    assert update_with(" # nothing", {"x": A}, ["urn:g"]) == " # nothing"
