"""The client over HTTP, against a real server: each call does what it says, each refusal is the error that it stands for."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgpack
import pytest

from brokerha.client import Client, Session
from brokerha.client import calls as calls_module
from brokerha.client.reads import XSD, BlankNode, Iri, Literal, Solutions, Triples
from brokerha.model import errors
from brokerha.model.operations import pack_operations
from brokerha.model.outside.levels import LATEST_LSN
from brokerha.model.requests import Reply
from brokerha.model.wire import client_wire
from brokerha.ports.front import ReadOutcome
from tests.unit.client.fake_wire import FakeWire
from tests.unit.client.serving import Served

INSERT = "INSERT DATA { <urn:a> <urn:b> 1 ; <urn:c> 'é'@fr, _:x . GRAPH <urn:g> { <urn:a> <urn:b> 2 } }"


def test_an_update_is_written_and_a_query_reads_it(db: Session) -> None:
    done = db.update("main", INSERT)

    assert (done.lsn, done.level) == (1, "applied")
    rows = db.select("main", "SELECT ?o { <urn:a> ?p ?o FILTER(!isBlank(?o)) } ORDER BY STR(?o)")
    assert [row["o"] for row in rows] == [Literal("1", XSD + "integer"), Literal("é", "", "fr")]
    assert (rows.variables, rows.lsn) == (("o",), 1)
    assert rows.raw.content_type == "application/sparql-results+json"


def test_each_form_of_query_has_its_own_kind_of_result(db: Session) -> None:
    db.update("main", "INSERT DATA { <urn:a> <urn:b> <urn:c> }")

    assert isinstance(db.query("main", "SELECT * { ?s ?p ?o }"), Solutions)
    assert db.query("main", "ASK { <urn:a> ?p ?o }") is True
    assert db.is_true("main", "ASK { <urn:z> ?p ?o }") is False
    lines = db.construct("main", "CONSTRUCT WHERE { ?s ?p ?o }")
    assert (list(lines), isinstance(lines, Triples)) == (["<urn:a> <urn:b> <urn:c> ."], True)
    with pytest.raises(errors.InvalidRequest, match="no SELECT query"):
        db.select("main", "ASK {}")


def test_another_format_is_given_as_it_came(db: Session) -> None:
    answer = db.query("main", "SELECT ?x { VALUES ?x { 1 } }", accept="text/csv")

    assert isinstance(answer, ReadOutcome)
    assert (answer.content_type, answer.body.split()) == ("text/csv", [b"x", b"1"])


def test_the_dataset_of_a_query_can_be_chosen(db: Session) -> None:
    db.update("main", INSERT)

    rows = db.query("main", "SELECT ?o { <urn:a> <urn:b> ?o }", default_graphs=["urn:g"])

    assert isinstance(rows, Solutions)
    assert rows[0]["o"] == Literal("2", XSD + "integer")


def test_keys_and_values_are_bytes_and_text_is_utf_8(db: Session) -> None:
    db.put("t", "ä", "ö")
    db.put("t", b"\x00\xff/..", b"\x00")

    assert db.get("t", "ä".encode()) == "ö".encode()
    assert db.get("t", b"\x00\xff/..") == b"\x00"
    assert db.get("t", "absent") is None
    db.delete("t", "ä")
    assert db.get("t", "ä") is None


@pytest.mark.parametrize("name", [".", "..", "a/b", "a b", "%41", "?", "#", "ä", ";", "+"])
def test_every_name_is_a_name_of_a_table_and_of_a_key(db: Session, served: Served, name) -> None:
    db.put(name, name, "v")

    assert list(served.front.keys) == [(name, name.encode())]
    assert db.get(name, name) == b"v"
    assert db.range(name) == [(name.encode(), b"v")]


def test_a_range_has_bounds(db: Session) -> None:
    for key in (b"a1", b"a2", b"b1", b"\xff"):
        db.put("t", key, key)

    assert [key for key, _ in db.range("t")] == [b"a1", b"a2", b"b1", b"\xff"]
    assert [key for key, _ in db.range("t", prefix="a")] == [b"a1", b"a2"]
    assert [key for key, _ in db.range("t", start="a2", end=b"\xff")] == [b"a2", b"b1"]
    assert [key for key, _ in db.range("t", limit=1, reverse=True)] == [b"\xff"]


def test_a_range_tells_whether_there_is_more(db: Session) -> None:
    for count, more in [(1000, False), (1001, True)]:
        db.write([("put", "t", b"%04d" % number, b"v") for number in range(count)])
        found = db.range("t")
        assert (len(found), found[-1][0], found.more) == (1000, b"0999", more)
    assert [(len(found), found.more) for found in (db.range("t", limit=limit) for limit in (10, 5000))] == [
        (10, True),
        (1001, False),
    ]


def test_several_operations_are_one_transaction(db: Session, served: Served) -> None:
    db.write([("put", "t", b"k", b"v"), ("update", "main", "INSERT DATA { <urn:a> <urn:b> 1 }")])

    assert len(served.front.results) == 1
    assert (db.get("t", "k"), db.size("main")) == (b"v", 1)


def test_repositories_are_created_listed_and_removed(db: Session) -> None:
    db.create_repository("new")

    assert db.repositories() == ["main", "new"]
    db.remove_repository("new")
    with pytest.raises(errors.Rejected, match="does not exist"):
        db.remove_repository("new")


def test_digests_and_items_are_asked_for_by_their_buckets(served: Served, db: Session) -> None:
    db.put("t", "k", "v")

    assert db.digests(4)["lsn"] == 1
    assert db.bucket_items([("table", "t", 3), ("control", "", 0)], 4, limit=7)["lsn"] == 1

    (kind, _, digests, *_), (_, _, items, *_) = served.front.reads
    assert (kind, digests["bits"], items["bits"], items["limit"]) == ("digests", 4, 4, 7)
    assert [msgpack.unpackb(bucket) for bucket in items["buckets"]] == [["table", "t", 3], ["control", "", 0]]


def test_checks_are_added_listed_and_removed(db: Session) -> None:
    db.put("items", "sku-1", "7")
    db.control_add("stock", "key", "items", "sku-1", ">= 0")

    assert db.control_list() == [{"name": "stock", "kind": "key", "target": "items", "text": "sku-1", "expected": ">= 0"}]
    db.control_remove("stock")
    assert db.control_list() == []
    with pytest.raises(errors.Rejected, match="does not exist"):
        db.control_remove("stock")
    with pytest.raises(errors.InvalidRequest, match="no condition"):
        db.control_add("stock", "key", "items", "sku-1", "many")


def test_questions_about_the_cluster_are_answered(db: Session) -> None:
    done = db.put("t", "k", "v", key="order-4711")

    assert db.outcome("order-4711") == {"txid": "order-4711", "state": "applied", "lsn": 1, "outcome": "applied", "reason": ""}
    assert db.outcome("never seen"[:5]) is None
    assert db.status()["cluster"] == "orders"
    assert [entry["txid"] for entry in db.log(1, 9)] == ["order-4711"]
    assert db.wait(done.lsn, "all")["lsn"] == 1
    with pytest.raises(errors.TimedOut):
        db.wait(99, timeout=0.2)


HALF = "a\ud800"


@pytest.mark.parametrize(
    "call",
    [
        lambda db: db.put("t", HALF, "v"),
        lambda db: db.put("t", "k", HALF),
        lambda db: db.put(HALF, "k", "v"),
        lambda db: db.update("main", HALF),
        lambda db: db.get("t", HALF),
        lambda db: db.get(HALF, "k"),
        lambda db: db.range("t", prefix=HALF),
        lambda db: db.query("main", f"ASK {{ ?s ?p '{HALF}' }}"),
        lambda db: db.size(HALF),
        lambda db: db.publish("q", HALF),
        lambda db: db.accept(HALF),
        lambda db: db.queue(HALF),
        lambda db: db.outcome(HALF),
        lambda db: db.pin(HALF, 1, 1),
        lambda db: db.xid(1, HALF),
    ],
)
def test_half_of_a_surrogate_pair_is_refused_in_one_sentence(db: Session, call: Callable[[Session], object]) -> None:
    with pytest.raises(errors.InvalidRequest, match=r"half of a surrogate pair, which UTF-8 cannot write$"):
        call(db)


def test_a_number_that_no_message_holds_is_a_wrong_request() -> None:
    class Packing(FakeWire):
        def read(self, kind: str, name: str, arguments: dict[str, Any], min_lsn: int, timeout_ms: int) -> Any:
            client_wire.encode_read(kind, name, arguments, min_lsn, timeout_ms)
            raise AssertionError("it was packed")

    db = Client(Packing(lambda txid, _: Reply(0, txid, "applied", 1)))
    for call in (lambda: db.range("t", limit=2**64), lambda: db.together([("range", "t", {"limit": 2**64})])):
        with pytest.raises(errors.InvalidRequest, match="beyond 64 bits"):
            call()


@pytest.mark.parametrize("thing", [7, True, None, 1.5, [1, 2], {"a": 1}])
def test_what_is_neither_text_nor_bytes_is_refused(thing: Any) -> None:
    wire = FakeWire(lambda txid, _: Reply(0, txid, "applied", 1))
    db = Client(wire)

    for call in (
        lambda: db.put("t", "k", thing),
        lambda: db.put("t", thing, "v"),
        lambda: db.delete("t", thing),
        lambda: db.get("t", thing),
        lambda: db.publish("q", thing),
        lambda: db.range("t", prefix=thing),
    ):
        with pytest.raises(errors.InvalidRequest, match=f"text or bytes, not {'None' if thing is None else type(thing).__name__}"):
            call()
    assert not wire.batches
    assert not wire.reads


def test_text_that_utf_8_cannot_write_is_refused_with_a_sentence(db: Session) -> None:
    half = "\ud800"
    for call in (
        lambda: db.put("t", "k", half),
        lambda: db.put("t", half, "v"),
        lambda: db.put(half, "k", "v"),
        lambda: db.get("t", half),
        lambda: db.get(half, "k"),
        lambda: db.query(half, "ASK {}"),
        lambda: db.query("main", f"ASK {{ ?s ?p '{half}' }}"),
        lambda: db.accept(half),
        lambda: db.outcome(half),
    ):
        with pytest.raises(errors.InvalidRequest, match="half of a surrogate pair"):
            call()


@pytest.mark.parametrize("value", [b"xy", bytearray(b"xy"), memoryview(b"xy"), "xy"])
def test_text_and_whatever_holds_bytes_is_written(value: Any) -> None:
    wire = FakeWire(lambda txid, _: Reply(0, txid, "applied", 1))

    Client(wire).put("t", "k", value)

    assert wire.batches[0][0][1] == pack_operations([("put", "t", b"k", b"xy")])


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda db: db.update("main", "INSERT"), errors.InvalidRequest, "MALFORMED QUERY"),
        (lambda db: db.query("main", "SELECT"), errors.InvalidRequest, "MALFORMED QUERY"),
        (lambda db: db.query("nowhere", "ASK {}"), errors.UnknownRepository, "nowhere"),
        (lambda db: db.update("nowhere", "CLEAR ALL"), errors.Rejected, "nowhere"),
        (lambda db: db.query("main", "ASK {}", accept="image/png"), errors.NotAcceptable, "no format for Accept"),
        (lambda db: db.put("t", b"k" * 401, b""), errors.InvalidRequest, "400 bytes"),
        (lambda db: db.put("t", b"k", b"v" * 9_000_000), errors.TooLarge, "divide the value over several keys"),
        (lambda db: db.put("t", "k", "v", ack="maybe"), errors.InvalidRequest, "applied=N"),
        (lambda db: db.put("t", "k", "v", timeout=0), errors.InvalidRequest, "timeout"),
        (lambda db: db.put("t", "k", "v", key="no key"), errors.InvalidRequest, "ASCII"),
        (lambda db: db.query("main", "ASK {}", min_lsn=99, timeout=0.2), errors.TimedOut, "LSN 99"),
    ],
)
def test_what_is_refused_is_the_error_that_it_stands_for(db: Session, call, error, words) -> None:
    with pytest.raises(error, match=words) as raised:
        call(db)

    assert type(raised.value) is error


@pytest.mark.parametrize("nothing", ["", None])
def test_a_name_that_is_none_is_refused_without_asking_anybody(db: Session, nothing: Any) -> None:
    for call in (
        lambda: db.get(nothing, "k"),
        lambda: db.range(nothing),
        lambda: db.queue(nothing),
        lambda: db.size(nothing),
        lambda: db.query(nothing, "ASK {}"),
        lambda: db.query("main", nothing),
        lambda: list(db.message_body("inbox", nothing)),
        lambda: db.outcome(nothing),
        lambda: db.accept(nothing),
    ):
        with pytest.raises(errors.InvalidRequest, match=f"is text( and not empty)?, not {nothing!r}"):
            call()


def test_a_rejection_names_its_transaction(db: Session) -> None:
    with pytest.raises(errors.Rejected) as raised:
        db.update("nowhere", "CLEAR ALL", key="mine")

    assert (raised.value.txid, raised.value.lsn) == ("mine", 1)


def test_the_same_key_is_written_once_and_another_write_under_it_is_refused(db: Session, served: Served) -> None:
    first = db.put("t", "k", "v", key="mine")

    assert db.put("t", "k", "v", key="mine") == first
    with pytest.raises(errors.KeyReused):
        db.put("t", "k", "w", key="mine")
    assert len(served.front.results) == 1


def test_level_copies_and_time_travel_with_each_write(db: Session, served: Served) -> None:
    assert db.put("t", "k", "v", ack="applied=2", timeout=3).level == "applied"
    assert db.put("t", "k", "w", ack="accepted").lsn == 0

    (_, level, copies, timeout_ms), accepted = served.front.submitted
    assert (level, copies, accepted[1]) == ("applied", 2, "accepted")
    assert 2000 < timeout_ms <= 3000


# ---- sessions


def test_a_session_reads_at_least_what_it_wrote() -> None:
    wire = FakeWire(lambda txid, _: Reply(0, txid, "applied", 7))
    wire.read_answer = ReadOutcome("application/octet-stream", 7, b"v")
    session = Session(wire)

    session.get("t", "k")
    session.put("t", "k", "v")
    session.get("t", "k")
    session.get("t", "k", min_lsn=3)

    assert [read[3] for read in wire.reads] == [0, 7, 3]


def test_every_read_of_a_session_sees_its_own_writes_unless_it_says_otherwise() -> None:
    wire = FakeWire(lambda txid, _: Reply(0, txid, "applied", 7))
    session = Session(wire)
    session.put("t", "k", "v")
    reads: list[tuple[bytes, Callable[[Any], object]]] = [
        (b'{"head": {}, "boolean": true}', lambda least: session.is_true("main", "ASK {}", min_lsn=least)),
        (b"v", lambda least: session.get("t", "k", min_lsn=least)),
        (b"\x90", lambda least: session.range("t", min_lsn=least)),
        (b"12", lambda least: session.size("main", min_lsn=least)),
        (b"[]", lambda least: session.repositories(min_lsn=least)),
    ]
    for body, read in reads:
        wire.read_answer = ReadOutcome("application/sparql-results+json", 7, body)
        read(None)
        read(3)

    assert [read[3] for read in wire.reads] == [7, 3] * len(reads)


def test_a_read_over_http_may_ask_for_the_latest(served: Served, db: Session) -> None:
    db.put("t", "k", "v")
    assert db.get("t", "k", min_lsn="latest") == b"v"
    assert served.front.reads[-1][3] == LATEST_LSN


def test_a_read_may_ask_for_the_latest() -> None:
    wire = FakeWire()
    wire.read_answer = ReadOutcome("application/octet-stream", 7, b"v")
    client = Client(wire)

    client.get("t", "k", min_lsn="latest")

    assert wire.reads[0][3] == LATEST_LSN
    for wrong in ("newest", -2, 1.5):
        with pytest.raises(errors.InvalidRequest, match="min_lsn is a whole number"):
            client.get("t", "k", min_lsn=wrong)  # type: ignore[arg-type]


def test_two_sessions_on_one_wire_know_nothing_of_each_other() -> None:
    wire = FakeWire(lambda txid, _: Reply(0, txid, "applied", 7))
    session = Session(wire)
    session.put("t", "k", "v")

    assert (session.least_lsn(), session.session().least_lsn(), Client(wire).least_lsn()) == (7, 0, 0)


def test_an_earlier_lsn_does_not_take_a_session_back() -> None:
    session = Session(FakeWire())

    session.note(9)
    session.note(0)

    assert session.least_lsn() == 9


def test_a_wire_that_never_answers_ends_as_unknown_or_timed_out(monkeypatch) -> None:
    monkeypatch.setattr(calls_module, "GRACE_S", 0.01)
    client = Client(FakeWire(), timeout=0.01)

    with pytest.raises(errors.OutcomeUnknown) as raised:
        client.put("t", "k", "v", key="mine")
    assert raised.value.txid == "mine"
    with pytest.raises(errors.TimedOut):
        client.get("t", "k")


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), threading.TIMEOUT_MAX, 1e10])
def test_a_time_that_no_wire_can_wait_for_is_refused(timeout: float) -> None:
    wire = FakeWire(lambda txid, _: Reply(0, txid, "applied", 1))
    db = Client(wire)

    for call in (
        lambda: db.put("t", "k", "v", timeout=timeout),
        lambda: db.get("t", "k", timeout=timeout),
        lambda: db.transaction(timeout=timeout),
        lambda: db.status(timeout=timeout),
        lambda: db.pipeline(timeout=timeout),
    ):
        with pytest.raises(errors.InvalidRequest, match="timeout is a number of seconds above 0 and up to 2592000"):
            call()
    assert (wire.batches, wire.reads, wire.asked) == ([], [], [])


def in_a_fork(work: Callable[[], object]) -> str:
    """What a process says that is forked off to do this."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            said = repr(work())
        except Exception as error:  # noqa: BLE001  (whatever it is, the test wants to see it)
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def closed(db: Client, wire: FakeWire) -> bool:
    db.close()
    return wire.is_closed


