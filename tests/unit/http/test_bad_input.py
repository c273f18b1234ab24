"""Bad input, line by line: one status, one clear sentence, and nothing changed (acceptance A7)."""

from __future__ import annotations

import asyncio

import msgpack
import pytest
import structlog

from brokerha.http import HttpLimits
from brokerha.model.operations import BODY_LIMIT_BYTES
from brokerha.model.wire.client_wire import WRITES_TYPE
from tests.unit.http.asking import FORM, JSON, MSGPACK, NQUADS, QUERY, TURTLE, UPDATE, Node
from tests.unit.http.fake_front import FakeFront

REPO = "/repositories/main"
NOWHERE = "/repositories/nowhere"
INSERT = "INSERT DATA { <urn:a> <urn:b> 1 }"
XML = {"Content-Type": "application/rdf+xml"}
JSONLD = {"Content-Type": "application/ld+json"}

BAD = [
    # parameters that nobody knows
    ("GET", "/kv/t?foo=1", b"", {}, 400, "there is no parameter 'foo' here; there are: prefix, from, to, limit, reverse, snapshot"),
    ("PUT", "/kv/t/k?if-match=x", b"v", {}, 400, "'if-match'"),
    ("GET", "/queues?limit=1", b"", {}, 400, "there is no parameter 'limit' here; there are: none"),
    ("GET", f"{REPO}/sparql?query=ASK%7B%7D&default-graph=urn:g", b"", {}, 400, "'default-graph'"),
    ("POST", f"{REPO}/sparql", "update=CLEAR+ALL&using-graph=urn:g", FORM, 400, "'using-graph'"),
    ("POST", f"{REPO}/sparql?using-graph=urn:g", b"CLEAR ALL", UPDATE, 400, "'using-graph'"),
    ("DELETE", f"{REPO}/statements?subject=%3Curn:a%3E", b"", {}, 400, "'subject'"),
    ("PUT", f"{REPO}/gsp?graph=urn:g&context=null", b"", TURTLE, 400, "graph, default, baseURI, preserveNodeId"),
    ("GET", f"{REPO}/gsp/g?default", b"", {}, 400, "'default'"),
    ("POST", "/cluster/workers/w1/off?force=true", b"", {}, 400, "'force'"),
    # SPARQL
    ("GET", f"{REPO}?query=SELECT", b"", {}, 400, "MALFORMED QUERY"),
    ("GET", f"{REPO}/sparql?query=nonsense", b"", {}, 400, "MALFORMED QUERY"),
    ("GET", REPO, b"", {}, 400, "'query' is missing"),
    ("GET", f"{REPO}?query=ASK%7B%7D&query=ASK%7B%7D", b"", {}, 400, "2 times"),
    ("GET", f"{REPO}?query=ASK%7B%FF%7D", b"", {}, 400, "not UTF-8"),
    ("GET", f"{REPO}?query=ASK%7B%7D&limit=x", b"", {}, 400, "limit is a whole number"),
    ("GET", f"{REPO}?query=ASK%7B%7D&%24x=urn:a", b"", {}, 400, "N-Triples syntax"),
    ("GET", f"{REPO}?query=ASK%7B%7D&queryLn=SeRQL", b"", {}, 400, "SPARQL"),
    ("GET", f"{REPO}?query=ASK%7B%7D&timeout=-3", b"", {}, 400, "timeout"),
    ("GET", f"{REPO}/sparql?update=CLEAR%20ALL", b"", {}, 400, "POST"),
    ("GET", f"{REPO}/sparql?query=ASK%7B%7D", b"", {"Host": "a["}, 400, "Host is a name"),
    ("POST", f"{REPO}/gsp", b"", {**TURTLE, "Host": "[::::]"}, 400, "Host is a name"),
    ("POST", "/repositories/%zz/gsp", b"", TURTLE, 400, "no IRI"),
    ("POST", f"{REPO}/sparql", "query=ASK{}", {}, 415, "content type 'none'"),
    ("POST", f"{REPO}/sparql", "ASK{}", {"Content-Type": "text/plain"}, 415, "application/sparql-query"),
    ("POST", REPO, INSERT, UPDATE, 415, "application/sparql-query"),
    ("POST", f"{REPO}/sparql", b"\xff\xfeA\0S\0K\0", QUERY, 400, "not UTF-8 (at byte 0)"),
    ("POST", f"{REPO}/sparql", "ASK{}", {"Content-Type": "application/sparql-query; charset=utf-16"}, 415, "utf-16"),
    ("POST", f"{REPO}/sparql", "query=ASK%7B%7D&update=CLEAR+ALL", FORM, 400, "not both"),
    ("POST", f"{REPO}/sparql", "infer=true", FORM, 400, "'query' is missing"),
    ("POST", f"{REPO}/sparql?query=ASK%7B%7D", "ASK{}", QUERY, 400, "twice"),
    ("POST", f"{REPO}/sparql?update=CLEAR%20ALL", INSERT, UPDATE, 400, "twice"),
    ("POST", f"{REPO}/sparql", "INSERT DATA { <urn:a>", UPDATE, 400, "MALFORMED QUERY"),
    ("POST", f"{REPO}/sparql", "update=INSERT+DATA+%7B", FORM, 400, "MALFORMED QUERY"),
    ("POST", f"{REPO}/sparql", "update=CLEAR+ALL&update=CLEAR+ALL", FORM, 400, "2 times"),
    ("POST", f"{REPO}/sparql?using-graph-uri=urn:g", b"WITH <urn:g> DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }", UPDATE, 400, "USING or WITH"),
    ("POST", f"{REPO}/sparql", "update=INSERT+DATA+%7B%7D&insert-graph-uri=g", FORM, 400, "no IRI of a graph"),
    ("GET", f"{REPO}?query=ASK%7B%7D", b"", {"Accept": "image/png"}, 406, "no format for Accept: image/png; there are"),
    # statements
    ("POST", f"{REPO}/statements", b"<urn:a> <urn:b>", TURTLE, 400, "text/turtle"),
    ("POST", f"{REPO}/statements", b"not quads", NQUADS, 400, "line 1"),
    ("POST", f"{REPO}/statements", b"<rdf:RDF", XML, 400, "application/rdf+xml"),
    ("POST", f"{REPO}/statements", b"[", JSONLD, 400, "application/ld+json"),
    ("POST", f"{REPO}/statements", b'<urn:a> <urn:b> "\xff" .', NQUADS, 400, "not UTF-8 (at byte 17)"),
    ("POST", f"{REPO}/statements", b"x", {"Content-Type": "image/png"}, 415, "text/turtle"),
    ("POST", f"{REPO}/statements", b"x", {}, 415, "text/turtle"),
    ("POST", f"{REPO}/statements", b"infer=true", FORM, 400, "'update' is missing"),
    ("POST", f"{REPO}/statements?context=urn:g", b"", NQUADS, 400, "context"),
    ("POST", f"{REPO}/statements?context=%3Crelative%3E", b"", NQUADS, 400, "context"),
    ("POST", f"{REPO}/statements?baseURI=relative", b"", TURTLE, 400, "text/turtle"),
    ("PUT", f"{REPO}/statements?context=_:g", b"", NQUADS, 400, "cannot name the graph"),
    ("GET", f"{REPO}/statements?subj=urn:a", b"", {}, 400, "subj is a term"),
    ("GET", f"{REPO}/statements?pred=%22text%22", b"", {}, 400, "pred is a term"),
    ("GET", f"{REPO}/statements?obj=%3Curn:a%3E%20.%20%3Curn:b%3E%20%3Curn:c%3E%20%3Curn:d%3E", b"", {}, 400, "obj is a term"),
    ("DELETE", f"{REPO}/statements?subj=%3Curn:a%3E%20%3Fp%20%3Fo%20%7D%20;%20CLEAR%20ALL", b"", {}, 400, "subj is a term"),
    ("DELETE", f"{REPO}/statements?subj=_:b", b"", {}, 400, "cannot name a blank node"),
    # repositories
    ("GET", f"{NOWHERE}?query=ASK%7B%7D", b"", {}, 404, "'nowhere' does not exist"),
    ("GET", f"{NOWHERE}/size", b"", {}, 404, "does not exist"),
    ("GET", f"{NOWHERE}/contexts", b"", {}, 404, "does not exist"),
    ("GET", f"{NOWHERE}/statements", b"", {}, 404, "does not exist"),
    ("POST", f"{NOWHERE}/sparql", INSERT, UPDATE, 404, "does not exist"),
    ("POST", f"{NOWHERE}/statements", b"", NQUADS, 404, "does not exist"),
    ("DELETE", NOWHERE, b"", {}, 404, "does not exist"),
    ("PUT", "/repositories/bad%20name", b"", {}, 400, "no repository id"),
    ("PUT", "/repositories/%FF", b"", {}, 400, "not UTF-8"),
    ("PUT", REPO, b"", {}, 409, "exists already"),
    ("PUT", "/repositories/new", b"<urn:a>", TURTLE, 400, "text/turtle"),
    ("PUT", "/repositories/new", b"x", {"Content-Type": "text/html"}, 415, "RDF"),
    ("GET", "/repositories", b"", {"Accept": "image/png"}, 406, "can be had as"),
    # keys
    ("GET", "/kv/t/absent", b"", {}, 404, "no such key"),
    ("PUT", f"/kv/t/{'k' * 401}", b"", {}, 400, "400 bytes"),
    ("PUT", "/kv/t/k", b"", {"If-Match": '"x"'}, 400, "If-Match"),
    ("PUT", f"/kv/{'t' * 65}/k", b"", {}, 400, "table name"),
    ("GET", "/kv/t?limit=many", b"", {}, 400, "limit"),
    ("GET", "/kv/t", b"", {"Accept": "text/csv"}, 406, "application/json"),
    ("POST", "/kv/t", b"{}", JSON, 400, "a group is a list"),
    ("POST", "/kv/t", b"[", JSON, 400, "not JSON"),
    ("POST", "/kv/t", b"[" * 100_000, JSON, 400, "not JSON"),
    ("POST", "/kv/t", b'[{"op": "put", "key": "a"}]', JSON, 400, "change 1: give 'value'"),
    ("POST", "/kv/t", b'[{"op": "put", "key": "a", "key_base64": "", "value": ""}]', JSON, 400, "one of them"),
    ("POST", "/kv/t", b'[{"op": "put", "key": "a", "value_base64": "?"}]', JSON, 400, "not base64"),
    ("POST", "/kv/t", b'[{"op": "put", "key": "a", "value": "\\ud800"}]', JSON, 400, "UTF-8"),
    ("POST", "/kv/t", b'[{"op": "put", "key": "a", "value": 5}]', JSON, 400, "text"),
    ("POST", "/kv/t", b'[{"op": "delete", "key": "a", "value": ""}]', JSON, 400, "does not take 'value'"),
    ("POST", "/kv/t", b'[{"op": "drop"}]', JSON, 400, "put"),
    ("POST", "/kv/t", b"[1]", JSON, 400, "object"),
    ("POST", "/kv/t", b"[]", JSON, 400, "at least one operation"),
    ("POST", "/kv/t", b"\xc1", MSGPACK, 400, "not msgpack"),
    ("POST", "/kv/t", msgpack.packb([["update", "main", "CLEAR ALL"]]), MSGPACK, 400, "put or delete"),
    ("POST", "/kv/t", msgpack.packb([["put", b"k"]]), MSGPACK, 400, "put takes"),
    ("POST", "/kv/t", msgpack.packb([[{"a": 1}]]), MSGPACK, 400, "put or delete"),
    ("POST", "/kv/t", b"x", {"Content-Type": "text/plain"}, 415, "group"),
    # transactions
    ("POST", "/tx", b"\xc1", MSGPACK, 400, "not a msgpack list"),
    ("POST", "/tx", b"\xdf\xff\xff\xff\xff", MSGPACK, 400, "not a msgpack list"),
    ("POST", "/tx", msgpack.packb([["fly", "away"]]), MSGPACK, 400, "unknown operation 'fly'"),
    ("POST", "/tx", b'{"a": 1}', JSON, 400, "begun with nothing, or with"),
    ("POST", "/tx", b'[{"a": 1}]', JSON, 400, "list of operations"),
    ("POST", "/tx", b'[["put", "t", 5, "v"]]', JSON, 400, "operation 1: item 3"),
    ("POST", "/tx", b"[]", {}, 415, "application/json"),
    ("POST", "/tx", b'[["expect-since", "graph", "main", %d]]' % 2**70, JSON, 400, "below 2**63"),
    ("POST", "/tx", msgpack.packb([["expect-since", "graph", "main", 2**63]]), MSGPACK, 400, "below 2**63"),
    ("POST", "/tx", b'[["put", "t", "k", "\\ud800"]]', JSON, 400, "surrogate"),
    ("POST", "/tx", b'[["put", "t\\u0000", "k", "v"]]', JSON, 400, "no NUL"),
    ("POST", "/tx", b"[" * 100_000, JSON, 400, "deeper than"),
    ("POST", "/tx", b'{"timeout-s": Infinity}', JSON, 400, "not JSON"),
    ("POST", "/tx", b'{"timeout-s": NaN}', JSON, 400, "not JSON"),
    ("POST", "/tx", b'{"timeout-s": 1e999999}', JSON, 400, "too large"),
    ("POST", "/tx", b'{"timeout-s": %b}' % (b"1" * 5000), JSON, 400, "not JSON"),
    ("POST", "/tx/%E2%82%AC/commit", b"", {}, 404, "no id of a transaction"),
    ("POST", "/tx/a%0D%0Ab/commit", b"", {}, 404, "no id of a transaction"),
    ("PUT", "/cluster/pins/p", b'{"lsn": %d, "for_s": 1}' % 2**70, JSON, 400, "63 bits"),
    ("PUT", "/cluster/pins/p", b'{"lsn": ' + b"[" * 100_000, JSON, 400, "deeper than"),
    ("PUT", "/cluster/control/c", b"[" * 100_000, JSON, 400, "deeper than"),
    ("POST", "/tx", b"", {"Content-Type": "text/csv"}, 415, "application/json"),
    ("POST", "/tx/batch", b"x", {"Content-Type": WRITES_TYPE}, 400, "batch"),
    ("POST", "/tx/batch", b"x", MSGPACK, 415, WRITES_TYPE),
    ("GET", "/tx/never-seen", b"", {}, 404, "never-seen is not known"),
    # headers that every write reads
    ("PUT", "/kv/t/k", b"", {"Brokerha-Ack": "maybe"}, 400, "accepted, synchronised, applied"),
    ("PUT", "/kv/t/k", b"", {"Brokerha-Ack": "applied=0"}, 400, "applied=N"),
    ("PUT", "/kv/t/k", b"", {"Brokerha-Ack": "accepted=2"}, 400, "applied=N"),
    ("PUT", "/kv/t/k", b"", {"Idempotency-Key": "two words"}, 400, "Idempotency-Key"),
    ("PUT", "/kv/t/k", b"", {"Idempotency-Key": "k" * 129}, 400, "Idempotency-Key"),
    ("PUT", "/kv/t/k", b"", {"Brokerha-Timeout-Ms": "soon"}, 400, "Brokerha-Timeout-Ms"),
    ("PUT", "/kv/t/k", b"", {"Brokerha-Timeout-Ms": "9999999999"}, 400, "Brokerha-Timeout-Ms"),
    ("GET", "/kv/t/k", b"", {"Brokerha-Min-Lsn": "-1"}, 400, "Brokerha-Min-Lsn"),
    # cluster and probes
    ("GET", "/cluster/wait", b"", {}, 400, "'lsn' is missing"),
    ("GET", "/cluster/wait?lsn=x", b"", {}, 400, "lsn is a whole number"),
    ("GET", "/cluster/wait?lsn=1&workers=0", b"", {}, 400, "workers"),
    ("GET", "/cluster/log?from=9&to=1", b"", {}, 400, "above"),
    ("GET", "/cluster/log", b"", {"Accept": "text/html"}, 406, "msgpack"),
    ("GET", "/readyz?max-lag-s=soon", b"", {}, 400, "max-lag-s"),
    # paths and methods
    ("GET", "/nothing/here", b"", {}, 404, "nothing at this path"),
    ("PATCH", "/kv/t/k", b"", {}, 405, "use DELETE, GET, HEAD, PUT"),
    ("DELETE", "/protocol", b"", {}, 405, "use GET, HEAD"),
]  # fmt: skip


