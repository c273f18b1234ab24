"""SPARQL over HTTP: each form of query and update, at RDF4J's path and at the SPARQL Protocol's."""

from __future__ import annotations

from urllib.parse import quote, urlencode

import pytest

from tests.unit.http.asking import FORM, QUERY, TURTLE, UPDATE, Node

REPO = "/repositories/main"
INSERT = "INSERT DATA { <urn:a> <urn:b> 'é' }"
ASK = "ASK { <urn:a> <urn:b> 'é' }"
RESULTS_JSON = "application/sparql-results+json"


@pytest.mark.parametrize(
    ("method", "target", "body", "headers"),
    [
        ("POST", f"{REPO}/sparql", INSERT, UPDATE),
        ("POST", f"{REPO}/sparql", INSERT, {"Content-Type": 'Application/SPARQL-Update; charset="UTF-8"'}),
        ("POST", f"{REPO}/sparql", urlencode({"update": INSERT}), FORM),
        ("POST", f"{REPO}/statements", INSERT, UPDATE),
        ("POST", f"{REPO}/statements", urlencode({"update": INSERT}), FORM),
        ("POST", f"{REPO}/sparql", f"\ufeff{INSERT}", UPDATE),
        ("POST", f"{REPO}/sparql", urlencode({"update": f"\ufeff{INSERT}"}), FORM),
    ],
)
def test_an_update_may_be_sent_in_each_form(node: Node, method, target, body, headers) -> None:
    answer = node.ask(method, target, body, headers)

    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["brokerha-lsn"] == "1"
    assert node.get(f"{REPO}?query={quote(ASK)}", Accept=RESULTS_JSON).json["boolean"] is True


@pytest.mark.parametrize(
    ("method", "target", "body", "headers"),
    [
        ("GET", f"{REPO}?query={quote(ASK)}", "", {}),
        ("POST", f"{REPO}/sparql", f"\ufeff{ASK}", QUERY),
        ("GET", f"{REPO}/sparql?query={quote(ASK)}", "", {}),
        ("GET", f"{REPO}/sparql?query={quote(ASK).replace('%20', '+')}", "", {}),
        ("GET", f"{REPO}?queryLn=sparql&infer=true&query={quote(ASK)}", "", {}),
        ("POST", REPO, urlencode({"query": ASK}), FORM),
        ("POST", f"{REPO}/sparql", urlencode({"query": ASK}), FORM),
        ("POST", REPO, ASK, QUERY),
        ("POST", f"{REPO}/sparql", ASK, QUERY),
    ],
)
def test_a_query_may_be_sent_in_each_form(node: Node, method, target, body, headers) -> None:
    node.ask("POST", f"{REPO}/sparql", INSERT, UPDATE)

    answer = node.ask(method, target, body, {**headers, "Accept": RESULTS_JSON})

    assert (answer.status, answer.json["boolean"]) == (200, True)
    assert answer.headers["content-type"] == RESULTS_JSON
    assert answer.headers["brokerha-lsn"] == "1"
    assert answer.headers["vary"] == "Accept"


@pytest.mark.parametrize(
    ("target", "media_type"),
    [
        (f"{REPO}?query=ASK%7B%7D", RESULTS_JSON),
        (f"{REPO}/sparql?query=CONSTRUCT+WHERE+%7B%7D", "application/ld+json"),
        (f"{REPO}/statements?infer=true", "application/ld+json"),
        (f"{REPO}/contexts?", RESULTS_JSON),
        (f"{REPO}/rdf-graphs?", RESULTS_JSON),
        (f"{REPO}/rdf-graphs/service?default", "application/ld+json"),
        (f"{REPO}/gsp/a?", "application/ld+json"),
        (f"{REPO}/namespaces?", RESULTS_JSON),
        (f"{REPO}/config?", "application/ld+json"),
        ("/repositories?", RESULTS_JSON),
    ],
)
def test_the_parameter_accept_goes_before_the_header_as_in_rdf4j(node: Node, target: str, media_type: str) -> None:
    node.ask("PUT", f"{REPO}/gsp/a", "<urn:a> <urn:b> <urn:c> .", TURTLE)
    answer = node.get(f"{target}&Accept={quote(media_type)}", Accept="text/html,application/xml;q=0.9,*/*;q=0.8")
    assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (200, media_type)
    wrong = node.get(f"{target}&Accept=image/png", Accept="*/*")
    assert (wrong.status, wrong.headers["brokerha-error"]) == (406, "NotAcceptable")


def test_the_parameter_accept_may_stand_in_a_form(node: Node) -> None:
    form = urlencode({"query": ASK, "Accept": RESULTS_JSON})
    assert node.ask("POST", f"{REPO}/sparql", form, FORM, Accept="text/csv").headers["content-type"] == RESULTS_JSON


