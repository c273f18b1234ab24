"""A whole cluster behind a real socket: what a stranger sends is refused with its reason, and nothing of it is 500 or stored."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import httpx2
import msgpack
import pytest

from brokerha.embedded import EmbeddedCluster
from brokerha.http.app import open_door
from brokerha.nodes.config.cluster import ClusterConfig, MasterEntry, WorkerEntry
from tests.support.free_ports import free_ports
from tests.unit.http.asking import FORM, JSON, MSGPACK, NQUADS, TURTLE, UPDATE

TRANSACTIONS = "/repositories/main/transactions"
LEVEL = "transaction-setting__org.eclipse.rdf4j.common.transaction.IsolationLevel"
STORE = """@prefix rep: <http://www.openrdf.org/config/repository#> . @prefix sr: <http://www.openrdf.org/config/repository/sail#> .
@prefix sail: <http://www.openrdf.org/config/sail#> .
[] a rep:Repository ; rep:repositoryID "books" ;
   rep:repositoryImpl [ rep:repositoryType "openrdf:SailRepository" ; sr:sailImpl [ sail:sailType "openrdf:NativeStore" ] ] ."""


STRANGE = [
    ("POST", TRANSACTIONS, f"{LEVEL}=CHAOS", FORM, 400, "'CHAOS' is not known"),
    ("POST", f"{TRANSACTIONS}?{LEVEL}=CHAOS", "", {}, 400, "'CHAOS' is not known"),
    ("POST", TRANSACTIONS, f"{LEVEL}=SERIALIZABLE", FORM, 201, ""),
    ("POST", "/tx", b'{"isolation": "dirty"}', JSON, 400, "isolation is read-committed, snapshot or serializable"),
    ("POST", "/tx", b'{"isolation": 5}', JSON, 400, "isolation is text"),
    ("POST", TRANSACTIONS, f"{LEVEL}=SNAPSHOT_READ", FORM, 201, ""),
    ("PUT", "/kv/bad/k", gzip.compress(b"v")[:-1], {"Content-Encoding": "gzip"}, 400, "cut off"),
    ("PUT", "/kv/bad/k", b"v", {"Content-Encoding": "br"}, 415, "gzip, deflate"),
    ("PUT", "/kv/bad/k", gzip.compress(bytes(50_000_000)), {"Content-Encoding": "gzip"}, 413, "divide the value over several keys"),
    ("PUT", "/kv/bad/k", b"v", {"Origin": "http://["}, 403, "another site"),
    ("POST", "/tx", b'[["expect-since", "graph", "main", %d]]' % 2**70, JSON, 400, "below 2**63"),
    ("POST", "/tx", msgpack.packb([["expect-since", "graph", "main", 2**64 - 1]]), MSGPACK, 400, "below 2**63"),
    ("POST", "/tx", b'{"timeout-s": Infinity}', JSON, 400, "Infinity is no number"),
    ("POST", "/tx", b'{"timeout-s": NaN}', JSON, 400, "NaN is no number"),
    ("POST", "/tx", b'{"timeout-s": 1e999999}', JSON, 400, "too large"),
    ("POST", "/tx", b"9" * 5000, JSON, 400, "not JSON"),
    ("POST", "/tx", b"[" * 100_000, JSON, 400, "deeper than"),
    ("POST", "/kv/bad", b"[" * 100_000, JSON, 400, "deeper than"),
    ("POST", "/kv/bad", b"[" + b"{}," * 900_000 + b"1]", JSON, 413, "items"),
    ("POST", "/cluster/backup", b'{"name":' * 100_000, JSON, 400, "deeper than"),
    ("POST", "/tx", b'[["put", "bad", "k", "\\ud800"]]', JSON, 400, "surrogate"),
    ("POST", "/tx", b'[["put", "bad\\u0000", "k", "v"]]', JSON, 400, "no NUL"),
    ("PUT", "/kv/bad%00/k", b"v", {}, 400, "no NUL"),
    ("PUT", "/cluster/pins/p", b'{"lsn": %d, "for_s": 1}' % 2**70, JSON, 400, "63 bits"),
    ("GET", "/repositories/main/sparql", b"", {"Host": "a["}, 403, "answers only to its own names"),
    ("POST", "/tx/%E2%82%AC/commit", b"", {}, 404, "no id of a transaction"),
]


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """A client of the door of m1, which has a prefix too."""
    folder: Path = tmp_path_factory.mktemp("door")
    config = ClusterConfig(
        name="stranger",
        broker="embedded://stranger",
        data=folder / "var",
        path=folder / "cluster.toml",
        http_prefix="/rdf4j-server",
        masters=(MasterEntry(id="m1", http=f"127.0.0.1:{free_ports()}"),),
        workers=(WorkerEntry(id="w1", master="m1"),),
    )
    with EmbeddedCluster(config) as cluster:
        cluster.client("m1").put("ready", b"k", b"v", timeout=30)
        server = open_door(config, "m1", cluster.masters["m1"])
        assert server is not None
        server.start()
        with httpx2.Client(base_url=server.url, timeout=30) as client:
            yield client
        server.stop(5.0)


@pytest.mark.parametrize(
    ("method", "target", "body", "headers", "status", "words"),
    STRANGE,
    ids=[f"{method} {target} {status} {words}" for method, target, _, _, status, words in STRANGE],
)
def test_what_a_stranger_sends_has_one_status_and_one_sentence(
    door: httpx2.Client, method: str, target: str, body: bytes | str, headers: dict[str, str], status: int, words: str
) -> None:
    answer = door.request(method, target, content=body, headers=headers)

    assert answer.status_code == status, answer.text
    assert words in answer.text
    assert door.get("/kv/bad").json() == []


def test_what_is_compressed_is_executed_and_stored_as_what_it_means(door: httpx2.Client) -> None:
    update = gzip.compress(b"INSERT DATA { GRAPH <urn:packed> { <urn:a> <urn:b> 1 } }")
    packed = {"Content-Encoding": "gzip"}

    assert door.post("/repositories/main/statements", content=update, headers={**UPDATE, **packed}).status_code == 204
    assert door.put("/kv/packed/k", content=gzip.compress(b"v" * 1_000_000), headers=packed).status_code == 204

    assert door.get("/repositories/main/size", params={"context": "<urn:packed>"}).text.strip() == "1"
    assert door.get("/kv/packed/k").content == b"v" * 1_000_000


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_json_ld_over_triple_terms_is_not_acceptable_and_names_what_is(door: httpx2.Client) -> None:
    door.put("/repositories/terms")
    door.post("/repositories/terms/statements", content="<urn:a> <urn:b> <<( <urn:a> <urn:b> <urn:c> )>> .", headers=NQUADS)

    answer = door.get("/repositories/terms/statements", headers={"Accept": "application/ld+json"})

    assert (answer.status_code, answer.headers["brokerha-error"]) == (406, "NotAcceptable")
    assert "ask for text/turtle" in answer.text
    assert "<<(" in door.get("/repositories/terms/statements", headers={"Accept": "text/turtle"}).text


def test_a_client_of_rdf4j_finds_below_its_prefix_what_it_loaded_into_graphs(door: httpx2.Client) -> None:
    books = "/rdf4j-server/repositories/books"
    assert door.put(books, content=STORE, headers=TURTLE).status_code == 204
    assert door.post(f"{books}/statements", content="<urn:a> <urn:b> <urn:c> <urn:g> .", headers=NQUADS).status_code == 204
    query = "query=SELECT+%2A+%7B%3Fs+%3Fp+%3Fo%7D"

    answer = door.post(f"{books}?{query}&timeout=-1", content=query, headers={**FORM, "Accept": "text/csv"})

    assert answer.status_code == 200, answer.text
    assert len(answer.text.split()) == 2


def test_a_serializable_transaction_of_rdf4j_ends_in_409_when_its_repository_was_changed(door: httpx2.Client) -> None:
    begun = door.post(TRANSACTIONS, content=f"{LEVEL}=SERIALIZABLE", headers=FORM)
    place = begun.headers["location"]
    size = door.put(f"{place}?action=SIZE")
    assert size.status_code == 200
    door.put(f"{place}?action=ADD", content="<urn:isolated:a> <urn:size> 1 .", headers=TURTLE)
    other = door.post("/repositories/main/statements", content="<urn:isolated:b> <urn:p> 1 .", headers=TURTLE)
    assert other.status_code == 204
    again = door.put(f"{place}?action=SIZE")
    assert (again.status_code, again.headers["brokerha-error"]) == (409, "Conflict")
    late = door.put(f"{place}?action=COMMIT")
    assert (late.status_code, late.headers["brokerha-error"]) == (409, "Conflict")
    asked = door.get(
        "/repositories/main/statements", params={"subj": "<urn:isolated:a>"}, headers={"Accept": "application/n-quads"}
    )
    assert asked.text == ""