def _name(line: tuple[str, str, bytes | str, dict[str, str], int, str]) -> str:
    return f"{line[0]} {line[1][:60]} -> {line[4]} {line[5][:30]}".replace("/", "_")


@pytest.mark.parametrize("line", BAD, ids=_name)
def test_bad_input_gets_one_status_and_one_clear_sentence_and_changes_nothing(node: Node, line) -> None:
    method, target, body, headers, status, words = line
    before = node.front.store.applied().fingerprint

    answer = node.ask(method, target, body, headers)

    assert (answer.status, words in answer.text) == (status, True), answer
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.text.count("\n") == 1 or "MALFORMED" in answer.text
    assert node.front.store.applied().fingerprint == before


# 406 is told because of Accept.
@pytest.mark.parametrize("line", [line for line in BAD if line[4] != 406], ids=_name)
def test_every_error_can_be_had_as_json(node: Node, line) -> None:
    method, target, body, headers, status, words = line

    answer = node.ask(method, target, body, {**headers, "Accept": "application/json"})

    assert answer.status == status
    assert answer.headers["content-type"] == "application/json"
    assert words in answer.json["text"]
    assert answer.json["error"] == answer.headers.get("brokerha-error", "")


def test_what_no_error_of_ours_says_can_be_had_as_json_too(node: Node) -> None:
    foreign = node.ask("PUT", "/kv/t/k", b"", JSON, Accept="application/json", Origin="http://elsewhere")
    node.front.fault = RuntimeError("a bug")
    fault = node.get("/kv/t/k", Accept="application/json")

    for answer, status, words in ((foreign, 403, "another site"), (fault, 500, "a fault in brokerha")):
        assert (answer.status, answer.json["error"]) == (status, "")
        assert words in answer.json["text"]


