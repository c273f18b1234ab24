"""Transactions over several stores in one request, batches of transactions, outcomes, and several reads at one LSN.

    POST /tx            a list of operations, committed at once: 201, Location: /tx/{id}, the outcome as JSON;
                        without a list: opens a transaction that is filled step by step (open_transactions.py)
    GET  /tx/{id}       the outcome of a transaction
    POST /tx/batch      many separate transactions; the Python client uses it
    POST /together      several reads over all stores at one LSN: a msgpack list of [kind, name, arguments],
                        answered with one of [content type, body] in the same order

Operations are those of model/operations.py, as msgpack, or as JSON with the same lists; there a key or a value is text, or
``{"base64": …}`` for any bytes:

    [["put", "prices", "sku-1", "9.90"], ["update", "main", "INSERT DATA { <urn:a> <urn:b> 1 }"]]

A batch is answered in pieces. The head of the answer is sent when the node has all of the batch, in order, so a client can then
send its next batch without waiting, and order holds. Replies follow as they come. Meanwhile an empty list is sent at intervals, so
that a client can tell a slow answer from a dead node.
"""

from __future__ import annotations

import asyncio
import contextlib
from codecs import BOM_UTF8
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from functools import partial
from typing import Any
from urllib.parse import quote

from brokerha.http.data import open_transactions
from brokerha.http.data.key_forms import operations_of_json
from brokerha.http.door import answer
from brokerha.http.door.answer import JSON, MSGPACK, Answer
from brokerha.http.door.call import Call
from brokerha.http.door.passing import age_of, begin_write, facts_of, read, write
from brokerha.http.guard.rights import demand_operations, demand_packed, demand_reads
from brokerha.model.errors import BrokerhaError, InvalidRequest, NotFound, TooLarge, UnsupportedType
from brokerha.model.ids import TxId
from brokerha.model.operations import Operation
from brokerha.model.outside.unpacking import BROKEN, unpack_foreign
from brokerha.model.requests import REFUSED, UNKNOWN, Reply
from brokerha.model.wire.client_wire import REPLIES_TYPE, WRITES_TYPE, decode_writes, encode_replies
from brokerha.nodes.front.checking import is_plain
from brokerha.stores.reads.kinds import packed_reads

SIGN_OF_LIFE_S = 5.0


async def post(call: Call) -> Answer:
    """Submit one complete transaction, or, without a list of operations, open one (open_transactions.py)."""
    media_type = call.body_type("", MSGPACK, JSON, what="operations")
    txid = begin_write(call)
    body = await call.body()
    if media_type != MSGPACK and not body.removeprefix(BOM_UTF8).lstrip().startswith(b"["):
        return await open_transactions.begin(call, body)
    call.body_type(MSGPACK, JSON, what="operations")
    # msgpack is passed on unchanged: the node decodes and checks it.
    operations: bytes | list[Operation] = body
    if media_type == JSON:
        operations = await call.door.by_size(len(body), operations_of_json, body)
        await demand_operations(call, operations)
    else:
        await demand_packed(call, body)
    reply = await write(call, operations, txid)
    headers = {**facts_of(reply), "Location": f"/tx/{quote(reply.txid, safe='')}"}
    return answer.as_json({"txid": reply.txid, "state": reply.status, "lsn": reply.lsn or None}, 201, headers)


async def get(call: Call) -> Answer:
    """Return the outcome of a transaction."""
    txid = call.path_text("id")
    outcome = await call.door.in_thread(call.front.outcome, txid)
    if outcome is None:
        raise NotFound(f"transaction {txid} is not known to {call.front.node_id}: it was never taken in here, or is forgotten")
    return answer.as_json(outcome)


