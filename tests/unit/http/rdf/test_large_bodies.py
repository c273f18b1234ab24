"""Bodies that are longer than a transaction: all of them at one LSN, or nothing, over a real door with a real copy."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import httpx2
import pytest

from brokerha.http.door import passing
from brokerha.http.rdf import sparql
from brokerha.ingress import insert_data
from brokerha.model.reserved.staging import TABLE

LINES = "application/n-triples"


@pytest.fixture
def http(on_site: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> httpx2.Client:
    for module in (passing, sparql):
        monkeypatch.setattr(module, "BODY_LIMIT_BYTES", 5_000)
    monkeypatch.setattr(sparql, "PART_BYTES", 1_000)
    monkeypatch.setattr(insert_data, "DOCUMENT_BYTES", 1_000)
    return on_site


def lines(first: int, count: int) -> str:
    return "".join(f"<urn:s{number}> <urn:p> <urn:o> .\n" for number in range(first, first + count))


def post(http: httpx2.Client, body: str | bytes, media_type: str = LINES, **headers: str) -> httpx2.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return http.post("/repositories/main/statements", content=body, headers={"Content-Type": media_type, **named})


def size(http: httpx2.Client, context: str = "") -> int:
    answer = http.get(
        "/repositories/main/size", params={"context": context} if context else {}, headers={"Brokerha-Min-Lsn": "latest"}
    )
    return int(answer.text)


def staged(http: httpx2.Client) -> int:
    return len(http.get(f"/kv/{TABLE}", headers={"Brokerha-Min-Lsn": "latest", "Accept": "application/json"}).json())


def test_a_long_body_is_one_transaction(http: httpx2.Client) -> None:
    answer = post(http, lines(0, 1000))
    assert answer.status_code == 204, answer.text
    assert answer.headers["Brokerha-Ack"] == "applied"
    assert int(answer.headers["Brokerha-Lsn"]) > 20
    assert (size(http), staged(http)) == (1000, 0)


def in_chunks(body: str) -> Iterator[bytes]:
    yield from (body[at : at + 700].encode() for at in range(0, len(body), 700))


@pytest.mark.parametrize("count", [3, 1000])
def test_a_body_in_chunks_whose_length_is_not_announced_is_taken_alike(http: httpx2.Client, count: int) -> None:
    lsn = 0
    for method, body, media_type in (
        ("POST", lines(0, count), LINES),
        ("PUT", lines(1, count), LINES),
        ("POST", insertion(count), "application/sparql-update"),
    ):
        named = {"Content-Type": media_type}
        answer = http.request(method, "/repositories/main/statements", content=in_chunks(body), headers=named)
        assert answer.status_code == 204, answer.text
        before, lsn = lsn, int(answer.headers["Brokerha-Lsn"])
        assert (lsn - before > 20) is (count == 1000)
    assert staged(http) == 0


def test_a_long_body_replaces_everything(http: httpx2.Client) -> None:
    assert post(http, lines(0, 100)).status_code == 204
    answer = http.put("/repositories/main/statements", content=lines(50, 1000), headers={"Content-Type": LINES})
    assert answer.status_code == 204, answer.text
    assert (size(http), staged(http)) == (1000, 0)
    wrong = http.put("/repositories/main/statements", content=lines(0, 500) + "this is none\n", headers={"Content-Type": LINES})
    assert wrong.status_code == 400
    assert (size(http), staged(http)) == (1000, 0)
    short = http.put("/repositories/main/statements", content=lines(0, 3), headers={"Content-Type": LINES})
    assert short.status_code == 204
    assert size(http) == 3


def test_blank_nodes_are_the_same_in_all_parts_and_in_no_other_body(http: httpx2.Client) -> None:
    body = "_:a <urn:p> _:b .\n" + lines(0, 300) + "_:a <urn:p> _:b .\n_:b <urn:q> _:a .\n"
    assert post(http, body).status_code == 204
    assert size(http) == 302
    assert post(http, body).status_code == 204
    assert size(http) == 304


def test_a_context_goes_before_what_the_lines_say(http: httpx2.Client) -> None:
    answer = http.post(
        "/repositories/main/statements", params={"context": "<urn:g>"}, content=lines(0, 300), headers={"Content-Type": LINES}
    )
    assert answer.status_code == 204
    assert size(http, "<urn:g>") == 300


def test_a_body_that_is_compressed(http: httpx2.Client) -> None:
    body = gzip.compress("".join(f'<urn:s{hash(str(n))}> <urn:p> "{n * 7919}" .\n' for n in range(2000)).encode())
    assert len(body) > 5_000
    assert post(http, body, Content_Encoding="gzip").status_code == 204
    assert size(http) == 2000


def test_a_wrong_line_anywhere_leaves_nothing(http: httpx2.Client) -> None:
    answer = post(http, lines(0, 500) + "this is no triple\n" + lines(500, 500))
    assert answer.status_code == 400
    assert "MALFORMED DATA" in answer.text
    assert (size(http), staged(http)) == (0, 0)


def test_a_repository_that_is_not_there_is_404(http: httpx2.Client) -> None:
    answer = http.post("/repositories/nowhere/statements", content=lines(0, 300), headers={"Content-Type": LINES})
    assert answer.status_code == 404
    assert staged(http) == 0


def test_the_same_key_does_nothing_twice(http: httpx2.Client) -> None:
    answers = [post(http, "_:a <urn:p> _:b .\n" + lines(0, 300), Idempotency_Key="import-1") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [204, 204]
    assert answers[0].headers["Brokerha-Lsn"] == answers[1].headers["Brokerha-Lsn"]
    assert size(http) == 301


def insertion(count: int) -> str:
    triples = "".join(f":s{number} :p [ :q _:same ], <r{number}> ;\n :r '}} .' .\n" for number in range(count))
    return f"PREFIX : <urn:x:>\nINSERT DATA {{ GRAPH :g {{{triples}}} <urn:a> :p 1 }}"


@pytest.mark.parametrize("path", ["sparql", "statements"])
def test_a_long_update_is_one_transaction(http: httpx2.Client, path: str) -> None:
    def update(text: str) -> httpx2.Response:
        named = {"Content-Type": "application/sparql-update", "Idempotency-Key": f"insert-{path}"}
        return http.post(f"/repositories/main/{path}", params={"baseURI": "http://base/"}, content=text, headers=named)

    answers = [update(insertion(200)) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [204, 204], answers[0].text
    assert answers[0].headers["Brokerha-Lsn"] == answers[1].headers["Brokerha-Lsn"]
    assert (size(http), staged(http)) == (801, 0)
    asked = "SELECT (COUNT(DISTINCT ?o) AS ?n) { GRAPH <urn:x:g> { ?s <urn:x:q> ?o . ?t <urn:x:p> <http://base/r199> } }"
    answer = http.get("/repositories/main", params={"query": asked}, headers={"Accept": "text/csv", "Brokerha-Min-Lsn": "latest"})
    assert answer.text.split() == ["n", "1"]


@pytest.mark.parametrize(
    ("text", "parameters", "problem"),
    [
        (insertion(200).replace(":s90 :p", ":s90 :p ]"), {}, "MALFORMED DATA"),
        (insertion(200) + " ; CLEAR ALL", {}, "one INSERT DATA alone"),
        ("DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }" + " " * 6_000, {}, "one INSERT DATA alone"),
        (insertion(200), {"using-graph-uri": "urn:g"}, "takes no using-graph-uri"),
        (insertion(200), {"$x": "<urn:g>"}, "takes no $x"),
    ],
)
def test_a_long_update_that_is_none_leaves_nothing(
    http: httpx2.Client, text: str, parameters: dict[str, str], problem: str
) -> None:
    answer = http.post(
        "/repositories/main/statements", params=parameters, content=text, headers={"Content-Type": "application/sparql-update"}
    )
    assert answer.status_code == 400
    assert problem in answer.text
    assert (size(http), staged(http)) == (0, 0)


def test_beyond_the_limit_of_large_transactions_it_is_413(http: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparql, "SIZE_LIMIT_BYTES", 6_000)
    answer = post(http, lines(0, 1000))
    assert answer.status_code == 413
    assert "load" in answer.text
    assert (size(http), staged(http)) == (0, 0)


def test_parts_can_be_handed_over_one_by_one(http: httpx2.Client) -> None:
    def tx(text: str, key: str = "") -> httpx2.Response:
        named = {"Content-Type": "application/json", **({"Idempotency-Key": key} if key else {})}
        return http.post("/tx", content=text, headers=named)

    assert tx('[["stage", "big", 1], ["put", "t", "k", "v"], ["add", "main", "<urn:a> <urn:b> <urn:c> .\\n"]]').status_code == 201
    assert (size(http), staged(http)) == (0, 1)
    answer = tx('[["put", "t", "k", "v"], ["drop-staged", "big"]]')
    assert (answer.status_code, answer.text) == (
        400, "stage comes first in a transaction, drop-staged alone, and commit-staged last, after expectations only\n",
    )  # fmt: skip
    assert tx('[["commit-staged", "big", 1]]').status_code == 409
    assert tx('[["commit-staged", "big", 1]]', "big").status_code == 201
    assert (size(http), staged(http), http.get("/kv/t/k").text) == (1, 0, "v")
