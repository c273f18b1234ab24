"""RDF4J namespaces and configurations of repositories."""

from __future__ import annotations

import pytest

from tests.unit.http.asking import TURTLE, Node
from tests.unit.http.fake_front import FakeFront

NAMESPACES = "/repositories/main/namespaces"
FOAF = "http://xmlns.com/foaf/0.1/"
PREFIXES = """
@prefix rep: <http://www.openrdf.org/config/repository#> .
@prefix sr: <http://www.openrdf.org/config/repository/sail#> .
@prefix sail: <http://www.openrdf.org/config/sail#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix c: <tag:rdf4j.org,2023:config/> .
"""
OLD = """[] a rep:Repository ; rep:repositoryID "new" ; rdfs:label "Bücher" ;
   rep:repositoryImpl [ rep:repositoryType "openrdf:SailRepository" ; sr:sailImpl [ sail:sailType "openrdf:MemoryStore" ] ]"""
NEWER = """[] a c:Repository ; c:rep.id "new" ; rdfs:label "Bücher" ;
   c:rep.impl [ c:rep.type "openrdf:SailRepository" ; c:sail.impl [ c:sail.type "openrdf:NativeStore" ] ]"""
UNION = "; <urn:brokerha:config#union-default-graph> true"


def listed(node: Node, path: str = NAMESPACES) -> dict[str, str]:
    rows = node.get(path, Accept="application/sparql-results+json").json["results"]["bindings"]
    return {row["prefix"]["value"]: row["namespace"]["value"] for row in rows}


def test_a_namespace_is_set_read_replaced_and_deleted(node: Node) -> None:
    assert node.ask("PUT", f"{NAMESPACES}/foaf", "urn:old:").status == 204
    assert node.ask("PUT", f"{NAMESPACES}/foaf", FOAF, {"Content-Type": "text/plain; charset=UTF-8"}).status == 204
    answer = node.get(f"{NAMESPACES}/foaf")
    assert (answer.status, answer.text, answer.headers["content-type"]) == (200, FOAF, "text/plain; charset=utf-8")
    assert node.ask("DELETE", f"{NAMESPACES}/foaf").status == 204
    assert node.ask("DELETE", f"{NAMESPACES}/foaf").status == 204
    assert node.get(f"{NAMESPACES}/foaf").status == 404


def test_all_of_them_are_a_table_and_go_together(node: Node) -> None:
    for prefix, iri in (("foaf", FOAF), ("", "urn:x:"), ("%C3%A9", "urn:y:")):
        assert node.ask("PUT", f"{NAMESPACES}/{prefix}", iri).status == 204
    assert listed(node) == {"": "urn:x:", "foaf": FOAF, "é": "urn:y:"}
    assert node.get(f"{NAMESPACES}/").text == "urn:x:"
    table = node.get(NAMESPACES, Accept="text/csv")
    assert table.text == f"prefix,namespace\r\n,urn:x:\r\nfoaf,{FOAF}\r\né,urn:y:\r\n"
    assert (table.headers["content-type"], table.headers["vary"]) == ("text/csv; charset=utf-8", "Accept")
    assert node.ask("DELETE", NAMESPACES).status == 204
    assert node.ask("DELETE", NAMESPACES).status == 204
    assert listed(node) == {}


@pytest.mark.parametrize(
    ("prefix", "iri"), [("a%3Ab", "urn:x:"), ("a%20b", "urn:x:"), ("a", "relative"), ("a", ""), ("a", "urn:x y")]
)
def test_what_is_no_namespace_is_refused(node: Node, prefix: str, iri: str) -> None:
    assert node.ask("PUT", f"{NAMESPACES}/{prefix}", iri).status == 400
    assert listed(node) == {}


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_without_the_repository_there_are_none(node: Node, method: str) -> None:
    answer = node.ask(method, "/repositories/nowhere/namespaces/a", "urn:x:")
    assert (answer.status, answer.headers["brokerha-error"]) == (404, "UnknownRepository")
    assert node.get("/repositories/nowhere/namespaces").status == 404
    assert node.ask("DELETE", "/repositories/nowhere/namespaces").status == 404


