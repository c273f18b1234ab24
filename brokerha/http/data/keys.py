"""Key-value tables: ``/kv/{table}/{key}`` for one key, ``/kv/{table}`` for a range and a group of changes; ``/kv`` lists them.

A key is everything after the table, percent-decoded once: it can hold any byte, also ``/``. A value is the unchanged body. ``ETag``
names a value by its content; it saves a transfer (``If-None-Match``), and protects from overwriting. With ``If-Match: <etag>`` a
write takes place only if the key still has that value at the write's place in the order, with ``If-None-Match: *`` only if there is
no such key; otherwise 412. ``/snapshots/{name}`` keeps the content of tables; ``/kv/...?snapshot=`` reads it.
"""

from __future__ import annotations

import base64
import binascii
import json
from codecs import BOM_UTF8
from typing import Any, Final

import msgpack

from brokerha.http.door.answer import JSON, MSGPACK, Answer
from brokerha.http.door.call import Call
from brokerha.http.door.passing import age_of, begin_write, done, read, result, write
from brokerha.http.guard import demand_operations, only_readable
from brokerha.ingress.rdf_bodies import utf8
from brokerha.model.errors import Conflict, InvalidRequest, TooLarge
from brokerha.model.etags import etag_of, is_etag
from brokerha.model.ids import TxId
from brokerha.model.operation_checks import TABLE
from brokerha.model.operations import OPERATIONS_LIMIT, VALUE_TOO_LARGE, Operation
from brokerha.model.outside.foreign_json import ITEMS_LIMIT, parse_foreign_json
from brokerha.model.outside.unpacking import BROKEN, unpack_foreign
from brokerha.model.requests import RANGE_ROWS

# ---- Keys, values, ranges and operations as JSON and msgpack.
#
# Keys and values are bytes. In JSON a field ``key`` or ``value`` is text (its UTF-8 bytes), and ``key_base64`` or ``value_base64``
# any bytes. Both are read, and text is written when the bytes are UTF-8. A row of a range can be sent back unchanged, with an added
# ``op``.
#
#     range   [{"key": "sku-1", "value": "9.90"}, {"key_base64": "/w==", "value": ""}]
#     group   [{"op": "put", "key": "sku-1", "value": "9.90"}, {"op": "delete", "key": "sku-2"}]
#             {"op": "expect", "key": "sku-1", "etag": ""} requires that ETag in the state before, or no such key
#
#     msgpack, range   [[key, value], …]
#     msgpack, group   [["put", key, value], ["delete", key], ["expect", key, etag], …]
#
# Operations are the lists of model/operations.py, where bytes are text or ``{"base64": …}`` in JSON.

OPERATIONS_ITEMS_LIMIT = 8 * OPERATIONS_LIMIT
"""Most items in JSON of a transaction with the most operations: each is a list of four, and two of them can be objects."""

_FIELDS: dict[str, tuple[str, ...]] = {"put": ("key", "value"), "delete": ("key",), "expect": ("key",)}
_OPERATIONS = {"put": "put", "delete": "delete", "expect": "expect-key"}
"""Changes of a group, and their operations."""
_BYTES_OF = {"put": (2, 3), "delete": (2,), "publish": (3,), "piece": (1,), "expect-key": (2,), "expect-range": (2, 3, 4)}
"""Indexes of the items of an operation that are bytes."""


def group_of_json(body: bytes, table: str) -> list[Operation]:
    """Parse the operations of a group in JSON. Raises InvalidRequest, which names the change."""
    changes = json_of(body, OPERATIONS_ITEMS_LIMIT)
    if not isinstance(changes, list):
        raise InvalidRequest('a group is a list such as [{"op": "put", "key": "a", "value": "1"}, {"op": "delete", "key": "b"}]')
    return [_change_of_json(change, number, table) for number, change in enumerate(changes, 1)]