def test_a_transaction_that_is_too_large_is_413_and_says_what_to_do(node: Node) -> None:
    for size_bytes in (BODY_LIMIT_BYTES + 1, BODY_LIMIT_BYTES - 1):
        answer = node.ask("PUT", "/kv/t/k", b"v" * size_bytes)
        assert answer.status == 413
        assert "divide the value over several keys" in answer.text

    answer = node.ask("POST", "/tx", b"v" * (BODY_LIMIT_BYTES + 1), {"Content-Type": "application/x-msgpack"})
    assert answer.status == 413
    assert "split it" in answer.text
    assert not node.front.results


def test_a_large_body_is_refused_by_its_length_without_reading_a_byte() -> None:
    node = Node(limits=HttpLimits(body_limit_bytes=1000))

    answer = node.ask("PUT", "/kv/t/k", b"v" * 1001)

    assert answer.status == 413
    assert answer.headers["connection"] == "close"
    assert answer.pieces_read == 0
    assert node.ask("PUT", "/kv/t/k", b"v" * 1000).status == 204


def test_a_body_without_a_length_is_refused_as_soon_as_it_is_too_long() -> None:
    node = Node(limits=HttpLimits(body_limit_bytes=1000))

    answer = asyncio.run(node.asked("PUT", "/kv/t/k", [b"v" * 400] * 100, {}, announce=False))

    assert answer.status == 413
    assert answer.pieces_read == 3


