"""Transactions over several stores in one request, batches of transactions, outcomes, and several reads at one LSN.

    POST /tx            a list of operations, committed at once: 201, Location: /tx/{id}, the outcome as JSON;
                        without a list: opens a transaction that is filled step by step
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
import base64
import contextlib
import hashlib
from codecs import BOM_UTF8
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import msgpack

from brokerha.http.data.keys import json_of, msgpack_of, operations_of_json
from brokerha.http.door import answer
from brokerha.http.door.answer import JSON, MSGPACK, Answer
from brokerha.http.door.call import Call, Parameters, natural
from brokerha.http.door.passing import age_of, begin_write, facts_of, read, result, write
from brokerha.http.guard import demand_operations, demand_packed, demand_reads, readable_reason
from brokerha.http.users import ADMIN, READ, WRITE
from brokerha.model.errors import (
    BrokerhaError,
    InvalidRequest,
    NotFound,
    OutcomeUnknown,
    ReadOnly,
    TimedOut,
    TooLarge,
    UnsupportedType,
)
from brokerha.model.ids import TxId, is_tx_id
from brokerha.model.operation_checks import QUEUE
from brokerha.model.operations import Operation
from brokerha.model.outside.isolation import READ_COMMITTED, checked_isolation
from brokerha.model.outside.unpacking import BROKEN, unpack_foreign
from brokerha.model.requests import APPLIED_LEVEL, REFUSED, UNKNOWN, Reply
from brokerha.model.reserved.pieces import pieces_of, plain_type
from brokerha.model.wire.client_wire import REPLIES_TYPE, WRITES_TYPE, decode_writes, encode_replies
from brokerha.nodes.front.checking import is_plain
from brokerha.stores.reads.kinds import packed_reads

# ---- One step of an open transaction on its way to the node, and its answer (ports.Front.transact).
#
# A step without an answer in time is `OutcomeUnknown`, with the transaction's id, if it can end the transaction. Any other is
# `TimedOut` and can be sent again. The header ``Brokerha-Session`` names a transaction's user; requests without it share one session.

SESSION: Final = b"brokerha-session"
_MAY_END: Final = frozenset({"prepare", "commit", "rollback"})

Arguments = dict[str, Any]


async def step(call: Call, action: str, txid: TxId, arguments: Arguments, more_ms: int = 0) -> dict[str, Any]:
    """Take one step; ``more_ms`` is its wait beyond the time of the request. Raises the errors of the node."""
    if call.front.role == "worker":
        raise ReadOnly(call.front.writable()[1])
    if txid and not is_tx_id(txid):
        raise NotFound(f"{txid[:200]!r} is no id of a transaction")
    timeout_ms = call.timeout_ms() + more_ms
    call.error_headers = {"Brokerha-Tx": txid} if txid else {}
    future = await call.door.parsing(
        is_plain(arguments.get("operations", ())), call.front.transact, action, txid, arguments, timeout_ms
    )
    try:
        return await call.door.settled(future, timeout_ms)
    except TimeoutError:
        if action in _MAY_END:
            text = f"outcome unknown of transaction {txid}: the node did not answer in time"
            raise OutcomeUnknown(txid, text) from None
        raise TimedOut(f"the node did not answer in time: send this step of transaction {txid} again") from None


async def begin(call: Call, xid: str = "", timeout_ms: int = 0, txid: TxId = "", isolation: str = READ_COMMITTED) -> dict[str, Any]:
    """Open a transaction; the master names it unless an id is given."""
    arguments = {"xid": xid, "timeout_ms": timeout_ms, "session": session(call), "isolation": isolation, "user": call.user_name()}
    return await step(call, "begin", txid, arguments)


async def commit(call: Call, txid: TxId, *, one_phase: bool | None = None, by_hand: bool = False) -> dict[str, Any]:
    """Commit, up to the level of ``Brokerha-Ack``."""
    level, copies = call.ack()
    arguments = {"one_phase": one_phase, "level": level, "copies": copies, "session": session(call), "by_hand": by_hand}
    facts = await step(call, "commit", txid, arguments)
    if level == APPLIED_LEVEL and facts.get("lsn"):
        call.door.note_write(int(facts["lsn"]))
    return facts


def session(call: Call) -> str:
    """Return the session; at a door with users no other user can end an open transaction."""
    given = call.header(SESSION)
    if call.user is None:
        return given
    return hashlib.sha256(f"{call.user.name}:{given}".encode()).hexdigest()


def seconds(parameters: Parameters, name: str, most_s: float) -> int:
    """Return a time of 0 seconds or more, in milliseconds; 0 by default. Raises InvalidRequest."""
    text = parameters.one(name)
    try:
        value = float(text or 0)
    except ValueError:
        value = -1
    if not 0 <= value <= most_s:
        raise InvalidRequest(f"{name} is a number of seconds from 0 to {most_s:g}, not {text!r}")
    return round(value * 1000)


def location(txid: TxId) -> str:
    """Return the path of a transaction."""
    return f"/tx/{quote(txid, safe='')}"


def committed(facts: dict[str, Any], txid: TxId) -> Answer:
    """Return the answer to a commit."""
    lsn = int(facts.get("lsn") or 0)
    body = {"txid": txid, "state": facts.get("state", "committed"), "lsn": lsn or None}
    return answer.as_json(body, 200, {"Brokerha-Tx": txid, "Brokerha-Lsn": lsn})


def messages(call: Call, rows: Sequence[Sequence[Any]], headers: dict[str, str | int], **facts: Any) -> Answer:
    """Return messages of a queue as JSON or msgpack, with further facts. Raises NotAcceptable."""
    if message_type(call) == MSGPACK:
        packed: bytes = msgpack.packb({**facts, "messages": [list(row) for row in rows]})
        return Answer(200, packed, MSGPACK, {**headers, "Vary": "Accept"})
    listed = [{"id": row[0], **_body(row[1], row[2])} for row in rows]
    return answer.as_json({**facts, "messages": listed}, 200, {**headers, "Vary": "Accept"})


def message_type(call: Call) -> str:
    """Return the wanted format of messages; to be called before any is taken. Raises NotAcceptable."""
    return call.format_of("messages", (JSON, MSGPACK))


def _body(content_type: str, body: bytes) -> dict[str, str | int]:
    if (pieces := pieces_of(content_type, body)) is not None:
        return {"content_type": plain_type(content_type), "size": pieces.size_bytes}
    try:
        return {"content_type": content_type, "body": body.decode()}
    except UnicodeDecodeError:
        return {"content_type": content_type, "body_base64": base64.b64encode(body).decode()}


# ---- Transactions over several stores, step by step.
#
#     POST /tx                       {"xid", "timeout-s", "isolation"}, or nothing     201, Location: /tx/{id}
#     POST /tx/{id}/operations       a list of operations, JSON or msgpack; ?first=N makes a retry safe
#     POST /tx/{id}/accept           ?queue=&count=&wait-s=&first=        takes messages, and locks them until the end
#     POST /tx/{id}/ping             keeps it open
#     POST /tx/{id}/prepare          first phase, of one with an xid
#     POST /tx/{id}/commit           ?one-phase=  ?by-hand=              by hand: for admins
#     POST /tx/{id}/rollback         ?by-hand=
#     POST /tx/{id}/forget           ends the report of a decision by hand; for admins
#     GET  /tx/{id}                  the outcome
#     GET  /tx                       all that are not over
#     GET  /cluster/staged           large transactions with staged parts (model/reserved/staging.py)
#
# A read with the header ``Brokerha-Transaction: {id}`` shows the state with the operations so far. Everything happens at the master
# that began the transaction.

WAIT_MOST_S = 3600.0
_ENDS = frozenset({"prepare", "rollback", "ping", "forget"})


async def begin_open(call: Call, body: bytes) -> Answer:
    """Open a transaction; the body is empty, or a JSON object."""
    fields: Any = await call.door.by_size(len(body), json_of, body) if body.strip() else {}
    if not isinstance(fields, dict) or set(fields) - {"xid", "timeout-s", "isolation"}:
        raise InvalidRequest(
            'a transaction is begun with nothing, or with {"xid": "1:6f72646572:", "timeout-s": 60, "isolation": "serializable"}'
        )
    xid, idle_s, isolation = fields.get("xid", ""), fields.get("timeout-s", 0), fields.get("isolation", READ_COMMITTED)
    if not isinstance(isolation, str):
        raise InvalidRequest("isolation is text")
    if not isinstance(xid, str) or isinstance(idle_s, bool) or not isinstance(idle_s, (int, float)):
        raise InvalidRequest("xid is text, and timeout-s a number of seconds")
    facts = await begin(call, xid, round(idle_s * 1000), call.key(), checked_isolation(isolation))
    txid = str(facts["txid"])
    headers: dict[str, str | int] = {"Location": location(txid), "Brokerha-Tx": txid}
    return answer.as_json({**facts, "state": "open"}, 201, headers)


async def post_step(call: Call) -> Answer:
    """Take one step of an open transaction."""
    txid, action = call.path_text("id"), call.path_text("action")
    parameters = call.parameters()
    if action == "operations":
        return await _operations(call, txid, parameters)
    if action == "accept":
        return await _accept(call, txid, parameters)
    by_hand = parameters.flag("by-hand")
    if by_hand or action == "forget":
        # An operator's decision can contradict the transaction's other stores.
        call.demand(ADMIN, None)
    if action == "commit":
        given = parameters.one("one-phase")
        one_phase = None if given is None else parameters.flag("one-phase")
        return committed(await commit(call, txid, one_phase=one_phase, by_hand=by_hand), txid)
    if action not in _ENDS:
        known = ", ".join(sorted({"operations", "accept", "commit", *_ENDS}))
        raise NotFound(f"there is no step {action!r} of a transaction; there are {known}")
    arguments: dict[str, Any] = {}
    if action in {"prepare", "rollback"}:
        arguments = {"session": session(call), **({"by_hand": True} if by_hand else {})}
    facts = await step(call, action, txid, arguments)
    return answer.as_json({**facts, "txid": txid}, 200, {"Brokerha-Tx": txid})


async def listed(call: Call) -> Answer:
    """Return the transactions that are not over."""
    call.demand(READ, None)
    return answer.as_json(await step(call, "list", "", {}))


async def staged(call: Call) -> Answer:
    """Return the large transactions with staged parts."""
    return result(await read(call, "staged", "", {}))


async def _operations(call: Call, txid: str, parameters: Parameters) -> Answer:
    media_type = call.body_type(MSGPACK, JSON, what="operations")
    body = await call.body()
    read = operations_of_json if media_type == JSON else msgpack_of
    operations: Any = await call.door.by_size(len(body), read, body)
    if isinstance(operations, (list, tuple)):
        await demand_operations(call, [tuple(each) for each in operations if isinstance(each, (list, tuple))])
    facts = await step(call, "operations", txid, {"first": _first(parameters), "operations": operations})
    return answer.as_json({"txid": txid, "count": facts["count"]}, 200, {"Brokerha-Tx": txid})


async def _accept(call: Call, txid: str, parameters: Parameters) -> Answer:
    queue = parameters.one("queue")
    if not queue:
        raise InvalidRequest("name the queue to take from: ?queue=")
    call.demand(WRITE, (QUEUE, queue))
    message_type(call)
    wait_ms = seconds(parameters, "wait-s", WAIT_MOST_S)
    arguments = {
        "first": _first(parameters), "queue": queue, "count": parameters.number("count", 1), "wait_ms": wait_ms,
    }  # fmt: skip
    facts = await step(call, "accept", txid, arguments, wait_ms)
    return messages(call, facts["messages"], {"Brokerha-Tx": txid}, txid=txid, count=facts["count"])


def _first(parameters: Parameters) -> int | None:
    first = parameters.one("first")
    return None if first is None else natural(first, "first")


SIGN_OF_LIFE_S = 5.0


async def post(call: Call) -> Answer:
    """Submit one complete transaction, or, without a list of operations, open one."""
    media_type = call.body_type("", MSGPACK, JSON, what="operations")
    txid = begin_write(call)
    body = await call.body()
    if media_type != MSGPACK and not body.removeprefix(BOM_UTF8).lstrip().startswith(b"["):
        return await begin_open(call, body)
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
    return answer.as_json({**outcome, "reason": readable_reason(call, outcome["reason"])})


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

    replies = Replies(
        await call.door.parsing(is_plain(body), submit_all), [txid for txid, _ in writes], partial(readable_reason, call)
    )
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

    def __init__(self, submitted: list[Future[Reply] | Reply], txids: list[TxId], readable: Callable[[str], str]) -> None:
        """``readable`` returns a reason as this user may read it."""
        self._readable = readable
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
            yield self._packed(arrived)
            if count and loop.time() >= deadline:
                reason = "the node did not answer in time"
                yield self._packed([Reply(0, txid, UNKNOWN, 0, "OutcomeUnknown", reason) for txid in self._open])
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

    def _packed(self, replies: list[Reply]) -> bytes:
        return encode_replies([(each.txid, each.status, each.lsn, each.error, self._readable(each.reason)) for each in replies])
