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

from brokerha.http.door import answer
from brokerha.http.door.answer import JSON, MSGPACK, Answer
from brokerha.http.door.call import Call, Parameters
from brokerha.model.errors import InvalidRequest, NotFound, OutcomeUnknown, ReadOnly, TimedOut
from brokerha.model.ids import TxId, is_tx_id
from brokerha.model.outside.isolation import READ_COMMITTED
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
