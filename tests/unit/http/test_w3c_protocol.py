"""What W3C's test suite asks of the SPARQL 1.1 Protocol, case by case under its names; data and texts are our own.

Those of the Graph Store Protocol are in test_graphs.py.
"""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.unit.http.asking import FORM, NQUADS, QUERY, UPDATE, Asked, Node

SPARQL = "/repositories/main/sparql"
DATA = "".join(f"<urn:s{n}> <urn:p> {n}0 <http://x/g{n}> .\n".replace(f"{n}0", f'"{n}"') for n in (1, 2, 3))
BOTH = "ASK { <urn:s1> <urn:p> ?a . <urn:s2> <urn:p> ?b }"
EACH_NAMED = (
    "ASK { GRAPH ?g { <urn:s1> <urn:p> ?a } GRAPH ?h { <urn:s2> <urn:p> ?b } FILTER NOT EXISTS { GRAPH ?i { <urn:s3> ?p ?o } } }"
)
FULL = "ASK { <urn:s3> <urn:p> ?c GRAPH ?g { <urn:s1> <urn:p> ?a } FILTER NOT EXISTS { <urn:s1> ?p ?o } }"
COPY = (
    "INSERT { GRAPH <urn:new> { ?s <urn:in> ?in } } WHERE { { GRAPH ?in { ?s ?p ?o } } UNION { ?s ?p ?o BIND('default' AS ?in) } }"
)
JSON = {"Accept": "application/sparql-results+json"}


@pytest.fixture
def filled(node: Node) -> Node:
    node.ask("POST", "/repositories/main/statements", DATA, NQUADS)
    return node


def dataset(kind: str, *numbers: int) -> str:
    return "&".join(f"{kind}-graph-uri={quote(f'http://x/g{n}', safe='')}" for n in numbers)


def is_true(answer: Asked) -> bool:
    assert answer.status == 200, answer.text
    return answer.json["boolean"] is True


def by_get(node: Node, text: str, more: str = "") -> bool:
    return is_true(node.ask("GET", f"{SPARQL}?query={quote(text)}&{more}", b"", JSON))


def by_form(node: Node, text: str, more: str = "") -> bool:
    return is_true(node.ask("POST", SPARQL, f"query={quote(text)}&{more}", {**FORM, **JSON}))


def by_body(node: Node, text: str, more: str = "") -> bool:
    return is_true(node.ask("POST", f"{SPARQL}?{more}", text, {**QUERY, **JSON}))


def test_query_get_post_form_and_post_direct(filled: Node) -> None:
    for ask in (by_get, by_form, by_body):
        assert ask(filled, "ASK {}")
    # query_post_form has the dataset in the URL and the query in the body.
    url = f"{SPARQL}?{dataset('default', 1, 2)}"
    assert is_true(filled.ask("POST", url, f"query={quote(BOTH)}", {**FORM, **JSON}))


@pytest.mark.parametrize("ask", [by_get, by_form, by_body])
def test_query_dataset_default_graphs_named_graphs_full_and_multiple(filled: Node, ask) -> None:
    assert not ask(filled, BOTH)
    assert not ask(filled, BOTH, dataset("default", 1))
    assert ask(filled, BOTH, dataset("default", 1, 2))
    assert ask(filled, EACH_NAMED, dataset("named", 1, 2))
    assert ask(filled, FULL, f"{dataset('default', 3)}&{dataset('named', 1, 2)}")
    # query_multiple_dataset: that of the protocol goes before that of the text.
    assert ask(filled, f"ASK FROM <http://x/g3> {BOTH[4:]}", dataset("default", 1, 2))


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("SELECT (1 AS ?value) {}", ("application/sparql-results+xml", "application/sparql-results+json", "text/csv")),
        ("ASK {}", ("application/sparql-results+xml", "application/sparql-results+json")),
        ("DESCRIBE <http://example.org/>", ("text/turtle", "application/n-triples")),
        ("CONSTRUCT { <s> <p> 1 } WHERE {}", ("text/turtle", "application/n-triples")),
    ],
)
def test_query_content_types(filled: Node, text: str, types: tuple[str, ...]) -> None:
    for wanted in types:
        answer = filled.ask("POST", SPARQL, text, QUERY, Accept=wanted)
        assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (200, wanted)
    assert filled.ask("POST", SPARQL, text, QUERY).status == 200