def test_a_worker_reads_them_and_refuses_to_write(node: Node) -> None:
    worker = Node(FakeFront(role="worker"))
    assert worker.get(NAMESPACES).status == 200
    assert worker.ask("PUT", f"{NAMESPACES}/a", "urn:x:").status == 503


@pytest.mark.parametrize("text", [OLD, NEWER])
def test_a_configuration_gives_a_title_and_settings(node: Node, text: str) -> None:
    assert node.ask("PUT", "/repositories/new", f"{PREFIXES} {text} {UNION} .", TURTLE).status == 204
    rows = node.get("/repositories", Accept="application/sparql-results+json").json["results"]["bindings"]
    assert [row["title"]["value"] for row in rows] == ["repository main", "Bücher"]
    config = node.get("/repositories/new/config", Accept="text/turtle")
    assert config.headers["content-type"] == "text/turtle; charset=utf-8"
    assert 'rdfs:label "Bücher"' in config.text
    assert '<urn:brokerha:config#union-default-graph> "true"' in config.text or "graph> true" in config.text


@pytest.mark.parametrize(
    ("text", "is_union"),
    [
        (OLD, True),
        (NEWER, True),
        (OLD.replace("openrdf:MemoryStore", "graphdb:Sail").replace("openrdf:SailRepository", "graphdb:SailRepository"), True),
        (f"{OLD} ; <urn:brokerha:config#union-default-graph> false", False),
        (OLD.replace("openrdf:MemoryStore", "brokerha:Repository").replace("openrdf:SailRepository", "brokerha:Repository"), False),
        ("[] rep:repositoryID 'new'", False),
    ],
)
def test_a_store_of_rdf4j_or_graphdb_has_the_default_graph_that_it_has_there(node: Node, text: str, is_union: bool) -> None:
    assert node.ask("PUT", "/repositories/new", f"{PREFIXES} {text} .", TURTLE).status == 204

    config = node.get("/repositories/new/config", Accept="text/turtle").text
    assert ('union-default-graph> "true"' in config or "union-default-graph> true" in config) is is_union

    # What is written says it in full, so sending it again changes nothing.
    assert node.ask("POST", "/repositories/new/config", config, TURTLE).status == 204
    again = node.get("/repositories/new/config", Accept="text/turtle").text
    assert ("true" in again.partition("union-default-graph>")[2][:12]) is is_union


def test_what_is_read_can_be_sent_again_and_changed(node: Node) -> None:
    config = node.get("/repositories/main/config").text
    assert node.ask("POST", "/repositories/main/config", config.replace("repository main", "Main"), TURTLE).status == 204
    assert "Main" in node.get("/repositories/main/config").text
    assert node.ask("PUT", "/repositories/main/config", f"{PREFIXES} [] rep:repositoryID 'main' .", TURTLE).status == 204
    assert "repository main" in node.get("/repositories/main/config").text
    assert node.ask("POST", "/repositories/nowhere/config", config, TURTLE).status == 400
    assert node.get("/repositories/nowhere/config").status == 404
    assert node.get("/repositories/main/config", Accept="image/png").status == 406


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("<urn:a> <urn:b> <urn:c> .", "describes 0 repositories"),
        (OLD.replace('"new"', '"other"') + ".", "the path says 'new'"),
        (OLD.replace("openrdf:MemoryStore", "openrdf:ForwardChainingRDFSInferencer") + ".", "type 'openrdf:Forward"),
        (OLD.replace("openrdf:SailRepository", "openrdf:SPARQLRepository") + ".", "type 'openrdf:SPARQLRepository'"),
        (OLD + '; <http://www.ontotext.com/config/graphdb#ruleset> "rdfs" .', "'rdfs' would infer"),
        (OLD + '; <urn:brokerha:config#union-default-graph> "maybe" .', "true or false"),
        ("this is no Turtle", "MALFORMED DATA"),
    ],
)
def test_a_configuration_of_something_else_is_refused(node: Node, config: str, words: str) -> None:
    answer = node.ask("PUT", "/repositories/new", f"{PREFIXES} {config}", TURTLE)
    assert answer.status == 400
    assert words in answer.text
    assert list(node.front.repositories) == ["main"]
