"""An argument of a wrong type is named by the method that was called, whichever place inside found it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import brokerha
from brokerha import aio
from brokerha.client import Client, Session
from brokerha.model.errors import ConfigurationError, InvalidRequest
from tests.unit.client.serving import Served

Call = Callable[[Any], object]
NOTHING: Any = None


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda db: db.put("t", 1, b""), "put: key_name is text or bytes, not int"),
        (lambda db: db.put("t", "k", b"", key=1), "put: key is text, not int"),
        (lambda db: db.put("t", "k", b"", ack=1), "put: ack is text or None, not int"),
        (lambda db: db.update(None, "CLEAR ALL"), "update: repository is text, not None"),
        (lambda db: db.write(1), "write: operations is a list, not int"),
        (lambda db: db.snapshot("monday", "t", 1), "snapshot: tables is text, not int"),
        (lambda db: db.get("t", "k", snapshot=1), "get: snapshot is text or None, not int"),
        (lambda db: db.get("t", "k", timeout="5"), "get: timeout is a number or None, not str"),
        (lambda db: db.query("main", "ASK {}", default_graphs=1), "query: default_graphs is a list, not int"),
        (lambda db: db.queue("q", limit=None), "queue: limit is a whole number, not None"),
        (lambda db: next(db.consume(b"q")), "consume: queue is text, not bytes"),
        (lambda db: next(db.message_body("q", 1)), "message_body: message_id is text, not int"),
        (lambda db: db.transaction(isolation=1), "transaction: isolation is text, not int"),
        (lambda db: db.transaction().begin().put(None, "k", b""), "put: table is text, not None"),
        (lambda db: db.pipeline(window=None), "pipeline: window is a whole number, not None"),
        (lambda db: db.pipeline().put("t", "k", 1.5), "put: value is text or bytes, not float"),
        (lambda db: db.large_transaction().publish("q", 1), "publish: body is text, bytes or a binary file, not int"),
        (lambda db: db.end_transaction("commit", "m1", 1), "end_transaction: txid is text, not int"),
        (lambda db: Session(db.wire, NOTHING), "Session: timeout is a number, not None"),
    ],
)
def test_an_argument_of_a_wrong_type_is_named(db: Session, call: Call, problem: str) -> None:
    with pytest.raises(InvalidRequest) as told:
        call(db)
    assert str(told.value) == problem


def test_it_is_named_with_asyncio_too(served: Served) -> None:
    async def put() -> None:
        async with aio.connect(served.url) as db:
            with pytest.raises(InvalidRequest, match="put: key_name is text or bytes, not int"):
                await db.put("t", 1, b"")  # type: ignore[arg-type]
            async with db.transaction() as tx:
                with pytest.raises(InvalidRequest, match="get: key_name is text or bytes, not int"):
                    await tx.get("t", 1)  # type: ignore[arg-type]

    asyncio.run(put())


def test_what_else_is_wrong_stays_as_it_is(db: Session) -> None:
    def work(_tx: object) -> None:
        raise TypeError("of the program itself")

    with pytest.raises(TypeError, match="of the program itself"):
        db.run_transaction(work)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'value'"):
        db.put("t", "k")  # type: ignore[call-arg]
    with pytest.raises(InvalidRequest, match="a key has"):
        db.put("t", "", b"")
    with pytest.raises(InvalidRequest, match="half of a surrogate pair"):
        db.export("\ud800")
    assert list(inspect.signature(Client.delete).parameters)[:3] == ["self", "table", "key_name"]


@pytest.mark.parametrize("address", [None, b"http://h", Path("orders")])
def test_what_is_no_address_is_told_with_what_is_one(address: Any) -> None:
    with pytest.raises(ConfigurationError, match="write http://host:port"):
        brokerha.connect(address)
