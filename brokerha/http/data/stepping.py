"""One step of an open transaction on its way to the node, and its answer (ports.Front.transact).

A step without an answer in time is `OutcomeUnknown`, with the transaction's id, if it can end the transaction. Any other is
`TimedOut` and can be sent again. The header ``Brokerha-Session`` names a transaction's user; requests without it share one session.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

import msgpack

from brokerha.http.data.keys import json_of, msgpack_of, operations_of_json
from brokerha.http.door import answer
from brokerha.http.door.answer import JSON, MSGPACK, Answer
from brokerha.http.door.call import Call, Parameters, natural
from brokerha.http.door.passing import read, result
from brokerha.http.guard import demand_operations
from brokerha.http.users import ADMIN, READ, WRITE
from brokerha.model.errors import InvalidRequest, NotFound, OutcomeUnknown, ReadOnly, TimedOut
from brokerha.model.ids import TxId, is_tx_id
from brokerha.model.operation_checks import QUEUE
from brokerha.model.outside.isolation import READ_COMMITTED, checked_isolation
from brokerha.model.requests import APPLIED_LEVEL
from brokerha.model.reserved.pieces import pieces_of, plain_type
from brokerha.nodes.front.checking import is_plain

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


# ---- Transactions over several stores, step by step (the one-request form is in transactions.py).
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


async def post(call: Call) -> Answer:
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
