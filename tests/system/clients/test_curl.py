"""curl, through each master: what is typed at a terminal, with W3C's status codes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.system.clients.conftest import Door

TURTLE = ("-H", "Content-Type: text/turtle")


def curl(*arguments: str) -> tuple[int, str]:
    """Status and body."""
    found = shutil.which("curl")
    assert found is not None, "there is no curl on this machine: install it (apt-get install curl)"
    done = subprocess.run([found, "-sS", "-w", "\n%{http_code}", *arguments], capture_output=True, check=True, timeout=60)
    body, _, status = done.stdout.decode().rpartition("\n")
    return int(status), body


def test_a_repository_from_creation_to_deletion(door: Door) -> None:
    assert curl("-X", "PUT", door.address) == (204, "")
    assert curl("-X", "PUT", door.address)[0] == 409
    assert curl(f"{door.url}/protocol") == (200, "12\n")
    assert f"{door.address},{door.repository}," in curl("-H", "Accept: text/csv", f"{door.url}/repositories")[1]
    assert "rep:repositoryID" in curl("-H", "Accept: text/turtle", f"{door.address}/config")[1]
    assert curl("-X", "DELETE", door.address) == (204, "")
    assert curl(f"{door.address}/size")[0] == 404


def test_statements_queries_and_updates(made: Door, tmp_path: Path) -> None:
    file = tmp_path / "data.ttl"
    file.write_text('<urn:a> <urn:p> "süß", "x,y" .\n', encoding="utf-8")
    statements = f"{made.address}/statements"
    assert curl(*TURTLE, "--data-binary", f"@{file}", statements) == (204, "")
    assert curl("--data-urlencode", "update=INSERT DATA { <urn:b> <urn:p> 1 }", statements) == (204, "")
    assert curl(f"{made.address}/size") == (200, "3")
    query = ("-G", "--data-urlencode", "query=SELECT ?o { <urn:a> ?p ?o } ORDER BY ?o")
    assert curl(*query, "-H", "Accept: text/csv", made.address) == (200, 'o\r\nsüß\r\n"x,y"\r\n')
    assert curl(*query, "-H", "Accept: text/tab-separated-values", made.address) == (200, '?o\n"süß"\n"x,y"\n')
    assert '"süß"' in curl(*query, "-H", "Accept: application/sparql-results+json;q=0.9, text/csv;q=0.5", made.address)[1]
    assert "<literal>süß</literal>" in curl(*query, "-H", "Accept: application/sparql-results+xml", made.address)[1]
    assert curl(*query, "-H", "Accept: image/png", made.address)[0] == 406
    ask = ("-G", "--data-urlencode", "query=ASK { ?s ?p 1 }", "-H", "Accept: text/boolean")
    assert curl(*ask, f"{made.address}/sparql") == (200, "true")
    bound = (
        "-G",
        "--data-urlencode",
        "query=SELECT ?s { ?s ?p ?o }",
        "--data-urlencode",
        '$o="1"^^<http://www.w3.org/2001/XMLSchema#integer>',
    )
    assert curl(*bound, "-d", "limit=1", "-H", "Accept: text/csv", made.address) == (200, "s\r\nurn:b\r\n")
    status, text = curl("-G", "--data-urlencode", "query=SELECT {", made.address)
    assert (status, text.startswith("MALFORMED QUERY: ")) == (400, True)
    assert curl("-X", "DELETE", "-G", "--data-urlencode", "subj=<urn:a>", statements) == (204, "")
    assert curl("-H", "Accept: application/n-triples", statements)[1].startswith("<urn:b> <urn:p> ")
    made.everywhere("/size", lambda text: text == "1")


def test_the_graph_store_answers_with_the_codes_of_w3c(made: Door, tmp_path: Path) -> None:
    file = tmp_path / "three.ttl"
    file.write_text("<urn:a> <urn:p> 3 .", encoding="utf-8")
    graph = f"{made.address}/gsp?graph=urn:g"
    assert curl(graph)[0] == 404
    assert curl("-I", graph)[0] == 404
    assert curl("-X", "PUT", *TURTLE, "-d", "<urn:a> <urn:p> 1 .", graph) == (201, "")
    assert curl("-I", graph)[0] == 200
    assert curl("-X", "POST", *TURTLE, "-d", "<urn:a> <urn:p> 2 .", graph) == (204, "")
    assert curl("-F", f"file=@{file};type=text/turtle", graph) == (204, "")
    assert len(curl(graph)[1].splitlines()) == 3
    assert curl("-X", "PUT", *TURTLE, "-d", "<urn:a> <urn:p> 4 .", graph) == (204, "")
    assert curl("-H", "Accept: text/turtle", graph) == (200, "<urn:a> <urn:p> 4 .\n")
    assert curl("-X", "DELETE", graph) == (204, "")
    assert curl("-X", "DELETE", graph)[0] == 404
    assert curl("-X", "PUT", *TURTLE, "-d", "<urn:a> <urn:p> 1 .", f"{made.address}/gsp?default") == (204, "")
    assert curl(f"{made.address}/rdf-graphs/service?graph=urn:none") == (200, "")
    assert curl("-X", "PUT", *TURTLE, "-d", "no turtle", graph)[0] == 400
    assert curl("-X", "PUT", "-H", "Content-Type: image/png", "-d", "x", graph)[0] == 415


@pytest.mark.parametrize("newer", [False, True])
def test_a_transaction_by_hand(made: Door, tmp_path: Path, newer: bool) -> None:
    head = tmp_path / "head"
    assert curl("-X", "POST", "-D", str(head), f"{made.address}/transactions")[0] == 201
    [address] = [line.split()[1] for line in head.read_text().splitlines() if line.lower().startswith("location:")]

    def action(name: str, *arguments: str) -> tuple[int, str]:
        where = f"{address}/{name.lower()}" if newer else f"{address}?action={name}"
        return curl("-X", "PUT", *arguments, where)

    assert action("ADD", *TURTLE, "-d", "<urn:a> <urn:p> 1, 2 .")[0] == 200
    assert action("UPDATE", "-H", "Content-Type: application/sparql-update", "-d", "DELETE DATA { <urn:a> <urn:p> 2 }")[0] == 200
    assert action("SIZE") == (200, "1")
    assert action(
        "QUERY", "-H", "Content-Type: application/sparql-query", "-d", "ASK { ?s ?p 2 }", "-H", "Accept: text/boolean"
    ) == (200, "false")
    assert action("PING")[0] == 200
    assert curl(f"{made.address}/size") == (200, "0")
    assert action("COMMIT")[0] == 200
    assert curl(f"{made.address}/size") == (200, "1")
    assert curl("-X", "DELETE", address)[0] == 409


def test_namespaces(made: Door) -> None:
    assert curl("-X", "PUT", "-d", "http://example.org/", f"{made.address}/namespaces/ex") == (204, "")
    assert curl(f"{made.address}/namespaces/ex") == (200, "http://example.org/")
    assert curl("-H", "Accept: text/csv", f"{made.address}/namespaces") == (200, "prefix,namespace\r\nex,http://example.org/\r\n")
    assert curl("-X", "DELETE", f"{made.address}/namespaces/ex") == (204, "")
    assert curl(f"{made.address}/namespaces/ex")[0] == 404