def test_a_client_belongs_to_the_process_that_made_it() -> None:
    wire = FakeWire(lambda txid, _: Reply(0, txid, "applied", 1))
    wire.read_answer = ReadOutcome("application/octet-stream", 1, b"v")
    with Client(wire) as db, db.pipeline() as pipeline:
        calls: list[Callable[[], object]] = [
            lambda: db.put("t", "k", "v"),
            lambda: db.get("t", "k"),
            db.status,
            lambda: db.transaction().begin(),
            lambda: pipeline.put("t", "k", "v", key="mine"),
            db.session,
            db.new_txid,
        ]
        for call in calls:
            assert in_a_fork(call).startswith("WrongState: this client belongs to the process")
        assert in_a_fork(lambda: closed(db, wire)) == "False", "that is for the other process to do"
        assert db.put("t", "k", "v").lsn == 1


def test_transaction_ids_of_two_clients_never_meet() -> None:
    one, other = Client(FakeWire()), Client(FakeWire())

    ids = [client.new_txid() for client in (one, other) for _ in range(3)]

    assert len(set(ids)) == 6


# ---- terms


@pytest.mark.parametrize(
    ("term", "value"),
    [
        (Literal("07", XSD + "integer"), 7),
        (Literal("7", XSD + "unsignedByte"), 7),
        (Literal("1.50", XSD + "decimal"), Decimal("1.50")),
        (Literal("1e3", XSD + "double"), 1000.0),
        (Literal("true", XSD + "boolean"), True),
        (Literal("0", XSD + "boolean"), False),
        (Literal("text"), "text"),
        (Literal("2020-01-01", XSD + "date"), "2020-01-01"),
    ],
)
def test_literals_become_python_values_on_demand(term, value) -> None:
    native = term.native()

    assert native == value
    assert type(native) is type(value)


