"""Key-value tables: ``/kv/{table}/{key}`` for one key, ``/kv/{table}`` for a range and a group of changes; ``/kv`` lists them.

A key is everything after the table, percent-decoded once: it can hold any byte, also ``/``. A value is the unchanged body. ``ETag``
names a value by its content; it saves a transfer (``If-None-Match``), and protects from overwriting. With ``If-Match: <etag>`` a
write takes place only if the key still has that value at the write's place in the order, with ``If-None-Match: *`` only if there is
no such key; otherwise 412. ``/snapshots/{name}`` keeps the content of tables; ``/kv/...?snapshot=`` reads it.
"""

from __future__ import annotations

import json

from brokerha.http.data.key_forms import group_of_json, group_of_msgpack, range_as_json
from brokerha.http.door.answer import JSON, MSGPACK, Answer
from brokerha.http.door.call import Call
from brokerha.http.door.passing import age_of, begin_write, done, read, result, write
from brokerha.http.guard.rights import demand_operations, only_readable
from brokerha.model.errors import InvalidRequest, Rejected, TooLarge
from brokerha.model.etags import etag_of, is_etag
from brokerha.model.ids import TxId
from brokerha.model.operation_checks import TABLE
from brokerha.model.operations import VALUE_TOO_LARGE, Operation

OCTETS = "application/octet-stream"


async def get(call: Call) -> Answer:
    """Return the value of a key; 404 when there is none."""
    outcome = await read(call, "get", call.path_text("table"), {"key": call.path_bytes("key"), **_past(call)})
    tag = etag_of(outcome.body)
    headers: dict[str, str | int] = {"ETag": tag, **age_of(outcome)}
    known = call.header(b"if-none-match")
    if known and (known == "*" or tag in known):
        return Answer(304, headers=headers)
    return Answer(200, outcome.body, OCTETS, headers)


def _past(call: Call) -> dict[str, object]:
    name = call.parameters().one("snapshot")
    return {} if name is None else {"snapshot": name}


def _begin_write(call: Call) -> TxId:
    if _past(call):
        raise InvalidRequest(
            "a snapshot shows what was, and nothing is written into it: leave ?snapshot= out to write the key as it is now"
        )
    return begin_write(call, takes_conditions=True)


async def put(call: Call) -> Answer:
    """Put a value."""
    txid = _begin_write(call)
    table, key = call.path_text("table"), call.path_bytes("key")
    condition = _condition(call, table, key)
    try:
        value = await call.body()
    except TooLarge:
        raise TooLarge(f"the value has more than {call.door.limits.body_limit_bytes} bytes: {VALUE_TOO_LARGE}") from None
    return await _write(call, [*condition, ("put", table, key, value)], txid)


async def delete(call: Call) -> Answer:
    """Delete a key; a missing key is no error."""
    txid = _begin_write(call)
    table, key = call.path_text("table"), call.path_bytes("key")
    return await _write(call, [*_condition(call, table, key), ("delete", table, key)], txid)


async def listed(call: Call) -> Answer:
    """Return the names of all tables that the caller can read."""
    outcome = await read(call, "tables", "", {})
    if call.user is not None:
        outcome = outcome._replace(body=json.dumps(only_readable(call, TABLE, json.loads(outcome.body))).encode())
    return result(outcome)


async def get_range(call: Call) -> Answer:
    """Return keys and values in key order."""
    media_type = call.format_of("a range", (JSON, MSGPACK))
    parameters = call.parameters()
    arguments = {
        "prefix": parameters.raw("prefix"),
        "from": parameters.raw("from"),
        "to": parameters.raw("to"),
        "limit": None if parameters.one("limit") is None else parameters.number("limit", 0),
        "reverse": parameters.flag("reverse"),
        **_past(call),
    }
    outcome = await read(call, "range", call.path_text("table"), arguments)
    if media_type == MSGPACK:
        return result(outcome)
    body = await call.door.by_size(len(outcome.body), range_as_json, outcome.body)
    return result(outcome._replace(content_type=JSON, body=body))


async def post_group(call: Call) -> Answer:
    """Apply several changes of one table as one transaction."""
    txid = _begin_write(call)
    readers = {JSON: group_of_json, MSGPACK: group_of_msgpack}
    media_type = call.body_type(*readers, what="a group")
    table = call.path_text("table")
    body = await call.body()
    operations = await call.door.by_size(len(body), readers[media_type], body, table)
    for header in (b"if-match", b"if-none-match"):
        if call.header(header):
            raise InvalidRequest(f'{header.decode().title()} is about one key: write {{"op": "expect", "key": …, "etag": …}}')
    return await _write(call, operations, txid)


async def _write(call: Call, operations: list[Operation], txid: TxId) -> Answer:
    await demand_operations(call, operations)
    try:
        return done(await write(call, operations, txid))
    except Rejected as error:
        if error.is_conflict:
            call.error_status = 412
        raise


def _condition(call: Call, table: str, key: bytes) -> list[Operation]:
    """Return the conditions of the headers on the key. Raises InvalidRequest for impossible ones."""
    match, none_match = call.header(b"if-match").strip(), call.header(b"if-none-match").strip()
    if match and none_match:
        raise InvalidRequest("If-Match and If-None-Match on one write: give one of them")
    if none_match:
        if none_match != "*":
            raise InvalidRequest("If-None-Match on a write is *: only if there is no such key")
        return [("expect-key", table, key, "")]
    if match and not is_etag(match):
        raise InvalidRequest(f"If-Match on a write is the one ETag that GET gave, with its quotes, not {match!r}")
    return [("expect-key", table, key, match)] if match else []


async def put_snapshot(call: Call) -> Answer:
    """Make a snapshot of each given ``table``, or of all. Rejected when the name is taken."""
    return await _write_named(call, ("snapshot", call.path_text("name"), *call.parameters().all("table")))


async def drop_snapshot(call: Call) -> Answer:
    """Drop a snapshot. Rejected when none has this name."""
    return await _write_named(call, ("drop-snapshot", call.path_text("name")))


async def _write_named(call: Call, operation: Operation) -> Answer:
    return await _write(call, [operation], begin_write(call))


async def listed_snapshots(call: Call) -> Answer:
    """Return all snapshots."""
    return result(await read(call, "snapshots", "", {}))
