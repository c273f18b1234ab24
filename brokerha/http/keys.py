"""Key-value tables: ``/kv/{table}/{key}`` for one key, ``/kv/{table}`` for a range and for a group of changes.

A key is everything behind the table, percent-encoding taken off once: it may hold ``/`` and any other byte. A value is
the body as it is. ``ETag`` names a value by its content; it saves sending it again (``If-None-Match``). Conditional writes
are refused, not ignored.
"""

from __future__ import annotations

import hashlib

from brokerha.http.accept import preferred
from brokerha.http.answer import JSON, MSGPACK, Answer
from brokerha.http.call import Call
from brokerha.http.key_forms import group_of_json, group_of_msgpack, range_as_json
from brokerha.http.passing import begin_write, done, read, result, write
from brokerha.model.errors import InvalidRequest, NotAcceptable, UnsupportedType

OCTETS = "application/octet-stream"


async def get(call: Call) -> Answer:
    """The value of a key; 404 when there is none."""
    outcome = await read(call, "get", call.path_text("table"), {"key": call.path_bytes("key")})
    tag = f'"{hashlib.blake2b(outcome.body, digest_size=16).hexdigest()}"'
    headers: dict[str, str | int] = {"ETag": tag, "Brokerha-Lsn": outcome.lsn}
    known = call.header(b"if-none-match")
    if known and (known == "*" or tag in known):
        return Answer(304, headers=headers)
    return Answer(200, outcome.body, OCTETS, headers)


async def put(call: Call) -> Answer:
    """Put a value."""
    txid = begin_write(call)
    _refuse_conditions(call)
    value = await call.body()
    return done(await write(call, [("put", call.path_text("table"), call.path_bytes("key"), value)], txid))


async def delete(call: Call) -> Answer:
    """Delete a key; deleting one that is not there changes nothing and is no error."""
    txid = begin_write(call)
    _refuse_conditions(call)
    return done(await write(call, [("delete", call.path_text("table"), call.path_bytes("key"))], txid))


async def get_range(call: Call) -> Answer:
    """Keys and values in key order."""
    media_type = preferred(call.accept(), (JSON, MSGPACK))
    if media_type is None:
        raise NotAcceptable(f"a range can be had as {JSON} or {MSGPACK}")
    parameters = call.parameters()
    arguments = {
        "prefix": parameters.raw("prefix"),
        "from": parameters.raw("from"),
        "to": parameters.raw("to"),
        "limit": None if parameters.one("limit") is None else parameters.number("limit", 0),
        "reverse": parameters.flag("reverse"),
    }
    outcome = await read(call, "range", call.path_text("table"), arguments)
    if media_type == MSGPACK:
        return result(outcome)
    body = await call.door.by_size(len(outcome.body), range_as_json, outcome.body)
    return result(outcome._replace(content_type=JSON, body=body))


async def post_group(call: Call) -> Answer:
    """Several changes of one table, as one transaction."""
    txid = begin_write(call)
    readers = {JSON: group_of_json, MSGPACK: group_of_msgpack}
    media_type = call.media_type()
    if media_type not in readers:
        raise UnsupportedType(f"content type {media_type or 'none'!r}: send a group as {JSON} or {MSGPACK}")
    table = call.path_text("table")
    body = await call.body()
    operations = await call.door.by_size(len(body), readers[media_type], body, table)
    return done(await write(call, operations, txid))


def _refuse_conditions(call: Call) -> None:
    for name in (b"if-match", b"if-none-match"):
        if call.header(name):
            raise InvalidRequest(f"{name.decode().title()} on a write is not supported in this version: leave it out")