def test_update_post_form_and_post_direct(filled: Node) -> None:
    assert filled.ask("POST", SPARQL, "update=CLEAR+GRAPH+%3Chttp://x/g1%3E", FORM).status == 204
    assert filled.ask("POST", SPARQL, "CLEAR ALL", UPDATE).status == 204
    assert filled.get("/repositories/main/size").text == "0"


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        (dataset("using", 1), {("s1", "default")}),
        (dataset("using", 1, 2), {("s1", "default"), ("s2", "default")}),
        (dataset("using-named", 1, 2), {("s1", "g1"), ("s2", "g2")}),
        (f"{dataset('using', 1)}&{dataset('using-named', 2)}", {("s1", "default"), ("s2", "g2")}),
    ],
)
def test_update_dataset_default_graph_default_graphs_named_graphs_and_full(
    filled: Node, more: str, wanted: set[tuple[str, str]]
) -> None:
    text = f"INSERT DATA {{ GRAPH <urn:y> {{ <urn:s4> <urn:p> 4 }} }} ; {COPY}"
    assert filled.ask("POST", f"{SPARQL}?{more}", text, UPDATE).status == 204
    rows = filled.get(f"{SPARQL}?query={quote('SELECT * { GRAPH <urn:new> { ?s <urn:in> ?in } }')}", Accept="text/csv").text
    found = {tuple(row.split(",")) for row in rows.split()[1:]}
    assert {(s.removeprefix("urn:"), i.removeprefix("http://x/")) for i, s in found} == wanted


def test_update_base_uri(filled: Node) -> None:
    text = "INSERT DATA { GRAPH <http://example.org/base/> { <urn:s> <urn:p> <test> } }"
    assert filled.ask("POST", SPARQL, text, UPDATE).status == 204
    query = "SELECT ?o { GRAPH <http://example.org/base/> { <urn:s> <urn:p> ?o } }"
    rows = filled.get(f"{SPARQL}?query={quote(query)}", Accept="text/csv").text.split()
    assert rows == ["o", "http://node/repositories/main/test"]
    assert filled.ask("POST", f"{SPARQL}?baseURI=http://base/x", text, UPDATE).status == 204
    rows = filled.get(f"{SPARQL}?query={quote(query)}", Accept="text/csv").text.split()
    assert sorted(rows) == ["http://base/test", "http://node/repositories/main/test", "o"]


@pytest.mark.parametrize(
    ("name", "method", "more", "body", "headers"),
    [
        ("bad_query_method", "PUT", "query=ASK%20%7B%7D", b"", FORM),
        ("bad_multiple_queries", "GET", "query=ASK%20%7B%7D&query=SELECT%20%2A%20%7B%7D", b"", {}),
        ("bad_query_wrong_media_type", "POST", "", b"ASK {}", {"Content-Type": "text/plain"}),
        ("bad_query_missing_form_type", "POST", "", b"query=ASK%20%7B%7D", {}),
        ("bad_query_missing_direct_type", "POST", "", b"ASK {}", {}),
        ("bad_query_non_utf8", "POST", "", "ASK {}".encode("utf-16"), {"Content-Type": "application/sparql-query; charset=UTF-16"}),
        ("bad_query_syntax", "GET", "query=ASK%20%7B", b"", {}),
        ("bad_update_get", "GET", "update=CLEAR%20ALL", b"", {}),
        ("bad_multiple_updates", "POST", "", b"update=CLEAR%20NAMED&update=CLEAR%20DEFAULT", FORM),
        ("bad_update_wrong_media_type", "POST", "", b"CLEAR NAMED", {"Content-Type": "text/plain"}),
        ("bad_update_missing_form_type", "POST", "", b"update=CLEAR%20NAMED", {}),
        ("bad_update_non_utf8", "POST", "", "CLEAR NAMED".encode("utf-16"), {"Content-Type": "application/sparql-update; charset=UTF-16"}),
        ("bad_update_syntax", "POST", "", b"update=CLEAR%20XYZ", FORM),
        (
            "bad_update_dataset_conflict",
            "POST",
            "using-named-graph-uri=http%3A%2F%2Fexample%2Fpeople",
            b"WITH <http://example/addresses> DELETE { ?s ?p 'Bill' } INSERT { ?s ?p 'William' } WHERE { ?s ?p 'Bill' }",
            UPDATE,
        ),
    ],
)  # fmt: skip
def test_what_must_be_refused(filled: Node, name: str, method: str, more: str, body: bytes, headers: dict[str, str]) -> None:
    answer = filled.ask(method, f"{SPARQL}?{more}", body, headers)
    assert 400 <= answer.status < 500, f"{name}: {answer.status}"
    assert filled.get("/repositories/main/size").text == "3"


def test_service_description_is_rdf_and_names_the_endpoint(filled: Node) -> None:
    for accept in ("text/turtle", "application/rdf+xml", "*/*", ""):
        answer = filled.get(SPARQL, Accept=accept)
        assert answer.status == 200
    found = filled.get(SPARQL, Accept="application/n-triples").text
    sd = "http://www.w3.org/ns/sparql-service-description#"
    assert f"<{sd}endpoint> <http://node{SPARQL}> ." in found
    assert f"<{sd}supportedLanguage> <{sd}SPARQL11Update> ." in found
    assert "UnionDefaultGraph" not in found
    config = "[] <http://www.openrdf.org/config/repository#repositoryID> 'main' ; <urn:brokerha:config#union-default-graph> true ."
    filled.ask("POST", "/repositories/main/config", config, {"Content-Type": "text/turtle"})
    assert "UnionDefaultGraph" in filled.get(SPARQL).text
    assert filled.get("/repositories/nowhere/sparql").status == 404
    assert filled.get(SPARQL, Accept="image/png").status == 406
    assert filled.get(f"{SPARQL}?timeout=1").status == 400
