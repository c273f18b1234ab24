"""Queues: ``/queues/{name}``. Reading takes nothing; taking is its own transaction, or a part of one (transactions.py).

    POST /queues/{name}            publishes the body, with its content type: 201, {"txid", "id", "lsn"}; a long one in pieces
    POST /queues/{name}/accept     ?count=&wait-s=   takes messages for good: at most once
    GET  /queues/{name}            ?limit=&after=    shows the first messages, or those after a message id
    GET  /queues/{name}/{id}       ?piece=            the unchanged body of one; a piece of it as msgpack
    GET  /queues                   {name: {"depth", "published", "accepted"}}

Taken messages are answered after the commit. Messages that another master gave out a moment earlier are skipped. A long message is
in pieces (model/reserved/pieces.py).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Final

import msgpack
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_incrementing

from brokerha.http.data import transactions
from brokerha.http.door import answer
from brokerha.http.door.answer import JSON, Answer
from brokerha.http.door.call import Call, natural
from brokerha.http.door.passing import Parts, age_of, begin_write, facts_of, is_long, read, result, write
from brokerha.http.guard import only_readable
from brokerha.model.errors import Aborted, BrokerhaError, InvalidRequest, WrongState
from brokerha.model.ids import TxId
from brokerha.model.operation_checks import QUEUE
from brokerha.model.operations import check_operations, message_id
from brokerha.model.requests import Reply
from brokerha.model.reserved.pieces import PIECE, PIECE_BYTES, PUBLISH, pieces_of
from brokerha.model.reserved.staging import SIZE_LIMIT_BYTES

OCTETS: Final = "application/octet-stream"
ABORTS_LIMIT: Final = 5
PAUSE_S: Final = 0.05
HARMLESS: Final = {"Content-Security-Policy": "sandbox", "X-Content-Type-Options": "nosniff"}
"""A message can be a page, and the person who opens it in a browser can have more rights here than its author."""


async def post(call: Call) -> Answer:
    """Publish one message."""
    txid = begin_write(call)
    queue, content_type = call.path_text("name"), call.header(b"content-type") or OCTETS
    if await is_long(call):
        check_operations([("publish", queue, content_type, b"")])
        reply = await _publish_long(call, queue, content_type, txid)
    else:
        reply = await write(call, [("publish", queue, content_type, await call.body())], txid)
    facts = {"txid": reply.txid, "id": message_id(reply.txid, 1), "lsn": reply.lsn or None}
    return answer.as_json(facts, 201, facts_of(reply))


async def _publish_long(call: Call, queue: str, content_type: str, txid: TxId) -> Reply:
    async with Parts(call, txid) as parts:
        rest = bytearray()
        size_bytes = 0
        async for data in call.pieces(SIZE_LIMIT_BYTES):
            rest += data
            size_bytes += len(data)
            while len(rest) >= PIECE_BYTES:
                await parts.stage([(PIECE, bytes(rest[:PIECE_BYTES]))])
                del rest[:PIECE_BYTES]
        if rest:
            await parts.stage([(PIECE, bytes(rest))])
        await parts.stage([(PUBLISH, queue, content_type, 1, parts.number, size_bytes)])
        return await parts.commit()


async def accept(call: Call) -> Answer:
    """Take messages in an own transaction."""
    # Wrong arguments are reported before anything is taken.
    if call.header(b"idempotency-key"):
        raise InvalidRequest(
            "accept takes no Idempotency-Key, because sending it again takes other messages: take them in a transaction, POST /tx and /tx/{id}/accept?first=0"
        )
    transactions.message_type(call)
    call.ack()
    parameters = call.parameters()
    wait_ms = transactions.seconds(parameters, "wait-s", 3600.0)
    count = parameters.number("count", 1)
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + wait_ms / 1000

    async def once() -> Answer:
        return await _accept_once(call, count, max(0, round((deadline_s - loop.time()) * 1000)))

    again = AsyncRetrying(
        retry=retry_if_exception_type(Aborted),
        stop=stop_after_attempt(ABORTS_LIMIT),
        wait=wait_incrementing(PAUSE_S, PAUSE_S),
        reraise=True,
    )
    return await again(once)


async def _accept_once(call: Call, count: int, wait_ms: int) -> Answer:
    """Begin, take, commit; roll back on any failure before the commit."""
    begun = await transactions.begin(call, timeout_ms=min(3_600_000, wait_ms + call.timeout_ms()))
    txid = str(begun["txid"])
    arguments = {"first": 0, "queue": call.path_text("name"), "count": count, "wait_ms": wait_ms}
    try:
        taken = await transactions.step(call, "accept", txid, arguments, wait_ms)
    except BrokerhaError:
        await _roll_back(call, txid)
        raise
    # Who left while it waited would lose what it takes.
    if not taken["messages"] or await call.is_left():
        await _roll_back(call, txid)
        return transactions.messages(call, [], {})
    for row in taken["messages"]:
        # Its body is removed with it, so it must be read before the commit.
        if (pieces := pieces_of(row[1], row[2])) is not None:
            await _roll_back(call, txid)
            raise WrongState(
                f"message {row[0]!r} has {pieces.size_bytes} bytes, more than one answer holds: take it in a transaction (POST /tx), "
                f"and read /queues/NAME/ID before its commit"
            )
    facts = await transactions.commit(call, txid, one_phase=True)
    lsn = int(facts.get("lsn") or 0)
    return transactions.messages(call, taken["messages"], {"Brokerha-Tx": txid, "Brokerha-Lsn": lsn}, txid=txid, lsn=lsn or None)


async def _roll_back(call: Call, txid: str) -> None:
    """Roll back as far as possible; otherwise the master ends the transaction by itself after a silence."""
    try:
        await transactions.step(call, "rollback", txid, {"session": transactions.session(call)})
    except BrokerhaError:
        call.error_headers = {}


async def get(call: Call) -> Answer:
    """Return the first messages without taking them."""
    parameters = call.parameters()
    arguments = {"after": parameters.one("after"), "limit": parameters.number("limit", 100)}
    outcome = await read(call, "queue", call.path_text("name"), arguments)
    rows = await call.door.by_size(len(outcome.body), _rows, outcome.body)
    return transactions.messages(call, rows, age_of(outcome))


async def message(call: Call) -> Answer:
    """Return the body of one message."""
    queue, wanted, piece = call.path_text("name"), call.path_text("id"), call.parameters().one("piece")
    arguments = {"id": wanted, "number": 0 if piece is None else natural(piece, "piece")}
    outcome = await read(call, "message", queue, arguments)
    if piece is not None:
        return result(outcome)
    content_type, size_bytes, count, data = msgpack.unpackb(outcome.body)

    async def pieces() -> AsyncIterator[bytes]:
        if call.method != "HEAD":
            yield data
            for number in range(1, count):
                # Another worker, which possibly lags, can get this read.
                more = await read(call, "message", queue, {"id": wanted, "number": number}, min_lsn=outcome.lsn)
                yield msgpack.unpackb(more.body)[3]

    headers = {**age_of(outcome), **HARMLESS, "Content-Length": size_bytes}
    return Answer(200, b"", content_type or OCTETS, headers, pieces())


async def listed(call: Call) -> Answer:
    """Return all queues that the caller can read, with their numbers."""
    outcome = await read(call, "queues", "", {})
    if call.user is None:
        return Answer(200, outcome.body + b"\n", JSON, age_of(outcome))
    numbers = json.loads(outcome.body)
    return answer.as_json({name: numbers[name] for name in only_readable(call, QUEUE, numbers)}, 200, age_of(outcome))


def _rows(packed: bytes) -> list[tuple[str, str, bytes]]:
    return list(msgpack.unpackb(packed, use_list=False))
