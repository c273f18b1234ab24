"""Whole graphs, as W3C's Graph Store Protocol and as RDF4J speak of them."""

from __future__ import annotations

import pytest
from pyoxigraph import parse

from brokerha.http.rdf.statements import OFFERS
from brokerha.ingress.rdf_bodies import FORMATS
from tests.unit.http.asking import NQUADS, TURTLE, Node

GSP = "/repositories/main/gsp"
SERVICE = "/repositories/main/rdf-graphs/service"
G = "graph=urn%3Ag"
ONE = "<urn:a> <urn:b> <urn:c> .\n"
TWO = "<urn:a> <urn:b> <urn:d> .\n"


def triples(node: Node, target: str) -> list[str]:
    return sorted(node.get(target, Accept="application/n-triples").text.splitlines(keepends=True))


def test_w3c_a_graph_comes_grows_is_replaced_and_goes(node: Node) -> None:
    assert node.get(f"{GSP}?{G}").status == 404
    assert node.ask("HEAD", f"{GSP}?{G}").status == 404
    assert node.ask("DELETE", f"{GSP}?{G}").status == 404
    assert node.ask("PUT", f"{GSP}?{G}", ONE, TURTLE).status == 201
    assert node.ask("HEAD", f"{GSP}?{G}").status == 200
    assert node.ask("POST", f"{GSP}?{G}", TWO, TURTLE).status == 204
    assert triples(node, f"{GSP}?{G}") == [ONE, TWO]
    assert node.ask("PUT", f"{GSP}?{G}", TWO, TURTLE).status == 204
    assert triples(node, f"{GSP}?{G}") == [TWO]
    assert node.ask("DELETE", f"{GSP}?{G}").status == 204
    assert node.get(f"{GSP}?{G}").status == 404
    assert node.ask("POST", f"{GSP}?{G}", TWO, TURTLE).status == 201


def test_w3c_the_default_graph_is_always_there(node: Node) -> None:
    assert node.get(f"{GSP}?default").status == 200
    assert node.ask("PUT", f"{GSP}?default", ONE, TURTLE).status == 204
    assert triples(node, f"{GSP}?default=") == [ONE]
    assert node.ask("DELETE", f"{GSP}?default").status == 204
    assert triples(node, f"{GSP}?default") == []


def test_w3c_a_post_without_a_graph_makes_one(node: Node) -> None:
    answer = node.ask("POST", GSP, "<> <urn:b> <urn:c> .", TURTLE, Idempotency_Key="mine")
    assert answer.status == 201
    address = answer.headers["location"].removeprefix("http://node")
    assert address.startswith(f"{GSP}/")
    assert triples(node, address) == [f"<{answer.headers['location']}> <urn:b> <urn:c> .\n"]
    assert node.ask("POST", GSP, "", TURTLE, Idempotency_Key="mine").status == 409


def test_w3c_several_documents_come_as_one_form(node: Node) -> None:
    body = (
        b'--x\r\nContent-Disposition: form-data; name="a"; filename="a.ttl"\r\nContent-Type: text/turtle\r\n\r\n'
        b'_:n <urn:b> "\xc3\xa9" .\r\n--x\r\nContent-Disposition: form-data; name="b"; filename="b.nt"\r\n'
        b"Content-Type: application/n-triples\r\n\r\n_:n <urn:b> <urn:d> .\r\n--x--\r\n"
    )
    answer = node.ask("POST", f"{GSP}?{G}", body, {"Content-Type": "multipart/form-data; boundary=x"})
    assert answer.status == 201
    found = triples(node, f"{GSP}?{G}")
    assert sorted(line.split(" ", 1)[1] for line in found) == ['<urn:b> "é" .\n', "<urn:b> <urn:d> .\n"]
    assert len({line.split(" ", 1)[0] for line in found}) == 2
    assert node.ask("POST", f"{GSP}?{G}", body, {"Content-Type": "multipart/form-data; boundary=y"}).status == 400
    wrong = body.replace(b"text/turtle", b"image/png")
    assert node.ask("POST", f"{GSP}?{G}", wrong, {"Content-Type": "multipart/form-data; boundary=x"}).status == 415


@pytest.mark.parametrize("path", [f"{GSP}/a%20b/c", "/repositories/main/rdf-graphs/a%20b"])
def test_a_graph_in_the_path_is_named_by_the_address(node: Node, path: str) -> None:
    assert node.ask("PUT", path, "<> <urn:b> <x> .", TURTLE).status in {201, 204}
    base = f"http://node{path}"
    assert triples(node, path) == [f"<{base}> <urn:b> <{base.rpartition('/')[0]}/x> .\n"]
    assert node.get(f"{path}?a=b").status == 400