async def post_batch(call: Call) -> Answer:
    """Submit many separate transactions, in order."""
    begin_write(call)
    if call.media_type() != WRITES_TYPE:
        raise UnsupportedType(f"send a batch as {WRITES_TYPE}: a msgpack list of [transaction id, body]")
    body = await call.body()
    writes = decode_writes(body)
    if len(writes) > call.door.limits.batch_limit:
        raise TooLarge(f"{len(writes)} transactions in a batch; the limit is {call.door.limits.batch_limit}: split it")
    for _, packed in writes:
        await demand_packed(call, packed)
    (level, copies), apart = call.ack(), call.apart()
    timeout_ms = call.timeout_ms()
    hand_in = partial(call.front.submit, level=level, copies=copies, timeout_ms=timeout_ms, apart=apart, user=call.user_name())

    def submit_all() -> list[Future[Reply] | Reply]:
        return [_submit(hand_in, txid, packed) for txid, packed in writes]

    replies = Replies(await call.door.parsing(is_plain(body), submit_all), [txid for txid, _ in writes])
    deadline_s = (timeout_ms + call.door.limits.grace_ms) / 1000
    return Answer(200, content_type=REPLIES_TYPE, pieces=replies.pieces(deadline_s))


def _submit(hand_in: Callable[[bytes, TxId], Future[Reply]], txid: TxId, packed: bytes) -> Future[Reply] | Reply:
    try:
        return hand_in(packed, txid)
    except BrokerhaError as error:
        return Reply(0, txid, REFUSED, 0, type(error).__name__, str(error))


async def post_together(call: Call) -> Answer:
    """Answer several reads at one LSN: all of them, or the error of the first that fails."""
    wanted = _reads_of(await call.body())
    wanted = await demand_reads(call, wanted)
    outcome = await read(call, "together", "", {"reads": packed_reads(wanted)})
    return Answer(200, outcome.body, MSGPACK, age_of(outcome))


def _reads_of(body: bytes) -> list[Any]:
    try:
        wanted: Any = unpack_foreign(body, use_list=True)
    except BROKEN:
        wanted = None
    if not isinstance(wanted, list):
        raise InvalidRequest(f"the body is a list of [kind, name, arguments] as {MSGPACK}")
    return wanted


class Replies:
    """The replies to a batch, in pieces: all that came since the last piece."""

    def __init__(self, submitted: list[Future[Reply] | Reply], txids: list[TxId]) -> None:
        self._open = dict.fromkeys(txids)
        self._submitted = submitted
        self._arrived: deque[Reply] = deque()
        self._wake_up = asyncio.Event()
        self._is_woken = False

    async def pieces(self, deadline_s: float) -> AsyncIterator[bytes]:
        """Yield pieces of replies; at the deadline the rest is answered as unknown."""
        loop = asyncio.get_running_loop()
        count = len(self._submitted)
        for submitted in self._submitted:
            if isinstance(submitted, Reply):
                self._arrived.append(submitted)
            else:
                submitted.add_done_callback(lambda done: self._arrive(loop, done))
        self._submitted = []
        if self._arrived:
            self._wake_up.set()
        deadline = loop.time() + deadline_s
        while count:
            await self._woken(min(SIGN_OF_LIFE_S, max(0.0, deadline - loop.time())))
            self._is_woken = False
            # Taken one by one: the node's thread can append at any moment.
            arrived = [self._arrived.popleft() for _ in range(len(self._arrived))]
            count -= len(arrived)
            for reply in arrived:
                self._open.pop(reply.txid, None)
            yield _packed(arrived)
            if count and loop.time() >= deadline:
                reason = "the node did not answer in time"
                yield _packed([Reply(0, txid, UNKNOWN, 0, "OutcomeUnknown", reason) for txid in self._open])
                return

    async def _woken(self, limit_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._wake_up.wait()
        self._wake_up.clear()

    def _arrive(self, loop: asyncio.AbstractEventLoop, done: Future[Reply]) -> None:
        """Queue a reply, in the node's thread; wakes the event loop once for many."""
        self._arrived.append(done.result())
        if not self._is_woken:
            self._is_woken = True
            # The server can have stopped meanwhile; then no client waits.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._wake_up.set)


def _packed(replies: list[Reply]) -> bytes:
    return encode_replies([(reply.txid, reply.status, reply.lsn, reply.error, reply.reason) for reply in replies])