def group_of_msgpack(body: bytes, table: str) -> list[Operation]:
    """Parse the operations of a group in msgpack; the transaction checks their shape. Raises InvalidRequest."""
    changes = msgpack_of(body)
    if not isinstance(changes, tuple) or not all(isinstance(change, tuple) and change for change in changes):
        raise InvalidRequest('a group is a list such as [["put", key, value], ["delete", key]]')
    if any(not isinstance(change[0], str) or change[0] not in _OPERATIONS for change in changes):
        raise InvalidRequest("a change of a group is put or delete, or expect")
    return [(_OPERATIONS[change[0]], table, *change[1:]) for change in changes]


def operations_of_json(body: bytes) -> list[Operation]:
    r"""Parse operations in JSON; the transaction checks their shape. Raises InvalidRequest.

    >>> operations_of_json(b'[["put", "t", "key", {"base64": "/w=="}]]')
    [('put', 't', b'key', b'\xff')]
    """
    found = json_of(body, OPERATIONS_ITEMS_LIMIT)
    if not isinstance(found, list) or not all(isinstance(operation, list) for operation in found):
        raise InvalidRequest('a transaction is a list of operations such as [["put", "table", "key", "value"]]')
    for number, items in enumerate(found, 1):
        for place in _BYTES_OF.get(str(items[0]) if items else "", ()):
            if place < len(items):
                items[place] = bytes_of_json(items[place], f"operation {number}: item {place + 1}")
    return [tuple(items) for items in found]


def row_as_json(key: bytes, value: bytes) -> dict[str, str]:
    """Return one row of a range as plain data for JSON."""
    return {**field("key", key), **field("value", value)}


def range_as_json(packed: bytes) -> bytes:
    """Convert a worker's packed range to JSON."""
    rows = msgpack.unpackb(packed, use_list=False)
    return json.dumps([row_as_json(key, value) for key, value in rows], ensure_ascii=False).encode()


def first_rows(packed: bytes) -> bytes:
    """Return a packed range unchanged if it has at most `RANGE_ROWS` keys, else those."""
    rows = msgpack.unpackb(packed, use_list=False)
    cut: bytes = msgpack.packb(rows[:RANGE_ROWS]) if len(rows) > RANGE_ROWS else packed
    return cut


def bytes_of_json(value: Any, what: str) -> bytes:
    """Return the bytes of a text, or of ``{"base64": …}``. Raises InvalidRequest."""
    if isinstance(value, str):
        return _text_bytes(value, what)
    if isinstance(value, dict) and list(value) == ["base64"]:
        return _base64_bytes(value["base64"], what)
    raise InvalidRequest(f'{what} is text, or {{"base64": "…"}} for any bytes')


def json_of(body: bytes, items_limit: int = ITEMS_LIMIT) -> Any:
    """Parse a JSON body; RFC 8259 lets readers ignore a byte order mark. Raises InvalidRequest, TooLarge."""
    return parse_foreign_json(utf8(body.removeprefix(BOM_UTF8), "the body"), items_limit)


def msgpack_of(body: bytes) -> Any:
    """Parse a msgpack body. Raises InvalidRequest."""
    try:
        return unpack_foreign(body)
    except BROKEN as error:
        raise InvalidRequest(f"the body is not msgpack: {error or type(error).__name__}") from None


def _change_of_json(change: Any, number: int, table: str) -> Operation:
    if not isinstance(change, dict):
        raise InvalidRequest(f'change {number} is an object such as {{"op": "put", "key": "a", "value": "1"}}')
    kind = change.get("op")
    fields = _FIELDS.get(str(kind))
    if fields is None:
        raise InvalidRequest(f'change {number}: "op" is "put", "delete" or "expect", not {kind!r}')
    etag = [change.get("etag")] if kind == "expect" else []
    if etag and not isinstance(etag[0], str):
        raise InvalidRequest(f'change {number}: give "etag", the ETag that GET gave, or "" for no such key')
    unknown = set(change) - {"op", *(("etag",) if etag else ())} - {name + ending for name in fields for ending in ("", "_base64")}
    if unknown:
        raise InvalidRequest(f"change {number}: {kind} does not take {min(unknown)!r}")
    return (_OPERATIONS[str(kind)], table, *[_field_bytes(change, name, number) for name in fields], *etag)


