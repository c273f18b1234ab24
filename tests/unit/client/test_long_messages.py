"""Messages that are longer than a transaction, from a program: over both wires, with real copies of two sites in one process."""

from __future__ import annotations

import io

import pytest

from brokerha.client import Client, large
from brokerha.model.errors import InvalidRequest, NotFound, Rejected
from brokerha.model.reserved.staging import TABLE

BODY = bytes(range(256)) * 40


@pytest.fixture
def db(on_sites: Client, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr(large, "WHOLE_BYTES", 2000)
    monkeypatch.setattr(large, "PIECE_BYTES", 1000)
    return on_sites


def rows(db: Client) -> int:
    return len(db.range(TABLE, min_lsn="latest"))


def publish(db: Client, body: bytes = BODY) -> str:
    """Publish one; return its id."""
    with db.large_transaction() as tx:
        tx.put("t", "k", b"v")
        tx.publish("inbox", io.BytesIO(body), "video/mp4")
    assert tx.committed is not None
    return f"{tx.committed.txid}.1"


def test_it_is_taken_with_its_body_and_leaves_nothing(db: Client) -> None:
    message_id = publish(db)
    assert rows(db) == 12
    assert db.accept("inbox", wait=5) == (message_id, "video/mp4", BODY, None)
    assert rows(db) == 0


def test_looking_tells_its_size_and_its_body_can_be_read_in_pieces(db: Client) -> None:
    message_id = publish(db)
    assert db.queue("inbox", min_lsn="latest") == [(message_id, "video/mp4", b"", len(BODY))]
    pieces = list(db.message_body("inbox", message_id))
    assert (b"".join(pieces), len(pieces)) == (BODY, 11)
    db.publish("inbox", b"short")
    short = db.queue("inbox", min_lsn="latest")[1]
    assert (short.body, short.size, list(db.message_body("inbox", short.id))) == (b"short", None, [b"short"])
    with pytest.raises(NotFound, match="is not in queue"):
        list(db.message_body("inbox", "nobody.1"))


@pytest.mark.parametrize("isolation", ["read-committed", "serializable"])
def test_a_transaction_that_takes_it_reads_it_in_pieces_until_its_commit(db: Client, isolation: str) -> None:
    publish(db)
    with db.transaction(isolation=isolation) as tx:
        message = tx.accept("inbox", wait=5, bodies=False)
        assert message is not None
        assert (message.body, message.size) == (b"", len(BODY))
        # What others do with the queue meanwhile is no conflict.
        db.publish("inbox", b"short")
        assert b"".join(tx.message_body("inbox", message.id)) == BODY
    assert rows(db) == 0
    assert len(db.queue("inbox", min_lsn="latest")) == 1


def test_what_was_rolled_back_is_there_again_with_its_pieces(db: Client) -> None:
    publish(db)
    tx = db.transaction().begin()
    assert tx.accept("inbox", wait=5) is not None
    tx.rollback()
    assert [message.body for message in db.consume("inbox", count=1, wait=5)] == [BODY]


def test_a_short_one_is_like_any_other(db: Client) -> None:
    publish(db, b"x" * 1999)
    assert (rows(db), [message.body for message in db.queue("inbox", min_lsn="latest")]) == (0, [b"x" * 1999])


def test_what_cannot_be_published_is_said_before_its_pieces_are_handed_over(db: Client) -> None:
    with pytest.raises(InvalidRequest, match="content type"), db.large_transaction() as tx:
        tx.publish("inbox", BODY, "pieces:video/mp4")
    assert tx.parts == 0
    tx = db.large_transaction()
    tx.publish("inbox", BODY)
    tx.add("nowhere", "<urn:a> <urn:b> <urn:c> .\n")
    with pytest.raises(Rejected, match="does not exist"):
        tx.commit()
    assert (rows(db), db.queue("inbox", min_lsn="latest")) == (0, [])
