"""Transactions over several stores, step by step (the one-request form is in transactions.py).

    POST /tx                       {"xid", "timeout-s", "isolation"}, or nothing     201, Location: /tx/{id}
    POST /tx/{id}/operations       a list of operations, JSON or msgpack; ?first=N makes a retry safe
    POST /tx/{id}/accept           ?queue=&count=&wait-s=&first=        takes messages, and locks them until the end
    POST /tx/{id}/ping             keeps it open
    POST /tx/{id}/prepare          first phase, of one with an xid
    POST /tx/{id}/commit           ?one-phase=  ?by-hand=              by hand: for admins
    POST /tx/{id}/rollback         ?by-hand=
    POST /tx/{id}/forget           ends the report of a decision by hand; for admins
    GET  /tx/{id}                  the outcome
    GET  /tx                       all that are not over
    GET  /cluster/staged           large transactions with staged parts (model/reserved/staging.py)

A read with the header ``Brokerha-Transaction: {id}`` shows the state with the operations so far. Everything happens at the master
that began the transaction.
"""

from __future__ import annotations

from typing import Any

from brokerha.http.data import stepping
from brokerha.http.data.keys import json_of, msgpack_of, operations_of_json
from brokerha.http.door import answer
from brokerha.http.door.answer import JSON, MSGPACK, Answer
from brokerha.http.door.call import Call, Parameters, natural
from brokerha.http.door.passing import read, result
from brokerha.http.guard.rights import demand_operations
from brokerha.http.guard.users import ADMIN, READ, WRITE
from brokerha.model.errors import InvalidRequest, NotFound
from brokerha.model.operation_checks import QUEUE
from brokerha.model.outside.isolation import READ_COMMITTED, checked_isolation

WAIT_MOST_S = 3600.0
_ENDS = frozenset({"prepare", "rollback", "ping", "forget"})


async def begin(call: Call, body: bytes) -> Answer:
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
    facts = await stepping.begin(call, xid, round(idle_s * 1000), call.key(), checked_isolation(isolation))
    txid = str(facts["txid"])
    headers: dict[str, str | int] = {"Location": stepping.location(txid), "Brokerha-Tx": txid}
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
        return stepping.committed(await stepping.commit(call, txid, one_phase=one_phase, by_hand=by_hand), txid)
    if action not in _ENDS:
        known = ", ".join(sorted({"operations", "accept", "commit", *_ENDS}))
        raise NotFound(f"there is no step {action!r} of a transaction; there are {known}")
    arguments: dict[str, Any] = {}
    if action in {"prepare", "rollback"}:
        arguments = {"session": stepping.session(call), **({"by_hand": True} if by_hand else {})}
    facts = await stepping.step(call, action, txid, arguments)
    return answer.as_json({**facts, "txid": txid}, 200, {"Brokerha-Tx": txid})


async def listed(call: Call) -> Answer:
    """Return the transactions that are not over."""
    call.demand(READ, None)
    return answer.as_json(await stepping.step(call, "list", "", {}))


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
    facts = await stepping.step(call, "operations", txid, {"first": _first(parameters), "operations": operations})
    return answer.as_json({"txid": txid, "count": facts["count"]}, 200, {"Brokerha-Tx": txid})


async def _accept(call: Call, txid: str, parameters: Parameters) -> Answer:
    queue = parameters.one("queue")
    if not queue:
        raise InvalidRequest("name the queue to take from: ?queue=")
    call.demand(WRITE, (QUEUE, queue))
    stepping.message_type(call)
    wait_ms = stepping.seconds(parameters, "wait-s", WAIT_MOST_S)
    arguments = {
        "first": _first(parameters), "queue": queue, "count": parameters.number("count", 1), "wait_ms": wait_ms,
    }  # fmt: skip
    facts = await stepping.step(call, "accept", txid, arguments, wait_ms)
    return stepping.messages(call, facts["messages"], {"Brokerha-Tx": txid}, txid=txid, count=facts["count"])


def _first(parameters: Parameters) -> int | None:
    first = parameters.one("first")
    return None if first is None else natural(first, "first")