def _field_bytes(change: dict[str, Any], name: str, number: int) -> bytes:
    coded = f"{name}_base64"
    if (name in change) == (coded in change):
        raise InvalidRequest(f"change {number}: give {name!r} (text) or {coded!r}, one of them")
    what = f"change {number}: {name if name in change else coded}"
    return _text_bytes(change[name], what) if name in change else _base64_bytes(change[coded], what)


def _text_bytes(value: Any, what: str) -> bytes:
    try:
        if isinstance(value, str):
            return value.encode()
    except UnicodeEncodeError:  # A lone surrogate, which JSON can write and UTF-8 cannot.
        pass
    raise InvalidRequest(f"{what} is text in UTF-8")


def _base64_bytes(value: Any, what: str) -> bytes:
    try:
        if isinstance(value, str):
            return base64.b64decode(value.encode(), validate=True)
    except (binascii.Error, ValueError):
        pass
    raise InvalidRequest(f"{what} is not base64")


def field(name: str, data: bytes) -> dict[str, str]:
    """Return bytes as a field of an object: text, or ``NAME_base64``."""
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


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
    is_cut = parameters.one("limit") is None
    arguments = {
        "prefix": parameters.raw("prefix"),
        "from": parameters.raw("from"),
        "to": parameters.raw("to"),
        "limit": RANGE_ROWS + 1 if is_cut else parameters.number("limit", 0),
        "reverse": parameters.flag("reverse"),
        **_past(call),
    }
    outcome = await read(call, "range", call.path_text("table"), arguments)
    body = await call.door.by_size(len(outcome.body), first_rows, outcome.body) if is_cut else outcome.body
    more = {} if len(body) == len(outcome.body) else {"Brokerha-More": "true"}
    if media_type == JSON:
        body = await call.door.by_size(len(body), range_as_json, body)
    answer = result(outcome._replace(content_type=media_type, body=body))
    answer.headers = {**answer.headers, **more}
    return answer


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
    except Conflict:
        if any(operation[0] == "expect-key" for operation in operations):
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


# ---- The control suite: list checks, add and remove them, as writes like any other.
#
#     PUT /cluster/control/no-orphans      {"kind": "ask", "target": "main", "text": "ASK { ... }", "expected": true}
#
# ``expected`` is the text of model/control.py; for a query also its plain form, a truth value or a list of rows.

_CHECK_FIELDS: Final = ("kind", "target", "text", "expected")


async def get_checks(call: Call) -> Answer:
    """Return all checks."""
    return result(await read(call, "control", "", {}))


async def put_check(call: Call) -> Answer:
    """Add a check, or replace that of the same name. Rejected when it does not hold now."""
    txid = begin_write(call)
    call.body_type(JSON, what="a check")
    kind, target, text, expected = _fields_of_check(await _json(call))
    return done(await write(call, [("control-add", call.path_text("name"), kind, target, text, expected)], txid))


async def delete_check(call: Call) -> Answer:
    """Remove a check. Rejected when none has this name."""
    txid = begin_write(call)
    return done(await write(call, [("control-remove", call.path_text("name"))], txid))


async def _json(call: Call) -> Any:
    body = await call.body()
    return await call.door.by_size(len(body), json_of, body)


def _fields_of_check(body: Any) -> list[str]:
    if not isinstance(body, dict) or set(body) != set(_CHECK_FIELDS):
        raise InvalidRequest(f"a check is a JSON object with {', '.join(_CHECK_FIELDS)}")
    if isinstance(body["expected"], (bool, list)):
        body = {**body, "expected": json.dumps(body["expected"])}
    for name in _CHECK_FIELDS:
        if not isinstance(body[name], str):
            raise InvalidRequest(f"{name} of a check is text")
    return [body[name] for name in _CHECK_FIELDS]
