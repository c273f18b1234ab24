"""Queues: ``/queues/{name}``. Reading one takes nothing; taking is a transaction of its own, or a part of one (open_transactions.py).

    POST /queues/{name}            publishes the body, with its content type: 201, {"txid", "id", "lsn"}
    POST /queues/{name}/accept     ?count=&wait-s=   takes messages for good: at most once
    GET  /queues/{name}            ?limit=&after=    looks at the first ones, or at those after a message id
    GET  /queues                   {name: {"depth", "published", "accepted"}}

What was taken is answered when that is committed. Messages that another master gave to somebody else a moment earlier are
left to them, and the next ones are taken.
"""

from __future__ import annotations

import asyncio
import json
from typing import Final

import msgpack
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_incrementing

from brokerha.http.data import stepping
from brokerha.http.door import answer
from brokerha.http.door.answer import JSON, Answer
from brokerha.http.door.call import Call
from brokerha.http.door.passing import age_of, begin_write, facts_of, read, write
from brokerha.http.guard.rights import only_readable
from brokerha.model.errors import Aborted, BrokerhaError
from brokerha.model.operation_checks import QUEUE
from brokerha.model.operations import message_id

OCTETS: Final = "application/octet-stream"
ABORTS_LIMIT: Final = 5
PAUSE_S: Final = 0.05
LOOK_MOST: Final = 1000


async def post(call: Call) -> Answer:
    """Publish one message."""
    txid = begin_write(call)
    content_type = call.header(b"content-type") or OCTETS
    body = await call.body()
    reply = await write(call, [("publish", call.path_text("name"), content_type, body)], txid)
    facts = {"txid": reply.txid, "id": message_id(reply.txid, 1), "lsn": reply.lsn or None}
    return answer.as_json(facts, 201, facts_of(reply))


async def accept(call: Call) -> Answer:
    """Take messages in a transaction of its own."""
    stepping.message_type(call)
    parameters = call.parameters()
    wait_ms = stepping.seconds(parameters, "wait-s", 3600.0)
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
    """Begin, take, commit; what does not get to the commit is rolled back."""
    begun = await stepping.begin(call, timeout_ms=min(3_600_000, wait_ms + call.timeout_ms()))
    txid = str(begun["txid"])
    arguments = {"first": 0, "queue": call.path_text("name"), "count": count, "wait_ms": wait_ms}
    try:
        taken = await stepping.step(call, "accept", txid, arguments, wait_ms)
    except BrokerhaError:
        await _roll_back(call, txid)
        raise
    if not taken["messages"]:
        await _roll_back(call, txid)
        return stepping.messages(call, [], {})
    facts = await stepping.commit(call, txid, one_phase=True)
    lsn = int(facts.get("lsn") or 0)
    return stepping.messages(
        call, taken["messages"], {"Brokerha-Tx": txid, "Brokerha-Lsn": lsn}, txid=txid, lsn=lsn or None
    )


async def _roll_back(call: Call, txid: str) -> None:
    """As far as that is possible: else the master ends it by itself when nothing comes any more."""
    try:
        await stepping.step(call, "rollback", txid, {"session": stepping.session(call)})
    except BrokerhaError:
        call.error_headers = {}


async def get(call: Call) -> Answer:
    """The first messages, which stay where they are."""
    parameters = call.parameters()
    limit = parameters.number("limit", 100)
    arguments = {"after": parameters.one("after"), "limit": max(1, min(limit, LOOK_MOST))}
    outcome = await read(call, "queue", call.path_text("name"), arguments)
    rows = await call.door.by_size(len(outcome.body), _rows, outcome.body)
    return stepping.messages(call, rows, age_of(outcome))


async def listed(call: Call) -> Answer:
    """All queues that the caller may read, with their numbers."""
    outcome = await read(call, "queues", "", {})
    if call.user is None:
        return Answer(200, outcome.body + b"\n", JSON, age_of(outcome))
    numbers = json.loads(outcome.body)
    return answer.as_json({name: numbers[name] for name in only_readable(call, QUEUE, numbers)}, 200, age_of(outcome))


def _rows(packed: bytes) -> list[tuple[str, str, bytes]]:
    return list(msgpack.unpackb(packed, use_list=False))