def test_a_body_that_is_cut_off_is_no_value(node: Node) -> None:
    answer = asyncio.run(node.asked("PUT", "/kv/t/k", [b"half"], {"Content-Length": "8"}, never_ends=True))

    assert answer.status == 400
    assert not node.front.keys


def test_a_worker_refuses_every_write_and_names_its_master() -> None:
    node = Node(FakeFront(role="worker", node_id="w1"))
    writes = [
        node.ask("PUT", "/kv/t/k", b"v"),
        node.ask("DELETE", "/kv/t/k"),
        node.ask("POST", "/kv/t", b"[]", JSON),
        node.ask("POST", f"{REPO}/sparql", INSERT, UPDATE),
        node.ask("POST", f"{REPO}/statements", b"", NQUADS),
        node.ask("PUT", f"{REPO}/statements", b"", NQUADS),
        node.ask("DELETE", f"{REPO}/statements"),
        node.ask("PUT", "/repositories/new"),
        node.ask("DELETE", REPO),
        node.ask("POST", "/tx", b"[]", JSON),
        node.ask("POST", "/tx/batch", b"", {"Content-Type": WRITES_TYPE}),
    ]

    assert {answer.status for answer in writes} == {503}
    assert {answer.headers["brokerha-error"] for answer in writes} == {"ReadOnly"}
    assert all("send writes to master m1" in answer.text for answer in writes)
    assert all(answer.pieces_read == 0 for answer in writes)
    assert node.get(f"{REPO}?query=ASK%7B%7D").status == 200