def test_the_accept_header_of_a_query_goes_to_the_store_as_it_is(node: Node) -> None:
    node.ask("GET", f"{REPO}?query=ASK%7B%7D", headers={"Accept": "text/csv;q=0.1, application/json"})

    assert node.front.reads[0][2]["accept"] == "text/csv;q=0.1, application/json"


def test_the_dataset_of_a_query_is_chosen_by_the_protocol(node: Node) -> None:
    for graph in ("urn:g1", "urn:g2", "urn:g3"):
        node.front.submit([("add", "main", f"<urn:s> <urn:p> <{graph}> <{graph}> .")])
    query = quote("SELECT ?o { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }")
    dataset = "default-graph-uri=urn:g1&default-graph-uri=urn:g2&named-graph-uri=urn:g3"

    in_url = node.get(f"{REPO}/sparql?query={query}&{dataset}", Accept="text/csv")
    in_form = node.ask("POST", f"{REPO}/sparql", f"query={query}&{dataset}", FORM, Accept="text/csv")
    direct = node.ask("POST", f"{REPO}/sparql?{dataset}", "SELECT ?o { ?s ?p ?o }", QUERY, Accept="text/csv")

    assert sorted(in_url.text.split()) == ["o", "urn:g1", "urn:g2", "urn:g3"]
    assert sorted(in_form.text.split()) == ["o", "urn:g1", "urn:g2", "urn:g3"]
    assert sorted(direct.text.split()) == ["o", "urn:g1", "urn:g2"]


def test_the_time_of_a_query_is_the_parameter_in_seconds_or_the_header(node: Node) -> None:
    node.get(f"{REPO}?query=ASK%7B%7D&timeout=5")
    node.get(f"{REPO}?query=ASK%7B%7D")
    node.get(f"{REPO}?query=ASK%7B%7D", Brokerha_Timeout_Ms="700")

    assert [read[4] for read in node.front.reads] == [5000, 30_000, 700]


def test_an_update_has_the_time_that_it_asks_for(node: Node) -> None:
    update = "update=INSERT%20DATA%20%7B%20%3Curn%3Aa%3E%20%3Curn%3Ab%3E%201%20%7D"
    assert node.ask("POST", f"{REPO}/statements", f"{update}&timeout=5", FORM).status == 204
    assert (
        node.ask(
            "POST",
            f"{REPO}/statements?timeout=-1",
            "INSERT DATA { <urn:a> <urn:b> 2 }",
            {"Content-Type": "application/sparql-update"},
        ).status
        == 204
    )
    assert node.ask("POST", f"{REPO}/statements", f"{update}&timeout=never", FORM).status == 400
    assert [timeout_ms for _, _, _, timeout_ms in node.front.submitted] == [5000, 3_600_000]


@pytest.mark.parametrize("seconds", ["-1", "0"])
def test_a_query_without_a_bound_as_rdf4j_writes_it_has_the_longest_time_of_the_door(node: Node, seconds: str) -> None:
    node.get(f"{REPO}?query=ASK%7B%7D&timeout={seconds}")
    node.ask("POST", REPO, f"query=ASK%7B%7D&timeout={seconds}", FORM)

    assert [read[4] for read in node.front.reads] == [3_600_000, 3_600_000]


def test_a_parameter_that_is_the_same_in_form_and_url_is_one(node: Node) -> None:
    same = node.ask("POST", f"{REPO}?query=ASK%7B%7D&queryLn=SPARQL", "query=ASK+%7B%7D&queryLn=SPARQL".replace("+", ""), FORM)
    other = node.ask("POST", f"{REPO}?query=ASK%7B%7D", "query=ASK%7B%3Curn:a%3E+%3Fp+%3Fo%7D", FORM)
    twice_here = node.ask("POST", f"{REPO}?query=ASK%7B%7D&query=ASK%7B%7D", "query=ASK%7B%7D", FORM)

    assert same.status == 200, same.text
    assert (other.status, twice_here.status) == (400, 400)


def test_a_read_may_ask_for_a_least_lsn(node: Node) -> None:
    node.ask("PUT", "/kv/t/k", b"v")

    assert node.get(f"{REPO}?query=ASK%7B%7D", Brokerha_Min_Lsn="1").status == 200
    late = node.get(f"{REPO}?query=ASK%7B%7D", Brokerha_Min_Lsn="2")
    assert (late.status, late.headers["brokerha-error"]) == (503, "TimedOut")


