"""RDF4J repositories: list, create, remove, size, contexts, protocol."""

from __future__ import annotations

from tests.unit.http.asking import NQUADS, TURTLE, Node
from tests.unit.http.fake_front import FakeFront

STATEMENTS = "/repositories/main/statements"


def test_the_protocol_has_a_version(node: Node) -> None:
    assert node.get("/protocol").text == "12\n"


def test_a_repository_is_created_once_and_removed(node: Node) -> None:
    assert node.ask("PUT", "/repositories/new").status == 204
    assert node.ask("PUT", "/repositories/new").status == 409
    assert node.ask("DELETE", "/repositories/new").status == 204
    assert node.ask("DELETE", "/repositories/new").status == 404


def test_a_rejected_write_names_its_transaction_and_lsn(node: Node) -> None:
    answer = node.ask("PUT", "/repositories/main", Idempotency_Key="mine")

    assert (answer.status, answer.headers["brokerha-error"]) == (409, "Rejected")
    assert (answer.headers["brokerha-tx"], answer.headers["brokerha-lsn"]) == ("mine", "1")


def test_a_write_to_no_repository_names_its_transaction_and_lsn_too(node: Node) -> None:
    answer = node.ask("DELETE", "/repositories/nowhere", Idempotency_Key="mine")

    assert (answer.status, answer.headers["brokerha-error"]) == (404, "UnknownRepository")
    assert (answer.headers["brokerha-tx"], answer.headers["brokerha-lsn"]) == ("mine", "1")


def test_a_configuration_may_come_along(node: Node) -> None:
    config = "@prefix rep: <http://www.openrdf.org/config/repository#> . [] rep:repositoryID 'new' ."

    assert node.ask("PUT", "/repositories/new", config, TURTLE).status == 204
    assert sorted(node.front.repositories) == ["main", "new"]


def test_the_list_tells_address_name_and_whether_it_can_be_written(node: Node) -> None:
    node.ask("PUT", "/repositories/new")

    rows = node.get("/repositories", Accept="application/sparql-results+json").json["results"]["bindings"]

    assert [row["id"]["value"] for row in rows] == ["main", "new"]
    assert rows[0]["uri"]["value"] == "http://node/repositories/main"
    assert (rows[0]["readable"]["value"], rows[0]["writable"]["value"]) == ("true", "true")
    on_worker = Node(FakeFront(role="worker")).get("/repositories", Accept="text/csv").text
    assert on_worker.splitlines()[1].endswith("true,false")


def test_a_list_comes_in_the_format_that_the_caller_likes_most(node: Node) -> None:
    answer = node.get("/repositories", Accept="application/sparql-results+xml, text/csv;q=0.5")

    assert answer.headers["content-type"] == "application/sparql-results+xml"
    assert b"<sparql" in answer.body


def test_size_counts_all_graphs_or_the_contexts(node: Node) -> None:
    node.ask("POST", STATEMENTS, b"<urn:a> <urn:b> <urn:c> .\n<urn:a> <urn:b> <urn:c> <urn:g> .\n", NQUADS)

    assert node.get("/repositories/main/size").text == "2"
    assert node.get("/repositories/main/size?context=null").text == "1"


def test_contexts_are_the_named_graphs_blank_ones_included(node: Node) -> None:
    quads = b"<urn:a> <urn:b> <urn:c> _:g .\n<urn:a> <urn:b> <urn:c> <urn:g> .\n<urn:a> <urn:b> <urn:c> .\n"
    node.ask("POST", f"{STATEMENTS}?preserveNodeId", quads, NQUADS)

    rows = node.get("/repositories/main/contexts", Accept="application/json").json["results"]["bindings"]

    assert [(row["contextID"]["type"], row["contextID"]["value"]) for row in rows] == [("uri", "urn:g"), ("bnode", "g")]


def test_a_list_without_rows_is_a_table_without_rows(node: Node) -> None:
    table = node.get("/repositories/main/contexts", Accept="application/json").json

    assert table == {"head": {"vars": ["contextID"]}, "results": {"bindings": []}}