def test_rdf4j_a_graph_that_is_not_there_is_empty(node: Node) -> None:
    answer = node.get(f"{SERVICE}?{G}", Accept="application/n-triples")
    assert (answer.status, answer.body) == (200, b"")
    assert node.ask("DELETE", f"{SERVICE}?{G}").status == 204
    assert node.ask("PUT", f"{SERVICE}?{G}", ONE, TURTLE).status == 204
    assert node.ask("POST", f"{SERVICE}?{G}", TWO, TURTLE).status == 204
    assert triples(node, f"{SERVICE}?{G}") == [ONE, TWO]
    assert node.ask("POST", f"{SERVICE}?default", ONE, TURTLE).status == 204
    assert triples(node, f"{SERVICE}?default") == [ONE]
    listed = node.get("/repositories/main/rdf-graphs", Accept="text/csv").text
    assert listed == "contextID\r\nurn:g\r\n"


def test_quads_are_put_into_the_graph_that_is_named(node: Node) -> None:
    node.ask("PUT", f"{GSP}?{G}", "<urn:a> <urn:b> <urn:c> <urn:other> .\n", NQUADS)
    assert triples(node, f"{GSP}?{G}") == [ONE]


def test_an_empty_graph_is_none(node: Node) -> None:
    node.ask("PUT", f"{GSP}?{G}", ONE, TURTLE)
    assert node.ask("PUT", f"{GSP}?{G}", "", TURTLE).status == 204
    assert node.get(f"{GSP}?{G}").status == 404


@pytest.mark.parametrize(
    ("method", "target", "body", "headers", "status"),
    [
        ("GET", GSP, "", TURTLE, 400),
        ("GET", f"{GSP}?{G}&default", "", TURTLE, 400),
        ("GET", f"{GSP}?graph=relative", "", TURTLE, 400),
        ("GET", f"{GSP}?graph=urn%3Abrokerha%3Asystem", "", TURTLE, 400),
        ("GET", f"{GSP}?named=urn%3Ax", "", TURTLE, 400),
        ("PUT", SERVICE, ONE, TURTLE, 400),
        ("PUT", f"{GSP}?{G}", "no Turtle", TURTLE, 400),
        ("PUT", f"{GSP}?{G}", ONE, {"Content-Type": "image/png"}, 415),
        ("PUT", f"/repositories/nowhere/gsp?{G}", ONE, TURTLE, 404),
        ("GET", "/repositories/nowhere/gsp?default", "", TURTLE, 404),
        ("PUT", f"/repositories/nowhere/rdf-graphs/service?{G}", ONE, TURTLE, 404),
        ("PATCH", f"{GSP}?{G}", "", TURTLE, 405),
    ],
)
def test_what_makes_no_sense_is_refused(
    node: Node, method: str, target: str, body: str, headers: dict[str, str], status: int
) -> None:
    assert node.ask(method, target, body, headers).status == status


def test_a_graph_comes_in_the_format_that_is_wanted(node: Node) -> None:
    node.ask("PUT", f"{GSP}?{G}", ONE, TURTLE)
    for accept, content_type in (
        ("", "application/n-triples"),
        ("*/*", "application/n-triples"),
        ("text/turtle", "text/turtle; charset=utf-8"),
    ):
        assert node.get(f"{GSP}?{G}", Accept=accept).headers["content-type"] == content_type
    assert node.get(f"{GSP}?{G}", Accept="image/png").status == 406


@pytest.mark.parametrize("path", [GSP, SERVICE])
def test_every_format_that_is_offered_can_be_had(node: Node, path: str) -> None:
    node.ask("PUT", f"{GSP}?{G}", ONE, TURTLE)
    for offered in OFFERS:
        answer = node.get(f"{path}?{G}", Accept=offered)
        assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (200, offered)
        assert [str(quad.triple) for quad in parse(answer.body, format=FORMATS[offered])] == [ONE.removesuffix(" .\n")]
    # What a browser and rdflib send.
    for accept in ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "text/rdf+n3, */*;q=0.1"):
        assert node.get(f"{path}?{G}", Accept=accept).headers["content-type"] == "application/n-triples"
    assert "text/turtle" in node.get(f"{path}?{G}", Accept="application/xml").text