def test_terms_are_text_that_knows_its_kind(db: Session) -> None:
    db.update("main", "INSERT DATA { <urn:a> <urn:b> _:x }")

    row = db.select("main", "SELECT * { ?s ?p ?o }")[0]

    assert (row["s"], type(row["s"]), type(row["o"])) == ("urn:a", Iri, BlankNode)


# ---- masters that cannot agree with the others


def test_what_a_write_wants_there_is_said_by_the_call_or_by_the_connection() -> None:
    wire = FakeWire(lambda txid, _: Reply(0, txid, "applied", 7))
    client = Client(wire, apart="refuse")
    client.put("t", "k", "v")
    client.update("main", "CLEAR ALL", apart="wait")
    client.session().publish("q", "x")
    with client.pipeline() as pipeline:
        pipeline.put("t", "k", "v")
    with client.pipeline(apart="wait") as pipeline:
        pipeline.put("t", "k", "v")
    Client(wire).delete("t", "k")
    assert wire.apart == ["refuse", "wait", "refuse", "refuse", "wait", "wait"]
    for wrong in (lambda: Client(wire, apart="later"), lambda: client.put("t", "k", "v", apart="later")):
        with pytest.raises(errors.InvalidRequest, match="wait or refuse"):
            wrong()


def test_the_result_of_a_query_says_how_old_it_may_be() -> None:
    wire = FakeWire()
    client = Client(wire)
    body = b'{"head": {"vars": []}, "results": {"bindings": []}}'
    wire.read_answer = ReadOutcome("application/sparql-results+json", 7, body, "no-majority", 1500)
    rows = client.select("main", "SELECT * {}")
    assert (rows.lsn, rows.apart, rows.stale_ms) == (7, "no-majority", 1500)
    wire.read_answer = ReadOutcome("application/n-triples", 7, b"")
    triples = client.construct("main", "CONSTRUCT {} {}")
    assert (triples.lsn, triples.apart, triples.stale_ms) == (7, "", None)