@pytest.mark.parametrize("origin", ["http://[", "http://a]b"])
def test_an_origin_that_is_none_is_that_of_another_site(node: Node, origin: str) -> None:
    assert node.ask("PUT", "/kv/t/k", b"v", Origin=origin).status == 403
    assert not node.front.keys


def test_a_fault_of_brokerha_is_500_and_says_nothing_of_its_inside(node: Node, capsys) -> None:
    node.front.fault = RuntimeError("secret of the house")

    answer = node.ask("PUT", "/kv/t/k", b"v")

    assert answer.status == 500
    assert "secret" not in answer.text


def test_the_log_of_a_fault_is_short_and_tells_the_request_without_its_content(node: Node) -> None:
    def deeper(operations: object) -> object:
        return deeper(operations)

    # Not the function with the open arguments itself: Python 3.13.0 does not count the calls of such a one, and takes all memory.
    node.front.submit = lambda operations, *_arguments, **_named: deeper(operations)  # type: ignore[assignment]

    with structlog.testing.capture_logs() as lines:
        node.ask("PUT", "/kv/canary-2/canary-3", b"canary-4" * 100_000)

    (line,) = lines
    assert line["path"] == "/kv/{table}/{key:path}"
    assert (line["method"], line["body_bytes"], line["error"]) == ("PUT", 800_000, "RecursionError")
    assert len(line["body_blake2b"]) == 16
    assert "canary" not in str(line)
    assert len(str(line)) < 6000


def test_more_requests_than_the_door_lets_in_are_told_to_try_again(node: Node) -> None:
    node.app.door.requests = HttpLimits().requests_limit

    answer = node.get("/protocol")

    assert (answer.status, answer.headers["retry-after"]) == (503, "1")


def test_more_bytes_than_the_door_reads_at_once_are_told_to_try_again(node: Node) -> None:
    node.app.door.bodies_bytes = HttpLimits().all_bodies_limit_bytes

    assert node.ask("PUT", "/kv/t/k", b"v").status == 503
    assert node.app.door.bodies_bytes == HttpLimits().all_bodies_limit_bytes


def test_what_a_body_held_of_the_limits_is_given_back_however_the_request_ends(node: Node) -> None:
    node.ask("PUT", "/kv/t/k", b"v")
    node.ask("POST", "/tx", b"\xc1", MSGPACK)
    node.ask("POST", "/tx", b"x", {})

    assert (node.app.door.bodies_bytes, node.app.door.requests) == (0, 0)
