"""Large transactions from a program: over both wires, with real copies of two sites in one process."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from brokerha.client import Client, large
from brokerha.client.outcomes import Written
from brokerha.client.reads import Literal, Solutions
from brokerha.ingress import insert_data
from brokerha.model.errors import InvalidRequest, NotReady, OutcomeUnknown, Rejected, WrongState
from brokerha.model.operations import Operation
from brokerha.model.reserved.staging import COMMIT, TABLE
from brokerha.stores.execution import staged


@pytest.fixture
def db(on_sites: Client, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr(large, "PART_BYTES", 1000)
    return on_sites


def lines(first: int, count: int) -> str:
    return "".join(f"<urn:s{number}> <urn:p> <urn:o> .\n" for number in range(first, first + count))


def size(db: Client) -> int:
    return db.size("main", min_lsn="latest")


def left(db: Client) -> int:
    """How many parts are staged."""
    return len(db.range(TABLE, min_lsn="latest"))


def test_all_of_it_takes_place_at_one_lsn(db: Client) -> None:
    db.put("t", "gone", "1")
    with db.large_transaction() as tx:
        tx.add("main", lines(0, 200))
        for number in range(100):
            tx.put("t", f"{number:03}", b"v" * 50)
        tx.delete("t", "gone")
        tx.remove("main", lines(0, 10))
        tx.publish("q", b"done", "text/plain")
        db.put("other", "k", "1")
        assert (size(db), [key for key, _ in db.range("t", min_lsn="latest")]) == (0, [b"gone"])
    assert tx.parts > 10
    assert tx.committed is not None
    assert tx.committed.txid == tx.name
    assert size(db) == 190
    assert len(db.range("t", min_lsn="latest")) == 100
    assert [message.body for message in db.queue("q", min_lsn="latest")] == [b"done"]
    assert left(db) == 0


def test_it_takes_the_place_of_all_that_was_there(db: Client) -> None:
    db.write([("add", "main", lines(0, 50))])
    with db.large_transaction() as tx:
        tx.clear("main")
        tx.add("main", lines(40, 200))
        db.write([("add", "main", lines(1000, 5))])
    assert size(db) == 200
    tx = db.large_transaction()
    tx.put("t", "k", "1")
    with pytest.raises(InvalidRequest, match="clear comes first in a large transaction"):
        tx.clear("main")
    tx.drop()


def test_an_exception_drops_it(db: Client) -> None:
    tx = db.large_transaction()
    with contextlib.suppress(ZeroDivisionError), tx:
        tx.add("main", lines(0, 100))
        raise ZeroDivisionError
    assert (size(db), left(db)) == (0, 0)
    with pytest.raises(WrongState, match="is over: begin another one"):
        tx.stage([("put", "t", b"k", b"v")])


def test_a_part_that_is_refused_ends_it(db: Client) -> None:
    text = lines(0, 100) + "this is no quad\n" + lines(100, 1000)
    with pytest.raises(InvalidRequest, match="MALFORMED DATA"), db.large_transaction() as tx:
        tx.add("main", text)
    assert (size(db), left(db)) == (0, 0)


def test_nothing_is_lost_when_a_part_is_not_taken_for_a_while(db: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    tx = db.large_transaction()
    write, refusals = db.write, [NotReady("no primary"), OutcomeUnknown("tx")]

    def refused(*arguments: Any, **options: Any) -> Written:
        done = write(*arguments, **options)
        if refusals:
            # Whether it was done or not, the same part is handed over again.
            raise refusals.pop()
        return done

    monkeypatch.setattr(tx, "_writer", SimpleNamespace(write=refused))
    for number in range(1500):
        while True:
            try:
                tx.put("t", f"{number:04}", "v")
                break
            except (NotReady, OutcomeUnknown):
                continue
    tx.commit()
    assert (refusals, len(db.range("t", limit=2000, min_lsn="latest"))) == ([], 1500)


def test_one_with_a_key_keeps_its_parts_when_its_commit_is_not_taken_now(db: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    tx = db.large_transaction(key="import-2")
    write = db.write

    def refused(rows: Sequence[Operation], **options: Any) -> Written:
        if rows[-1][0] == COMMIT:
            raise NotReady("between two primaries")
        return write(rows, **options)

    tx.put("t", "k", "1")
    monkeypatch.setattr(tx, "_writer", SimpleNamespace(write=refused))
    with pytest.raises(NotReady):
        tx.commit()
    assert left(db) == 1
    with db.large_transaction(key="import-2") as again:
        again.put("t", "k", "1")
    assert (db.get("t", "k", min_lsn="latest"), left(db)) == (b"1", 0)


def test_what_speaks_against_it_is_said_at_the_commit(db: Client) -> None:
    db.put("t", "k", "1")
    with pytest.raises(Rejected, match="repository 'nowhere' does not exist"), db.large_transaction() as tx:
        tx.add("nowhere", lines(0, 100))
    tx = db.large_transaction()
    tx.put("t", "k", "2")
    with pytest.raises(Rejected):
        tx.commit(("expect-key", "t", b"k", ""))
    assert (db.get("t", "k", min_lsn="latest"), left(db)) == (b"1", 0)


def test_more_than_the_limit_is_refused_before_the_end(db: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged, "SIZE_LIMIT_BYTES", 5000)
    with pytest.raises(Rejected, match="load the data instead"), db.large_transaction() as tx:
        tx.add("main", lines(0, 10_000))
    assert tx.parts < 20
    assert (size(db), left(db)) == (0, 0)


def test_the_same_key_does_nothing_twice(db: Client) -> None:
    for _ in range(2):
        with db.large_transaction(key="import-1") as tx:
            tx.publish("q", b"x")
            db.load("main", io.StringIO("_:a <urn:p> _:b .\n" * 3 + lines(0, 50)), "nt", inside=tx)
            db.load("main", io.StringIO("_:a <urn:p> _:b .\n"), "nt", inside=tx)
    assert size(db) == 52
    assert len(db.queue("q", min_lsn="latest")) == 1


def test_a_long_insert_data_is_loaded_into_it(db: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insert_data, "DOCUMENT_BYTES", 1000)
    triples = "".join(f" :s{number} :p [ :q _:same ] ;\n :r '}} .' .\n" for number in range(100))
    update = f"PREFIX : <urn:x:>\nINSERT DATA {{ GRAPH :g {{{triples}}} }}"
    for _ in range(2):
        with db.large_transaction(key="insert-1") as tx:
            assert db.load("main", io.BytesIO(update.encode()), "ru", inside=tx).statements == 300
    assert size(db) == 300
    counted = "SELECT (COUNT(DISTINCT ?o) AS ?n) { GRAPH <urn:x:g> { ?s <urn:x:q> ?o } }"
    rows = db.query("main", counted, min_lsn="latest")
    assert isinstance(rows, Solutions)
    assert rows[0]["n"] == Literal("1", "http://www.w3.org/2001/XMLSchema#integer"), "a label is one blank node in all parts"
    with pytest.raises(InvalidRequest, match="counted from line"), db.large_transaction() as tx:
        db.load("main", io.StringIO(update.replace(":s90 :p [", ":s90 :p ] [")), "ru", inside=tx)
    assert (size(db), left(db)) == (300, 0)


def test_nothing_is_no_transaction(db: Client) -> None:
    with pytest.raises(InvalidRequest, match="at least one operation"), db.large_transaction():
        pass


def test_a_commit_without_an_answer_drops_nothing(db: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    tx = db.large_transaction()
    tx.add("main", lines(0, 100))
    real = db.write

    def lose_the_answer(operations: Sequence[Operation], **options: Any) -> Written:
        real(operations, **options)
        if operations[-1][0] == "commit-staged":
            raise OutcomeUnknown(tx.name)
        return Written(tx.name, 0, "applied")

    monkeypatch.setattr(db, "write", lose_the_answer)
    with pytest.raises(OutcomeUnknown), tx:
        tx.put("t", "k", "v")
    monkeypatch.undo()
    assert (size(db), db.get("t", "k", min_lsn="latest"), left(db)) == (100, b"v", 0)