def test_a_query_with_a_large_body_is_answered_too(node: Node) -> None:
    query = "ASK { VALUES ?x { " + "1 " * 50_000 + "} }"

    assert node.ask("POST", f"{REPO}/sparql", query, {**QUERY, "Accept": RESULTS_JSON}).json["boolean"] is True


def test_bindings_and_slices_are_written_into_the_query(node: Node) -> None:
    node.ask("POST", f"{REPO}/statements", "INSERT DATA { <urn:a> <urn:p> 1, 2 . <urn:b> <urn:p> 2 }", UPDATE)
    two = "%22" + "2%22%5E%5E%3Chttp://www.w3.org/2001/XMLSchema%23integer%3E"
    query = "query=SELECT+?s+?o+%7B+?s+<urn:p>+?o+%7D+ORDER+BY+?s+?o".replace("<", "%3C").replace(">", "%3E")

    def rows(more: str, path: str = "") -> list[str]:
        return node.get(f"{REPO}{path}?{query}&{more}", Accept="text/csv").text.split()[1:]

    assert rows(f"$o={two}") == rows(f"%24o={two}", "/sparql") == ["urn:a,2", "urn:b,2"]
    assert rows("limit=1&offset=1&infer=false") == ["urn:a,2"]
    assert rows(f"$o={two}&limit=1") == ["urn:a,2"]
    assert rows(f"$o={two}&$s=%3Curn:b%3E&distinct=true") == ["urn:b,2"]
    form = "query=CONSTRUCT+WHERE+%7B+?s+?p+?o+%7D&limit=1&offset=1&%24s=%3Curn:a%3E"
    found = node.ask("POST", REPO, form, FORM, Accept="application/n-triples").text
    assert len(found.splitlines()) == 1
    assert found.startswith("<urn:a> ")


def test_a_part_of_a_result_is_refused_that_its_format_cannot_hold(node: Node) -> None:
    # The first class of a subject becomes an element, and the second one has no name for it.
    query = "CONSTRUCT { ?s a ?c } WHERE { VALUES (?s ?c) { (<urn:s> <urn:C>) (<urn:s> <http://x/1>) } }"
    xml = {**QUERY, "Accept": "application/rdf+xml"}
    assert node.ask("POST", f"{REPO}?limit=1", query, xml).status == 200
    refused = node.ask("POST", f"{REPO}?offset=1", query, xml)
    assert (refused.status, "RDF/XML cannot name the class 'http://x/1'" in refused.text) == (406, True)


def test_the_dataset_of_an_update_may_stand_beside_it(node: Node) -> None:
    node.ask("POST", f"{REPO}/statements", "INSERT DATA { GRAPH <urn:g> { <urn:a> <urn:p> 1 } }", UPDATE)
    text = "INSERT { ?s <urn:q> ?o } WHERE { ?s ?p ?o }"
    assert node.ask("POST", f"{REPO}/sparql?using-graph-uri=urn%3Ag", text, UPDATE).status == 204
    assert node.get(f"{REPO}/size").text == "2"
    form = "update=DELETE+WHERE+%7B+?s+?p+?o+%7D&using-graph-uri=urn:none"
    assert node.ask("POST", f"{REPO}/statements", form, FORM).status == 204
    assert node.get(f"{REPO}/size").text == "2"
    form = "update=DELETE+WHERE+%7B+?s+?p+?o+%7D&%24s=%3Curn:a%3E"
    assert node.ask("POST", f"{REPO}/statements", form, FORM).status == 204
    assert node.get(f"{REPO}/size").text == "1"


@pytest.mark.parametrize("path", ["/repositories/main/sparql", "/repositories/main/statements"])
@pytest.mark.parametrize("name", ["default-graph-uri=urn:g", "named-graph-uri=urn:g", "limit=1", "offset=1", "distinct"])
def test_an_update_refuses_what_is_said_of_queries(node: Node, path: str, name: str) -> None:
    update = "DELETE WHERE { ?s ?p ?o }"
    for answer in (
        node.ask("POST", path, f"update={quote(update)}&{name}", FORM),
        node.ask("POST", f"{path}?{name}", update, UPDATE),
    ):
        assert answer.status == 400
        assert f"an update takes no {name.partition('=')[0]}, but insert-graph-uri" in answer.text
    assert not node.front.submitted


@pytest.mark.parametrize("path", ["/repositories/main/sparql", "/repositories/main"])
def test_a_query_refuses_what_is_said_of_updates(node: Node, path: str) -> None:
    answer = node.get(f"{path}?query=ASK%7B%7D&using-graph-uri=urn:g")
    assert (answer.status, "a query takes no using-graph-uri, but default-graph-uri" in answer.text) == (400, True)
